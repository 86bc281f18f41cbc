from __future__ import annotations

from typing import Any

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


def date_what_was_seen(apps: Any, schema_editor: Any) -> None:
    """Note when the events were stored that users have seen: lists compare times, not places."""
    mark, event = apps.get_model("sessions_app", "Mark"), apps.get_model("conversations", "Event")
    seen = event.objects.filter(
        conversation_id=models.OuterRef("conversation_id"), seq=models.OuterRef("through")
    )
    marks = mark.objects.using(schema_editor.connection.alias).filter(through__gte=0)
    marks.update(through_at=models.Subquery(seen.values("received_at")[:1]))


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    dependencies = [
        ("conversations", "0004_version_index"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("sessions_app", "0007_loop_decided"),
    ]

    operations = [
        migrations.RenameModel("ReadMark", "Mark"),
        migrations.AlterField(
            "mark",
            "conversation",
            models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="marks",
                to="conversations.conversation",
            ),
        ),
        migrations.AlterField("mark", "through", models.BigIntegerField(default=-1)),
        migrations.AddField("mark", "through_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("mark", "pinned_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("mark", "archived_at", models.DateTimeField(blank=True, null=True)),
        migrations.RunPython(date_what_was_seen, migrations.RunPython.noop, elidable=True),
        migrations.AddIndex(
            "mark",
            models.Index(
                condition=models.Q(("pinned_at__isnull", False)),
                fields=["user", "-pinned_at"],
                name="mark_pinned",
            ),
        ),
        migrations.AddIndex(
            "mark",
            models.Index(
                condition=models.Q(("archived_at__isnull", False)),
                fields=["user", "conversation"],
                name="mark_archived",
            ),
        ),
        migrations.CreateModel(
            name="Draft",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("text", models.TextField(blank=True, default="")),
                ("images", models.JSONField(blank=True, default=list)),
                ("version", models.BigIntegerField()),
                ("updated_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "conversation",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drafts",
                        to="conversations.conversation",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["user", "updated_at"], name="draft_written")],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "conversation"), name="draft_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("conversation", None)),
                        fields=("user",),
                        name="draft_of_a_new_one_once",
                    ),
                    models.CheckConstraint(condition=models.Q(("version__gte", 1)), name="draft_version"),
                ],
            },
        ),
    ]
