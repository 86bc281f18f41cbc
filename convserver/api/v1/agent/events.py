"""The log on the agent face: pages, counts, events by id, and messages (spec V1 §2.4)."""

from __future__ import annotations

from contextlib import suppress

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, ConfigDict, RootModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.dialects import v1
from conversations.events import ConversationRef, EventEnvelope
from conversations.exceptions import LoopUnavailable
from conversations.log import reads
from convserver.api.direct.calls import SUCCESS_JSON, Append, NotDirect, Reply
from convserver.api.direct.outcomes import in_loop_once
from convserver.api.openhands.errors import Detail, InvalidRequest, Refused, ValidationProblems
from convserver.api.openhands.view import Done, body_in, body_of, optional_body_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1 import batches, shown_events
from convserver.api.v1.agent.pages import (
    AgentEventPageQuery,
    AgentEventsQuery,
    as_json,
    batch,
    event_page,
    missing,
    queried,
    text_of_page,
)
from convserver.api.v1.agent.requests import ConfirmationDecision, Saying
from convserver.api.v1.agent.view import AgentViewSet, described, done
from convserver.api.v1.authentication import conversation_of
from convserver.event_loop import in_loop
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import input as v1_input

ONE = {404: Detail, 422: ValidationProblems}
IDS = [
    OpenApiParameter(name, {"type": "array", "items": {"type": "string"}}, description="Or in the body.")
    for name in ("event_ids", "id")
]


class Event(BaseModel):
    """An event, byte for byte as it was stored; a V0 event as its V1 counterpart."""

    model_config = ConfigDict(extra="allow")

    kind: str


class EventPage(BaseModel):
    """A page of events; `next_page_id` is null on the last one."""

    items: list[Event]
    next_page_id: str | None


class EventIds(RootModel[list[str]]):
    """Ids, as the body of a GET."""


class AgentEventViewSet(AgentViewSet):
    """The events of one conversation, and the user's messages."""

    needs = WRITES
    not_found = "Conversation not found: {conversation_id}"

    @extend_schema(parameters=described(AgentEventPageQuery), responses={200: EventPage, **ONE})
    def search(self, request: Request, conversation_id: str) -> HttpResponse:
        """Return one page of the matching events, in the order of the log or from its end.

        A page is shorter than `limit` if its events are long; continue until `next_page_id` is null.
        """
        conversation = conversation_of(request, conversation_id)
        query = query_of(request, AgentEventPageQuery)
        page = event_page(conversation, query)
        texts = (_shown(event, conversation) for event in page.events)
        return as_json(text_of_page(texts, page.next_page_id))

    @extend_schema(parameters=described(AgentEventsQuery), responses={200: int, **ONE})
    def count(self, request: Request, conversation_id: str) -> Response:
        """Return how many events match."""
        conversation = conversation_of(request, conversation_id)
        wanted = query_of(request, AgentEventsQuery).wanted()
        return Response(0 if wanted is None else reads.count_events(conversation, wanted))

    @extend_schema(operation_id="agent_api_conversations_event_get", responses={200: Event, **ONE})
    def retrieve(self, request: Request, conversation_id: str, event_id: str) -> HttpResponse:
        """Return the event with this id."""
        conversation = conversation_of(request, conversation_id)
        found = shown_events.with_id(conversation, event_id)
        if found is None:
            raise Refused(404, {"detail": "Not Found"})
        return as_json(found)

    @requires(RUNS)
    @extend_schema(parameters=IDS, responses={200: list[Event | None], 400: Detail, **ONE})
    def batch(self, request: Request, conversation_id: str) -> HttpResponseBase:
        """Return the events with these ids, in this order; null for an unknown one.

        The ids are in the query, or a list in the body.
        """
        conversation = conversation_of(request, conversation_id)
        ids = queried(request, "event_ids", "id")
        if ids is None:
            body = optional_body_of(request, EventIds)
            if body is None:
                raise missing("body")
            ids = body.root
        found = shown_events.with_ids(conversation, batch(ids))
        return batches.in_order(ids, found.loaded, found.deferred)

    @requires(RUNS)
    @extend_schema(request=Saying, responses={200: Done, **ONE, 409: Detail, 503: Detail})
    def create(self, request: Request, conversation_id: str) -> Response:
        """Store a user message; with `run` the agent answers, unless it waits for approval."""
        conversation = conversation_of(request, conversation_id)
        body = body_of(request, Saying)
        in_loop_once(request, _say, conversation, body, self.user_id)
        return done()

    @requires(RUNS)
    @extend_schema(request=ConfirmationDecision, responses={200: Done, **ONE, 409: Detail, 503: Detail})
    def decide(self, request: Request, conversation_id: str) -> Response:
        """Approve or reject all pending calls; rejecting does nothing if none is pending.

        Approving resumes the agent even if no call is pending.
        """
        conversation = conversation_of(request, conversation_id)
        body = body_of(request, ConfirmationDecision)
        in_loop(_decide, conversation, body)
        return done()


async def append(call: Append) -> Reply:
    """Do what `AgentEventViewSet.create` does with a light body. Raise NotDirect."""
    try:
        body = body_in(call.json(), Saying)
    except InvalidRequest as error:
        raise NotDirect from error
    await _say(call.conversation, body, call.user_pk)
    return Reply(None, SUCCESS_JSON)


async def _say(conversation: ConversationRef, body: Saying, sender_id: int) -> None:
    # `run` is of the request, and no part of the message that is stored.
    message = body.model_dump(exclude={"run"})
    await v1_input.say(conversation, message, sender_id=sender_id, run=body.run)


def _shown(event: EventEnvelope, conversation: ConversationRef) -> str:
    return v1.shown(event, conversation.public_id)


async def _decide(conversation: ConversationRef, decision: ConfirmationDecision) -> None:
    if decision.accept:
        try:
            await get_manager().confirm(conversation, accept=True)
        except LoopUnavailable:  # no call waits, so the agent is only resumed
            await get_manager().ask_run(conversation)
        return
    with suppress(LoopUnavailable):  # no call waits, so there is nothing to reject
        await get_manager().reject(conversation, decision.reason)
