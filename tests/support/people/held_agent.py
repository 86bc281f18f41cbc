"""The agent that answers with a model, held where a test says: the server is killed there.

The directory HOLD_DIR has a file for each conversation that is to be held: its point, and the number of the
call. A second file, with `.held` at its end, says that it has come there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit
from sessions_app.agents.base import ToolCall, Turn
from sessions_app.agents.llm.agent import LlmAgent

IN_MODEL, IN_TOOL = "in the model call", "in the tool"
BEFORE_CALL, AFTER_CALL = "before the call", "after the call"
AFTER_START, BEFORE_RESULT, AFTER_RESULT = "after the start", "before the result", "after the result"
POINTS = (IN_MODEL, BEFORE_CALL, AFTER_CALL, AFTER_START, IN_TOOL, BEFORE_RESULT, AFTER_RESULT)
"""In the order in which a turn comes to them; between `after the call` and the start is nothing."""


class Hold(NamedTuple):
    """Where the turn of one conversation is held."""

    point: str
    number: int

    def write(self, directory: Path, conversation_id: str) -> None:
        (directory / conversation_id).write_text(f"{self.number} {self.point}")


def hold_of(directory: Path, conversation_id: str) -> Hold | None:
    """Return where a conversation is to be held, if anywhere."""
    file = directory / conversation_id
    if not file.exists():
        return None
    number, _, point = file.read_text().partition(" ")
    return Hold(point, int(number))


def held_file(directory: Path, conversation_id: str) -> Path:
    """Return the file that is there once a conversation has come to its point."""
    return directory / f"{conversation_id}.held"


class HeldTurn:
    """A turn that is held at its point, for ever."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        thought: str = "",
        signed: Sequence[Mapping[str, Any]] = (),
    ) -> ToolCall:
        await self._come_to(BEFORE_CALL, arguments)
        call = await self._turn.call_tool(name, arguments, thought=thought, signed=signed)
        await self._come_to(AFTER_CALL, arguments)
        return call

    async def start_tool(self, call: ToolCall) -> str:
        key = await self._turn.start_tool(call)
        await self._come_to(AFTER_START, call.arguments)
        return key

    async def tool_result(
        self,
        call: ToolCall,
        content: str,
        *,
        exit_code: int = 0,
        end: CommandEnd | None = None,
        files: Sequence[str] = (),
        edit: FileEdit | None = None,
    ) -> None:
        await self._come_to(BEFORE_RESULT, call.arguments)
        await self._turn.tool_result(call, content, exit_code=exit_code, end=end, files=files, edit=edit)
        await self._come_to(AFTER_RESULT, call.arguments)

    async def _come_to(self, point: str, arguments: Mapping[str, Any]) -> None:
        directory, talk = Path(os.environ["HOLD_DIR"]), self._turn.conversation.public_id
        if hold_of(directory, talk) == (point, arguments.get("number")):
            held_file(directory, talk).touch()
            while True:
                await asyncio.Event().wait()


class HeldAgent(LlmAgent):
    """The agent that answers with a model, with its turns held."""

    async def play(self, turn: Turn) -> None:
        held: Any = HeldTurn(turn)
        await super().play(held)
