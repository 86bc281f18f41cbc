"""Events: the log by pages, and frames that append to it; payloads pass through as unchanged text."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from conversations import access, histories, jsontext
from conversations.cursors import EventCursor, InvalidCursor
from conversations.events import Appended, NewEvent
from conversations.exceptions import ConversationError
from conversations.models import ConversationRef
from conversations.store import PAGE_MAX_EVENTS, store
from convserver.api.bodies import TextParser
from convserver.api.errors import NATIVE_STATUS, RETRY_AFTER_S, status_of
from convserver.api.event_loop import in_loop
from convserver.api.native.shapes import (
    FRAME_EXAMPLES,
    NATIVE,
    Answers,
    ClientFrames,
    ErrorFrame,
    NativeEventPage,
    refusals,
)
from convserver.api.schema import NativeRefusal
from sessions_app import astore, native
from sessions_app.manager import get_manager
from sessions_app.native import BadFrame, Frame

logger = logging.getLogger(__name__)

SEQ_MAX = 2**63 - 1


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
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX_EVENTS, default=100)


class SessionSerializer(serializers.Serializer[Any]):
    """The query of a body with frames."""

    session = serializers.CharField(default="", max_length=native.SESSION_MAX_LENGTH, trim_whitespace=False)


class Sender(NamedTuple):
    """The scope of message ids: the user and the session."""

    user_id: int
    session: str


class EventsView(APIView):
    """The log of one conversation."""

    door = NATIVE
    parser_classes = (TextParser,)

    @extend_schema(
        parameters=[EventPageSerializer], responses={200: NativeEventPage, **refusals(400, 404, 410)}
    )
    def get(self, request: Request, conversation_id: str) -> HttpResponse:
        """Return a page as {events, last_seq}: oldest first, fewer than `limit` when they are long.

        `after` (default -1) returns the events after it; `before` returns those just before it. A reader
        whose `after` is of a history that was replaced gets 410, and has to read from the beginning.
        """
        conversation = access.readable(request.user, conversation_id)
        query = EventPageSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        cursor, before, limit = (query.validated_data[name] for name in ("after", "before", "limit"))
        cursor = cursor or EventCursor(-1)
        log = store(str(request.user.pk))
        if before is not None:
            page = [
                event
                for event in log.read_before(conversation, before, limit=limit)
                if event["seq"] > cursor.seq
            ]
        else:
            page = log.read_after(conversation, cursor.seq, limit=limit)
        last_seq = log.last_seq(conversation)
        histories.require_within(cursor, last_seq=last_seq)
        histories.require_same(conversation, cursor)
        events = ",".join(map(native.envelope_json, page))
        return _json(f'{{"events":[{events}],"last_seq":{last_seq}}}')

    @extend_schema(
        parameters=[SessionSerializer],
        request=ClientFrames,
        responses={200: Answers, **dict.fromkeys((400, 404, 409, 413, 503), ErrorFrame | NativeRefusal)},
        examples=[
            OpenApiExample(name, value=value, request_only=True) for name, value in FRAME_EXAMPLES.items()
        ],
    )
    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Append the content of a `message`, `event` or `events` frame, or of a list of them.

        One frame is answered with its `ack` or `error`, a list with a list of them. Each frame of a
        list stands for itself: the good ones are stored. Ids of messages count within `session`.
        """
        conversation = access.writable(request.user, conversation_id)
        query = SessionSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        sender = Sender(access.pk_of(request.user), query.validated_data["session"])
        body: Any = request.data
        texts = _frame_texts(body)
        answers = in_loop(_append, conversation, sender, texts)
        if jsontext.is_array(body):
            return _json(json.dumps([answer for answer, _ in answers]))
        answer, status = answers[0]
        return _json(json.dumps(answer), status=status)


def _json(text: str, *, status: int = 200) -> HttpResponse:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else None
    return HttpResponse(text, content_type="application/json", status=status, headers=headers)


def _frame_texts(body: object) -> list[str]:
    if not isinstance(body, str):
        raise BadFrame("The body must be a frame, or a list of frames, as application/json.")
    if not jsontext.is_array(body):
        return [body]
    try:
        texts = [item.text for item in jsontext.items(body)]
    except jsontext.InvalidJson as error:
        raise BadFrame(f"The body is not a list of frames: {error}.") from error
    if len(texts) > native.EVENTS_MAX:
        raise BadFrame(f"A list can hold at most {native.EVENTS_MAX} frames.")
    return texts


class _Begun(NamedTuple):
    """A frame that was read, and what it appends or why not."""

    frame_id: Any
    is_batch: bool
    stored: asyncio.Future[list[Appended]] | ConversationError


async def _append(
    conversation: ConversationRef, sender: Sender, texts: Sequence[str]
) -> list[tuple[dict[str, Any], int]]:
    """Append all frames together, in order; return each one's answer and status."""
    begun = [_begin(conversation, sender, text) for text in texts]
    return [await _answer(conversation, each) for each in begun]


def _begin(conversation: ConversationRef, sender: Sender, text: str) -> _Begun:
    frame_id = None
    try:
        frame = native.parse(text)
        frame_id = frame.id
        stored = astore.append_soon(conversation, _events(frame, conversation, sender))
        if frame.type == "message":
            # Whether or not this client stays to hear of it, its message is answered.
            stored.add_done_callback(lambda _: get_manager().wake(conversation))
        return _Begun(frame_id, frame.type == "events", stored)
    except ConversationError as error:
        return _Begun(frame_id, False, error)


def _events(frame: Frame, conversation: ConversationRef, sender: Sender) -> list[NewEvent]:
    match frame.type:
        case "message":
            return [native.message_event(frame, conversation, user_id=sender.user_id, session=sender.session)]
        case "event":
            return [native.recorded_event(frame, sender_id=sender.user_id)]
        case "events":
            return native.recorded_events(frame, sender_id=sender.user_id)
    raise BadFrame(f"`type` must be `message`, `event` or `events`, not {frame.type!r}.")


async def _answer(conversation: ConversationRef, begun: _Begun) -> tuple[dict[str, Any], int]:
    try:
        if isinstance(begun.stored, ConversationError):
            raise begun.stored
        seqs = [appended.seq for appended in await asyncio.shield(begun.stored)]
    except ConversationError as error:
        return native.error_frame(error, begun.frame_id), status_of(error, NATIVE_STATUS)
    except Exception as error:  # in the log already; the others of the list are to be answered all the same
        return native.unavailable_frame(error, begun.frame_id), 503
    place = {"seqs": seqs} if begun.is_batch else {"seq": seqs[0]}
    return {"type": "ack", "id": begun.frame_id, **place}, 200
