"""Commands as agents run them, in a sandbox, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import pickle
import secrets
import shutil
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from sessions_app.sandbox.base import NOTHING, NoSandbox, Sandbox, SandboxedProgram, SandboxLimits
from sessions_app.sandbox.bubblewrap import Bubblewrap
from sessions_app.sandbox.ownership import Account

LIMITS = SandboxLimits(memory_mb=200, processes=64, file_mb=5)
COMMANDS = Account(65_534, 65_534)
"""Who runs the commands of a server that root has started."""
OTHER = Account(60_001, 60_001)
"""Who runs a server that root has not started."""


class Outcome(NamedTuple):
    """What came of a command."""

    output: str
    exit_code: int
    reason: str


@dataclass(frozen=True)
class Commander:
    """Runs commands in one workspace as a server does: one that root has started, or another one."""

    sandbox: Sandbox
    workspace: Path
    server: Account | None
    mark: str

    def run(
        self,
        command: str,
        *,
        kill_at: str = "",
        environment: Mapping[str, str] = NOTHING,
        home: str = "/workspace",
        has_network: bool = False,
    ) -> Outcome:
        """Run a command to its end, or kill it once it has said something."""

        def ran() -> Outcome:
            with tempfile.TemporaryFile() as said:
                program = self.started(command, said.fileno(), environment, home, has_network=has_network)
                if kill_at:
                    wait_for(lambda: kill_at in _text_of(said.fileno()))
                    program.kill()
                    program.kill()
                code = asyncio.run(asyncio.wait_for(program.wait(), 30))
                assert program.exit_code == code
                return Outcome(_text_of(said.fileno()), code, program.reason)

        return ran() if self.server is None else _as_account(self.server, ran)

    def started(
        self,
        command: str,
        output: int,
        environment: Mapping[str, str] = NOTHING,
        home: str = "/workspace",
        *,
        has_network: bool = False,
    ) -> SandboxedProgram:
        """Start a command, of which all processes have the mark."""
        return self.sandbox.start(
            ["/bin/bash", "-c", command],
            self.workspace,
            home=home,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            environment={"MARK": self.mark, **environment},
            has_network=has_network,
        )

    def left(self) -> list[str]:
        """Return the command lines of what is left of all commands."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self.mark.encode() in (each / "environ").read_bytes():
                    found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def wait_until_none_is_left(self) -> None:
        wait_for(lambda: not self.left())


@contextmanager
def commander(server: Account | None) -> Iterator[Commander]:
    """Give who runs commands for a server of this account; None for one that this account has started."""
    require_bubblewrap()
    of_root = os.geteuid() == 0 and server is None
    directory = Path(tempfile.mkdtemp(prefix="workspace-"))
    owner = COMMANDS if of_root else server
    if owner is not None:
        os.chown(directory, *owner)
    try:
        sandbox = Bubblewrap(LIMITS, COMMANDS if of_root else None)
        yield Commander(sandbox, directory, server, secrets.token_hex(16))
    finally:
        # Python would give up in directories that are a thousand levels deep.
        subprocess.run(["rm", "-rf", directory], check=True)


def require_bubblewrap() -> None:
    """Skip a test where bubblewrap does not work, or fail it where everything must be there."""
    try:
        Bubblewrap(LIMITS, COMMANDS if os.geteuid() == 0 else None).look()
    except NoSandbox as error:
        do_without(str(error))


def do_without(sentence: str) -> NoReturn:
    """Skip a test that has no sandbox, or fail it where everything must be there and can be."""
    if os.environ.get("CONVSERVER_REQUIRE_ENGINES") == "all" and _has_namespaces():
        pytest.fail(f"CONVSERVER_REQUIRE_ENGINES=all asks for bubblewrap. {sentence}")
    pytest.skip(sentence)


def _has_namespaces() -> bool:
    """Return whether the kernel makes namespaces here; in some containers it makes none for any program."""
    program = shutil.which("unshare")
    asked = [program or "unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "true"]
    return program is None or subprocess.run(asked, capture_output=True, check=False).returncode == 0


def wait_for(is_so: Callable[[], bool], at_most_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + at_most_s
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def _text_of(descriptor: int) -> str:
    return os.pread(descriptor, 1_000_000, 0).decode(errors="replace")


def _as_account(account: Account, work: Callable[[], Outcome]) -> Outcome:
    """Do something in a copy of this process that has given up the rights of root."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(*[account.gid] * 3)
            os.setresuid(*[account.uid] * 3)
            with os.fdopen(write, "wb") as file:
                pickle.dump(_said_by(work), file)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        told = file.read()
    os.waitpid(child, 0)
    outcome: Outcome | str = pickle.loads(told)
    assert not isinstance(outcome, str), outcome
    return outcome


def _said_by(work: Callable[[], Outcome]) -> Outcome | str:
    """Return what work gives, or the text of its error."""
    try:
        return work()
    except Exception:
        return traceback.format_exc()
