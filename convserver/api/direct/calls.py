"""What the direct path gives to a door for an append or a read, and what the door returns."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from conversations import access
from conversations.access import Visitor
from conversations.cursors import ListCursor
from conversations.events import ConversationRef
from convserver.api.openhands.text import decoded
from convserver.pagination import PAGE_MAX

SUCCESS = {"success": True}
SUCCESS_JSON = json.dumps(SUCCESS, separators=(",", ":"))
"""The body by which V0 and V1 acknowledge an append."""
# int() also reads the digits of other scripts, and any number of them: the views decide about those.
_PAGE_LENGTH = re.compile("[0-9]{1,3}")


class NotDirect(Exception):
    """The view is to answer."""


class Append(NamedTuple):
    """A request to append, by a client that may."""

    user: Visitor
    conversation: ConversationRef
    text: str
    """The body, which is light (`conversations.payloads.bounds`)."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""

    @property
    def user_pk(self) -> int:
        return access.pk_of(self.user)

    def json(self) -> Any:
        """Return the value of the body. Raise NotDirect if it is no JSON."""
        try:
            return decoded(self.text)
        except ValueError as error:
            raise NotDirect from error


class Reply(NamedTuple):
    """What an append has returned."""

    value: Any
    """What the view's own append returns."""
    body: str
    """The JSON of the view's answer."""
    is_success: bool = True
    """Whether the status is 200; the view words every other answer."""
    is_unknown: bool = False
    """Whether the append may have been stored, or not."""


AppendDirectly = Callable[[Append], Awaitable[Reply]]
"""Appends, or raises NotDirect before anything was done, or what the view's own append raises."""


class Read(NamedTuple):
    """A request to read, by a client that may."""

    user: Visitor
    only: int | None
    """The key of the one conversation that the client may reach; None for all of the user's."""
    conversation_id: str
    """The id in the address; empty where there is none."""
    query: str
    origin: str
    """Scheme, host and port of this server as the client knows them."""

    @property
    def user_pk(self) -> int:
        return access.pk_of(self.user)

    def one(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the one row, which has its `pk`. Raise NotDirect if the client may not reach it."""
        for row in self.reachable(rows):
            return row
        raise NotDirect

    def reachable(self, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield those of the rows that the client may reach."""
        return (row for row in rows if self.only in (None, row["pk"]))

    def parameters(self) -> list[tuple[str, str]]:
        """Return the query's names and values. Raise NotDirect for more than a few."""
        # Queries with more fields are left to the views.
        fields_max = 20
        try:
            return parse_qsl(self.query, keep_blank_values=True, max_num_fields=fields_max)
        except ValueError as error:
            raise NotDirect from error

    def limit(self, default: int) -> int:
        """Return the length of a list's first page. Raise NotDirect if anything else is asked for."""
        self.require_all_conversations()
        match self.parameters():
            case []:
                return default
            case [("limit", text)] if _PAGE_LENGTH.fullmatch(text) and 1 <= int(text) <= PAGE_MAX:
                return int(text)
        raise NotDirect

    def require_all_conversations(self) -> None:
        """Raise NotDirect if the client may reach one conversation only."""
        if self.only is not None:
            raise NotDirect

    def require_no_query(self) -> None:
        """Raise NotDirect if there is a query."""
        if self.query:
            raise NotDirect


class DirectAnswer(NamedTuple):
    """A success."""

    body: bytes
    etag: str | None = None


ReadDirectly = Callable[[Read], DirectAnswer]
"""Answers in a thread of the store, with two statements at most; after any exception the view answers."""


def shown_and_more(
    rows: Sequence[Mapping[str, Any]], limit: int
) -> tuple[Sequence[Mapping[str, Any]], str | None]:
    """Return the first page of a list, which has `limit` rows of these, and the id of its next page."""
    page = rows[:limit]
    if len(rows) <= limit:
        return page, None
    return page, ListCursor(page[-1]["created_at"], page[-1]["pk"]).encode()
