"""Feedback on single answers, with a reason."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0047_files_held_by_restores")]

    operations = [
        migrations.AddField("feedback", "seq", models.BigIntegerField(blank=True, null=True)),
        migrations.AddField("feedback", "reason", models.TextField(blank=True, db_default="", default="")),
        migrations.AddConstraint(
            "feedback",
            models.UniqueConstraint(
                condition=models.Q(("seq__isnull", False)),
                fields=("conversation", "seq"),
                name="feedback_once_of_an_answer",
            ),
        ),
    ]
