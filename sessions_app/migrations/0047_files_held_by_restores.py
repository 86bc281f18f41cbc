from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0046_allowed_tools"),
    ]

    operations = [
        migrations.AddField(
            model_name="agentloop",
            name="files_held_until",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
