"""Events: the log by pages, and frames that append to it; payloads pass as text, untouched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.views import APIView

from conversations import access, jsontext
from conversations.exceptions import ConversationError
from conversations.models import ConversationRef
from conversations.store import PAGE_MAX_EVENTS, store
from convserver.api.errors import NATIVE_STATUS, status_of
from sessions_app import astore, native
from sessions_app.manager import get_manager
from sessions_app.native import BadFrame, Frame

SEQ_MAX = 2**63 - 1


class TextParser(BaseParser):
    """Hands the body on as text: decoding it would change its bytes."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raise BadFrame unless it is UTF-8."""
        try:
            return stream.read().decode()
        except UnicodeDecodeError as error:
            raise BadFrame("The body must be JSON in UTF-8.") from error


class EventPageSerializer(serializers.Serializer[Any]):
    """The query of a page: after a seq, or before one."""

    after = serializers.IntegerField(min_value=-1, max_value=SEQ_MAX, default=None)
    before = serializers.IntegerField(min_value=0, max_value=SEQ_MAX, default=None)
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX_EVENTS, default=100)


class EventsView(APIView):
    """The log of one conversation."""

    parser_classes = (TextParser,)

    def get(self, request: Request, conversation_id: str) -> HttpResponse:
        """Return a page as {events, last_seq}: oldest first, fewer than `limit` when they are long.

        `after` (default -1) goes on from there; `before` gives those that come just before it.
        """
        conversation = access.readable(request.user, conversation_id)
        query = EventPageSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        after, before, limit = (query.validated_data[name] for name in ("after", "before", "limit"))
        log = store(str(request.user.pk))
        if before is not None:
            page = [
                event
                for event in log.read_before(conversation, before, limit=limit)
                if after is None or event["seq"] > after
            ]
        else:
            page = log.read_after(conversation, -1 if after is None else after, limit=limit)
        events = ",".join(map(native.envelope_json, page))
        return _json(f'{{"events":[{events}],"last_seq":{log.last_seq(conversation)}}}')

    def post(self, request: Request, conversation_id: str) -> HttpResponse:
        """Append what one `message`, `event` or `events` frame, or a list of them, brings.

        One frame is answered with its `ack` or `error`, a list with a list of them. Each frame of a
        list stands for itself: the good ones are stored.
        """
        conversation = access.writable(request.user, conversation_id)
        body: Any = request.data
        texts = _frame_texts(body)
        answers = async_to_sync(_append)(conversation, access.pk_of(request.user), texts)
        if jsontext.is_array(body):
            return _json(json.dumps([answer for answer, _ in answers]))
        answer, status = answers[0]
        return _json(json.dumps(answer), status=status)


def _json(text: str, *, status: int = 200) -> HttpResponse:
    return HttpResponse(text, content_type="application/json", status=status)


def _frame_texts(body: object) -> list[str]:
    if not isinstance(body, str):
        raise BadFrame("The body must be a frame, or a list of frames, as application/json.")
    if not jsontext.is_array(body):
        return [body]
    try:
        return [item.text for item in jsontext.items(body)]
    except jsontext.InvalidJson as error:
        raise BadFrame(f"The body is no list of frames: {error}.") from error


async def _append(
    conversation: ConversationRef, user_id: int, texts: Sequence[str]
) -> list[tuple[dict[str, Any], int]]:
    """Append all frames together, in order; return each one's answer and status."""
    pending = [_begin(conversation, user_id, text) for text in texts]
    answers = [await _answer(frame_id, begun) for frame_id, begun in pending]
    get_manager().wake(conversation)
    return answers


def _begin(conversation: ConversationRef, user_id: int, text: str) -> tuple[Any, Any]:
    frame_id = None
    try:
        frame = native.parse(text)
        frame_id = frame.id
        return frame_id, astore.append_soon(conversation, _events(frame, conversation, user_id))
    except ConversationError as error:
        return frame_id, error


def _events(frame: Frame, conversation: ConversationRef, user_id: int) -> Any:
    match frame.type:
        case "message":
            return [native.message_event(frame, conversation, user_id=user_id, session="")]
        case "event":
            return [native.recorded_event(frame)]
        case "events":
            return native.recorded_events(frame)
    raise BadFrame(f"Here a frame is a message, an event or events, not {frame.type!r}.")


async def _answer(frame_id: Any, begun: Any) -> tuple[dict[str, Any], int]:
    try:
        if isinstance(begun, ConversationError):
            raise begun
        seqs = [appended.seq for appended in await begun]
    except ConversationError as error:
        return native.error_frame(error, frame_id), status_of(error, NATIVE_STATUS)
    answer: dict[str, Any] = {"type": "ack", "id": frame_id}
    return answer | ({"seq": seqs[0]} if len(seqs) == 1 else {"seqs": seqs}), 200
