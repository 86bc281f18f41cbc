"""Live updates over HTTP, as server-sent events: the frames of the native sockets, without a WebSocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from conversations import access
from conversations.access import pk_of
from conversations.cursors import EventCursor, InvalidCursor
from convserver.api.native.events import CursorField
from convserver.api.native.shapes import NativeServerSentEvent, refusals
from convserver.api.native.view import NativeView
from convserver.api.negotiation import OneRenderer
from convserver.api.scopes import WRITES
from convserver.serving.live_responses import LiveResponse, Write
from sessions_app.identity import open_sockets
from sessions_app.identity.authentication import credentials_of
from sessions_app.identity.principals import Principal, Refused
from sessions_app.sockets.native.list_reader import since_of
from sessions_app.sockets.native.stream import ConversationStream, ListStream

EVENTS = {(200, "text/event-stream"): NativeServerSentEvent}
LAST_EVENT_ID = OpenApiParameter(
    "Last-Event-ID",
    str,
    OpenApiParameter.HEADER,
    description="The last `id` that the client has received. It counts before the parameter of the address.",
)


class StreamSerializer(serializers.Serializer[Any]):
    """The query of a conversation's stream."""

    after = CursorField(default=None)
    follow = serializers.BooleanField(
        default=True, help_text="`false`: end after what there is now, for clients that poll."
    )
    payload = serializers.BooleanField(default=True, help_text="`false`: events without their payloads.")


class ListStreamSerializer(serializers.Serializer[Any]):
    """The query of the list's stream."""

    since = serializers.CharField(
        default=None, max_length=100, help_text="The `cursor` of an earlier frame, or its `now`."
    )
    follow = serializers.BooleanField(
        default=True, help_text="`false`: end after what has changed so far, for clients that poll."
    )


class StreamView(NativeView):
    """The live updates of one conversation."""

    needs = WRITES
    content_negotiation_class = OneRenderer  # a client that accepts text/event-stream is refused in JSON

    @extend_schema(
        parameters=[StreamSerializer, LAST_EVENT_ID], responses={**EVENTS, **refusals(400, 404, 503)}
    )
    def get(self, request: Request, conversation_id: str) -> LiveResponse:
        """Send the frames of the conversation's socket as server-sent events; `id` is an event's cursor.

        A stream that the server ends has a last frame `end` with a close code of the socket, and why.
        """
        conversation = access.readable(request.user, conversation_id)
        wanted = self.checked_query(StreamSerializer)
        # A browser that connects again sends the header, and the address with which it began.
        wanted["after"] = _last_event(request) or wanted["after"] or EventCursor(-1)
        return _live(
            request, lambda who, write: ConversationStream(who, conversation, write, **wanted).serve()
        )


class ListStreamView(NativeView):
    """The live updates of the user's list."""

    needs = WRITES
    content_negotiation_class = OneRenderer

    @extend_schema(
        parameters=[ListStreamSerializer, LAST_EVENT_ID], responses={**EVENTS, **refusals(400, 503)}
    )
    def get(self, request: Request) -> LiveResponse:
        """Send the frames of the list's socket as server-sent events; `id` is a frame's `cursor`."""
        query = self.checked_query(ListStreamSerializer)
        try:
            since = since_of(request.headers.get("Last-Event-ID") or query["since"])
        except Refused as error:
            raise serializers.ValidationError(str(error)) from error
        follow = query["follow"]
        return _live(request, lambda who, write: ListStream(who, write, since=since, follow=follow).serve())


def _last_event(request: Request) -> EventCursor | None:
    """Return the cursor that a client resumes from. Raise InvalidCursor for another text."""
    text = request.headers.get("Last-Event-ID")
    try:
        return EventCursor.decode(text) if text else None
    except InvalidCursor as error:
        raise InvalidCursor("`Last-Event-ID` is the `id` of an event of this stream.") from error


def _live(request: Request, serve: Callable[[Principal, Write], Awaitable[None]]) -> LiveResponse:
    user = request.user
    credentials = credentials_of({name.lower(): value for name, value in request.headers.items()})
    # The throttle of the framework has counted the request before its view.
    permit = partial(open_sockets.counted, pk_of(user), is_request_counted=True)
    return LiveResponse(lambda write: serve(Principal(user, credentials), write), permit)
