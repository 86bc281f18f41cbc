from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from conversations.search import titles


def create(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    titles.create(schema_editor.connection)


def drop(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    titles.drop(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0006_event_time_index"),
    ]

    operations = [
        migrations.CreateModel(
            name="TitleChange",
            fields=[("conversation_id", models.BigIntegerField(primary_key=True, serialize=False))],
        ),
        migrations.RunPython(create, drop),
    ]
