from typing import Any

from django.db import migrations, models


def mark(apps: Any, schema_editor: Any) -> None:
    """Mark the setups that hold secrets already."""
    setups = apps.get_model("sessions_app", "AgentSetup").objects
    setups.exclude(shown_secrets={}).update(has_secrets=True)


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    dependencies = [
        ("conversations", "0004_version_index"),
        ("sessions_app", "0008_marks_drafts"),
    ]

    operations = [
        migrations.AddField(
            model_name="agentsetup",
            name="has_secrets",
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(mark, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            model_name="agentsetup",
            index=models.Index(
                condition=models.Q(("has_secrets", True)),
                fields=["conversation"],
                name="agent_setup_secrets",
            ),
        ),
        migrations.AddField(
            model_name="receiver",
            name="skipped_until",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
