"""One bash on a pseudo-terminal: how it is given commands, and how their ends are recognised.

Bash is interactive, so that it survives syntax errors and interrupts and controls jobs. It reads commands
from a socket, never from the terminal: what a program leaves unread there is no command. At the end of a
command bash writes its exit code to the terminal, after all output, between marks that are new each time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import signal
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sessions_app.event_loops import uncancelled
from sessions_app.sandbox import roots
from sessions_app.sandbox.base import NoSandbox, Sandbox, SandboxedProgram
from sessions_app.sandbox.measuring import HeldOnDisk
from sessions_app.terminals.keys import INTERRUPT

_ARGV = (
    *("/bin/bash", "--noprofile", "--norc", "-c"),
    # The socket comes as standard error, so that the words of a sandbox that cannot be made come by it, too.
    "exec 9<&2 2>&1; exec /bin/bash --noprofile --norc --noediting -i <&9 9<&-",
)
_ENVIRONMENT = {
    "TERM": "dumb",  # programs write fewer escape sequences
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",  # no server's name or password is here, and git would wait for them
    "VIRTUAL_ENV_DISABLE_PROMPT": "1",
}
# No prompts, also after programs that set some; `!` is no command of the history. The end of a command is
# written once, also if bash gets it twice.
_SETTINGS = r"""
PS1= PS2= PROMPT_COMMAND='{ PS1= PS2=; } 2>/dev/null'
set +H +o history
unset HISTFILE OLDPWD
_convserver_begin() {
  builtin printf '\e]%s\a' "$1" >/dev/tty
}
_convserver_end() {
  _convserver_code=$?
  [[ ${_convserver_mark-} = "$1" ]] || {
    builtin printf '\e]%s;%s;%s\e]%s;' "$1" "$_convserver_code" "$PWD" "$1"
    builtin jobs -l
    builtin printf '\e]%s\a' "$1"
    _convserver_mark=$1
  }
}
"""
_ROWS_AND_COLUMNS = (50, 200)


class Shell:
    """A running bash; once it has ended, a new one is needed."""

    def __init__(self, program: SandboxedProgram, master: int, commands: socket.socket, tty: str) -> None:
        """`tty` is the path of the pseudo-terminal whose other side is `master`."""
        self.on_output: Callable[[bytes], None] = lambda data: None
        self.exit_code = 0
        """That of the last command or, once it has ended, of the shell."""
        self.working_directory = ""
        self.jobs = ""
        """The background programs at the end of the last command, as `jobs` lists them."""
        self.is_over = asyncio.Event()
        """Set while no command runs, also once the shell has ended."""
        self.has_ended = False
        self.changed_at = 0.0
        """When there was output last, or something was typed; in seconds of the event loop."""
        self._program = program
        self._master = master
        self._commands = commands
        self._tty = tty
        self._typing = _FdWriter(master)
        self._telling = _FdWriter(commands.fileno())
        self._mark = b""
        self._last_mark = b""
        self._held = b""
        """What may be the beginning of the mark, or what follows it."""
        self._has_begun = True
        self._wants_interrupt = self._was_interrupted = False
        self._last_words = ""
        self._has_hung_up = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def opened(
        cls, sandbox: Sandbox, directory: Path, home: str, *, has_network: bool = False
    ) -> Shell:
        """Start a shell in a workspace, which it sees at `home`. Raise NoSandbox or StoreUnavailable."""
        master, slave = os.openpty()
        commands, theirs = socket.socketpair()
        try:
            tty = os.ttyname(slave)
            if os.geteuid() == 0:  # programs open it again (`/dev/stdout`), and are the workspace's owner's
                os.fchown(slave, os.stat(directory).st_uid, -1)  # noqa: PTH116 - takes no time
            _set_modes(slave)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *_ROWS_AND_COLUMNS, 0, 0))
            os.set_blocking(master, False)
            commands.setblocking(False)
            program = await _started(
                sandbox, directory, home, slave, theirs.fileno(), has_network=has_network
            )
        except BaseException:
            os.close(master)
            commands.close()
            raise
        finally:
            os.close(slave)
            theirs.close()
        shell = cls(program, master, commands, tty)
        try:
            await shell._greet()
        except BaseException:
            await uncancelled(shell.close())
            raise
        return shell

    async def _greet(self) -> None:
        """Wait until the shell takes commands. Raise NoSandbox."""
        within_s = 30.0
        self._begin()
        self._telling.write(_SETTINGS.encode() + self._end_line())
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.is_over.wait()
        if self.has_ended or not self.is_over.is_set():
            why = f"it didn't answer within {within_s:g} seconds"
            if self.has_ended:
                why = self._program.reason or self._last_words or f"it ended with exit code {self.exit_code}"
            raise NoSandbox(f"The shell of the terminal could not be started: {why.rstrip('.')}.")

    def run(self, command: str) -> None:
        """Begin a command; the shell must not be busy."""
        with suppress(OSError):  # it is about to end
            descriptor = os.open(self._tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # Undo what the last program has done to the terminal, and forget what it has not read.
                _set_modes(descriptor)
                termios.tcflush(descriptor, termios.TCIFLUSH)
            finally:
                os.close(descriptor)
        # `||` hands the last exit code over as `$?`, and no option or trap takes that for an error.
        before = f"(exit {self.exit_code}) || " if self.exit_code else ""
        self._begin()
        self._has_begun = False
        begin = f"_convserver_begin {self._mark[2:].decode()} 2>/dev/null"
        line = f"{{ {begin}; {before}eval {_quoted(command)}; }} <>/dev/tty\n\n"
        self._telling.write(line.encode() + self._end_line())

    def type(self, data: bytes) -> None:
        """Type something into the program that runs."""
        self.changed_at = asyncio.get_running_loop().time()
        if data == INTERRUPT:
            self._interrupt()
        else:
            self._typing.write(data)

    def _interrupt(self) -> None:
        # An interrupt lets bash forget a part of what it reads: not before it has read the whole command.
        self._wants_interrupt = not self._has_begun
        if self._has_begun:
            self._typing.discard()  # no program may ever read it
            self._typing.write(INTERRUPT)
            self._was_interrupted = True
            if self._mark:  # bash may have been about to write the marks
                self._telling.write(b"\n" + self._end_line())

    async def interrupt_overlooked(self) -> None:
        """Interrupt programs that bash waits for, but to which it has not given the terminal."""
        # That happens if an interrupt comes while bash starts one. Then no key reaches the program.
        with suppress(OSError):
            leader = os.tcgetpgrp(self._master)
            if os.getsid(leader) == leader:
                for pid in await asyncio.to_thread(_programs_at, self._tty):
                    if pid != leader:
                        os.kill(pid, signal.SIGINT)

    async def close(self) -> None:
        """End the shell and all that it has started; a second call does nothing."""
        self._program.kill()
        await asyncio.shield(self._watching)

    def _begin(self) -> None:
        self._mark = b"\x1b]" + secrets.token_hex(16).encode()
        self.changed_at = asyncio.get_running_loop().time()
        if not self.has_ended:
            self.is_over.clear()

    def _end_line(self) -> bytes:
        """Return the line by which bash writes the marks, also if its streams lead elsewhere."""
        # Without quotes: if an interrupt makes bash forget its beginning, the rest takes in no other line.
        return b"{ _convserver_end %b; } </dev/tty >/dev/tty 2>/dev/null\n" % self._mark[2:]

    def _read(self) -> None:
        for _ in range(16):  # then others have their turn; a read brings at most 4 KB
            try:
                data = os.read(self._master, 64 * 1024)
            except BlockingIOError:
                return
            except OSError:  # no program has the terminal open any more
                data = b""
            if not data:
                asyncio.get_running_loop().remove_reader(self._master)
                self._has_hung_up.set()
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Pass on output without the marks of the command's begin and end."""
        self.changed_at = asyncio.get_running_loop().time()
        data, self._held = self._held + data, b""
        if self._last_mark and self._last_mark in data:  # after an interrupt, an end can be written twice
            data = re.sub(re.escape(self._last_mark) + rb"[^\a\x1b]*\a?", b"", data)
        while mark := self._mark:
            at = data.find(mark)
            if at < 0:
                begun = data.rfind(b"\x1b", 1 - len(mark))
                at = begun if begun >= 0 and mark.startswith(data[begun:]) else len(data)
                self._give(data[:at])
                self._held = data[at:]
                return
            self._give(data[:at])
            end = data.find(mark + b"\a", at)
            if end < 0:
                most = 64 * 1024  # of a working directory and a list of jobs
                if len(data) - at > most:
                    self._program.kill()  # a command has changed what writes the marks
                else:
                    self._held = data[at:]
                return
            if end > at:
                self._note_end(data[at + len(mark) : end])
            else:
                self._was_interrupted = False
            self._has_begun = True
            if self._wants_interrupt:
                self._interrupt()
            data = data[end + len(mark) + 1 :]
        self._give(data)
        self.is_over.set()

    def _give(self, data: bytes) -> None:
        is_idle = not self._has_begun or (self._was_interrupted and not self._mark)
        # An idle bash answers an interrupt with an empty line.
        if data and (not is_idle or data.strip()):
            self.on_output(data)

    def _note_end(self, told: bytes) -> None:
        """Read `;EXIT CODE;WORKING DIRECTORY`, the mark, and `;JOBS`."""
        try:
            facts, *_, jobs = told.split(self._mark)  # more, if bash was interrupted while it wrote them
            _, exit_code, directory = facts.decode(errors="replace").split(";", 2)
            self.exit_code, self.working_directory = int(exit_code), directory
        except ValueError:  # a command has changed what writes the marks
            self._program.kill()
            return
        self.jobs = jobs[1:4_000].decode(errors="replace").replace("\r\n", "\n").strip()
        self._last_mark, self._mark = self._mark, b""
        self._wants_interrupt = False

    async def _watch(self) -> None:
        """Wait for the end of the shell, and of what it has started."""
        exit_code = await self._program.wait()
        with suppress(TimeoutError):  # a program that nothing confines may have escaped with the terminal
            async with asyncio.timeout(1.0):
                await self._has_hung_up.wait()  # the last output comes before
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._master)
        self._typing.close()
        self._telling.close()
        if self._held and not self._held.startswith(self._mark):
            self.on_output(self._held)
        with suppress(OSError):  # a sandbox that cannot be made says here why
            said = self._commands.recv(1_000, socket.MSG_DONTWAIT)
            self._last_words = " ".join(said.decode(errors="replace").split())
        self.exit_code, self.has_ended = exit_code, True
        self.jobs = ""
        self.is_over.set()
        os.close(self._master)
        self._commands.close()

    @property
    def reason(self) -> str:
        """Return the sentence about the limit that has ended the shell; empty if none has."""
        return self._program.reason

    @property
    def is_nearly_full(self) -> bool:
        """Whether the workspace was nearly full when it was measured last."""
        return self._program.is_nearly_full

    def held(self) -> HeldOnDisk | None:
        """Return what the workspace holds, as far as it is known; it may take a second."""
        return self._program.held()


