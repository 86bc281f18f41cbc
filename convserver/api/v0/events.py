"""The log of a conversation: pages, appends by clients, the trajectory (spec V0 §1.5)."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.dialects import v0
from conversations.events import EVENT_ID_MAX_LENGTH, SEQ_MAX, ConversationRef, EventFilter
from conversations.exceptions import ConversationError, InvalidEvent
from conversations.log import reads
from convserver.api.direct.calls import SUCCESS, SUCCESS_JSON, Append, NotDirect, Reply
from convserver.api.direct.outcomes import in_loop_once
from convserver.api.errors import UNAVAILABLE
from convserver.api.openhands.errors import InvalidRequest, Refused
from convserver.api.openhands.view import body_in, body_of, json_of, optional_body_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v0 import documented
from convserver.api.v0.bodies import FilterBody, MessageBody, V0EventsQuery
from convserver.api.v0.view import V0ViewSet
from sessions_app import astore
from sessions_app.loops.manager import get_manager

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 * 1024
"""A trajectory is sent in pieces of about this size, so that no piece delays other requests."""
_IDEMPOTENT_IDS = UUID("0b0c8d0e-6a5f-4f0b-a7d7-0c2f3f6f9a52")
"""The namespace of event ids that are derived from an Idempotency-Key."""


class TrajectoryPart(NamedTuple):
    """A part of a trajectory."""

    pieces: list[bytes]
    """Each contains whole events; commas are added between them."""
    last: int
    """The seq up to which the log was read."""


class V0EventViewSet(V0ViewSet):
    """The events of one conversation."""

    needs = WRITES

    @requires(RUNS)
    @extend_schema(**documented.event_list)
    def list(self, request: Request, conversation_id: str) -> HttpResponse | Response:
        """Return one page of the events that match, oldest first unless reversed."""
        query = query_of(request, V0EventsQuery)
        body = optional_body_of(request, FilterBody)
        conversation = access.readable(request.user, conversation_id)
        limit_max = 100
        if not 0 <= query.limit <= limit_max:
            raise Refused(400, {"detail": "Invalid limit"})
        if not query.limit:  # an empty page has no next one
            return Response({"events": [], "has_more": False})
        page = reads.search_events(
            conversation,
            _wanted(query, body),
            first=_seq(query.start_id),
            last=None if query.end_id is None else _seq(query.end_id),
            newest_first=query.reverse,
            limit=query.limit,
        )
        events = ",".join(map(v0.shown, page.events))
        return _json(f'{{"events":[{events}],"has_more":{json.dumps(page.has_more)}}}')

    @requires(RUNS)
    @extend_schema(**documented.event_append)
    def create(self, request: Request, conversation_id: str) -> Response:
        """Append an event of the user; a message gets an answer, a state change controls the agent."""
        event = json_of(request)
        conversation = access.writable(request.user, conversation_id)
        if not isinstance(event, dict):
            raise InvalidEvent("An event is a JSON object with an `action` or an `observation`.")
        event_id = _event_id(request.headers, self.user_id)
        in_loop_once(request, _take, conversation, event, self.user_id, event_id)
        return Response(SUCCESS)

    @requires(RUNS)
    @extend_schema(**documented.message)
    def create_message(self, request: Request, conversation_id: str) -> Response:
        """Append a message of the user, and start the agent if it isn't running."""
        text = body_of(request, MessageBody).message
        conversation = access.writable(request.user, conversation_id)
        event_id = _event_id(request.headers, self.user_id)
        try:
            in_loop_once(request, _take, conversation, _message(text), self.user_id, event_id)
        except (ConversationError, *UNAVAILABLE):
            raise
        except Exception as error:
            logger.exception("A message could not be added to conversation %s", conversation.public_id)
            words = "Error adding message to conversation: the server's log says why."
            raise Refused(500, {"success": False, "error": words}) from error
        return Response(SUCCESS)

    @extend_schema(**documented.trajectory)
    def trajectory(self, request: Request, conversation_id: str) -> StreamingHttpResponse:
        """Return every event that is not hidden, without browser screenshots."""
        conversation = access.readable(request.user, conversation_id)
        try:
            # The end is fixed here: a log that grows meanwhile would be followed without an end.
            through = reads.last_seq(conversation)
            # Before the answer begins: a failure is a status still, and not a body that breaks off.
            first = _next_part(conversation, -1, through)
        except UNAVAILABLE:
            raise
        except Exception as error:
            logger.exception("The trajectory of conversation %s could not be read", conversation.public_id)
            words = "Error getting trajectory: the server's log says why."
            raise Refused(500, {"trajectory": None, "error": words}) from error
        parts = _trajectory(conversation, first, through)
        return StreamingHttpResponse(parts, content_type="application/json")


