from typing import ClassVar

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("sessions_app", "0038_endpoints_and_changes"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="DeviceLogin",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("device_digest", models.CharField(max_length=64, unique=True)),
                ("user_digest", models.CharField(max_length=64, unique=True)),
                ("address", models.CharField(blank=True, max_length=100)),
                ("client", models.CharField(blank=True, max_length=100)),
                ("program", models.CharField(blank=True, max_length=200)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("approved", "Approved"),
                            ("denied", "Denied"),
                            ("used", "Used"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("interval_s", models.PositiveSmallIntegerField(default=5)),
                ("polled_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField(db_index=True)),
                ("token_name", models.CharField(blank=True, max_length=100)),
                ("token_scopes", models.CharField(blank=True, max_length=50)),
                ("token_expires_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="device_logins",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["client"], name="device_login_client")],
            },
        ),
    ]
