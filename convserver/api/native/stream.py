"""Live updates over HTTP, as server-sent events: the frames of the native sockets, without a WebSocket."""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from conversations import access
from conversations.access import Visitor, pk_of
from conversations.cursors import EventCursor, InvalidCursor
from conversations.models import ConversationRef
from convserver.api.native.events import CursorField
from convserver.api.native.shapes import NATIVE, NativeServerSentEvent, refusals
from convserver.api.negotiation import OneRenderer
from convserver.api.scopes import WRITES
from convserver.serving.live_responses import LiveResponse, Write
from sessions_app.identity import open_sockets
from sessions_app.identity.authentication import Credentials, credentials_of
from sessions_app.identity.principals import Principal, Refused
from sessions_app.sockets.native.list_reader import Since, since_of
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


class StreamView(APIView):
    """The live updates of one conversation."""

    needs = WRITES

    door = NATIVE
    content_negotiation_class = OneRenderer  # a client that accepts text/event-stream is refused in JSON

    @extend_schema(
        parameters=[StreamSerializer, LAST_EVENT_ID], responses={**EVENTS, **refusals(400, 404, 503)}
    )
    def get(self, request: Request, conversation_id: str) -> LiveResponse:
        """Send the frames of the conversation's socket as server-sent events; `id` is an event's cursor.

        A stream that the server ends has a last frame `end` with a close code of the socket, and why.
        """
        conversation = access.readable(request.user, conversation_id)
        query = StreamSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        wanted = dict(query.validated_data)
        wanted["after"] = _last_event(request) or wanted["after"] or EventCursor(-1)
        return _live(request, partial(_stream, request.user, _credentials(request), conversation, wanted))


class ListStreamView(APIView):
    """The live updates of the user's list."""

    needs = WRITES

    door = NATIVE
    content_negotiation_class = OneRenderer

    @extend_schema(
        parameters=[ListStreamSerializer, LAST_EVENT_ID], responses={**EVENTS, **refusals(400, 503)}
    )
    def get(self, request: Request) -> LiveResponse:
        """Send the frames of the list's socket as server-sent events; `id` is a frame's `cursor`."""
        query = ListStreamSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        try:
            since = since_of(request.headers.get("Last-Event-ID") or query.validated_data["since"])
        except Refused as error:
            raise serializers.ValidationError(str(error)) from error
        follow = query.validated_data["follow"]
        return _live(request, partial(_list_stream, request.user, _credentials(request), since, follow))


def _last_event(request: Request) -> EventCursor | None:
    """Return the cursor that a client resumes from. Raise InvalidCursor for another text."""
    text = request.headers.get("Last-Event-ID")
    try:
        return EventCursor.decode(text) if text else None
    except InvalidCursor as error:
        raise InvalidCursor("`Last-Event-ID` is the `id` of an event of this stream.") from error


def _credentials(request: Request) -> Credentials:
    return credentials_of({name.lower(): value for name, value in request.headers.items()})


def _live(request: Request, serve: Any) -> LiveResponse:
    permit = partial(open_sockets.counted, pk_of(request.user), is_request_counted=True)
    return LiveResponse(serve, permit)


async def _stream(
    user: Visitor, credentials: Credentials, of: ConversationRef, wanted: dict[str, Any], write: Write
) -> None:
    await ConversationStream(Principal(user, credentials), of, write, **wanted).serve()


async def _list_stream(
    user: Visitor, credentials: Credentials, since: Since | None, follow: bool, write: Write
) -> None:
    await ListStream(Principal(user, credentials), write, since=since, follow=follow).serve()
