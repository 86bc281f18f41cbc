"""Forks that are still being copied, the search's words in another form, and the orders of lists."""

from django.db import migrations, models
from django.db.models import PROTECT
from django.db.models.functions import Coalesce

from conversations.models.list_orders import SortedTitle


class Migration(migrations.Migration):
    replaces = [
        ("conversations", "0017_unfinished_forks"),
        ("conversations", "0018_search_words_again"),
        ("conversations", "0019_list_orders"),
    ]
    dependencies = [("conversations", "0001_squashed_0016_purges")]

    operations = [
        migrations.CreateModel(
            "UnfinishedFork",
            [
                (
                    "conversation",
                    models.OneToOneField(
                        "conversations.conversation",
                        PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                    ),
                ),
                ("through", models.BigIntegerField()),
                ("touched_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        # It begins at 0, so every event is indexed again, in the background.
        migrations.AddField(
            "searchprogress", "words_through", models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.AddIndex(
            "conversation",
            models.Index(
                models.F("owner"),
                models.OrderBy(Coalesce("last_message_at", "created_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("deleted_at", None)),
                name="conversation_last_used",
            ),
        ),
        migrations.AddIndex(
            "conversation",
            models.Index(
                models.F("owner"),
                models.OrderBy(SortedTitle()),
                models.OrderBy(models.F("id")),
                condition=models.Q(("deleted_at", None)),
                name="conversation_by_title",
            ),
        ),
    ]
