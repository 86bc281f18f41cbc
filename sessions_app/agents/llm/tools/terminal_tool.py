"""The tool `terminal`: commands in the conversation's terminal, which lives as long as the agent's loop."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from django.conf import settings

from conversations.dialects import columns, command_tool
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.command_tool import CommandEnd
from conversations.exceptions import ConversationError
from conversations.payloads import halves
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import NoSandbox
from sessions_app.terminals.terminal import CommandResult, Terminal

NAME = "terminal"
DESCRIPTION = """\
Run a command in the terminal: a bash whose working directory, variables and background programs stay from \
one call to the next. It starts in the directory of the workspace.

- One command at a time. Chain several with `&&` or `;`, or write several lines.
- A command that writes nothing for 30 seconds, or is not done after its `timeout`, keeps running, and the \
result has the exit code -1. Then call the tool with an empty command to read more, with `is_input` to type \
text into the program, or with `is_input` and `C-c`, `C-d` or `C-z` as the command to press that key.
- Give commands that take long a larger `timeout`. Start programs that do not end, such as servers, in the \
background, and let them write to a file: `python3 app.py > server.log 2>&1 &`.
- Of long output you get the beginning and the end; the whole is in a file that the result names.
- Do not use `exit`, `exec` or `set -e` here: they end the shell, and with it what it knows.
"""
_COMMAND = (
    "The command. Empty to read more output of the command that still runs; with `is_input` the text that it "
    "gets, or `C-c`, `C-d` or `C-z`."
)
_TIMEOUT = (
    "How many seconds the command may take before you get what it has written so far. Without it, you get "
    "that after 30 seconds without any output."
)
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": _COMMAND},
        "is_input": {
            "type": "boolean",
            "description": "Whether the command is typed into the program that runs. Default: false.",
        },
        "timeout": {"type": "number", "minimum": 0, "description": _TIMEOUT},
        "reset": {
            "type": "boolean",
            "description": "Whether to end the shell with all its programs first, and start a new one. "
            "Default: false.",
        },
    },
    "required": ["command"],
}
# `own_name` is the name in the log, which both wires have events for.
TOOL = Tool(
    name=NAME, description=DESCRIPTION, schema=_SCHEMA, server=NoServer.WORKSPACE, own_name=COMMAND_TOOL
)
RESET = "[The shell was ended, with all its programs; there is a new one.]"


async def run(
    terminal_of: Callable[[], Awaitable[Terminal]], arguments: Mapping[str, Any], report: ProgressReport
) -> Outcome:
    """Run a call; a cancellation interrupts the program."""
    try:
        terminal = await terminal_of()
        if command_tool.resets(arguments):
            await terminal.reset()
            if not str(arguments["command"]).strip():
                return Outcome(RESET, exit_code=0, end=CommandEnd())
        async with _shown(report) as show:
            result = await _result(terminal, arguments, show)
    except ConversationError as error:
        return Outcome(str(error), is_error=True, exit_code=1)
    return Outcome(
        columns.clean(result.output),
        is_error=result.exit_code not in (0, Terminal.RUNNING),
        exit_code=result.exit_code,
        end=CommandEnd(result.working_directory, result.has_timed_out),
    )


async def _result(
    terminal: Terminal, arguments: Mapping[str, Any], show: Callable[[str], None]
) -> CommandResult:
    given_s, longest_s = command_tool.timeout_of(arguments), 3_600.0
    return await terminal.run(
        # A call that was approved comes from the log, which keeps halves of characters.
        halves.whole(str(arguments["command"])),
        timeout_s=min(given_s or longest_s, longest_s),
        on_output=show,
        is_input=command_tool.is_input(arguments),
        silence_s=30.0 if given_s is None else None,
    )


@asynccontextmanager
async def _shown(report: ProgressReport) -> AsyncIterator[Callable[[str], None]]:
    """Give the callback for output, whose end readers are shown while the command runs."""
    written = ""
    has_more = asyncio.Event()

    def show(piece: str) -> None:
        nonlocal written
        most = 2_000
        written = (written + piece)[-most:]
        if len(written) == most:  # whole lines: a secret is only masked if all of it is there
            written = written[written.find("\n") + 1 :]
        has_more.set()

    async def tell() -> None:
        while True:
            await has_more.wait()
            has_more.clear()
            await report(written, done=None, total=None)
            await asyncio.sleep(0.5)  # earlier reports would not be shown

    telling = asyncio.create_task(tell())
    try:
        yield show
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def asks_first() -> bool:
    """Return whether nothing confines commands, so that the user must approve each."""
    try:
        return choice.chosen().asks_first
    except NoSandbox:
        return False  # nothing is run


def never_asks(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call needs no approval: it only reads or interrupts, or the operator trusts it."""
    command = str(arguments.get("command"))
    if command_tool.resets(arguments):
        return False
    if command_tool.is_input(arguments) or not command.strip():
        return command.strip() in ("", "C-c")
    if any(each in command for each in (";", "|", "&", "$(", "`", "<", ">", "\n", "\r")):
        return False
    try:
        words = tuple(shlex.split(command))
    except ValueError:  # quotes that do not end
        return False
    trusted = settings.CONFIGURATION.commands_never_asked
    return any(words[: len(each)] == each for each in trusted)
