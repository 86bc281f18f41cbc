"""What a door is given of an append that is made on the event loop, and what it returns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from conversations.access import Visitor
from conversations.models import ConversationRef
from convserver.api.openhands.text import decoded

SUCCESS = {"success": True}
SUCCESS_JSON = json.dumps(SUCCESS, separators=(",", ":"))
"""The body by which V0 and V1 acknowledge an append."""


class NotDirect(Exception):
    """The view is to answer: nothing was done so far."""


class Call(NamedTuple):
    """A request to append, by a client that may."""

    user: Visitor
    conversation: ConversationRef
    text: str
    """The body, which is light (`conversations.payloads.bounds`)."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""

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
    """Whether nobody knows what became of it."""


Append = Callable[[Call], Awaitable[Reply]]
"""Appends, or raises NotDirect, or whatever the view's own append raises."""
