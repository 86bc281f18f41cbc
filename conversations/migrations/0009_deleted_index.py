from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0008_children_index"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)),
                fields=["owner", "-deleted_at", "-id"],
                name="conversation_deleted",
            ),
        ),
    ]
