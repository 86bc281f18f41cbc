from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0005_search"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["conversation", "timestamp", "seq"], name="event_time"),
        ),
    ]
