"""What clients have a conversation do: run, pause, copy itself, answer beside its log (spec V1 §2.3)."""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.exceptions import EventNotFound
from conversations.models import Conversation, ConversationRef
from conversations.store import copying
from convserver.api.errors import PASSING
from convserver.api.idempotency import IDEMPOTENCY_KEY, answer_once
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.view import Done, body_of, json_of, optional_body_in, optional_body_of
from convserver.api.scopes import OF_THE_USER, RUNS, WRITES, requires
from convserver.api.v1.agent.conversations import ONE, AgentConversation, information, start_child
from convserver.api.v1.agent.requests import (
    Destination,
    Fork,
    NewAnalyzer,
    NewChild,
    NewModel,
    NewPolicy,
    NewSecrets,
    ProfileChoice,
    Question,
    TitleWish,
)
from convserver.api.v1.agent.settings.profiles import model_for_conversation
from convserver.api.v1.agent.view import AgentViewSet, done
from convserver.api.v1.authentication import conversation_of, require_more_than_one
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.checkpoints import copies
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.openhands_v1 import questions
from sessions_app.openhands_v1.information import dashed
from sessions_app.settings import agent_setups, model_keys

logger = logging.getLogger(__name__)

ALREADY_RUNNING = "Conversation already running. Wait for it to finish, or pause it first."
# No client is sent this: `_copied` waits for the copy, also when the request is repeated.
BEGUN = HTTPStatus.ACCEPTED
COPY_WAIT_S = 30.0
STEERED = {**ONE, 409: Detail, 503: Detail}


class Title(BaseModel):
    """What a conversation could be called; nothing is stored."""

    title: str


class Answer(BaseModel):
    """What the agent says."""

    response: str


class ChildStarted(BaseModel):
    """The conversation that was started below another."""

    conversation_id: str
    parent_conversation_id: str
    status: str
    title: str | None
    url: None = None
    workspace: None = None
    isolation: str


class Runtime(BaseModel):
    """Whether a conversation can run."""

    runtime_status: str
    can_resume: bool
    runtime_error: None = None


