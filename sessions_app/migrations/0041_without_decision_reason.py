from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    dependencies: ClassVar = [
        ("sessions_app", "0040_workspaces"),
    ]

    operations: ClassVar = [
        migrations.RemoveField(model_name="agentloop", name="decision_reason"),
    ]
