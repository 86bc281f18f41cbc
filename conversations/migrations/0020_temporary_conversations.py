"""Temporary conversations: when each of them is purged."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("conversations", "0017_squashed_0019_list_orders")]

    operations = [
        # Empty in the rows that are there, so no table is written anew, and processes of the release before
        # go on.
        migrations.AddField(
            "conversation", "expires_at", models.DateTimeField(blank=True, editable=False, null=True)
        ),
        migrations.AddIndex(
            "conversation",
            models.Index(
                condition=models.Q(("expires_at__isnull", False), ("purged_at__isnull", True)),
                fields=["owner", "expires_at"],
                name="conversation_temporary",
            ),
        ),
    ]