class SteeringViewSet(AgentViewSet):
    """One conversation, and what is done with it."""

    needs = WRITES
    is_named_by_method = False

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **STEERED})
    def run(self, request: Request, conversation_id: str) -> Response:
        """Run the agent on the unanswered messages; approves a pending call.

        Responds immediately; the status is `running` until the agent is done.
        """
        conversation = conversation_of(request, conversation_id)
        if not in_loop(lambda: get_manager().ask_run(conversation)):
            raise Refused(409, {"detail": ALREADY_RUNNING})
        return done()

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **STEERED})
    def pause(self, request: Request, conversation_id: str) -> Response:
        """Pause the agent after its current step."""
        conversation = conversation_of(request, conversation_id)
        in_loop(lambda: get_manager().pause(conversation))
        return done()

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **STEERED})
    def interrupt(self, request: Request, conversation_id: str) -> Response:
        """Interrupt the agent immediately."""
        conversation = conversation_of(request, conversation_id)
        in_loop(lambda: get_manager().interrupt(conversation))
        return done()

    @requires(RUNS)
    @extend_schema(request=None, responses={200: Done, **STEERED})
    def condense(self, request: Request, conversation_id: str) -> Response:
        """Replace the earlier events with a summary for the model."""
        in_loop(v1_input.condense, conversation_of(request, conversation_id))
        return done()

    @requires(OF_THE_USER)
    @extend_schema(request=NewSecrets, responses={200: Done, **STEERED})
    def add_secrets(self, request: Request, conversation_id: str) -> Response:
        """Add secrets; one with the same name is replaced."""
        conversation = conversation_of(request, conversation_id)
        agent_setups.add_secrets(conversation, body_of(request, NewSecrets).secrets)
        return done()

    @requires(RUNS)
    @extend_schema(request=NewPolicy, responses={200: Done, **STEERED})
    def set_policy(self, request: Request, conversation_id: str) -> Response:
        """Set when the agent asks for approval."""
        conversation = conversation_of(request, conversation_id)
        agent_setups.set_policy(conversation, body_of(request, NewPolicy).policy)
        return done()

    @requires(RUNS)
    @extend_schema(request=NewAnalyzer, responses={200: Done, **STEERED})
    def set_analyzer(self, request: Request, conversation_id: str) -> Response:
        """Set how the risk of a call is assessed."""
        conversation = conversation_of(request, conversation_id)
        agent_setups.set_analyzer(conversation, body_of(request, NewAnalyzer).security_analyzer)
        return done()

    @requires(RUNS)
    @extend_schema(request=NewModel, responses={200: Done, **STEERED})
    def switch_model(self, request: Request, conversation_id: str) -> Response:
        """Set the model that answers from the next turn on; its key is stored with the conversation."""
        conversation = conversation_of(request, conversation_id)
        llm = body_of(request, NewModel).llm
        if not isinstance(request.auth, ConversationRef):  # such a key opens no stored key of its owner's
            llm = model_keys.with_stored_keys(self.user_id, llm)
        agent_setups.set_model(conversation, llm)
        return done()

    @requires(RUNS.of_all)
    @extend_schema(request=ProfileChoice, responses={200: Done, **STEERED})
    def switch_profile(self, request: Request, conversation_id: str) -> Response:
        """Set the model of a stored profile for the turns from the next one on."""
        conversation = conversation_of(request, conversation_id)
        # A key of one conversation must not use the profiles of its owner.
        require_more_than_one(request)
        name = body_of(request, ProfileChoice).profile_name
        llm = model_for_conversation(self.user_id, name)
        agent_setups.set_model(conversation, llm)
        return done()

    @requires(RUNS.of_all)
    @extend_schema(request=NewChild, responses={201: ChildStarted, **STEERED})
    def start_child(self, request: Request, conversation_id: str) -> Response:
        """Start a conversation below this one, with its agent, on a task."""
        parent = conversation_of(request, conversation_id)
        # It would start conversations that the key does not open.
        require_more_than_one(request)
        info = information(start_child(request.user, parent, body_of(request, NewChild)))
        started = ChildStarted(
            conversation_id=info["id"],
            parent_conversation_id=dashed(parent.public_id),
            status=info["execution_status"],
            title=info["title"],
            isolation="shared",
        )
        return Response(started.model_dump(), status=201)

    @extend_schema(responses={200: Runtime, **ONE})
    def runtime(self, request: Request, conversation_id: str) -> Response:
        """Report that the conversation can run: it needs no runtime of its own."""
        conversation_of(request, conversation_id)
        return Response(Runtime(runtime_status="available", can_resume=True).model_dump())

    @in_lane(Lane.ABROAD)
    @extend_schema(request=TitleWish | None, responses={200: Title, **STEERED})
    def generate_title(self, request: Request, conversation_id: str) -> Response:
        """Generate a title from the first user message, without storing it."""
        conversation = conversation_of(request, conversation_id)
        wish = optional_body_of(request, TitleWish) or TitleWish()
        title = in_loop(questions.title_of, conversation, max_characters=wish.max_length)
        if title is None:
            raise Refused(409, {"detail": "The user has not sent a message yet."})
        return Response({"title": title})

    @requires(RUNS)
    @in_lane(Lane.ABROAD)
    @extend_schema(request=Question, responses={200: Answer, **ONE, 502: Detail})
    def ask_agent(self, request: Request, conversation_id: str) -> Response:
        """Ask the agent a question without storing it in the conversation."""
        conversation = conversation_of(request, conversation_id)
        question = body_of(request, Question).question
        try:
            answer = in_loop(questions.answer_to, conversation, question)
        # A client may try these again; what is caught below is a 502.
        except PASSING:
            raise
        except Exception as error:
            logger.exception("The agent of conversation %s could not be asked", conversation.public_id)
            raise Refused(502, {"detail": "The agent could not be asked. Try again."}) from error
        return Response({"response": answer})

    @requires(WRITES.of_all)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=Fork | None,
        responses={201: AgentConversation, **STEERED},
    )
    def fork(self, request: Request, conversation_id: str) -> Response:
        """Copy the conversation, through one event or all of them, into a new one that is idle."""
        source = conversation_of(request, conversation_id)
        require_more_than_one(request)
        sent = json_of(request)
        body = optional_body_in(sent, Fork) or Fork()
        # The copying is not part of the transaction, which would hold up other writers.
        begun = answer_once(request, sent, partial(_fork, request, source, body))
        return begun if begun.status_code != BEGUN else _copied(request, begun.data["id"])

    @extend_schema(request=Destination, responses={200: AgentConversation, **STEERED})
    def navigate(self, request: Request, conversation_id: str) -> Response:
        """Go to an event of the history, from which the conversation is continued."""
        conversation = conversation_of(request, conversation_id)
        v1_input.navigate(conversation, body_of(request, Destination).event_id)
        return Response(information(conversation))

    @extend_schema(responses={200: Answer, **ONE})
    def final_response(self, request: Request, conversation_id: str) -> Response:
        """Return the agent's last message; empty if there is none."""
        return Response({"response": v1_input.final_response(conversation_of(request, conversation_id))})


def _fork(request: Request, source: ConversationRef, body: Fork) -> Response:
    copy = copies.fork(
        request.user,
        source,
        conversation_id=body.id.hex if body.id else None,
        through=_place(source, body.from_event_id) if body.from_event_id is not None else None,
        title=body.title,
        tags=body.tags,
        keep_metrics=not body.reset_metrics,
    )
    if copying.progress(copy) is not None:
        return Response({"id": copy.public_id}, status=BEGUN)
    return Response(information(copy), status=201)


def _copied(request: Request, public_id: str) -> Response:
    """Answer a fork of many events once all are copied. Raise ForkUnfinished after COPY_WAIT_S."""
    row = Conversation.objects.owned_by(access.pk_of(request.user)).get(public_id=public_id)
    # A background task would begin later; this wire has no answer for a fork that is not whole.
    copying.advance(row.ref, seconds=COPY_WAIT_S)
    return Response(information(access.readable(request.user, public_id)), status=201)


def _place(conversation: ConversationRef, event_id: str) -> int:
    seq = v1_input.place_of(conversation, event_id)
    if seq is None:
        raise EventNotFound(f"There is no event {event_id!r}.")
    return seq
