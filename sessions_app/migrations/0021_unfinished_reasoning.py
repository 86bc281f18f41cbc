from django.db import migrations, models


class Migration(migrations.Migration):
    # With a default of the database, so that processes of the earlier release can go on writing rows.
    dependencies = [("sessions_app", "0020_model_use")]

    operations = [
        migrations.AddField(
            model_name="unfinishedanswer",
            name="reasoning",
            field=models.TextField(db_default="", default=""),
        )
    ]
