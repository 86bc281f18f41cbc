from __future__ import annotations

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("conversations", "0012_stored_bytes"),
        ("sessions_app", "0025_input_receipts"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="agentloop",
            name="goes_on",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="agentloop",
            name="recoveries",
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name="ToolRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("turn_id", models.TextField()),
                ("call_id", models.TextField()),
                ("call_seq", models.BigIntegerField()),
                ("tool_call_id", models.TextField(blank=True, default="")),
                ("name", models.TextField()),
                ("digest", models.CharField(blank=True, default="", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waits for approval"),
                            ("approved", "may be run"),
                            ("rejected", "must not be run"),
                            ("started", "was started"),
                            ("unknown", "was started by a process that is gone"),
                            ("answered", "has its result"),
                        ],
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("key", models.CharField(max_length=36)),
                ("epoch", models.BigIntegerField(default=0)),
                ("attempt", models.CharField(blank=True, default="", max_length=36)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "conversation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="tool_runs",
                        to="conversations.conversation",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("conversation", "call_id"), name="tool_run_once")
                ],
            },
        ),
    ]
