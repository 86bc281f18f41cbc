"""What the V0 routes take and answer, beside what creates a conversation (spec V0 §1)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from convserver.api.v0.info import ConversationStatus, ConversationTrigger
from convserver.api.v0.pages import PageQuery
from convserver.api.v0.text import StorableText, storable
from sessions_app.git_providers.base import ProviderType

EXPERIMENT_KEYS = frozenset({"system_prompt_filename"})
"""What an experiment may change of an agent's configuration."""


class ListQuery(PageQuery):
    """Which conversations, and which page of them."""

    selected_repository: StorableText | None = None
    conversation_trigger: ConversationTrigger | None = None
    include_sub_conversations: bool = False


class NewTitle(BaseModel):
    """The body that renames."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
        AfterValidator(storable),
    ]


class ProvidersSet(BaseModel):
    """The body that starts an agent: the providers that the client takes for configured."""

    providers_set: list[ProviderType] | None = None


class ConversationResponse(BaseModel):
    """What became of a conversation that was created, started or stopped."""

    status: str
    conversation_id: str
    message: str | None = None
    conversation_status: ConversationStatus | None = None


class MicroagentQuery(PageQuery):
    """Which repository, and which page."""

    selected_repository: StorableText


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Instant = Annotated[datetime, AfterValidator(_in_utc)]
"""A time; without an offset it is UTC."""


class FilterBody(BaseModel):
    """Which events, in the body of a GET or in its query; unknown members are ignored."""

    exclude_hidden: bool = False
    query: StorableText | None = None
    source: StorableText | None = None
    start_date: Instant | None = None
    end_date: Instant | None = None


class EventsQuery(FilterBody):
    """Which page of the events; ids are inclusive."""

    start_id: int = 0
    end_id: int | None = None
    reverse: bool = False
    limit: int = 20


class MessageBody(BaseModel):
    """What the user says; it may be empty."""

    message: str


class AnyEvent(BaseModel):
    """An event as a client sends it: an `action` with its `args`, or an `observation`."""

    model_config = ConfigDict(extra="allow")


class ExperimentBody(BaseModel):
    """What an experiment changes for one conversation."""

    config: dict[str, Annotated[str, Field(max_length=1000), AfterValidator(storable)]] | None = None

    @field_validator("config")
    @classmethod
    def _is_allowed(cls, config: dict[str, str] | None) -> dict[str, str] | None:
        if unknown := set(config or ()) - EXPERIMENT_KEYS:
            known = ", ".join(sorted(EXPERIMENT_KEYS))
            raise ValueError(f"an experiment may set {known} only, not {', '.join(sorted(unknown))}")
        return config


class PromptQuery(BaseModel):
    """Around which event to look for what is worth remembering."""

    event_id: int = Field(ge=0, lt=2**63)
