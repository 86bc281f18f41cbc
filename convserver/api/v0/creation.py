"""The body that creates a conversation, and its consequences (spec V0 §1.1)."""

from __future__ import annotations

import json
from itertools import dropwhile
from typing import Annotated, Any, NamedTuple, Self
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from conversations import dialects
from conversations.events import Dialect, Kind, NewEvent
from conversations.exceptions import InvalidConversationId, InvalidEvent
from conversations.models import normal_id
from conversations.payloads import bounds, jsontext
from convserver.api.openhands.bounds import IMAGES_MAX, KnownMembers
from convserver.api.openhands.metadata import ConversationTrigger
from convserver.api.openhands.text import StorableText, decoded, storable
from convserver.api.openhands.tool_servers import EnteredMcpConfig
from convserver.api.v0.git.suggested_tasks import SuggestedTask
from sessions_app.agents import registry
from sessions_app.agents.replay.sources import PACE_PARAMETER, PARAMETER
from sessions_app.git_providers.base import ProviderType
from sessions_app.settings.tool_servers import sealed_parameter

REPLAY_PACE_MAX = 100.0
"""The pauses of a replay are at most this many times as long as those of the recording."""

REPLAY = "replay"
"""The name of the agent that plays a trajectory."""

RepositoryName = Annotated[str, Field(max_length=500), AfterValidator(storable)]
"""Short enough for an index of any database."""


class CreateMicroagent(BaseModel):
    """Where to create a microagent."""

    repo: RepositoryName
    git_provider: ProviderType | None = None
    title: StorableText | None = None


class FirstSaying(NamedTuple):
    """The user's first message."""

    text: str
    image_urls: list[str]


class NewConversation(KnownMembers):
    """The body; all members are optional, and unknown ones are refused."""

    repository: RepositoryName | None = None
    git_provider: ProviderType | None = None
    selected_branch: StorableText | None = None
    initial_user_msg: str | None = None
    image_urls: Annotated[list[str], Field(max_length=IMAGES_MAX, fail_fast=True)] | None = None
    replay_json: StorableText | None = None
    replay_pace: Annotated[float, Field(ge=0, le=REPLAY_PACE_MAX, allow_inf_nan=False)] | None = None
    suggested_task: SuggestedTask | None = None
    create_microagent: CreateMicroagent | None = None
    conversation_instructions: StorableText | None = None
    mcp_config: EnteredMcpConfig | None = None

    @field_validator("replay_json")
    @classmethod
    def _is_a_trajectory(cls, text: str | None) -> str | None:
        if text:
            recorded_events(text)
        return text

    @model_validator(mode="after")
    def _begins_once(self) -> Self:
        if self.replay_json and self.first_saying is not None:
            raise ValueError("a replay has its own first message: leave the initial message out")
        return self

    @property
    def chosen_id(self) -> str | None:
        """The id that the body chose; None if that is not allowed."""
        return None

    @property
    def chosen_repository(self) -> str | None:
        """The repository, if there is one."""
        return self.repository or (self.create_microagent.repo if self.create_microagent else None)

    @property
    def chosen_provider(self) -> ProviderType | None:
        """The provider that the body names for the repository."""
        return self.git_provider or (self.create_microagent.git_provider if self.create_microagent else None)

    @property
    def first_saying(self) -> FirstSaying | None:
        """The user's first message, if there is one, without the replay."""
        # A task replaces the message of the body (spec V0 §1.1).
        text = self.suggested_task.prompt() if self.suggested_task else self.initial_user_msg
        if not text and not self.image_urls:
            return None
        return FirstSaying(text or "", self.image_urls or [])

    def trigger(self, *, by_bearer: bool) -> ConversationTrigger:
        """Return the trigger of the conversation."""
        # This counts before all others (spec V0 §1.1).
        if by_bearer:
            return ConversationTrigger.OPENHANDS_API
        if self.suggested_task:
            return ConversationTrigger.SUGGESTED_TASK
        if self.create_microagent:
            return ConversationTrigger.MICROAGENT_MANAGEMENT
        return ConversationTrigger.GUI

    @property
    def tool_servers(self) -> str | None:
        """The tool servers of its agent as JSON, with their keys."""
        return self.mcp_config.model_dump_json() if self.mcp_config else None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that are stored for every later start of its agent.

        The tool servers are sealed, because their addresses and environments contain keys.
        """
        recorded = recorded_events(self.replay_json) if self.replay_json else None
        kept = {
            "instructions": self.conversation_instructions,
            **(sealed_parameter(self.tool_servers) if self.tool_servers else {}),
            # The first one is appended as the user's message, and the agent plays what follows.
            PARAMETER: recorded and json.dumps(recorded[1:]),
            PACE_PARAMETER: self.replay_pace if recorded else None,
            "suggested_task": self.suggested_task and self.suggested_task.model_dump(mode="json"),
            "create_microagent": self.create_microagent and self.create_microagent.model_dump(mode="json"),
        }
        return {name: value for name, value in kept.items() if value}

    @property
    def agent(self) -> str:
        """The name of the agent that the conversation begins with; empty for the default one."""
        return REPLAY if self.replay_json and REPLAY in registry.offered() else ""

    def first_events(self, *, sender_id: int) -> list[NewEvent]:
        """Return the first message as an event that asks the agent for an answer; None without one."""
        saying = _first_of(self.replay_json) if self.replay_json else self.first_saying
        return [said_by_user(saying, sender_id=sender_id)] if saying else []


class NewConversationWithId(NewConversation):
    """The same if the server allows a client to choose the id (ALLOW_SET_CONVERSATION_ID)."""

    conversation_id: str | None = None

    @field_validator("conversation_id")
    @classmethod
    def _can_name_a_conversation(cls, text: str | None) -> str | None:
        try:
            return normal_id(text) if text else None
        except InvalidConversationId as error:
            raise ValueError(str(error)) from error

    @property
    def chosen_id(self) -> str | None:
        """The id that the body chose."""
        return self.conversation_id


def said_by_user(saying: FirstSaying, *, sender_id: int) -> NewEvent:
    """Return a user's message of a V0 conversation."""
    event_id = str(uuid4())
    author = dialects.author(Dialect.V0)
    authored = author.user_message(text=saying.text, image_urls=saying.image_urls, event_id=event_id)
    return authored.event(event_id, sender_id=sender_id, is_input=True)


