"""Conversations on the agent face: start, find, read, change and delete them (spec V1 §2.3)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.db import transaction
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.access import Visitor
from conversations.events import NewEvent
from conversations.exceptions import ConversationNotFound
from conversations.log.reads import take_bytes
from conversations.models import ConversationQuerySet, ConversationRef, normal_id
from conversations.store import ConversationExists, changes, delete, deletion
from convserver.api.idempotency import IDEMPOTENCY_KEY, answer_once
from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.openhands.view import Done, body_in, body_of, json_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1 import batches
from convserver.api.v1.agent import started_agents
from convserver.api.v1.agent.errors import malformed_id
from convserver.api.v1.agent.pages import ListQuery, StatusQuery, batch, missing, page_of, queried
from convserver.api.v1.agent.requests import ConversationChange, NewChild, Saying, Start
from convserver.api.v1.agent.view import AgentViewSet, described, done
from convserver.api.v1.authentication import (
    conversation_of,
    is_uuid,
    own_of,
    require_more_than_one,
    visible,
)
from convserver.event_loop import in_loop, start_after_commit
from sessions_app.live.status import in_status
from sessions_app.loops import runs, turn_events
from sessions_app.openhands_v1 import starts, steering
from sessions_app.openhands_v1.information import SIZE, ConversationInformation, information_of
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.workspaces import chosen

IDS = OpenApiParameter("ids", {"type": "array", "items": {"type": "string"}}, required=True)


class AgentConversation(BaseModel):
    """A conversation in its present state; further members depend on how it was started."""

    id: str
    agent: dict[str, Any]
    workspace: dict[str, Any]
    persistence_dir: str
    max_iterations: int
    stuck_detection: bool
    execution_status: str
    confirmation_policy: dict[str, Any]
    security_analyzer: dict[str, Any] | None
    activated_knowledge_skills: list[str]
    stats: dict[str, Any]
    secret_registry: dict[str, Any]
    title: str | None
    metrics: dict[str, Any] | None
    created_at: str
    updated_at: str


class AgentConversationPage(BaseModel):
    """A page of conversations; `next_page_id` is null on the last one."""

    items: list[AgentConversation]
    next_page_id: str | None


MALFORMED = {422: ValidationProblems}
ONE = {404: Detail, **MALFORMED}


class AgentConversationViewSet(AgentViewSet):
    """The user's conversations, of both wires."""

    needs = WRITES
    is_named_by_method = False

    @requires(WRITES.of_lists)
    @extend_schema(parameters=described(ListQuery), responses={200: AgentConversationPage, **MALFORMED})
    def search(self, request: Request) -> Response:
        """Return one page of the conversations."""
        query = query_of(request, ListQuery)
        page = page_of(_matching(request, query), query)
        found = information_of(page.pks)
        # One may have been deleted since the page's keys were read.
        items = [found[pk] for pk in page.pks if pk in found]
        return Response({"items": items, "next_page_id": page.next_page_id})

    @requires(WRITES.of_lists)
    @extend_schema(parameters=described(StatusQuery), responses={200: int, **MALFORMED})
    def count(self, request: Request) -> Response:
        """Return how many there are."""
        return Response(_matching(request, query_of(request, StatusQuery)).count())

    @requires(RUNS.of_lists)
    @extend_schema(
        parameters=[IDS], responses={200: list[AgentConversation | None], 400: Detail, **MALFORMED}
    )
    def batch(self, request: Request) -> HttpResponseBase:
        """Return those with these ids, in this order; null for an unknown one."""
        asked = queried(request, "ids")
        if asked is None:
            raise missing("query", "ids")
        return _batch(request, batch(asked))

    @extend_schema(responses={200: AgentConversation, **ONE})
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """Return one conversation."""
        return Response(information(conversation_of(request, conversation_id)))

    @requires(RUNS.of_lists)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=Start,
        responses={200: AgentConversation, 201: AgentConversation, 404: Detail, 409: Detail, 503: Detail},
    )
    def create(self, request: Request) -> Response:
        """Start a conversation; the first message is always answered, whatever its `run` says.

        For an id of one of the user's conversations the answer is that conversation, unchanged, with 200;
        if it was deleted, it is restored with its whole log.
        """
        sent = json_of(request)
        body = body_in(sent, Start)
        return answer_once(request, sent, partial(_create, request, body))

    @extend_schema(request=ConversationChange, responses={200: Done, **ONE})
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename, or set the tags."""
        conversation = conversation_of(request, conversation_id)
        body = body_of(request, ConversationChange)
        # Both or none: a client that is refused must not find half of its change.
        with transaction.atomic():
            if body.title is not None:
                changes.retitle(conversation, body.title)
            if body.tags is not None:
                changes.retag(conversation, body.tags)
        return done()

    @extend_schema(responses={200: Done, **ONE})
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and delete the conversation; every event is kept.

        Clients of many releases delete a conversation when their script ends: starting one with the same
        id restores it.
        """
        conversation = conversation_of(request, conversation_id)
        # First, while it still is a conversation to which the loop can write its end.
        in_loop(steering.stop_to_delete, conversation)
        delete(conversation)
        return done()


