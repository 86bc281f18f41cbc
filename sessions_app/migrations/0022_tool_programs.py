from __future__ import annotations

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("sessions_app", "0021_unfinished_reasoning")]

    operations: ClassVar = [
        migrations.AlterModelOptions(
            name="usersettings",
            options={
                "permissions": [
                    ("run_tool_programs", "Can have tool servers that are programs on this server")
                ],
                "verbose_name_plural": "user settings",
            },
        ),
    ]
