"""Tables, columns, permissions and constraints under the nouns of today; every row stays."""

from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import CASCADE

RENAMED = (("receiver", "endpoint"), ("notedfact", "recordedchange"))
CHANGE_SHOWN = ("noted fact", "recorded change")
MARKS = "sessions_app_mark"
INDEXES_OF_MARKS = {
    "sessions_app_readmark_pkey": "sessions_app_mark_pkey",
    "sessions_app_readmark_conversation_id_1bd3785a": "sessions_app_mark_conversation_id_353da608",
    "sessions_app_readmark_user_id_dc2273ea": "sessions_app_mark_user_id_aa105316",
}
CONSTRAINTS_OF_MARKS = {
    "sessions_app_readmar_conversation_id_1bd3785a_fk_conversat": (
        "sessions_app_mark_conversation_id_353da608_fk_conversat"
    ),
    "sessions_app_readmark_user_id_dc2273ea_fk_auth_user_id": (
        "sessions_app_mark_user_id_aa105316_fk_auth_user_id"
    ),
}


def rename_permissions(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Rename the permissions that exist, so that they stay granted."""
    rows = apps.get_model("auth", "Permission").objects.using(schema_editor.connection.alias)
    for old, new in RENAMED:
        for row in rows.filter(content_type__app_label="sessions_app", codename__endswith=f"_{old}"):
            row.codename = row.codename.replace(old, new)
            row.name = row.name.replace(*CHANGE_SHOWN)
            row.save(update_fields=["codename", "name"])


def rename_of_marks(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Rename what PostgreSQL still calls by the first name of the marks' table; new databases have none."""
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        for old, new in INDEXES_OF_MARKS.items():
            cursor.execute(f"ALTER INDEX IF EXISTS {old} RENAME TO {new}")
        cursor.execute(
            "ALTER SEQUENCE IF EXISTS sessions_app_readmark_id_seq RENAME TO sessions_app_mark_id_seq"
        )
        cursor.execute("SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass", [MARKS])
        for (old,) in cursor.fetchall():
            if old in CONSTRAINTS_OF_MARKS:
                cursor.execute(f"ALTER TABLE {MARKS} RENAME CONSTRAINT {old} TO {CONSTRAINTS_OF_MARKS[old]}")


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("sessions_app", "0035_squashed_0037_user_documents"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(rename_of_marks),
        migrations.RemoveConstraint("mark", "read_mark_once"),
        migrations.AddConstraint(
            "mark", models.UniqueConstraint(fields=("user", "conversation"), name="mark_once")
        ),
        migrations.RemoveConstraint("receiver", "receiver_hook_once"),
        migrations.RenameModel("Receiver", "Endpoint"),
        migrations.AlterField(
            "endpoint",
            "owner",
            models.ForeignKey(
                settings.AUTH_USER_MODEL, CASCADE, blank=True, null=True, related_name="endpoints"
            ),
        ),
        migrations.RenameField("endpoint", "fact_position", "change_position"),
        migrations.AddConstraint(
            "endpoint",
            models.UniqueConstraint(
                condition=models.Q(("kind", "hook")), fields=("name",), name="endpoint_hook_once"
            ),
        ),
        migrations.RemoveConstraint("delivery", "delivery_once"),
        migrations.RemoveIndex("delivery", "delivery_due"),
        migrations.RenameField("delivery", "receiver", "endpoint"),
        migrations.RenameField("delivery", "told", "through_change"),
        migrations.RenameField("delivery", "known_fact", "known_change"),
        migrations.AddConstraint(
            "delivery", models.UniqueConstraint(fields=("endpoint", "conversation"), name="delivery_once")
        ),
        migrations.AddIndex(
            "delivery",
            models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["endpoint", "due_at"],
                name="delivery_due",
            ),
        ),
        migrations.RenameModel("NotedFact", "RecordedChange"),
        migrations.AlterField(
            "recordedchange",
            "conversation",
            models.ForeignKey("conversations.conversation", CASCADE, related_name="recorded_changes"),
        ),
        migrations.RenameField("recordedchange", "fact", "kind"),
        migrations.RenameField("recordedchange", "noted_at", "recorded_at"),
        migrations.RunPython(rename_permissions),
    ]
