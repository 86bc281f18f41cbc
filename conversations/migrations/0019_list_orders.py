"""Indexes for the orders in which people read their lists: last use and title."""

from django.conf import settings
from django.db import migrations, models
from django.db.models.functions import Coalesce

from conversations.models.list_orders import SortedTitle


class Migration(migrations.Migration):
    dependencies = [
        ("conversations", "0018_search_words_again"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                models.F("owner"),
                models.OrderBy(Coalesce("last_message_at", "created_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("deleted_at", None)),
                name="conversation_last_used",
            ),
        ),
        migrations.AddIndex(
            model_name="conversation",
            index=models.Index(
                models.F("owner"),
                models.OrderBy(SortedTitle()),
                models.OrderBy(models.F("id")),
                condition=models.Q(("deleted_at", None)),
                name="conversation_by_title",
            ),
        ),
    ]
