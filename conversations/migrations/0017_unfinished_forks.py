"""Forks whose events are still being copied."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0016_purges"),
    ]

    operations = [
        migrations.CreateModel(
            name="UnfinishedFork",
            fields=[
                (
                    "conversation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="conversations.conversation",
                    ),
                ),
                ("through", models.BigIntegerField()),
                ("touched_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    ]
