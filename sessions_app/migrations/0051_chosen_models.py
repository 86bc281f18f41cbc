import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0050_files_of_messages"),
    ]

    operations = [
        migrations.AddField(
            model_name="agentloop",
            name="turn_model",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="runoptions",
            name="for_next_message",
            field=models.JSONField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="runoptions",
            name="provider",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddField(
            model_name="runoptions",
            name="reasoning_effort",
            field=models.CharField(
                blank=True,
                choices=[("low", "low"), ("medium", "medium"), ("high", "high")],
                db_default="",
                default="",
                max_length=20,
            ),
        ),
        migrations.AddField(
            model_name="runoptions",
            name="temperature",
            field=models.FloatField(
                blank=True,
                help_text="How freely a model chooses its words; empty for its own default.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(2.0),
                ],
            ),
        ),
        migrations.AlterField(
            model_name="userdocument",
            name="kind",
            field=models.CharField(
                choices=[
                    ("settings", "Settings"),
                    ("model_profile", "Model Profile"),
                    ("agent_profile", "Agent Profile"),
                    ("model_notes", "Model Notes"),
                ],
                max_length=20,
            ),
        ),
    ]
