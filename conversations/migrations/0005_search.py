from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from conversations.search.fulltext import index


def create(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    index.create(schema_editor.connection)
    apps.get_model("conversations", "SearchProgress").objects.using(schema_editor.connection.alias).create()


def drop(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    index.drop(schema_editor.connection)


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0004_version_index"),
    ]

    operations = [
        migrations.CreateModel(
            name="SearchProgress",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("through", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.RunPython(create, drop),
    ]
