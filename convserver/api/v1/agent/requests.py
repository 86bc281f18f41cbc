"""Request bodies of the agent face; unknown members are ignored (spec V1 R10)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
)

from conversations.store.labels import TAG_MAX_LENGTH, TAGS_MAX
from convserver.api.openhands.text import StorableText, storable
from convserver.api.openhands.tool_servers import entered_url
from sessions_app.models.v1 import MAX_ITERATIONS, never_confirm

# Deeper nesting could be parsed, but not walked through by functions that call themselves.
DEPTH_MAX = 100
# For the JSON of each part of a setup, which is read whenever the conversation is.
KEPT_MAX_BYTES = 1024 * 1024
ITERATIONS_MAX = 2**31 - 1
NAMES_MAX = 500
NAME_MAX_LENGTH = 200
POLICIES = frozenset({"NeverConfirm", "AlwaysConfirm", "ConfirmRisky"})
DEFAULT_REASON = "User rejected the action."


def kept(value: Any, info: ValidationInfo) -> Any:
    """Return JSON that every database can store and that is not too long. Raise ValueError otherwise."""
    _look_through(value, DEPTH_MAX)
    if len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) > KEPT_MAX_BYTES:
        raise ValueError(f"`{info.field_name}` may have {KEPT_MAX_BYTES} bytes as JSON at the most")
    return value


def _look_through(value: object, depth: int) -> None:
    match value:
        case str():
            storable(value)
        case dict() | list() if depth == 0:
            raise ValueError(f"the value is nested more than {DEPTH_MAX} deep")
        case dict():
            for part in chain.from_iterable(value.items()):
                _look_through(part, depth - 1)
        case list():
            for part in value:
                _look_through(part, depth - 1)


def _has_kind(value: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("kind"), str):
        raise ValueError("the object names no `kind`")
    return value


def _is_policy(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a policy that no agent here supports."""
    if _has_kind(value)["kind"] not in POLICIES:
        raise ValueError(f"the kinds of policies are {', '.join(sorted(POLICIES))}")
    return value


def _is_workspace(value: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("working_dir"), str):
        raise ValueError("a workspace has a `working_dir`")
    return {"kind": "LocalWorkspace", **value}


