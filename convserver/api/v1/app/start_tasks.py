"""Starting conversations, and the outcome of each start (spec V1 §1.2, §1.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

import orjson
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.cursors import ListCursor
from conversations.events import NewEvent
from conversations.log.reads import take_bytes
from conversations.models import Conversation
from convserver.api.addresses import origin_of
from convserver.api.idempotency import IDEMPOTENCY_KEY, answer_again, answer_once
from convserver.api.openhands.errors import Detail, ValidationProblems
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.view import body_in, json_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1 import batches
from convserver.api.v1.app.shapes import (
    AgentType,
    AppConversationStartTask,
    StartRequest,
    StartStatus,
    StartTaskPage,
    started_of,
)
from convserver.api.v1.app.view import (
    UUIDS,
    AppViewSet,
    PageQuery,
    described,
    of_list,
    row_of,
    uuids_of,
)
from convserver.event_loop import in_loop, start_after_commit
from convserver.pagination import first_page
from convserver.serving.admission import Lane, in_lane
from sessions_app.agents.chosen import needs_model
from sessions_app.git_providers.base import GitAuthenticationError, GitProviderError
from sessions_app.git_providers.client import GitProviders
from sessions_app.models import StartTask
from sessions_app.models.v1 import StartTaskQuerySet, json_size
from sessions_app.openhands_v1 import starts
from sessions_app.openhands_v1.starts import StartParameters
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import ModelKeyMissing, SettingsNotFound

SIZE = json_size("request")


class StartOrder(StrEnum):
    """The orders of starts; a start never changes, so both times are the same."""

    CREATED_AT = "CREATED_AT"
    CREATED_AT_DESC = "CREATED_AT_DESC"
    UPDATED_AT = "UPDATED_AT"
    UPDATED_AT_DESC = "UPDATED_AT_DESC"


class StartFilter(BaseModel):
    """Which starts to return."""

    conversation_id__eq: UUID | None = None
    created_at__gte: Instant | None = None


class StartQuery(StartFilter, PageQuery):
    """Which starts to return, and which page of them."""

    sort_order: StartOrder = StartOrder.CREATED_AT_DESC


def start(request: Request) -> Response:
    """Start a conversation and answer with the first state of its record.

    Clients poll the outcome with the record's id.
    """
    steps = _steps_of(request)
    return Response(steps[0])


class StartTaskViewSet(AppViewSet):
    """The starts that the user has requested."""

    needs = WRITES

    @requires(RUNS)
    @in_lane(Lane.ABROAD)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=StartRequest,
        responses={
            200: list[AppConversationStartTask],
            400: Detail,
            404: Detail,
            409: Detail,
            422: ValidationProblems,
            503: Detail,
        },
    )
    def stream(self, request: Request) -> StreamingHttpResponse:
        """Start a conversation and stream each step; the last one is READY or ERROR."""
        steps = _streamed(_steps_of(request))
        return StreamingHttpResponse(steps, content_type="application/json")

    @extend_schema(parameters=described(StartQuery), responses={200: StartTaskPage, **of_list})
    def search(self, request: Request) -> Response:
        """Return one page, the newest first unless asked otherwise."""
        query = query_of(request, StartQuery)
        newest_first = query.sort_order in (StartOrder.CREATED_AT_DESC, StartOrder.UPDATED_AT_DESC)
        rows = _matching(request, query)
        if query.page_id:
            rows = rows.beyond(*ListCursor.decode(query.page_id), newest_first=newest_first)
        page = first_page(rows.in_order(newest_first=newest_first), query.limit, size=SIZE)
        items = _tasks(page.pks, origin_of(request))
        return Response(StartTaskPage(items=items, next_page_id=page.next_page_id).model_dump(mode="json"))

    @extend_schema(parameters=described(StartFilter), responses={200: int, **of_list})
    def count(self, request: Request) -> Response:
        """Count what a search would return."""
        return Response(_matching(request, query_of(request, StartFilter)).count())

    @extend_schema(parameters=[UUIDS], responses={200: list[AppConversationStartTask | None], **of_list})
    def batch(self, request: Request) -> HttpResponseBase:
        """Return them in the requested order, null for an unknown id."""
        ids, origin = uuids_of(request, "ids"), origin_of(request)
        rows = StartTask.objects.of_user(self.user_id).with_task_ids(ids)
        # Sizes first: the requests that started a hundred conversations may be long.
        places = list(rows.values_list("pk", SIZE, "task_id"))
        pks = take_bytes((pk, size) for pk, size, _ in places)
        loaded = {task.id: task.model_dump_json() for task in _tasks(pks, origin)}
        deferred = {task_id: partial(_read, pk, origin) for pk, _, task_id in places[len(pks) :]}
        return batches.in_order(ids, loaded, deferred)


def _tasks(pks: Sequence[int], origin: str) -> list[AppConversationStartTask]:
    """Return the starts with these keys in this order, without those that were deleted meanwhile."""
    tasks = StartTask.objects.select_related("conversation").in_bulk(pks)
    return started_of([tasks[pk] for pk in pks if pk in tasks], origin=origin)


def _read(pk: int, origin: str) -> str | None:
    tasks = _tasks([pk], origin)
    return tasks[0].model_dump_json() if tasks else None


def _matching(request: Request, query: StartFilter) -> StartTaskQuerySet:
    rows = StartTask.objects.of_user(access.pk_of(request.user))
    if query.conversation_id__eq is not None:
        rows = rows.of_public_id(query.conversation_id__eq.hex)
    return rows if query.created_at__gte is None else rows.asked_from(query.created_at__gte)


def _steps_of(request: Request) -> list[Any]:
    """Start a conversation, unless its key shows that this was done before, and return the steps as JSON."""
    sent = json_of(request)
    body = body_in(sent, StartRequest)
    # First: a repeated request must not fail because a provider refuses the token by now.
    response = answer_again(request, sent)
    if response is None:
        response = answer_once(request, sent, _start_of(request, body), is_recorded=_is_started)
    steps: list[Any] = response.data
    return steps


def _is_started(steps: list[Any]) -> bool:
    """Return whether a start succeeded."""
    # A failed start may be repeated with its key, once the user has mended its cause.
    return bool(steps[-1]["status"] != StartStatus.ERROR)


def _start_of(request: Request, body: StartRequest) -> Callable[[], Response]:
    """Check all needs of a start, and return what stores it, also if it fails."""
    parent = row_of(request, body.parent_conversation_id.hex) if body.parent_conversation_id else None
    said, message = body.initial_message, None
    if said is not None and said.content:
        message = starts.first_message(said.model_dump(), sender_id=access.pk_of(request.user))
    wanted = _wanted(body, parent, message)
    refusal = _refusal(request, body, wanted.agent)

    def store() -> Response:
        # A failed start is stored, too: clients poll for its outcome (spec V1 §1.2).
        task = starts.failed(request.user, wanted, refusal) if refusal else starts.start(request.user, wanted)
        if task.conversation is not None and message is not None:
            start_after_commit(task.conversation.ref)
        return Response([step.model_dump(mode="json") for step in _steps(task, request)])

    return store


def _wanted(body: StartRequest, parent: Conversation | None, message: NewEvent | None) -> StartParameters:
    # The content may be nested too deeply to dump the model, so the shown part is made from the
    # message.
    asked = body.model_dump(mode="json", exclude={"initial_message": {"content"}})
    if asked["initial_message"] is not None:
        asked["initial_message"]["content"] = [] if message is None else starts.shown_content(message)
    is_default = body.agent_type is AgentType.DEFAULT
    return StartParameters(
        request=asked,
        conversation_id=body.conversation_id.hex if body.conversation_id else None,
        parent=parent,
        first_message=message,
        system_message_suffix=body.system_message_suffix,
        llm_model=body.llm_model,
        repository=body.selected_repository,
        branch=body.selected_branch,
        provider=body.git_provider,
        title=body.title,
        trigger=body.trigger,
        pr_number=body.pr_number,
        parameters={} if is_default else {"agent_type": body.agent_type.value},
        agent="" if is_default else body.agent_type.value,
    )


def _refusal(request: Request, body: StartRequest, agent: str) -> str | None:
    """Return why no agent can work on this, in words; None if one can."""
    user_id = access.pk_of(request.user)
    try:
        if needs_model(agent):
            user_settings.require_model_key(user_id)
        if body.selected_repository:
            providers = GitProviders(user_settings.provider_tokens(user_id))
            in_loop(providers.verify_access, body.selected_repository, body.git_provider)
    except (SettingsNotFound, ModelKeyMissing, GitAuthenticationError) as error:
        return str(error)
    except GitProviderError:  # a name that no repository can have
        return f"Unable to access repo {body.selected_repository}"
    return None


def _steps(task: StartTask, request: Request) -> list[AppConversationStartTask]:
    """Return the start step by step; everything has happened already, or nothing."""
    (end,) = started_of([task], origin=origin_of(request))
    nothing = {"detail": None, "app_conversation_id": None, "sandbox_id": None, "agent_server_url": None}
    # Clients wait for these steps in their order, though this server takes them in one transaction.
    working = end.model_copy(update={**nothing, "status": StartStatus.WORKING})
    if end.status is StartStatus.ERROR:
        return [working, end]
    waiting = {"status": StartStatus.WAITING_FOR_SANDBOX, "sandbox_id": end.sandbox_id}
    starting = {
        **waiting,
        "status": StartStatus.STARTING_CONVERSATION,
        "agent_server_url": end.agent_server_url,
    }
    return [working, working.model_copy(update=waiting), working.model_copy(update=starting), end]


async def _streamed(steps: list[Any]) -> AsyncIterator[bytes]:
    yield b"[\n"
    for number, step in enumerate(steps):
        yield (b",\n" if number else b"") + orjson.dumps(step)
    yield b"]"
