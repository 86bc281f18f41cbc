"""Search: titles and events of the user's conversations."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.access import Visitor
from conversations.cursors import KeyCursor
from conversations.dialects.columns import SOURCE_MAX_CHARS
from conversations.events import Kind
from conversations.models import Conversation, Version, shown_title
from conversations.search.fulltext import questions
from conversations.search.fulltext.questions import Question
from conversations.search.fulltext.search import Hit, Scope, SearchConditions, by_title, search
from convserver.api.native.shapes import NativeSearchPage, refusals
from convserver.api.native.view import ChoiceField, NativeView, checked
from convserver.api.scopes import WRITES
from convserver.pagination import PAGE_MAX
from convserver.serving.admission import Lane, in_lane
from sessions_app.live.status import ListedConversation, in_status, iso, listed, shown_in
from sessions_app.models import ExecutionStatus

TITLES = 20
"""At most this many conversations are found by their titles."""
SOURCES_MAX = 20


class SearchSerializer(serializers.Serializer[Any]):
    """The query of a search."""

    q = serializers.CharField(allow_blank=True)
    conversation = serializers.CharField(default=None)
    repository = serializers.CharField(default=None)
    trigger = serializers.CharField(default=None)
    version = ChoiceField(Version.choices, default=None)
    status = ChoiceField(ExecutionStatus.choices, default=None)
    kind = serializers.ListField(
        child=ChoiceField([kind.value for kind in Kind]), max_length=len(Kind), default=list
    )
    source = serializers.ListField(  # type: ignore[assignment]
        child=serializers.CharField(max_length=SOURCE_MAX_CHARS), max_length=SOURCES_MAX, default=list
    )
    since = serializers.DateTimeField(default=None)
    until = serializers.DateTimeField(default=None)
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=20)
    page_id = serializers.CharField(default=None)


@in_lane(Lane.SEARCH)
class SearchView(NativeView):
    """Full-text search."""

    needs = WRITES.of_query

    @extend_schema(
        parameters=[SearchSerializer],
        responses={200: NativeSearchPage, **refusals(400, 404)},
        examples=[OpenApiExample("words", value="login", parameter_only=("q", "query"))],
    )
    def get(self, request: Request) -> Response:
        """Search titles and events.

        `q` takes words, "phrases", `OR`, `-` or `NOT`, and word beginnings with a trailing `*`.
        """
        return Response(answer(request.user, request.query_params))


def answer(user: Visitor, asked: QueryDict, *, state: str | None = None) -> dict[str, Any]:
    """Return the results of a query. Raise ValidationError, SearchTooBroad or ConversationNotFound.

    With `state`, only conversations whose agent people are shown in it are searched.
    """
    query = checked(SearchSerializer(data=asked))
    question = questions.read(query["q"])
    below = KeyCursor.decode(query["page_id"]).key if query["page_id"] else None
    scope, wanted = _scope(user, query, state), _wanted(query)
    page = search(scope, question, wanted, below=below, limit=query["limit"])
    # A title has no kind, source or time, and comes with the first page only.
    is_about_titles = below is None and wanted.is_anything
    return {
        "conversations": _titled(scope, question) if is_about_titles else [],
        "hits": [_shown(hit) for hit in page.hits],
        "next_page_id": None if page.below is None else KeyCursor(page.below).encode(),
        "notice": question.notice or None,
    }


def _scope(user: Visitor, query: dict[str, Any], state: str | None) -> Scope:
    """Return the scope of the search. Raise ConversationNotFound if the user does not have it."""
    facts = {name: query[name] for name in ("repository", "trigger", "version")}
    rows = Conversation.objects.visible_to(user).matching(**facts)
    if query["status"]:
        rows = in_status(rows, [query["status"]])
    if state:
        rows = shown_in(rows, state)
    if query["conversation"]:
        # Not a condition on the id, which would find nothing in a conversation that is not the user's: it is
        # a 404.
        rows = rows.with_pks([access.readable(user, query["conversation"]).pk])
    is_narrow = any((*facts.values(), query["status"], state, query["conversation"]))
    return Scope(user=user, conversations=rows, is_narrow=is_narrow)


def _wanted(query: dict[str, Any]) -> SearchConditions:
    return SearchConditions(
        kinds=tuple(query["kind"]),
        sources=tuple(query["source"]),
        since=query["since"],
        before=query["until"],
    )


def _titled(scope: Scope, question: Question) -> list[ListedConversation]:
    rows = by_title(scope.conversations, question).newest_first()[:TITLES]
    return list(listed(rows, access.pk_of(scope.user)).values())


def _shown(hit: Hit) -> dict[str, Any]:
    return {
        "conversation": {
            "id": hit.public_id,
            "title": shown_title(hit.title, hit.public_id),
            "version": hit.version,
            "repository": hit.repository,
            "trigger": hit.trigger,
        },
        "seq": hit.seq,
        "id": hit.event_id,
        "event_type": hit.type,
        "kind": hit.kind,
        "source": hit.source,
        "timestamp": iso(hit.timestamp),
        "snippet": hit.snippet,
    }