def information(conversation: ConversationRef) -> ConversationInformation:
    """Return a conversation in its present state. Raise ConversationNotFound if it was deleted meanwhile."""
    found = information_of([conversation.pk])
    if conversation.pk not in found:
        raise ConversationNotFound("Conversation not found.")
    return found[conversation.pk]


def _matching(request: Request, query: StatusQuery) -> ConversationQuerySet:
    rows = visible(request).permanent()
    return rows if query.status is None else in_status(rows, [query.status])


def _batch(request: Request, asked: list[str]) -> HttpResponseBase:
    for text in asked:
        if not is_uuid(text):
            raise malformed_id(text, "query", "ids")
    public_ids = [normal_id(text) for text in asked]
    # Sizes first: together, a hundred setups may be more than memory should hold.
    rows = list(visible(request).with_public_ids(public_ids).values_list("public_id", "pk", SIZE))
    loaded = take_bytes((pk, size) for _, pk, size in rows)
    information = information_of(loaded)
    return batches.in_order(
        public_ids,
        {public_id: json.dumps(information[pk]) for public_id, pk, _ in rows if pk in information},
        {public_id: partial(_read, pk) for public_id, pk, _ in rows[len(loaded) :]},
    )


def _read(pk: int) -> str | None:
    found = information_of([pk])
    return json.dumps(found[pk]) if pk in found else None


@transaction.atomic
def _create(request: Request, body: Start) -> Response:
    """Start the conversation; it is running with the commit, and its loop is started after it."""
    conversation, is_new = _started(request, body)
    # A repeated start must not run the agent once more.
    if is_new and body.initial_message is not None:
        runs.ask(conversation)
        start_after_commit(conversation)
    return Response(information(conversation), status=201 if is_new else 200)


def _started(request: Request, body: Start) -> tuple[ConversationRef, bool]:
    """Return the conversation, and whether it was created now. Raise ConversationExists for another user's
    id."""
    public_id = body.conversation_id.hex if body.conversation_id else None
    # Before the check of the key: the key of a conversation may start that one again.
    if public_id and (own := _brought_back(request, public_id)):
        return own, False
    require_more_than_one(request)
    parent_id = body.parent_conversation_id
    parent = access.readable(request.user, parent_id.hex) if parent_id else None
    agent = started_agents.agent_of(access.pk_of(request.user), body)
    try:
        conversation = agent_setups.create(
            request.user,
            _setup(body, agent),
            conversation_id=public_id,
            events=_first_events(body, request),
            parent_id=parent.pk if parent else None,
            llm_model=started_agents.model_in(agent),
            tags=body.tags,
        )
        chosen.choose_known(conversation, body.workspace["working_dir"])
    except ConversationExists:  # another user's, or created by another request just now
        existing = _brought_back(request, public_id) if public_id else None
        if existing is None:
            raise
        return existing, False
    return conversation, True


def _brought_back(request: Request, public_id: str) -> ConversationRef | None:
    """Return the user's own conversation with this id, restored if it was deleted."""
    conversation = own_of(request, public_id)
    if conversation is not None:
        deletion.restore(conversation)
    return conversation


def _setup(body: Start, agent: dict[str, Any] | None) -> NewSetup:
    return NewSetup(
        agent=agent,
        secrets=body.secrets,
        workspace=body.workspace,
        confirmation_policy=body.policy,
        security_analyzer=body.security_analyzer,
        max_iterations=body.max_iterations,
        stuck_detection=body.stuck_detection,
        facts=body.facts,
    )


def _first_events(body: Start, request: Request) -> list[NewEvent]:
    """Return what the log begins with: the system prompt, unless the client expects it with the first message
    (`runs.take`), and the first message, which asks the agent for an answer. Raise InvalidEvent.
    """
    if body.initial_message is None:
        return [turn_events.system_prompt()] if body.prompts_at_once else []
    said = body.initial_message.model_dump()
    return [turn_events.system_prompt(), starts.first_message(said, sender_id=access.pk_of(request.user))]


@transaction.atomic
def start_child(user: Visitor, parent: ConversationRef, body: NewChild) -> ConversationRef:
    """Start a conversation below another one, with a copy of its agent, on a task."""
    said = Saying(content=[{"type": "text", "text": body.task}]).model_dump()
    task = starts.first_message(said, sender_id=access.pk_of(user))
    child = agent_setups.create(
        user,
        NewSetup(),
        events=[turn_events.system_prompt(), task],
        parent_id=parent.pk,
        title=body.title,
    )
    # The setup of the parent has keys, which no client is shown and none can send.
    agent_setups.copy(parent, child)
    runs.ask(child)
    start_after_commit(child)
    return child
