"""The list of conversations: its rows, their order, and their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.utils import timezone

from conversations import access, change_order
from conversations.access import Visitor
from conversations.cursors import InvalidCursor, KeyCursor
from conversations.exceptions import InvalidConversationId
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Label,
    LabelQuerySet,
    ListOrder,
    Version,
    normal_id,
)
from conversations.models.list_orders import TITLE_MAX_CHARS
from convserver.pagination import list_page
from convserver.rendering.text.excerpts import excerpt
from sessions_app.live import marks
from sessions_app.live.state_words import OWNER_WORDS, state_of
from sessions_app.live.status import ListedConversation, iso, listed, shown_in

PAGE_ROWS = 40
LABELS_MAX = 10  # the labels in one filter
TEXTS = ("repository", "trigger", "model", "source", "directory")  # the filters that take any text
ORDER_COOKIE = "list_order"
# Labels that an import stores for itself, which rows do not show.
HIDDEN_LABELS = frozenset({"source_id", "shown_branch", "directory", "user_id"})
# The states with a word in the row; others have a word only for screen readers, beside the dot.
SHOWN_STATES = {"running", "paused", "waiting_for_confirmation", "error", "stuck"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """The filters of a list; a value that is not one of the choices counts as empty."""

    q: str = ""
    repository: str = ""
    trigger: str = ""
    model: str = ""
    source: str = ""  # the program that a conversation was imported from, such as `codex`
    directory: str = ""  # the directory in which an imported agent worked
    labels: tuple[str, ...] = ()
    status: str = ""
    version: str = ""
    archived: bool = False
    parent: str = ""
    """The conversation whose sub-conversations are listed; all other filters are ignored then."""
    order: ListOrder = ListOrder.USED

    @classmethod
    def read(cls, given: QueryDict, remembered: str = "") -> Self:
        """Return the filters of an address or a form; the default order is the remembered one."""
        texts = {name: _clean(given.get(name, "")) for name in ("q", *TEXTS)}
        labels = tuple(filter(None, map(_clean, given.getlist("label"))))
        status, version = given.get("status", ""), given.get("version", "")
        parent = _clean(given.get("parent", ""))
        return cls(
            **texts,
            labels=labels[:LABELS_MAX],
            status=status if status in OWNER_WORDS else "",
            version=version if version in Version.values else "",
            archived=given.get("archived") == "true",
            # An invalid id is kept, so that the list is empty and not the whole one.
            parent=next(iter(normal_ids([parent])), parent),
            order=_order(given.get("order", remembered)),
        )

    @property
    def is_flat(self) -> bool:
        return bool(self.q or self.is_narrow)

    @property
    def is_narrow(self) -> bool:
        """Return whether there is a filter besides the title."""
        texts = (getattr(self, name) for name in TEXTS)
        return bool(any(texts) or self.labels or self.status or self.version or self.archived)

    @property
    def query(self) -> dict[str, str | Sequence[str]]:
        """Return the filters that are set, in the form of an address."""
        texts = {name: getattr(self, name) for name in ("q", *TEXTS, "status", "version")}
        said: dict[str, str | Sequence[str]] = {name: text for name, text in texts.items() if text}
        said |= {"label": self.labels} if self.labels else {}
        said |= {"parent": self.parent} if self.parent else {}
        said |= {"order": self.order.value} if self.order is not ListOrder.USED else {}
        return said | ({"archived": "true"} if self.archived else {})

    @property
    def all_labels(self) -> list[str]:
        """Return the required labels with those of the import's source and directory."""
        told = {"source": self.source, "directory": self.directory}
        return [*(f"{name}:{value}" for name, value in told.items() if value), *self.labels]

    def matching(self, user: Visitor) -> ConversationQuerySet:
        """Return the user's rows that match, in no order."""
        rows = Conversation.objects.visible_to(user).matching(
            title=self.q or None,
            repository=self.repository or None,
            trigger=self.trigger or None,
            model=self.model or None,
            labels=self.all_labels,
        )
        if self.version:
            rows = rows.of_version(self.version)
        if self.status:
            rows = shown_in(rows, self.status)
        return marks.put_away(rows, access.pk_of(user), archived=self.archived)

    def shown(self, user: Visitor) -> ConversationQuerySet:
        """Return the rows of the list; without filters, only conversations that are no sub-conversations."""
        if self.parent:
            return Conversation.objects.visible_to(user).started_by(self.parent)
        matching = self.matching(user)
        return matching if self.is_flat else matching.heads()

    def leading_label(self, user: Visitor) -> LabelQuerySet | None:
        """Return the rows of the index for one of the labels; None without labels."""
        if self.parent or not self.all_labels:
            return None
        return Label.objects.of_owner(access.pk_of(user)).saying(self.all_labels[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class ListRow:
    """One conversation of the list, in words."""

    state: ListedConversation
    now: datetime
    order: ListOrder = ListOrder.USED

    @property
    def place(self) -> str:
        """Return the sort key as a text that scripts compare."""
        match self.order:
            case ListOrder.USED:
                return iso(self.moment)
            case ListOrder.CREATED:
                return self.state["created_at"]
            case _:
                return self.state["title"].lower()[:TITLE_MAX_CHARS]

    @property
    def moment(self) -> datetime:
        """Return the time of the last message, otherwise of the beginning."""
        return datetime.fromisoformat(self.state["last_message_at"] or self.state["created_at"])

    @property
    def excerpt(self) -> str:
        return excerpt(self.state["last_message"])

    @property
    def ago(self) -> str:
        """Return the time since then in a few letters."""
        seconds = (self.now - self.moment).total_seconds()
        if seconds < 60:
            return "now"
        if seconds < 3_600:
            return f"{int(seconds // 60)} min"
        if seconds < 86_400:
            return f"{int(seconds // 3_600)} h"
        if seconds < 30 * 86_400:
            return f"{int(seconds // 86_400)} d"
        return f"{self.moment:%d %b %Y}".lstrip("0")

    @property
    def status(self) -> str:
        loop = self.state["loop"]
        return state_of(
            status=loop["status"],
            execution_status=loop["execution_status"],
            agent=loop["agent"],
            ended_by=loop["ended_by"],
        )

    @property
    def status_words(self) -> str:
        return OWNER_WORDS[self.status]

    @property
    def labels(self) -> list[ShownLabel]:
        return labels_in(self.state["tags"])

    @property
    def is_told(self) -> bool:
        """Return whether the row has a word for the status."""
        return self.status in SHOWN_STATES


class ShownLabel(NamedTuple):
    """A label for people, and in the form of an address."""

    text: str
    query: str


def labels_in(tags: Mapping[str, str]) -> list[ShownLabel]:
    """Return the labels among tags, without those that an import stores for itself."""
    is_imported = "source" in tags
    return [
        ShownLabel(f"{name}: {value}" if value else name, f"{name}:{value}" if value else name)
        for name, value in tags.items()
        if not (is_imported and name in HIDDEN_LABELS)
    ]


def list_beside(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the list beside a page.

    The first page has the filters in its address; all others have them as a query in `list`.
    """
    # Read before the list, so that no change in between is missed.
    cursor = KeyCursor(change_order.reach().settled).encode()
    asked = request.GET if request.path == reverse("home") else QueryDict(request.GET.get("list", ""))
    filters = Filters.read(asked, request.COOKIES.get(ORDER_COOKIE, ""))
    try:
        shown = page_of(request.user, filters, page_id=asked.get("page_id"))
    except InvalidCursor:  # an address kept from before an upgrade still shows a list
        shown = page_of(request.user, filters)
    query = urlencode(filters.query, doseq=True)
    address = f"{reverse('home')}?{query}" if query else reverse("home")
    return {"list": {**shown, "cursor": cursor, "address": address}, "undo": _deleted(request.user, asked)}


def page_of(user: Visitor, filters: Filters, *, page_id: str | None = None) -> dict[str, Any]:
    """Return a page of rows, with the pinned ones before the first page. Raise InvalidCursor."""
    now = timezone.now()
    matching, label = filters.shown(user), filters.leading_label(user)
    order = ListOrder.CREATED if filters.parent else filters.order
    on_top = marks.kept_on_top(matching, access.pk_of(user), pinned=True).listed_by(order)
    pinned = [] if filters.parent else list(on_top.values_list("pk", flat=True)[: marks.PINNED_MAX])
    page = list_page(
        matching.exclude(pk__in=pinned),  # on every page: a pinned row is shown once, above the first one
        PAGE_ROWS,
        order=order,
        page_id=page_id,
        label=label,
        is_narrow=filters.is_flat,
    )
    shown_pks = page.pks if page_id else [*pinned, *page.pks]
    states = listed(Conversation.objects.with_pks(shown_pks), access.pk_of(user))
    following = {**filters.query, "order": filters.order.value, "page_id": page.next_page_id}
    return {
        "now": iso(now),
        "filters": filters,
        "statuses": OWNER_WORDS,
        "versions": Version.values,
        "orders": ListOrder.choices,
        "pinned": _rows(states, [] if page_id else pinned, now, order),
        "rows": _rows(states, page.pks, now, order),
        "more": "" if page.next_page_id is None else urlencode(following, doseq=True),
        "is_first": not page_id,
        "parent": filters.parent or None,
    }


def row_of(user: Visitor, conversation_id: str, filters: Filters) -> ListRow | None:
    """Return a conversation's row if the list with these filters has it."""
    return next(iter(rows_by_ids(user, filters, [conversation_id])), None)


def rows_by_ids(user: Visitor, filters: Filters, ids: Sequence[str]) -> list[ListRow]:
    """Return the rows with these ids that match the filters, in the list's order."""
    found = filters.matching(user).with_public_ids(normal_ids(ids)).listed_by(filters.order)
    return _rows(states := listed(found, access.pk_of(user)), states, timezone.now(), filters.order)


def remember_order(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Return the answer with a cookie for the order that the request chose, if any."""
    # Browsers keep a cookie for 400 days at most
    year_s = 365 * 24 * 3600
    if "order" in request.GET and "id" not in request.GET:
        order = _order(request.GET["order"])
        answer.set_cookie(
            ORDER_COOKIE, order, max_age=year_s, samesite="Lax", secure=request.is_secure(), httponly=True
        )
    return answer


def normal_ids(ids: Iterable[str]) -> list[str]:
    """Return ids in their stored form, without invalid ones."""
    found = []
    for each in ids:
        with suppress(InvalidConversationId):
            found.append(normal_id(each))
    return found


def _rows(
    states: Mapping[int, ListedConversation], pks: Iterable[int], now: datetime, order: ListOrder
) -> list[ListRow]:
    return [ListRow(state=states[pk], now=now, order=order) for pk in pks if pk in states]


def _order(text: str) -> ListOrder:
    return ListOrder(text) if text in ListOrder.values else ListOrder.USED


def _clean(text: str) -> str:
    return text.replace("\0", "").strip()


def _deleted(user: Visitor, asked: QueryDict) -> ListedConversation | None:
    """Return the conversation that a form has just deleted, so that the page offers to restore it."""
    ids = normal_ids([asked.get("deleted", "")])
    rows = Conversation.objects.deleted().reachable_by(user).with_public_ids(ids)
    return next(iter(listed(rows, access.pk_of(user)).values()), None) if ids else None
