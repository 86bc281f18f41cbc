import django.db.models.deletion
from django.db import migrations, models

OLD = "conversations_conversation_parent_id_4f64bed3"
"""What Django had made of every row, most of which have no parent."""


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0007_title_index"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("parent__isnull", False)),
                fields=["parent", "owner"],
                name="conversation_children",
            ),
        ),
        # By itself, Django would write the whole table anew on SQLite.
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    f"DROP INDEX IF EXISTS {OLD}",
                    f"CREATE INDEX {OLD} ON conversations_conversation (parent_id)",
                )
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="conversation",
                    name="parent",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="conversations.conversation",
                    ),
                )
            ],
        ),
    ]
