"""Bodies of the app face: conversations, starts, sandboxes (spec V1 §1.1, §1.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from pydantic import AfterValidator, BaseModel, Field, PlainSerializer

from conversations.dialects import v1
from conversations.events import Metrics
from conversations.models import Conversation, ConversationQuerySet, children_in
from convserver.api.addresses import conversation_url, shown_key
from convserver.api.openhands.metadata import ConversationTrigger, whole_numbers
from convserver.api.openhands.text import storable
from convserver.api.v1.agent.requests import kept
from convserver.configuration import AuthMode
from sessions_app.git_providers.base import ProviderType
from sessions_app.identity import conversation_keys
from sessions_app.identity.authentication import lets_everybody_in
from sessions_app.live.status import iso
from sessions_app.models import DEFAULT_MODEL, ExecutionStatus, StartTask
from sessions_app.openhands_v1 import sandboxes
from sessions_app.openhands_v1.sandboxes import SandboxStatus, V1Sandbox
from sessions_app.settings import run_options

Moment = Annotated[datetime, PlainSerializer(iso, return_type=str, when_used="json")]
"""A time as this server writes it: UTC, six fraction digits, `Z`."""
Name = Annotated[str, Field(max_length=500), AfterValidator(storable)]
Title = Annotated[str, Field(max_length=2000), AfterValidator(storable)]
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]
NUMBERS_MAX = 1000
PROCESSORS_MAX = 100


class MetricsSnapshot(BaseModel):
    """Totals so far."""

    model_name: str
    accumulated_cost: float
    max_budget_per_task: float | None = None
    accumulated_token_usage: dict[str, Any] | None = None


class AppConversationInfo(BaseModel):
    """A conversation as it is stored."""

    id: str
    created_by_user_id: str | None
    sandbox_id: str
    selected_repository: str | None
    selected_branch: str | None
    git_provider: str | None
    title: str | None
    trigger: str | None
    pr_number: list[int]
    llm_model: str | None
    metrics: MetricsSnapshot | None
    parent_conversation_id: str | None
    sub_conversation_ids: list[str]
    created_at: Moment
    updated_at: Moment


class AppConversation(AppConversationInfo):
    """A conversation with its present status."""

    sandbox_status: SandboxStatus
    execution_status: ExecutionStatus | None
    conversation_url: str | None
    session_api_key: str | None


class AppConversationPage(BaseModel):
    """One page of a list; `next_page_id` is null on the last one."""

    items: list[AppConversation]
    next_page_id: str | None


class SendMessageRequest(BaseModel):
    """A message; its parts are checked when it is stored."""

    role: Literal["user", "system", "assistant", "tool"] = "user"
    content: list[dict[str, Any]] | str = Field(default_factory=list)
    run: bool = False


class Processor(BaseModel):
    """What to do with each event; titles are always generated, and nothing else is done here."""

    kind: Name


class AgentType(StrEnum):
    """The agent that is to answer."""

    DEFAULT = "default"
    PLAN = "plan"


HexId = Annotated[UUID, PlainSerializer(lambda found: found.hex, return_type=str)]


class StartRequest(BaseModel):
    """The body that starts a conversation; all members are optional, and unknown ones are ignored."""

    sandbox_id: Name | None = None
    conversation_id: HexId | None = None
    initial_message: SendMessageRequest | None = None
    system_message_suffix: Annotated[str, AfterValidator(kept)] | None = None
    processors: Annotated[list[Processor], Field(max_length=PROCESSORS_MAX, fail_fast=True)] | None = None
    llm_model: Name | None = None
    selected_repository: Name | None = None
    selected_branch: Name | None = None
    git_provider: ProviderType | None = None
    title: Title | None = None
    trigger: ConversationTrigger | Literal["automation"] | None = None
    pr_number: Annotated[list[Number], Field(max_length=NUMBERS_MAX, fail_fast=True)] = Field(
        default_factory=list
    )
    parent_conversation_id: HexId | None = None
    agent_type: AgentType = AgentType.DEFAULT


class StartStatus(StrEnum):
    """The steps of a start; this server takes them all at once."""

    WORKING = "WORKING"
    WAITING_FOR_SANDBOX = "WAITING_FOR_SANDBOX"
    STARTING_CONVERSATION = "STARTING_CONVERSATION"
    READY = "READY"
    ERROR = "ERROR"


class AppConversationStartTask(BaseModel):
    """One request to start a conversation, and its outcome."""

    id: str
    created_by_user_id: str | None
    status: StartStatus
    detail: str | None
    app_conversation_id: str | None
    sandbox_id: str | None
    agent_server_url: str | None
    request: dict[str, Any]
    created_at: Moment
    updated_at: Moment


class StartTaskPage(BaseModel):
    """One page of starts; `next_page_id` is null on the last one."""

    items: list[AppConversationStartTask]
    next_page_id: str | None


class ExposedUrl(BaseModel):
    """A service of a sandbox."""

    name: str
    url: str
    port: int


class SandboxInfo(BaseModel):
    """A sandbox."""

    id: str
    created_by_user_id: str | None
    sandbox_spec_id: str
    status: SandboxStatus
    session_api_key: str | None
    exposed_urls: list[ExposedUrl] | None
    created_at: Moment


class SandboxPage(BaseModel):
    """One page of sandboxes; `next_page_id` is null on the last one."""

    items: list[SandboxInfo]
    next_page_id: str | None


_COLUMNS = (
    "pk",
    "owner_id",
    "title",
    "repository",
    "branch",
    "provider",
    "trigger",
    "pr_number",
    *run_options.MODEL_COLUMNS,
    "accumulated_cost",
    "prompt_tokens",
    "completion_tokens",
    "parent_id",
    "parent__public_id",
    "child_ids",
    "created_at",
    "updated_at",
    *sandboxes.STATUS_COLUMNS,
    *conversation_keys.COLUMNS,
)


def conversations_of(pks: Sequence[int], *, origin: str) -> dict[int, AppConversation]:
    """Return these conversations by key, without those that were deleted meanwhile; two queries at most.

    `origin` is the server's origin as its client knows it.
    """
    rows = list(conversation_rows(Conversation.objects.with_pks(pks)))
    return dict(conversations_in(rows, origin=origin))


def conversation_rows(rows: ConversationQuerySet) -> QuerySet[Conversation, dict[str, Any]]:
    """Return the query for `conversations_in` of those that stand."""
    others = Conversation.objects.active().known_to_v1()
    shown = conversation_keys.keyed(rows.active().known_to_v1()).with_children(others)
    found: QuerySet[Conversation, dict[str, Any]] = shown.values(*_COLUMNS)
    return found


def conversations_in(
    rows: Sequence[Mapping[str, Any]], *, origin: str
) -> Iterator[tuple[int, AppConversation]]:
    """Yield the key and the conversation of each row of `conversation_rows`; at most one query more."""
    sandbox_ids = sandboxes.ids_in(rows)
    for row in rows:
        yield row["pk"], _conversation(row, sandbox_ids[row["pk"]] or "", origin)


def _conversation(row: Mapping[str, Any], sandbox_id: str, origin: str) -> AppConversation:
    status = sandboxes.status_of(row)
    execution_status = row["loop__execution_status"] or ExecutionStatus.IDLE
    return AppConversation(
        id=row["public_id"],
        created_by_user_id=shown_user(row["owner_id"]),
        sandbox_id=sandbox_id,
        selected_repository=row["repository"],
        selected_branch=row["branch"],
        git_provider=row["provider"],
        title=row["title"],
        trigger=row["trigger"],
        pr_number=whole_numbers(row["pr_number"]),
        llm_model=run_options.shown_model(row),
        metrics=_metrics(row),
        parent_conversation_id=row["parent__public_id"],
        sub_conversation_ids=children_in(row),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        sandbox_status=status,
        # The reference reads it from a sandbox that runs, and has none otherwise (spec V1 §1.1).
        execution_status=execution_status if status is SandboxStatus.RUNNING else None,
        conversation_url=conversation_url(row["public_id"], origin=origin),
        session_api_key=shown_key(row),
    )


def _metrics(row: Mapping[str, Any]) -> MetricsSnapshot | None:
    counted = Metrics(
        accumulated_cost=row["accumulated_cost"],
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
    )
    # Before the first call of a model there is nothing to show: the reference has null.
    if counted == Metrics():
        return None
    return MetricsSnapshot.model_validate(
        v1.snapshot(counted, model=run_options.shown_model(row) or DEFAULT_MODEL)
    )


def shown_user(user_id: int) -> str | None:
    """Return the owner's id; null if the server has only one user."""
    # Clients take null for a server without accounts (spec V1 §1.1).
    return str(user_id) if settings.CONFIGURATION.auth == AuthMode.ACCOUNTS else None


