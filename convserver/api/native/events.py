"""Events: the log by pages, and frames that append to it; payloads pass through as unchanged text."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from conversations import access, histories
from conversations.cursors import EventCursor, InvalidCursor
from conversations.events import SEQ_MAX, Appended, ConversationRef, NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, OutcomeUnknown
from conversations.log import reads
from conversations.payloads import bounds, jsontext
from convserver.api.bodies import TextParser
from convserver.api.direct.calls import Append, NotDirect, Reply
from convserver.api.direct.outcomes import in_loop_once
from convserver.api.errors import NATIVE_STATUS, RETRY_AFTER_S, retry_headers, status_of
from convserver.api.native.shapes import (
    FRAME_EXAMPLES,
    Answers,
    ClientFrames,
    ErrorFrame,
    NativeEventPage,
    refusals,
)
from convserver.api.native.view import NativeView
from convserver.api.schema import NativeRefusal
from convserver.api.scopes import BY_FRAME
from sessions_app import astore
from sessions_app.capacity.append_queue import FrameOrder
from sessions_app.capacity.parsing import in_turn_from_thread
from sessions_app.identity import scopes
from sessions_app.identity.scopes import FRAME_SCOPES
from sessions_app.loops.manager import get_manager
from sessions_app.sockets.native import frames as native
from sessions_app.sockets.native.frames import BadFrame, Frame, FrameTooLarge

logger = logging.getLogger(__name__)

_PLAIN_QUERY = re.compile(rf"(?:session=[A-Za-z0-9_-]{{1,{native.SESSION_MAX_LENGTH}}})?")
"""A query in which nothing has to be decoded."""


@extend_schema_field({"type": "string", "pattern": r"^(-1|[0-9]{1,18}(\.[0-9a-f]{16})?)$"})
class CursorField(serializers.Field[EventCursor, Any, str, Any]):
    """The `cursor` of an event, or its seq; -1 for none."""

    def to_internal_value(self, data: Any) -> EventCursor:
        """Return the cursor. Raise ValidationError for any other text."""
        try:
            return EventCursor.decode(data)
        except InvalidCursor as error:
            raise serializers.ValidationError(str(error)) from error


class EventPageSerializer(serializers.Serializer[Any]):
    """The query of a page: after a seq, or before one."""

    after = CursorField(default=None)
    before = serializers.IntegerField(min_value=0, max_value=SEQ_MAX, default=None)
    as_of = serializers.IntegerField(
        min_value=0,
        max_value=SEQ_MAX,
        default=None,
        help_text="The log as it was once the event at this seq was stored: what came later is left out.",
    )
    limit = serializers.IntegerField(min_value=1, max_value=reads.PAGE_MAX_EVENTS, default=100)


class SessionSerializer(serializers.Serializer[Any]):
    """The query of a body with frames."""

    session = serializers.CharField(default="", max_length=native.SESSION_MAX_LENGTH, trim_whitespace=False)


class Sender(NamedTuple):
    """Who sends; the ids of messages count within the user and the session."""

    user: access.Visitor
    session: str

    @property
    def user_id(self) -> int:
        return access.pk_of(self.user)


class EventsView(NativeView):
    """The log of one conversation."""

    needs = BY_FRAME
    parser_classes = (TextParser,)

    @extend_schema(
        parameters=[EventPageSerializer], responses={200: NativeEventPage, **refusals(400, 404, 410)}
    )
    def get(self, request: Request, conversation_id: str) -> HttpResponse:
        """Return a page as {events, last_seq}: oldest first, fewer than `limit` when they are long.

        `after` (default -1) returns the events after it; `before` returns those just before it. A reader
        whose `after` is of a history that was replaced gets 410, and has to read from the beginning. `damage`
        is there only if the log is damaged.
        """
        row = access.readable_row(request.user, conversation_id)
        conversation = row.ref
        asked = self.checked_query(EventPageSerializer)
        cursor, before, limit = (asked[name] for name in ("after", "before", "limit"))
        as_of = SEQ_MAX if asked["as_of"] is None else asked["as_of"]
        cursor = cursor or EventCursor(-1)
        if before is not None:
            page = [
                event
                for event in reads.read_before(conversation, min(before - 1, as_of) + 1, limit=limit)
                if event["seq"] > cursor.seq
            ]
        else:
            page = reads.read_after(conversation, cursor.seq, limit=limit)
            page = [event for event in page if event["seq"] <= as_of]
        # After the page, so that it is not below its last event; a reader goes on as long as it is above.
        last_seq = reads.last_seq(conversation)
        # After the reading, too: a history that is replaced meanwhile is noticed.
        histories.require_within(cursor, last_seq=last_seq)
        histories.require_same(conversation, cursor)
        events = ",".join(map(native.envelope_json, page))
        damage = f',"damage":{json.dumps(row.damage)}' if row.damage else ""
        return _json(f'{{"events":[{events}],"last_seq":{min(last_seq, as_of)}{damage}}}')

    @extend_schema(
        parameters=[SessionSerializer],
        request=ClientFrames,
        responses={200: Answers, **dict.fromkeys((400, 404, 409, 413, 429, 503), ErrorFrame | NativeRefusal)},
        examples=[
            OpenApiExample(name, value=value, request_only=True) for name, value in FRAME_EXAMPLES.items()
        ],
    )
    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Append the content of a `message`, `event` or `events` frame, or of a list of them.

        One frame is answered with its `ack` or `error`, a list with a list of them. Each frame of a
        list stands for itself: the good ones are stored. Ids of messages count within `session`.
        A body has at most 100,000 values (members and items, at any depth), or it is a 413.
        """
        conversation = access.writable(request.user, conversation_id)
        query = self.checked_query(SessionSerializer)
        sender = Sender(request.user, query["session"])
        body: Any = request.data
        if not isinstance(body, str):  # of a form, which the framework has its own parsers for
            raise BadFrame("The body must be a frame, or a list of frames, as application/json.")
        # Here and not on the event loop, which does not wait for the reading of anything large.
        frames = in_turn_from_thread(
            sender.user_id, bounds.is_light(body), _read_frames, body, conversation, sender
        )
        answers = in_loop_once(request, _append, conversation, frames)
        if jsontext.is_array(body):
            return _json(_list(answers))
        return _json(json.dumps(answers[0].body), status=answers[0].status, headers=answers[0].headers)


