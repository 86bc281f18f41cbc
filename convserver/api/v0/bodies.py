"""Bodies of the V0 routes, except the one that creates a conversation (spec V0 §1)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from convserver.api.openhands.bounds import PROVIDERS_MAX, KnownMembers, members_at_most
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.metadata import ConversationTrigger
from convserver.api.openhands.text import StorableText, storable
from convserver.api.v0.info import ConversationStatus
from convserver.api.v0.pages import V0PageQuery
from sessions_app.git_providers.base import ProviderType

EXPERIMENT_KEYS = frozenset({"system_prompt_filename"})
"""The settings of an agent that an experiment may change."""
EXPERIMENT_MAX = 100


class V0ListQuery(V0PageQuery):
    """Which conversations to return, and which page of them."""

    selected_repository: StorableText | None = None
    conversation_trigger: ConversationTrigger | None = None
    include_sub_conversations: bool = False


class NewTitle(KnownMembers):
    """The body that renames."""

    title: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
        AfterValidator(storable),
    ]


class ProvidersSet(BaseModel):
    """The body that starts an agent: the providers that the client considers configured."""

    providers_set: Annotated[list[ProviderType], Field(max_length=PROVIDERS_MAX, fail_fast=True)] | None = (
        None
    )


class ConversationResponse(BaseModel):
    """The outcome of creating, starting or stopping a conversation."""

    status: str
    conversation_id: str
    message: str | None = None
    conversation_status: ConversationStatus | None = None


class MicroagentQuery(V0PageQuery):
    """Which repository, and which page."""

    selected_repository: StorableText


class FilterBody(BaseModel):
    """Which events to return, in the body of a GET or in its query; unknown and blank members are ignored."""

    exclude_hidden: bool = False
    query: StorableText | None = None
    source: StorableText | None = None
    start_date: Instant | None = None
    end_date: Instant | None = None

    @field_validator("query", "source", "start_date", "end_date", mode="before")
    @classmethod
    def _none_if_blank(cls, value: Any) -> Any:
        return None if isinstance(value, str) and not value.strip() else value


class V0EventsQuery(FilterBody):
    """Which page of the events to return; ids are inclusive."""

    start_id: int = 0
    end_id: int | None = None
    reverse: bool = False
    # No bounds here: beyond them is a 400 with its own words on this wire, not a 422 (spec V0 §1.5).
    limit: int = 20


class MessageBody(BaseModel):
    """A user's message; it may be empty."""

    message: str


class AnyEvent(BaseModel):
    """An event as a client sends it: an `action` with its `args`, or an `observation`."""

    model_config = ConfigDict(extra="allow")


class ExperimentBody(BaseModel):
    """The changes of an experiment for one conversation."""

    config: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=1000), AfterValidator(storable)]],
            Field(max_length=EXPERIMENT_MAX, fail_fast=True),
            members_at_most(EXPERIMENT_MAX),
        ]
        | None
    ) = None

    @field_validator("config")
    @classmethod
    def _is_allowed(cls, config: dict[str, str] | None) -> dict[str, str] | None:
        # A name that is not known here would be stored, and change nothing.
        if unknown := set(config or ()) - EXPERIMENT_KEYS:
            known = ", ".join(sorted(EXPERIMENT_KEYS))
            raise ValueError(f"an experiment may set {known} only, not {', '.join(sorted(unknown))}")
        return config


class PromptQuery(BaseModel):
    """The event around which to look for something to remember."""

    event_id: int = Field(ge=0, lt=2**63)
