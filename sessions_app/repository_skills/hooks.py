"""The hooks of a repository, in `.openhands/hooks.json`: read for clients, and never run."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from conversations.events import ConversationRef
from conversations.payloads import halves
from sessions_app.repository_skills import reading
from sessions_app.workspaces import records
from sessions_app.workspaces.beneath import PathRefused, closing, pieces

_FILE = ".openhands/hooks.json"
_Text = Annotated[str, AfterValidator(halves.whole)]


class HookType(StrEnum):
    """What a hook is."""

    COMMAND = "command"
    PROMPT = "prompt"
    AGENT = "agent"


class HookDefinition(BaseModel):
    """One hook, by the wire's names."""

    model_config = ConfigDict(populate_by_name=True)

    type: HookType = HookType.COMMAND
    name: _Text | None = None
    command: _Text = ""
    prompt: _Text | None = None
    system_prompt: _Text | None = None
    tools: list[_Text] = []
    timeout: int = 60
    max_iterations: int = 3
    is_async: bool = Field(default=False, alias="async")

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        is_command = self.type is HookType.COMMAND
        if is_command != bool(self.command) or (self.type is HookType.PROMPT and not self.prompt):
            raise ValueError("a command needs `command`, a prompt needs `prompt`, and others no command")
        if self.is_async and not is_command:
            raise ValueError("only commands can be `async`")
        return self


class HookMatcher(BaseModel):
    """The hooks for the calls of tools that a pattern names."""

    matcher: _Text = "*"
    hooks: list[HookDefinition] = []


class HookConfig(BaseModel):
    """The hooks of a repository by when they are to run."""

    model_config = ConfigDict(extra="forbid")

    pre_tool_use: list[HookMatcher] = []
    post_tool_use: list[HookMatcher] = []
    user_prompt_submit: list[HookMatcher] = []
    session_start: list[HookMatcher] = []
    session_end: list[HookMatcher] = []
    stop: list[HookMatcher] = []

    @model_validator(mode="before")
    @classmethod
    def _by_own_names(cls, value: Any) -> Any:
        """Take the forms of other programs: names such as `PreToolUse`, and all in a member `hooks`."""
        if not isinstance(value, dict):
            return value
        # Members beside `hooks` are left out, as in the reference.
        inner = value.get("hooks", value)
        if not isinstance(inner, dict):
            return inner
        named = [(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(), each) for name, each in inner.items()]
        if len(dict(named)) < len(named):
            raise ValueError("two names mean the same time")
        return dict(named)

    def times(self) -> dict[str, list[HookMatcher]]:
        """Return the times that have hooks, with these."""
        return {name: matchers for name, matchers in self if matchers}


def of_conversation(conversation: ConversationRef, directory: str | None = None) -> HookConfig | None:
    """Return the hooks of a conversation's repository; None without any, or if they cannot be read.

    `directory` is another place to look in, relative to the workspace. Raise StoreUnavailable.
    """
    with records.opened(conversation) as tree:
        if tree is None:
            return None
        # Hooks of the workspace around a repository are not the repository's.
        root = reading.roots(tree, conversation, directory)[0]
        try:
            descriptor, about = tree.file(f"{root}/{_FILE}".strip("/"))
        except PathRefused:
            return None
        with closing(descriptor):
            bytes_most = 200_000
            content = b"".join(pieces(descriptor, about.st_size)) if about.st_size <= bytes_most else b""
    try:
        found = HookConfig.model_validate(json.loads(content))
    except (ValidationError, ValueError, RecursionError):  # as the reference: as if there was none
        return None
    return found if found.times() else None
