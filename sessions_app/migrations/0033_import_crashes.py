from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("sessions_app", "0032_retention_policies")]

    operations: ClassVar = [
        migrations.AddField("importrun", "crashes", models.SmallIntegerField(default=0, db_default=0)),
        migrations.AddField("importrun", "crashed_at", models.BigIntegerField(default=0, db_default=0)),
    ]