class _FdWriter:
    """Writes to a descriptor as fast as its reader reads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = bytearray()
        self._is_closed = False

    def write(self, data: bytes) -> None:
        if not self._is_closed:
            if not self._pending:
                asyncio.get_running_loop().add_writer(self._descriptor, self._write)
            self._pending += data

    def discard(self) -> None:
        """Forget what was not read yet."""
        self._pending.clear()
        asyncio.get_running_loop().remove_writer(self._descriptor)

    def close(self) -> None:
        self._is_closed = True
        self.discard()

    def _write(self) -> None:
        try:
            del self._pending[: os.write(self._descriptor, self._pending[: 4 * 1024])]
        except BlockingIOError:
            return
        except OSError:  # its reader is gone
            self.close()
        if not self._pending:
            asyncio.get_running_loop().remove_writer(self._descriptor)


def _set_modes(descriptor: int) -> None:
    """Set the modes of a new terminal, but without an echo of what is typed."""
    modes = termios.tcgetattr(descriptor)
    modes[0] = termios.ICRNL | termios.IXON
    modes[1] = termios.OPOST | termios.ONLCR
    # An interrupt must not discard output: the marks may be in it.
    modes[3] = termios.ISIG | termios.ICANON | termios.IEXTEN | termios.NOFLSH
    termios.tcsetattr(descriptor, termios.TCSANOW, modes)


async def _started(
    sandbox: Sandbox, directory: Path, home: str, slave: int, errors: int, *, has_network: bool
) -> SandboxedProgram:
    """Start bash in a thread; if this is cancelled meanwhile, bash is ended again."""

    def start() -> SandboxedProgram:
        return roots.started(
            sandbox,
            _ARGV,
            directory,
            home=home,
            stdin=slave,
            stdout=slave,
            stderr=errors,
            environment=_ENVIRONMENT,
            own_terminal=True,
            has_network=has_network,
        )

    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.gather(starting, return_exceptions=True)
        if starting.exception() is None:
            starting.result().kill()
            await uncancelled(starting.result().wait())
        raise


def _programs_at(tty: str) -> list[int]:
    """Return the processes with this terminal, where the system shows them as files (Linux)."""
    found, device = [], Path(tty).stat().st_rdev
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, _, facts = each.read_text(errors="replace").rpartition(")")  # a name may have anything
            if int(facts.split()[4]) == device:
                found.append(int(each.parent.name))
    return found


_SPECIAL = re.compile(rb"[^ -&(-\[\]-~]")


def _quoted(command: str) -> str:
    """Return a text as one word of bash on one line."""
    text = command.replace("\0", "").encode(errors="replace")
    return "$'" + _SPECIAL.sub(lambda found: b"\\%03o" % found[0][0], text).decode() + "'"