def recorded_events(text: str) -> list[dict[str, Any]]:
    """Return the events of a trajectory for a replay: of V0 without those of environments, and without ids.

    The agent's instructions before the first message are omitted, because this server's agents have their
    own. Raise ValueError unless the text is a list of events whose first remaining one is a message.
    """
    bounds.require_bounded(text, values_max=bounds.LARGE_VALUES_MAX)
    # Each by itself: so other threads get their turn between two.
    value = [decoded(item.text) for item in jsontext.items(text)]
    if not all(isinstance(item, dict) for item in value):
        raise ValueError("a trajectory is a JSON list of events")
    try:
        readings = [dialects.read(item) for item in value]
    except InvalidEvent as error:
        raise ValueError(str(error)) from error
    results = (Kind.TOOL_RESULT, Kind.ERROR)  # of V1, where the environment gives them
    of_somebody = (
        ({name: inner for name, inner in item.items() if name != "id"}, reading)
        for item, reading in zip(value, readings, strict=True)
        if reading.source != "environment" or (reading.dialect is Dialect.V1 and reading.kind in results)
    )
    played = list(dropwhile(lambda each: each[1].kind is Kind.SYSTEM, of_somebody))
    if not played or played[0][1].kind is not Kind.MESSAGE:
        raise ValueError("a trajectory begins with a message")
    return [event for event, _ in played]


def _first_of(replay: str) -> FirstSaying:
    first = recorded_events(replay)[0]
    args = first.get("args")
    images = args.get("image_urls") if isinstance(args, dict) else None
    urls = [url for url in images if isinstance(url, str)] if isinstance(images, list) else []
    return FirstSaying(dialects.read(first).text, urls)