async def append(call: Append) -> Reply:
    """Append the frames of a light body, as `EventsView.post` does. Raise NotDirect."""
    if not _PLAIN_QUERY.fullmatch(call.query):
        raise NotDirect
    sender = Sender(call.user, call.query.removeprefix("session="))
    try:
        frames = _read_frames(call.text, call.conversation, sender)
    except BadFrame as error:
        # The view words what is wrong with a body.
        raise NotDirect from error
    if not frames:
        raise NotDirect
    answers = await _append(call.conversation, frames)
    statuses = {answer.status for answer in answers}
    if HTTPStatus.NOT_FOUND in statuses and HTTPStatus.OK not in statuses:  # deleted since it was looked up
        raise ConversationNotFound("Conversation not found.")
    if jsontext.is_array(call.text):
        return Reply(answers, _list(answers))
    (answer,) = answers
    return Reply(
        answers,
        json.dumps(answer.body),
        # The status of a list is always 200; that of one frame is its own.
        is_success=answer.status == HTTPStatus.OK,
        is_unknown=answer.body.get("code") == OutcomeUnknown.code,
    )


def _list(answers: Sequence[_Answer]) -> str:
    return json.dumps([answer.body for answer in answers])


def _json(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    return HttpResponse(text, content_type="application/json", status=status, headers=headers)


def _frame_texts(body: str) -> list[str]:
    if not jsontext.is_array(body):
        return [body]
    try:
        bounds.require_bounded(body)
        return [item.text for item in jsontext.items(body, at_most=native.EVENTS_MAX)]
    except bounds.TooManyValues as error:
        raise FrameTooLarge(f"The body is too large: {error}.") from error
    except jsontext.TooManyItems as error:
        raise BadFrame(f"A list can hold at most {native.EVENTS_MAX} frames.") from error
    except jsontext.InvalidJson as error:
        raise BadFrame(f"The body is not a list of frames: {error}.") from error


def _read_frames(body: str, conversation: ConversationRef, sender: Sender) -> list[_Read]:
    """Read the frames of a body. Raise BadFrame, and FrameTooLarge before anything is decoded."""
    return [_read(text, conversation, sender) for text in _frame_texts(body)]


class _Read(NamedTuple):
    """A frame that was read, and what it appends or why not."""

    frame_id: Any
    type: str
    events: list[NewEvent] | ConversationError


class _Begun(NamedTuple):
    """A frame whose append has begun, or why it has not."""

    frame_id: Any
    is_batch: bool
    stored: asyncio.Future[list[Appended]] | ConversationError


class _Answer(NamedTuple):
    """The answer to one frame."""

    body: dict[str, Any]
    status: int
    headers: Mapping[str, str] = MappingProxyType({})


async def _append(conversation: ConversationRef, frames: Sequence[_Read]) -> list[_Answer]:
    """Append all frames together, in order; return each one's answer."""
    # Before anything is queued: beyond its share a user's request is refused as a whole, and stores nothing.
    await astore.room_soon(conversation)
    order = FrameOrder()  # of this request alone: what is sent after its answer is sent knowing of a refusal
    begun = [_begin(conversation, frame, order) for frame in frames]
    return [await _answer(conversation, each) for each in begun]


def _read(text: str, conversation: ConversationRef, sender: Sender) -> _Read:
    frame_id, kind = None, ""
    try:
        frame = native.parse(text)
        frame_id, kind = frame.id, frame.type
        if kind in FRAME_SCOPES:
            scopes.require(sender.user, FRAME_SCOPES[kind])
        return _Read(frame_id, kind, _events(frame, conversation, sender))
    except ConversationError as error:
        return _Read(frame_id, kind, error)


def _begin(conversation: ConversationRef, frame: _Read, order: FrameOrder) -> _Begun:
    if isinstance(frame.events, ConversationError):
        return _Begun(frame.frame_id, False, frame.events)
    if frame.type == "message":
        stored = get_manager().take_message_soon(conversation, *frame.events, order=order)
    else:
        stored = astore.append_soon(conversation, frame.events, order=order)
    return _Begun(frame.frame_id, frame.type == "events", stored)


def _events(frame: Frame, conversation: ConversationRef, sender: Sender) -> list[NewEvent]:
    match frame.type:
        case "message":
            return [native.message_event(frame, conversation, user_id=sender.user_id, session=sender.session)]
        case "event":
            return [native.recorded_event(frame, sender_id=sender.user_id)]
        case "events":
            return native.recorded_events(frame, sender_id=sender.user_id)
    raise BadFrame(f"`type` must be `message`, `event` or `events`, not {frame.type!r}.")


async def _answer(conversation: ConversationRef, begun: _Begun) -> _Answer:
    try:
        if isinstance(begun.stored, ConversationError):
            raise begun.stored
        # A client that leaves ends this request, but not its append, which others may share a commit with.
        seqs = [appended.seq for appended in await asyncio.shield(begun.stored)]
    except ConversationError as error:
        status = status_of(error, NATIVE_STATUS)
        return _Answer(native.error_frame(error, begun.frame_id), status, retry_headers(error))
    except Exception as error:  # in the log already; the others of the list are to be answered all the same
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        return _Answer(native.unavailable_frame(error, begun.frame_id), 503, headers)
    place = {"seqs": seqs} if begun.is_batch else {"seq": seqs[0]}
    return _Answer({"type": "ack", "id": begun.frame_id, **place}, 200)
