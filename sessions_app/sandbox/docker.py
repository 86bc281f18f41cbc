"""Programs in containers, by Docker's command line. Written from its documentation, and not tried yet."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import structlog

from sessions_app.sandbox.base import Command, NoSandbox, Running, Sandbox, SandboxLimits, SandboxName
from sessions_app.sandbox.ownership import Account

logger = structlog.stdlib.get_logger(__name__)


class Docker(Sandbox):
    """A container for each program, without network, of an image that the operator names."""

    name: ClassVar[SandboxName] = SandboxName.DOCKER
    answer_s = 20.0
    """Docker answers within milliseconds, or is about to fail."""

    def __init__(self, limits: SandboxLimits, account: Account | None, image: str) -> None:
        super().__init__(limits)
        self.account = account or Account(os.geteuid(), os.getegid())
        self.image = image

    def of_owner(self, owner: tuple[int, int] | None) -> Sandbox:
        """Return a sandbox whose containers run as another account."""
        return Docker(self.limits, None if owner is None else Account(*owner), self.image)

    def look(self) -> None:
        """Raise NoSandbox if there is no Docker, no image, or no right to use them."""
        if shutil.which("docker") is None:
            raise NoSandbox(
                "There is no terminal, because docker is not installed: install it, or bubblewrap "
                "(CONVSERVER_SANDBOX=bubblewrap)."
            )
        try:
            asked = subprocess.run(
                ["docker", "image", "inspect", self.image],
                capture_output=True,
                check=False,
                timeout=self.answer_s,
            )
        except subprocess.TimeoutExpired:
            raise NoSandbox("There is no terminal: Docker does not answer. Look at its log.") from None
        if asked.returncode:
            said = asked.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise NoSandbox(
                f"There is no terminal, because Docker has no image {self.image} for this account "
                f"({said[-1]}): run `docker pull {self.image}`."
            )

    def started(self, command: Command) -> Running:
        """Start a container, which Docker removes after its end."""
        if command.has_network:
            raise NoSandbox(
                "Containers of Docker get no network here. Switch it off for this conversation, or let the "
                "server's operator choose bubblewrap (CONVSERVER_SANDBOX)."
            )
        if command.identity is not None:
            # Docker looks the path up once more, when another directory may have got it.
            raise NoSandbox(
                "No command runs in a directory of yours in Docker, which cannot be told which directory it "
                "is but by its path. Set CONVSERVER_SANDBOX=bubblewrap."
            )
        name = f"convserver-{secrets.token_hex(8)}"
        # In a file, for the command line of a process can be read by others.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as variables:
            for key, value in command.environment.items():
                if "\n" in value:
                    raise NoSandbox(f"Docker takes no variable of several lines: {key}. Change its value.")
                variables.write(f"{key}={value}\n")
            variables.flush()
            stdin, stdout, stderr = command.streams
            process = subprocess.Popen(
                ["docker", *self._arguments(command, name, variables.name), self.image, *command.argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            container = _Container(process, name, self.answer_s)
            container.wait_for_start()
        return container

    def _arguments(self, command: Command, name: str, variables: str) -> list[str]:
        shared_mb = self.limits.memory_mb // 4
        return [
            *("run", "--rm", "--init", "--interactive", f"--name={name}", f"--env-file={variables}"),
            *(["--tty"] if command.own_terminal else []),
            *("--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only"),
            *("--pull=never", f"--user={self.account.uid}:{self.account.gid}"),
            *(f"--memory={self.limits.memory_mb}m", f"--memory-swap={self.limits.memory_mb}m"),
            *(f"--pids-limit={self.limits.processes}", "--ulimit=core=0"),
            *(f"--ulimit=fsize={self.limits.file_mb * 1_000_000}", f"--shm-size={shared_mb}m"),
            f"--tmpfs=/tmp:rw,nosuid,nodev,exec,size={2 * shared_mb}m",
            *(
                f"--mount=type=bind,source={directory},target={seen_at}"
                for seen_at, directory in {command.home: command.directory, **command.further}.items()
            ),
            f"--workdir={command.home}",
        ]


class _Container(Running):
    """A running container, and the client of Docker that passes on its streams."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, answer_s: float) -> None:
        self.process = process
        self._name = name
        self._answer_s = answer_s

    def wait_for_start(self, tries: int = 100, try_s: float = 0.1) -> None:
        """Wait until the client has read the variables and the container runs, or has ended."""
        for _ in range(tries):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(try_s)
                return
            if (self._answer("inspect", "--format={{.State.Running}}") or b"").strip() == b"true":
                return
        self.end()
        raise NoSandbox("The container was not started in time. `convserver doctor` says whether it works.")

    def end(self) -> None:
        """End the container, with all that runs in it, and the client."""
        self.process.kill()
        # A Docker that is busy may need more than one try; one that hangs must not keep the caller for good.
        tries = 3
        if all(self._answer("kill") is None for _ in range(tries)):
            logger.error("A container may not have ended: Docker does not answer", container=self._name)

    def _answer(self, *words: str) -> bytes | None:
        """Ask Docker about the container; return the answer, None if it took too long."""
        asked = ["docker", *words, self._name]
        try:
            return subprocess.run(asked, capture_output=True, check=False, timeout=self._answer_s).stdout
        except subprocess.TimeoutExpired:
            return None

    def watch(self, end_because: Callable[[str], None]) -> None:
        """Wait for the client, which ends with the container; Docker limits the container's memory."""
        self.process.wait()

    def close(self) -> None:
        """Do nothing: Docker removes the container."""
