from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def rename(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Let the permissions that exist be shown with the new word; their codenames and grants stay."""
    _replace(apps, schema_editor, "receiver", "endpoint")


def rename_back(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Let them be shown with the former word."""
    _replace(apps, schema_editor, "endpoint", "receiver")


def _replace(apps: Any, schema_editor: BaseDatabaseSchemaEditor, old: str, new: str) -> None:
    rows = apps.get_model("auth", "Permission").objects.using(schema_editor.connection.alias)
    for row in rows.filter(content_type__app_label="sessions_app", content_type__model="receiver"):
        row.name = row.name.replace(old, new)
        row.save(update_fields=["name"])


class Migration(migrations.Migration):
    # Only the word that people read changes: the model and its table keep their name.
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("sessions_app", "0018_loop_without_desired"),
    ]

    operations = [
        migrations.AlterModelOptions(name="receiver", options={"verbose_name": "endpoint"}),
        migrations.RunPython(rename, rename_back, elidable=True),
    ]
