from typing import ClassVar

import django.utils.timezone
from django.db import migrations, models

PENDING = models.Q(due_at__isnull=False)
FAILING = models.Q(due_at__isnull=False, tries__gt=0)
KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    dependencies: ClassVar = [("sessions_app", "0035_user_deletions")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="ProcessRecord",
            fields=[
                ("id", KEY.clone()),
                (
                    "role",
                    models.CharField(choices=[("server", "server"), ("worker", "worker")], max_length=10),
                ),
                ("host", models.CharField(max_length=300)),
                ("pid", models.BigIntegerField()),
                ("started", models.FloatField()),
                ("version", models.CharField(max_length=40)),
                ("began_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "process",
                "verbose_name_plural": "processes",
                "constraints": [
                    models.UniqueConstraint(fields=("host", "pid", "started"), name="one_process_record")
                ],
            },
        ),
        migrations.CreateModel(
            name="BackupRecord",
            fields=[
                ("id", KEY.clone()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("host", models.CharField(max_length=300)),
                ("place", models.TextField()),
                ("size", models.BigIntegerField(default=0)),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("made", "complete"),
                            ("damaged", "complete, but the store is damaged"),
                            ("failed", "failed"),
                        ],
                        max_length=10,
                    ),
                ),
                ("is_verified", models.BooleanField(blank=True, null=True)),
                ("verified_at", models.DateTimeField(blank=True, null=True)),
                ("detail", models.TextField(blank=True, default="")),
            ],
            options={"verbose_name": "backup"},
        ),
        # The oldest pending delivery is read every few seconds, however many there are.
        migrations.AddIndex(
            "delivery", models.Index(fields=["since"], name="delivery_waiting", condition=PENDING)
        ),
        migrations.AddIndex(
            "delivery", models.Index(fields=["since"], name="delivery_failing", condition=FAILING)
        ),
    ]
