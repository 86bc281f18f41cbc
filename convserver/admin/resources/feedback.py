"""What users think of conversations and of single answers."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from convserver.admin import cells, filters
from convserver.admin.base import ReadOnlyAdmin
from convserver.admin.cells import column
from sessions_app.models import Feedback, Polarity


@admin.register(Feedback)
class FeedbackAdmin(ReadOnlyAdmin[Feedback]):
    """The feedback of all users, the newest first."""

    list_display = fields = ("given", "opinion", "where", "place", "reason", "who", "audience")
    list_display_links = None
    list_filter = (
        filters.form_of(
            conversation=filters.text("Conversation", "conversation__public_id"),
            user=filters.text("Owner", "conversation__owner__username"),
            polarity=filters.choice("Opinion", Polarity.choices, "polarity"),
        ),
    )
    list_select_related = ("conversation", "conversation__owner")

    given = column("Given (UTC)", "created_at", cells.moment)
    opinion = column("Opinion", lambda feedback: feedback.get_polarity_display())
    where = column("Conversation", "conversation", cells.link)
    place = column("Answer", "seq")
    who = column("Owner", "conversation.owner.username")
    audience = column("Audience", lambda feedback: feedback.get_permissions_display())

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feedback]:
        """Return the rows but for those of temporary conversations, which are to be forgotten."""
        return super().get_queryset(request).filter(conversation__expires_at__isnull=True)