def _wanted(query: FilterBody, body: FilterBody | None) -> EventFilter:
    """Return the filter; a value in the query, unless it is blank, takes precedence over the body."""
    # What is not in the query must not hide what the body says.
    in_query = query.model_dump(exclude_unset=True, exclude_none=True)
    said = (body.model_dump(exclude_unset=True) if body else {}) | in_query
    merged = FilterBody.model_validate(said)
    return EventFilter(
        exclude_hidden=merged.exclude_hidden,
        text=merged.query,
        source=merged.source,
        since=merged.start_date,
        until=merged.end_date,
    )


def _seq(number: int) -> int:
    # No database compares larger numbers; beyond any log, no event is found.
    return max(-1, min(number, SEQ_MAX))


def _json(text: str) -> HttpResponse:
    return HttpResponse(text, content_type="application/json")


async def append_event(call: Append) -> Reply:
    """Do what `V0EventViewSet.create` does with a light body. Raise NotDirect."""
    event = call.json()
    if not isinstance(event, dict) or ("role" in event and "action" not in event):  # V1's message
        raise NotDirect
    return await _append(call, event)


async def append_message(call: Append) -> Reply:
    """Do what `V0EventViewSet.create_message` does with a light body. Raise NotDirect."""
    try:
        text = body_in(call.json(), MessageBody).message
    except InvalidRequest as error:
        raise NotDirect from error
    return await _append(call, _message(text))


async def _append(call: Append, event: dict[str, Any]) -> Reply:
    try:
        event_id = _event_id(call.headers, call.user_pk)
    except Refused as error:
        raise NotDirect from error
    await _take(call.conversation, event, call.user_pk, event_id)
    return Reply(None, SUCCESS_JSON)


def _message(text: str) -> dict[str, Any]:
    return {"action": "message", "args": {"content": text}}


def _event_id(headers: Mapping[str, str], user_pk: int) -> str | None:
    """Return the event id for a request's Idempotency-Key, if it has one."""
    key = headers.get("idempotency-key")
    if not key:
        return None
    if len(key) > EVENT_ID_MAX_LENGTH:
        raise Refused(400, {"detail": f"Idempotency-Key has {EVENT_ID_MAX_LENGTH} characters at the most."})
    # With the user: two may choose the same key in one conversation.
    return str(uuid5(_IDEMPOTENT_IDS, json.dumps([user_pk, key])))


async def _take(
    conversation: ConversationRef, event: dict[str, Any], sender_id: int, event_id: str | None
) -> None:
    await get_manager().send_event_to_conversation(
        conversation, event, sender_id=sender_id, event_id=event_id
    )


def _next_part(conversation: ConversationRef, after: int, through: int) -> TrajectoryPart:
    """Read a page of the log and write it as a part of the trajectory; both take long for page contents."""
    page = reads.read_after(conversation, after)
    shown = [
        v0.without_browser_fields(v0.shown(event))
        for event in page
        if event["seq"] <= through and v0.appears_in_trajectory(event)
    ]
    return TrajectoryPart(list(_pieces(shown)), page[-1]["seq"] if page else through)


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield the texts, joined: PIECE_BYTES at a time, or one that is longer by itself."""
    waiting: list[str] = []
    size = 0
    for text in texts:
        if waiting and size + len(text) > PIECE_BYTES:
            yield ",".join(waiting).encode()
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    if waiting:
        yield ",".join(waiting).encode()


async def _trajectory(
    conversation: ConversationRef, part: TrajectoryPart, through: int
) -> AsyncIterator[bytes]:
    """Yield the list piece by piece, up to the newest event at its beginning."""
    yield b'{"trajectory":['
    separator = b""
    while True:
        for piece in part.pieces:
            yield separator + piece
            separator = b","
        if part.last >= through:
            break
        # A page at a time: no thread and no connection waits for a slow client.
        part = await astore.call(_next_part, conversation, part.last, through)
    yield b"]}"
