"""Reports of agent servers elsewhere: their conversations and events (spec V1 §1.6).

They repeat a batch, also in another order, until it succeeds. So an event is stored once, and the answer is
a success only if the whole batch is stored.
"""

from __future__ import annotations

import logging
from functools import partial
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_view
from pydantic import BaseModel, ConfigDict
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import dialects
from conversations.events import Dialect, NewEvent
from conversations.exceptions import ConversationNotFound, InvalidEvent
from conversations.models import Conversation, ConversationRef, Version
from conversations.payloads import bounds, jsontext
from conversations.provisional_titles import MADE, PARAMETER
from conversations.store import ConversationExists, changes, creation
from convserver.api.authentication import KeyAuthentication, LoginAuthentication
from convserver.api.bodies import TextParser, read_in_turn
from convserver.api.openhands.errors import Detail, InvalidRequest, Refused
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import Done, body_of
from convserver.api.scopes import WRITES
from convserver.api.v1.app.view import AppView, AppViewSet, of_one
from convserver.api.v1.authentication import ConversationKeyAuthentication
from sessions_app.openhands_v1 import reports, sandboxes

logger = logging.getLogger(__name__)

EVENTS_MAX = 1000
"""At most this many events per batch."""
FULL_STATE = "full_state"
"""Parts of a state that are reported at any time and not stored."""


class ConversationReport(BaseModel):
    """A report about a conversation; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: UUID
    title: StorableText | None = None


class ReportedEvent(BaseModel):
    """An event of this wire; its other members depend on its kind."""

    model_config = ConfigDict(extra="allow")

    id: str
    kind: str


# A class of its own, for the words in the API document (`schema.SandboxKeyScheme`).
class SandboxKeyAuthentication(ConversationKeyAuthentication):
    """The key of a conversation, which acts for its owner in that sandbox."""


class ReportViewSet(AppViewSet):
    """A resource that receives reports of agent servers elsewhere."""

    authentication_classes = (SandboxKeyAuthentication, KeyAuthentication, LoginAuthentication)

    def speaker(self, request: Request, sandbox_id: str | None) -> ConversationRef | None:
        """Return the conversation that the reporter may act for, with all below it; None for any.

        With a key it is the key's own, otherwise the root of the named sandbox; None means any of the
        user's. Raise Refused if the reporter may not act for it.
        """
        key_of = request.auth if isinstance(request.auth, ConversationRef) else None
        if key_of is not None:
            own = sandboxes.sandbox_of(key_of)
            if own is None or sandbox_id not in (None, own):
                raise _unauthorized()
            sandbox_id = own
        if sandbox_id is None:
            return None
        top = sandboxes.top_of(self.user_id, sandbox_id)
        if top is None:
            raise _unauthorized()
        return key_of or top


class ConversationReportViewSet(ReportViewSet):
    """Conversations that run elsewhere."""

    needs = WRITES

    @extend_schema(request=ConversationReport, responses={200: Done, 400: Detail})
    def create(self, request: Request, sandbox_id: str | None = None) -> Response:
        """Create an unknown conversation as a sub-conversation of the sender; set a missing title."""
        speaker = self.speaker(request, sandbox_id)
        body = body_of(request, ConversationReport)
        conversation = _reported(request, body, speaker)
        if body.title:
            # Only where there is none: the user may have renamed it here.
            changes.retitle(conversation, body.title, title_is=None)
        return Response({"success": True})


class EventReportViewSet(ReportViewSet):
    """Events of conversations that run elsewhere."""

    needs = WRITES

    @extend_schema(request=list[ReportedEvent], responses={200: Done, 400: Detail, 503: Detail, **of_one})
    def create(self, request: Request, conversation_id: str, sandbox_id: str | None = None) -> Response:
        """Store a batch of events unchanged, all or none, each once; no agent runs."""
        speaker = self.speaker(request, sandbox_id)
        conversation = _conversation_in(request, UUID(conversation_id).hex, speaker)
        sender_id = self.user_id
        text = TextParser().parse(request._request)
        # Read whole before anything is stored: one bad event refuses the batch, which is then sent again.
        events = read_in_turn(sender_id, text, partial(_events, sender_id=sender_id))
        reports.store_once(conversation, events)
        return Response({"success": True})


@extend_schema_view(create=extend_schema(operation_id="v1_webhooks_sandbox_conversations_post"))
class SandboxConversationReportViewSet(ConversationReportViewSet):
    """Conversations that run elsewhere, by the name of their sandbox."""

    needs = WRITES


@extend_schema_view(create=extend_schema(operation_id="v1_webhooks_sandbox_events_post"))
class SandboxEventReportViewSet(EventReportViewSet):
    """Events of conversations that run elsewhere, by the name of their sandbox."""

    needs = WRITES


class WebhookSecretView(AppView):
    """Tokens of git providers, for reporters to whom one was issued."""

    needs = WRITES
    authentication_classes: tuple[type[BaseAuthentication], ...] = ()
    permission_classes = (AllowAny,)

    @extend_schema(responses={401: Detail})
    def get(self, request: Request) -> Response:
        """Refuse: this server does not give out secrets."""
        raise _unauthorized()


def _unauthorized() -> Refused:
    return Refused(401, {"detail": "Unauthorized"})


def _reported(request: Request, body: ConversationReport, speaker: ConversationRef | None) -> ConversationRef:
    """Return the reported conversation, created if no user has it. Raise Refused."""
    # A sender that reports itself is not its own parent.
    parent_id = speaker.pk if speaker is not None and speaker.public_id != body.id.hex else None
    try:
        return creation.create(
            request.user,
            conversation_id=body.id.hex,
            version=Version.V1,
            parent_id=parent_id,
            title=body.title,
            parameters={PARAMETER: MADE} if body.title else None,
        )
    except ConversationExists:
        try:
            return _conversation_in(request, body.id.hex, speaker)
        except ConversationNotFound as error:
            # Of another user, or of another sandbox: the sender is not told which.
            raise _unauthorized() from error


def _conversation_in(request: Request, public_id: str, speaker: ConversationRef | None) -> ConversationRef:
    """Return one of the user's V1 conversations that the reporter may act for. Raise ConversationNotFound."""
    rows = Conversation.objects.open_to(request.user).known_to_v1().with_public_ids([public_id])
    row = rows.first()
    if row is None or (speaker and not sandboxes.is_at_or_below(row.ref, speaker)):
        raise ConversationNotFound("Conversation not found.")
    return row.ref