def _is_model(value: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(value.get("model"), str) or not value["model"].strip():
        raise ValueError("a model has a `model`, its name")
    for name in ("base_url", "api_key"):
        if not isinstance(value.get(name), str | None):
            raise ValueError(f"`{name}` is a text")
    if value.get("base_url"):
        entered_url(value["base_url"])
    return value


def _are_settings(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse settings of an agent that does not run here."""
    if value.get("agent_kind", "openhands") != "openhands":
        raise ValueError("this server runs agents of the kind `openhands` only")
    for url in _urls(value, frozenset({"base_url"})):
        entered_url(url)
    return value


def _is_agent(value: dict[str, Any]) -> dict[str, Any]:
    for url in _urls(value, frozenset({"base_url"})):
        entered_url(url)
    return value if "kind" in value else {**value, "kind": "Agent"}


def _urls(value: object, names: frozenset[str]) -> Iterator[str]:
    """Yield the addresses that an agent brings: of models at any depth, and of tool servers."""
    if isinstance(value, list):
        for each in value:
            yield from _urls(each, names)
    elif isinstance(value, dict):
        for name, member in value.items():
            if name in names and isinstance(member, str):
                yield member
            # An `url` elsewhere in an agent is no address that this server asks.
            yield from _urls(member, names | {"url"} if name == "mcp_config" else names)


def _source_of_text(value: object) -> object:
    """Return the source of a secret whose value is given as a text; anything else unchanged."""
    is_text = isinstance(value, str)
    return {"kind": "StaticSecret", "value": value, "description": None} if is_text else value


def _is_source(value: dict[str, Any]) -> dict[str, Any]:
    # Clients send the path of the class, or its name alone.
    given = {"StaticSecret": "value", "LookupSecret": "url"}.get(_has_kind(value)["kind"].rpartition(".")[2])
    if given and not isinstance(value.get(given), str):
        raise ValueError(f"a {value['kind']} has a `{given}`")
    return value


KeptObject = Annotated[dict[str, Any], AfterValidator(kept)]
Kinded = Annotated[KeptObject, AfterValidator(_has_kind)]
Policy = Annotated[KeptObject, AfterValidator(_is_policy)]
Workspace = Annotated[KeptObject, AfterValidator(_is_workspace)]
AgentObject = Annotated[KeptObject, AfterValidator(_is_agent)]
AgentSettings = Annotated[KeptObject, AfterValidator(_are_settings)]
ModelObject = Annotated[KeptObject, AfterValidator(_is_model)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX_LENGTH), AfterValidator(storable)]
Source = Annotated[KeptObject, BeforeValidator(_source_of_text), AfterValidator(_is_source)]
Sources = Annotated[dict[Name, Source], Field(max_length=NAMES_MAX, fail_fast=True)]
Tag = Annotated[str, Field(max_length=TAG_MAX_LENGTH), AfterValidator(storable)]
Tags = Annotated[dict[Name, Tag], Field(max_length=TAGS_MAX, fail_fast=True)]
Title = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(storable)
]


class Saying(BaseModel):
    """A user's message (SendMessageRequest)."""

    role: str = "user"
    content: str | list[Any] | None = None
    sender: str | None = None
    run: bool = False


class Start(BaseModel):
    """The body that starts a conversation (StartConversationRequest)."""

    agent: AgentObject | None = None
    agent_settings: AgentSettings | None = None
    """What newer clients send in the place of `agent`, which comes first."""
    agent_profile_id: UUID | None = None
    """The stored profile whose model and tool servers the agent has."""
    workspace: Workspace
    conversation_id: UUID | None = None
    confirmation_policy: Policy | None = None
    security_analyzer: Kinded | None = None
    initial_message: Saying | None = None
    max_iterations: int = Field(default=MAX_ITERATIONS, ge=1, le=ITERATIONS_MAX)
    stuck_detection: bool = True
    secrets: Sources = {}
    tags: Tags = {}
    parent_conversation_id: UUID | None = None
    hook_config: KeptObject | None = None
    client_tools: Annotated[list[Any], AfterValidator(kept)] = []
    tool_module_qualnames: KeptObject = {}
    # Read only to tell newer clients: what is in it is not used.
    plugins: Any = None

    @property
    def policy(self) -> Mapping[str, Any]:
        """When the agent asks for approval."""
        return self.confirmation_policy or never_confirm()

    @property
    def facts(self) -> dict[str, Any]:
        """Other members that are returned again.

        `client_tools` is kept where it is empty, too: only newer releases send it.
        """
        facts = ("hook_config", "client_tools", "tool_module_qualnames")
        return {
            name: value
            for name in facts
            if (value := getattr(self, name)) or (name == "client_tools" and name in self.model_fields_set)
        }

    @property
    def prompts_at_once(self) -> bool:
        """Whether the client expects the system prompt at the start: no release since 1.10 does.

        Those send members that older ones do not know.
        """
        return not self.model_fields_set & {"plugins", "client_tools"}


class ConversationChange(BaseModel):
    """The body that renames, or sets the tags."""

    title: Title | None = None
    tags: Tags | None = None


class NewSecrets(BaseModel):
    """The body that adds secrets."""

    secrets: Sources


class NewPolicy(BaseModel):
    """The body that sets when the agent asks for approval."""

    policy: Policy


class NewAnalyzer(BaseModel):
    """The body that sets what judges the risk of a call; null for nothing."""

    security_analyzer: Kinded | None


class NewModel(BaseModel):
    """The body that sets the model of a conversation."""

    llm: ModelObject


class ProfileChoice(BaseModel):
    """The body that sets the model of a stored profile."""

    profile_name: StorableText


class NewChild(BaseModel):
    """The body that starts a conversation below another."""

    task: Annotated[StorableText, Field(min_length=1)]
    title: Title | None = None


class TitleWish(BaseModel):
    """The body that requests a title; the server's own agent generates it, whatever `llm` says."""

    max_length: int = Field(default=50, ge=1, le=200)


class Question(BaseModel):
    """The body that asks the agent a question."""

    question: str


class Fork(BaseModel):
    """The body that copies a conversation, up to an event or to its end."""

    id: UUID | None = None
    title: Title | None = None
    tags: Tags | None = None
    reset_metrics: bool = True
    from_event_id: StorableText | None = None


class Destination(BaseModel):
    """The body that goes to an event of the history; null for its beginning."""

    event_id: StorableText | None


class ConfirmationDecision(BaseModel):
    """The body that decides about the calls that wait."""

    accept: bool
    reason: str = DEFAULT_REASON
