from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("sessions_app", "0023_run_options")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="agentloop",
            name="turn_agent",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
