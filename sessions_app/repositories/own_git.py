"""Git outside of any sandbox, in a bare repository and with a configuration of the server's own.

Nothing that an agent has written is read here but packs of objects, and only here git has a token.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from sessions_app.git_providers.base import GitRemote
from sessions_app.outbound.programs import ProgramWay
from sessions_app.repositories.runs import RepositoryFailed, ended
from sessions_app.sandbox.base import Running, SandboxedProgram
from sessions_app.shell_commands.piped import PipedProgram, Take


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What git needs for one server."""

    remote: GitRemote
    way: ProgramWay


# The limits hold for git and all that it starts. All of it ends with the server: the kernel tells this
# program, which is the first of the group, and git's own programs would wait for the provider until its end.
_LAUNCH = """
import ctypes, os, resource, signal, sys
server, token, *limits = map(int, sys.argv[1:5])
for which, most in zip((resource.RLIMIT_FSIZE, resource.RLIMIT_DATA), limits):
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
# Python ignores it, and git learns by it of a pipe without a reader.
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
os.umask(0o077)
os.nice(10)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != server:
        sys.exit(1)
if (git := os.fork()) == 0:
    if token >= 0:  # some shells know descriptors of one digit only
        os.dup2(token, 3)
    os.execvp(sys.argv[5], sys.argv[5:])
code = os.waitstatus_to_exitcode(os.waitpid(git, 0)[1])
os._exit(code if code >= 0 else 128 - code)
"""

_HARMLESS = (
    *("badEmail", "badTimezone", "missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate"),
    *("missingSpaceBeforeEmail", "multipleAuthors", "zeroPaddedDate", "zeroPaddedFilemode", "badFilemode"),
)
"""What repositories of old programs have, and what does no harm."""


STRICT = f"--strict={','.join(f'{each}=ignore' for each in _HARMLESS)}"
"""The option of `index-pack` that checks all objects."""


class OwnGit:
    """Git in one bare repository."""

    def __init__(self, directory: Path, most_bytes: int) -> None:
        """The repository is ended with a sentence if it holds more than `most_bytes`."""
        self._directory = directory
        self._most = most_bytes

    async def run(
        self,
        *arguments: str,
        access: Access | None = None,
        stdin: int | None = None,
        progress: Take = lambda _: True,
        timeout_s: float = 60.0,
    ) -> bytes:
        """Run git to its end, and return what it prints. A cancellation ends it.

        With `access` it may ask that server alone, otherwise none. Raise RepositoryFailed.
        """
        out = bytearray()
        most = 32_000_000

        def keep(piece: bytes) -> bool:
            out.extend(piece[: most - len(out)])
            return True

        async def start() -> PipedProgram:
            return await asyncio.to_thread(self._started, arguments, access, stdin)

        end = await ended(start, timeout_s=timeout_s, stdout=keep, stderr=progress)
        if end.reason:
            raise RepositoryFailed(end.reason)
        if end.exit_code:
            if "File too large" in end.said:
                raise RepositoryFailed(self._too_large)
            raise RepositoryFailed(_words(end.said, access))
        if len(out) == most:  # judged in part, a repository could pass a limit
            raise RepositoryFailed("The repository has too many files or branches.")
        return bytes(out)

    def _started(self, arguments: Sequence[str], access: Access | None, stdin: int | None) -> PipedProgram:
        out_end, out = os.pipe()
        err_end, err = os.pipe()
        try:
            launch, environment, token = self._launch(arguments, access)
            start = partial(_own_run, launch, environment, token, (stdin, out, err), self._problem)
            try:
                return PipedProgram(SandboxedProgram(start, self._directory), out_end, err_end)
            finally:
                if token is not None:
                    os.close(token)
        except BaseException:
            os.close(out_end)
            os.close(err_end)
            raise
        finally:
            os.close(out)
            os.close(err)

    @property
    def _too_large(self) -> str:
        """Return the sentence about a repository that holds too much."""
        return (
            f"The repository is too large: the workspace of this conversation has room for {self._most:,} "
            "bytes more. The server's operator can raise the limit (CONVSERVER_WORKSPACE_MAX_MB)."
        )

    def _problem(self) -> str:
        """Return why git has to end now; empty if it may go on."""
        return self._too_large if size_of(self._directory) > self._most else ""

    def _launch(
        self, arguments: Sequence[str], access: Access | None
    ) -> tuple[list[str], dict[str, str], int | None]:
        """Return the command line and the environment, and the descriptor with the token, if there is one."""
        # Packs do not count: git maps them.
        memory = 1_000_000_000
        token = None if access is None else _in_pipe(access.remote)
        numbers = (os.getpid(), -1 if token is None else token, self._most, memory)
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, *map(str, numbers), "git", *arguments]
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            # Where curl looks for names and passwords of its own.
            "HOME": str(self._directory),
            "LC_ALL": "C.UTF-8",
            "GIT_DIR": str(self._directory),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "false",
            "GIT_SSH_COMMAND": "false",
            "GIT_ALLOW_PROTOCOL": "none" if access is None else httpx.URL(access.remote.url).scheme,
        }
        # The operator's certificates, as for all other requests.
        for name, gits in (("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")):
            if value := os.environ.get(name):
                environment[gits] = value
        settings = list(_settings(access))
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings):
            environment[f"GIT_CONFIG_KEY_{number}"] = key
            environment[f"GIT_CONFIG_VALUE_{number}"] = value
        return launch, environment, token