def _events(text: str, *, sender_id: int) -> list[NewEvent]:
    """Return the events of a body, each with its original bytes.

    Raise TooManyValues, InvalidRequest, InvalidEvent or Refused.
    """
    try:
        bounds.require_bounded(text)
        members = jsontext.items(text, at_most=EVENTS_MAX)
    except bounds.TooManyValues:
        raise
    except jsontext.TooManyItems as error:
        raise Refused(400, {"detail": f"A batch has {EVENTS_MAX} events at the most."}) from error
    except (ValueError, RecursionError) as error:
        raise InvalidEvent(f"The body must be a JSON list of events: {error}.") from error
    events = [_event(number, member, sender_id) for number, member in enumerate(members)]
    return [event for event in events if event is not None]


def _event(number: int, member: jsontext.Member, sender_id: int) -> NewEvent | None:
    """Return one event; None if it is not stored. Raise InvalidRequest or InvalidEvent."""
    value = member.value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise _problem(number, "An event of this wire is an object with a `kind`.")
    reading = dialects.read(value)
    if reading.dialect is not Dialect.V1 or not reading.event_id:
        raise _problem(number, "An event of this wire has an `id` of its own, and a `kind`.")
    if value.get("key") == FULL_STATE:
        return None
    # The text as it came: an event is stored byte for byte (spec V1 R4).
    return NewEvent(event_id=reading.event_id, payload=member.text, reading=reading, sender_id=sender_id)


def _problem(number: int, words: str) -> InvalidRequest:
    return InvalidRequest([{"type": "value_error", "loc": ["body", number], "msg": words, "input": None}])
