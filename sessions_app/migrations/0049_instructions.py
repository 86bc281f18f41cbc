"""Instructions of users and of conversations for models."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0048_answer_feedback")]

    operations = [
        migrations.AddField("usersettings", "instructions", models.TextField(blank=True, null=True)),
        migrations.AddField(
            "runoptions", "instructions", models.TextField(blank=True, db_default="", default="")
        ),
    ]
