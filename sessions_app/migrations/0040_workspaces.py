from typing import ClassVar

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import conversations.models.ids


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("conversations", "0017_squashed_0019_list_orders"),
        ("sessions_app", "0039_device_logins"),
    ]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Workspace",
            fields=[
                (
                    "conversation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="workspace_files",
                        serialize=False,
                        to="conversations.conversation",
                    ),
                ),
                (
                    "directory",
                    models.CharField(
                        default=conversations.models.ids.new_public_id, max_length=32, unique=True
                    ),
                ),
                ("bytes", models.BigIntegerField(default=0)),
                ("files", models.BigIntegerField(default=0)),
                ("charged", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
    ]