def _settings(access: Access | None) -> Iterator[tuple[str, str]]:
    """Yield the whole configuration of git."""
    # A repository of the server's own has nothing of this, so these only say again what git must not do.
    no = ("core.fsmonitor", "submodule.recurse", "fetch.recurseSubmodules", "gc.autoDetach", "push.gpgSign")
    yield from ((each, "false") for each in (*no, "http.followRedirects", "maintenance.auto"))
    yield from (("gc.auto", "0"), ("core.hooksPath", "/dev/null"), ("core.attributesFile", "/dev/null"))
    # One pack as it comes: it goes into the sandbox as it is.
    yield from (("transfer.fsckObjects", "true"), ("fetch.unpackLimit", "1"), ("pack.threads", "1"))
    yield from ((f"{of}.fsck.{each}", "ignore") for of in ("fetch", "receive") for each in _HARMLESS)
    yield from ((f"fsck.{each}", "ignore") for each in _HARMLESS)
    # Larger objects are not held in memory.
    yield from (("core.bigFileThreshold", "16m"), ("pack.windowMemory", "64m"))
    yield from (("http.lowSpeedLimit", "100"), ("http.lowSpeedTime", "60"), ("credential.helper", ""))
    # Empty is "no proxy", also where a variable names one.
    yield "http.proxy", "" if access is None else access.way.proxy
    if access is not None:
        url = httpx.URL(access.remote.url)
        origin = f"{url.scheme}://{url.netloc.decode('ascii')}"
        # A shell of this name reads the pipe; a second question finds it empty.
        yield f"credential.{origin}.helper", "!cat <&3; :"
        if access.way.addresses:
            port = url.port or (80 if url.scheme == "http" else 443)
            addresses = ",".join(f"[{each}]" if ":" in each else each for each in access.way.addresses)
            yield "http.curloptResolve", f"{url.raw_host.decode('ascii')}:{port}:{addresses}"


def _in_pipe(remote: GitRemote) -> int:
    """Return the end of a pipe from which the user and the token can be read once."""
    read, write = os.pipe()
    with os.fdopen(write, "wb") as file:
        file.write(f"username={remote.user}\npassword={remote.password}\n".encode())
    return read


def _own_run(
    launch: Sequence[str],
    environment: Mapping[str, str],
    token: int | None,
    streams: tuple[int | None, int, int],
    problem: Callable[[], str],
) -> Running:
    """Start git. Raise RepositoryFailed."""
    stdin, stdout, stderr = streams
    try:
        process = subprocess.Popen(
            launch,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(environment),
            pass_fds=() if token is None else (token,),
            start_new_session=True,
        )
    except OSError as error:
        raise RepositoryFailed(f"Git cannot be started: {error.strerror}.") from error
    return _OwnRun(process, problem)


class _OwnRun(Running):
    """A run of git, with what it starts in one group of processes."""

    def __init__(self, process: subprocess.Popen[bytes], problem: Callable[[], str]) -> None:
        self.process = process
        self._problem = problem

    def end(self) -> None:
        """End the whole group."""
        # The group has the programs that git has started: helpers for HTTP, and those that read packs.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def watch(self, end_because: Callable[[str], None]) -> None:
        """Wait for the end of git; end it once the repository is too large."""
        look_s = 0.25
        while True:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(look_s)
                return
            if problem := self._problem():
                end_because(problem)

    def close(self) -> None:
        """Do nothing: no descriptors are kept."""


def size_of(directory: Path) -> int:
    """Return the bytes of all files beneath a directory of the server's own."""
    size = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # git gives a pack its name while this looks
                size += Path(place, name).lstat().st_size
    return size


def _words(said: str, access: Access | None) -> str:
    """Return a sentence about a failure, in the last words of git that name one."""
    text = said.replace("\r", "\n")
    # No version of git shows it; a server may send it back in its words.
    if access is not None:
        text = text.replace(access.remote.password, "…")
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    told = [each for each in lines if each.startswith(("fatal:", "error:"))] or lines[-1:]
    most = 300
    first = (told[0].partition(": ")[2] or told[0])[:most] if told else "no reason given"
    return f"Git failed: {first}{'' if first.endswith('.') else '.'}"
