"""Actions on the conversations that are selected in the list, for its script."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods

from conversations.cursors import ListCursor
from conversations.exceptions import ConversationError
from conversations.models import Conversation
from conversations.store import labels
from convserver.batches import actions, undo
from convserver.batches.actions import BATCH_MAX, BatchAction, BatchOrder, BatchResult
from convserver.pagination import COUNTED_MAX, newest_page
from convserver.serving.admission import Lane, in_lane
from convserver.web.listing import Filters, normal_ids
from convserver.web.pages import person, refusal, user_id_of

# The conversations that one request changes if all that match are selected: other writers come in between.
STEP = 50


@in_lane(Lane.BATCH)
@require_http_methods(["GET", "HEAD", "POST"])
@person
def batch(request: HttpRequest) -> HttpResponse:
    """Return the number of conversations that match the list's filters, or change the selected ones.

    Errors are sentences of plain text.
    """
    if request.method != "POST":
        return JsonResponse(_count(request))
    try:
        return JsonResponse(_done(request))
    except ConversationError as error:
        return refusal(error)


def _count(request: HttpRequest) -> dict[str, Any]:
    filters = Filters.read(request.GET)
    rows, label = filters.shown(request.user), filters.leading_label(request.user)
    # With a label, the index of labels is read, as for the list.
    found = rows if label is None else label.leading_to(rows)
    count = found[: COUNTED_MAX + 1].count()
    return {"count": min(count, COUNTED_MAX), "has_more": count > COUNTED_MAX}


class BadAction(ConversationError):
    """The form has no valid action."""

    code = "bad_action"


def _done(request: HttpRequest) -> dict[str, Any]:
    if token := request.POST.get("undo"):
        return _words(actions.take_back(request.user, undo.read(user_id_of(request), token)), None)
    order = _order(request)
    pks, following = _all_that_match(request) if request.POST.get("all") == "true" else _chosen(request)
    rows = actions.reachable(request.user, order.action).with_pks(pks)
    return _words(actions.carry_out(request.user, order, actions.refs_of(rows)), following)


def _order(request: HttpRequest) -> BatchOrder:
    try:
        action = BatchAction(request.POST.get("action", ""))
    except ValueError as error:
        raise BadAction("Choose what to do: archive, unarchive, delete, label or unlabel.") from error
    if action not in (BatchAction.LABEL, BatchAction.UNLABEL):
        return BatchOrder(action=action)
    name, value = labels.read_label(request.POST.get("name", ""))
    return BatchOrder(action=action, name=name, value=value)


def _chosen(request: HttpRequest) -> tuple[list[int], None]:
    ids = request.POST.getlist("id")
    if not 0 < len(ids) <= BATCH_MAX:
        raise BadAction(f"Choose between 1 and {BATCH_MAX} conversations.")
    rows = Conversation.objects.visible_to(request.user).with_public_ids(normal_ids(ids))
    return list(rows.values_list("pk", flat=True)), None


def _all_that_match(request: HttpRequest) -> tuple[list[int], str | None]:
    """Return the next step of the listed conversations in their order, and where the following one begins."""
    filters, place = Filters.read(request.POST), request.POST.get("page_id")
    after = ListCursor.decode(place) if place else None
    label = filters.leading_label(request.user)
    page = newest_page(filters.shown(request.user), STEP, after=after, label=label)
    return page.pks, page.next_page_id


def _words(done: BatchResult, following: str | None) -> dict[str, Any]:
    return {
        "changed": len(done.changed),
        "unchanged": done.unchanged,
        "refused": len(done.refused),
        "why": next(iter(done.refused.values()), ""),
        "undo": done.undo,
        "next": following,
    }
