"""The terminal of one conversation: one command after the other in one bash, which is replaced if it ends."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from sessions_app import astore
from sessions_app.event_loops import uncancelled
from sessions_app.sandbox import choice, roots
from sessions_app.sandbox.base import Sandbox
from sessions_app.sandbox.measuring import HeldOnDisk
from sessions_app.sandbox_network.allowed import has_network
from sessions_app.terminals import keys
from sessions_app.terminals.captured import CapturedOutput
from sessions_app.terminals.plain_text import LivePieces
from sessions_app.terminals.shell import Shell
from sessions_app.workspaces import paths, records

FOLDER = ".terminal-output"
"""Where the workspace gets the output that is too long to be shown."""

HOW_TO_GO_ON = (
    "An empty command reads more of its output. With is_input, a command is typed into it, and C-c "
    "interrupts it."
)
LATE = "[The command still runs after {seconds:g} seconds. {how}]"
SILENT = "[The command still runs, and has written nothing for {seconds:g} seconds. {how}]"
NOT_RUN = "[This command was not run, because the last one still runs. {how}]"
NOTHING_RUNS = "[No program runs that could be read from or typed into.]"
NOT_TYPED = "[The program had ended before; nothing was typed.]"
LAST_ENDED = "[The last command has ended with exit code {code}.]"
SHELL_ENDED = (
    "[{why} The next command starts in a new shell: the working directory, the variables and the background "
    "programs of this one are lost.]"
)
ENDED = "The shell has ended with exit code {code}."
NEW_SHELL = (
    "[This is a new shell, because the last one has ended: its working directory, variables and background "
    "programs are lost.]"
)
NETWORK_SWITCHED = (
    "[The network of this conversation was switched {state}. This shell, with all its programs, stays as it "
    "is; `reset` starts a new one.]"
)
BACKGROUND = "[Background programs:\n{jobs}]"
LEFT_OUT = "[… The output has {size:,} bytes; what was in the middle is left out here. {kept} …]"
IN_FILE = "All of it is in the file `{name}` of the workspace."
BEGINNING_IN_FILE = "Its first {size:,} bytes are in the file `{name}` of the workspace."
NOT_KEPT = "It could not be put into a file: {why}"


class CommandResult(NamedTuple):
    """What a command has written since the last result, and how it ended."""

    output: str
    """With sentences in brackets about what a program does not write itself."""
    exit_code: int
    """Terminal.RUNNING while the command still runs."""
    working_directory: str
    has_timed_out: bool
    """Whether the command still runs."""
    is_cut: bool
    """Whether a part of the output is left out."""


class Terminal:
    """A bash in a sandbox, on the workspace of a conversation."""

    RUNNING = -1
    """The exit code of a command that still runs."""

    def __init__(self, conversation: ConversationRef, sandbox: Sandbox, directory: Path, home: str) -> None:
        """`directory` is the workspace, which programs see at `home` if the sandbox can show it there."""
        self._conversation = conversation
        self._sandbox = sandbox
        self._directory = directory
        self._home = home
        self._shell: Shell | None = None
        # That of the shell, and what was said last of the conversation's.
        self._has_network = self._told_network = False
        self._alone = asyncio.Lock()
        self._captured = CapturedOutput()
        self._live: LivePieces | None = None
        self._noted: tuple[HeldOnDisk | None, str] = (None, "")
        # Whether a command has begun whose end no result has told.
        self._is_untold = False

    @classmethod
    async def opened(cls, conversation: ConversationRef) -> Terminal:
        """Open a terminal. Raise NoSandbox, ConversationNotFound or StoreUnavailable."""
        sandbox = await asyncio.to_thread(choice.chosen)
        directory = await astore.change(records.directory_of, conversation)
        home = await astore.call(paths.home_of, conversation)
        terminal = cls(conversation, sandbox, directory, home)
        await terminal._opened_shell()
        return terminal

    async def run(
        self,
        command: str,
        *,
        timeout_s: float,
        on_output: Callable[[str], None],
        is_input: bool = False,
        silence_s: float | None = None,
    ) -> CommandResult:
        """Run a command, or type into the one that runs; an empty one waits for what that writes.

        Return once the command has ended, after `timeout_s`, or after `silence_s` without any output. A
        cancellation interrupts the command. Raise NoSandbox or StoreUnavailable.
        """
        async with self._alone:
            self._live = LivePieces(on_output)
            try:
                return await self._result_of(command, timeout_s, silence_s, is_input=is_input)
            except asyncio.CancelledError:
                await uncancelled(self.interrupt())
                self._captured, self._is_untold = CapturedOutput(), False
                raise
            finally:
                self._live.flush()
                self._live = None

    async def interrupt(self) -> None:
        """Interrupt the running command; a shell whose command goes on is ended."""
        shell = self._shell
        if shell is None or shell.is_over.is_set():
            return
        for wait_s in (0.2, 0.4, 0.8):  # a program that has just begun may not notice the first
            shell.type(keys.INTERRUPT)
            if await _is_over_within(shell, wait_s):
                return
            await shell.interrupt_overlooked()
        await shell.close()

    async def reset(self) -> None:
        """End the shell and all programs; the next command starts in a new one."""
        if self._shell is not None:
            await self._shell.close()
        self._captured, self._is_untold = CapturedOutput(), False

    async def close(self) -> None:
        """End the shell and all programs."""
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.close()

    async def _result_of(
        self, command: str, timeout_s: float, silence_s: float | None, *, is_input: bool
    ) -> CommandResult:
        shell = self._shell
        is_new = shell is None or (shell.has_ended and not self._is_untold)
        if shell is None or is_new:
            shell = await self._opened_shell()
        before = [NEW_SHELL] if is_new else await self._network_notes()
        if is_input or not command.strip():
            if not self._is_untold:
                return await self._result(shell, [NOTHING_RUNS], exit_code=1)
            if is_input and command:
                if shell.is_over.is_set():
                    return await self._result(shell, [NOT_TYPED])
                shell.type(keys.typed(command))
                if keys.typed(command) == keys.INTERRUPT and not await _is_over_within(shell, 0.2):
                    await shell.interrupt_overlooked()
                # A program that waits for the next input is silent, and seldom ends.
                silence_s = min(silence_s or 2.0, 2.0)
        elif self._is_untold and not shell.is_over.is_set():
            return await self._result(shell, [NOT_RUN.format(how=HOW_TO_GO_ON)])
        else:
            if self._is_untold:
                before.append((await self._result(shell, [LAST_ENDED.format(code=shell.exit_code)])).output)
                shell = shell if not shell.has_ended else await self._opened_shell()
            shell.run(command)
            self._is_untold = True
        why = await self._wait(shell, timeout_s, silence_s)
        result = await self._result(shell, why)
        return result._replace(output="\n".join([*before, result.output]))

    async def _network_notes(self) -> list[str]:
        """Return a sentence, once, if the network was switched since the shell was started."""
        wanted = await astore.call(has_network, self._conversation)
        if wanted == self._told_network:
            return []
        self._told_network = wanted
        if wanted == self._has_network:
            return []
        return [NETWORK_SWITCHED.format(state="on" if wanted else "off")]

    async def _opened_shell(self) -> Shell:
        if self._shell is not None:
            await self._shell.close()
        self._has_network = self._told_network = await astore.call(has_network, self._conversation)
        self._shell = shell = await Shell.opened(
            self._sandbox, self._directory, self._home, has_network=self._has_network
        )
        shell.on_output = self._take
        self._captured, self._is_untold = CapturedOutput(), False
        return shell

    def _take(self, data: bytes) -> None:
        self._captured.add(data)
        if self._live is not None:
            self._live.add(data)

    async def _wait(self, shell: Shell, timeout_s: float, silence_s: float | None) -> list[str]:
        """Wait for the end of the command; return a sentence if it still runs."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        while not shell.is_over.is_set():
            left_s = ends_at - loop.time()
            if left_s <= 0:
                return [LATE.format(seconds=timeout_s, how=HOW_TO_GO_ON)]
            if silence_s is not None:
                silent_s = shell.changed_at + silence_s - loop.time()
                if silent_s <= 0:
                    return [SILENT.format(seconds=silence_s, how=HOW_TO_GO_ON)]
                left_s = min(left_s, silent_s)
            await _is_over_within(shell, left_s)
        return []

    async def _result(self, shell: Shell, notes: list[str], *, exit_code: int | None = None) -> CommandResult:
        """Return what has come since the last result."""
        captured, self._captured = self._captured, CapturedOutput()
        is_over = shell.is_over.is_set()
        if is_over:
            self._is_untold = False
        if shell.has_ended:
            why = shell.reason or ENDED.format(code=shell.exit_code)
            notes = [*notes, SHELL_ENDED.format(why=why)]
        elif is_over and shell.jobs:
            notes = [*notes, BACKGROUND.format(jobs=shell.jobs)]
        if fullness := await self._fullness(shell):
            notes = [*notes, f"[{fullness}]"]
        left_out = ""
        if captured.is_cut:
            left_out = LEFT_OUT.format(size=captured.size, kept=await self._kept(captured))
        text = captured.shown(left_out)
        if notes and text and not text.endswith("\n"):
            text += "\n"
        return CommandResult(
            output=text + "\n".join(notes),
            exit_code=(shell.exit_code if is_over else self.RUNNING) if exit_code is None else exit_code,
            working_directory=shell.working_directory,
            has_timed_out=not is_over,
            is_cut=captured.is_cut,
        )

    async def _fullness(self, shell: Shell) -> str:
        """Store how much the workspace holds; return the sentence for one that is nearly full."""
        if not shell.is_nearly_full and not self._noted[1]:
            return ""
        held = await asyncio.to_thread(shell.held)
        if held is not None and held != self._noted[0]:
            with suppress(ConversationError):
                self._noted = held, await astore.change(records.note_held, self._directory, held)
        # What has ended the shell says the same.
        return "" if shell.reason else self._noted[1]

    async def _kept(self, captured: CapturedOutput) -> str:
        """Put a long output into a file of the workspace; return the sentence about it."""
        if roots.root_of(self._directory) is not None:
            return NOT_KEPT.format(why="the workspace is a directory of the user's own.")
        name, content = f"{FOLDER}/{secrets.token_hex(8)}.txt", captured.kept
        try:
            await astore.change(_store, self._conversation, name, content)
        except ConversationError as error:
            return NOT_KEPT.format(why=error)
        if captured.size > captured.kept_size:
            return BEGINNING_IN_FILE.format(size=captured.kept_size, name=name)
        return IN_FILE.format(name=name)


def _store(conversation: ConversationRef, name: str, content: bytes) -> None:
    with records.changing(conversation) as change:
        change.drafted(name, content).keep()


async def _is_over_within(shell: Shell, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await shell.is_over.wait()
    return shell.is_over.is_set()