def started(task: StartTask, *, sandbox_id: str | None, origin: str) -> AppConversationStartTask:
    """Return the outcome of a start; the row's conversation must be loaded."""
    conversation = task.conversation
    return AppConversationStartTask(
        id=task.task_id,
        created_by_user_id=shown_user(task.user_id),
        status=StartStatus(task.status),
        detail=task.detail,
        app_conversation_id=conversation.public_id if conversation else None,
        sandbox_id=sandbox_id if conversation else None,
        agent_server_url=f"{origin}/agent" if conversation else None,
        request=task.request,
        created_at=task.created_at,
        updated_at=task.updated_at,
    )


def started_of(tasks: Sequence[StartTask], *, origin: str) -> list[AppConversationStartTask]:
    """Return these starts in their order; one query."""
    pks = [task.conversation_id for task in tasks if task.conversation_id is not None]
    sandbox_ids = sandboxes.ids_of(pks)
    return [
        started(task, sandbox_id=sandbox_ids.get(task.conversation_id or 0), origin=origin) for task in tasks
    ]


SANDBOX_SPEC = "convserver"


def sandbox_info(sandbox: V1Sandbox) -> SandboxInfo:
    """Return a sandbox; its key only while it can be used."""
    # Where every client is let in, no key is needed, and none is shown.
    is_open = sandbox.status is not SandboxStatus.MISSING and not lets_everybody_in()
    return SandboxInfo(
        id=sandbox.id,
        created_by_user_id=shown_user(sandbox.owner_id),
        sandbox_spec_id=SANDBOX_SPEC,
        status=sandbox.status,
        session_api_key=sandbox.key if is_open else None,
        # Its services would be an editor and the agent's own servers, of which there is none.
        exposed_urls=None,
        created_at=sandbox.created_at,
    )
