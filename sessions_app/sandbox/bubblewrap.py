"""Programs in namespaces of their own, made by bubblewrap (Linux)."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from sessions_app.sandbox.base import (
    HOME,
    Command,
    NoSandbox,
    Running,
    Sandbox,
    SandboxLimits,
    SandboxName,
    environment_of,
)
from sessions_app.sandbox.binding import bound
from sessions_app.sandbox.ownership import Account
from sessions_app.sandbox.system_calls import WITHOUT_RESERVING
from sessions_app.sandbox.watching import processes_in, watch
from sessions_app.sandbox_network import listening
from sessions_app.sandbox_network.gate import Gate
from sessions_app.sandbox_network.listening import CannotListen

TOOLS = ("bwrap", "setsid", "bash")
TOOLS_OF_ROOT = ("setpriv",)
_IN_ETC = (
    *("alternatives", "bash.bashrc", "fonts", "inputrc", "ld.so.cache", "localtime", "mime.types"),
    *("os-release", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf"),
    *("profile", "protocols", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "timezone"),
    *("vim/vimrc", "java-[0-9]*"),
)
"""What programs need, and what holds no secret on any known system."""
_MADE_IN_ETC = {
    # The names that OpenHands commits with: without any, git refuses to commit. A repository can have others.
    "gitconfig": "[user]\n\tname = openhands\n\temail = openhands@all-hands.dev\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
}
# The shell that becomes the program sets its limits inside, where processes are counted anew, and only then
# reads the environment: so that acts on nothing before, and is in no command line. If it has no end, the
# server has died, too early for bwrap to end with it.
_BEGIN = """
ulimit -u "$1" -d "$2" -f "$3" -c 0 || exit
shift 3
while read -r -d "" -u "$0" || exit; do
    [[ $REPLY ]] || break
    export -- "$REPLY"
done 2>/dev/null
unset REPLY
eval "exec $0<&-"
# A script's background programs ignore interrupts, and so does all that they start.
[[ $(trap -p INT QUIT) ]] && set -- /usr/bin/env --default-signal=INT,QUIT "$@"
exec "$@"
"""
_PROXY = f"http://{listening.ADDRESS[0]}:{listening.ADDRESS[1]}"
# In both spellings, since programs read one or the other. Servers in the sandbox are not behind the proxy.
_NETWORK_VARIABLES = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _PROXY),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",  # Node does not read the others by itself
}


class Bubblewrap(Sandbox):
    """Namespaces without network but a proxy, that see the system's programs and a workspace."""

    name: ClassVar[SandboxName] = SandboxName.BUBBLEWRAP
    network_variables: ClassVar[Mapping[str, str]] = _NETWORK_VARIABLES

    def __init__(self, limits: SandboxLimits, account: Account | None) -> None:
        super().__init__(limits)
        self.account = account
        """Who runs the programs of a server that root has started."""

    def of_owner(self, owner: tuple[int, int] | None) -> Sandbox:
        """Return a sandbox whose programs run as another account."""
        return Bubblewrap(self.limits, None if owner is None else Account(*owner))

    def look(self) -> None:
        """Raise NoSandbox if a tool is missing, or a program cannot be started and write its workspace."""
        for tool in (*TOOLS, *(TOOLS_OF_ROOT if self.account else ())):
            if shutil.which(tool) is None:
                package = "bubblewrap" if tool == "bwrap" else "util-linux"
                raise NoSandbox(
                    f"There is no terminal, because {tool} is not installed: install {package} "
                    f"(Debian: apt install {package})."
                )
        if (problem := self._tried_apart(has_network=False)) is not None:
            raise NoSandbox(
                f"There is no terminal, because bubblewrap does not work here ({problem or 'no reason given'}"
                "). The kernel must let this account make user namespaces, also in a container: see "
                'docs/operation.md, "The sandbox".'
            )

    def look_for_network(self) -> None:
        """Raise NoSandbox if a program cannot be started with a network."""
        if (problem := self._tried_apart(has_network=True)) is not None:
            raise NoSandbox(problem or "The network of the sandbox could not be made.")

    def _tried_apart(self, *, has_network: bool) -> str | None:
        """Do that in a thread that ends with it, as one is left with what `bound` leaves."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._tried, has_network=has_network).result()

    def _tried(self, *, has_network: bool) -> str | None:
        """Start a program that writes its workspace; return what was said if it could not, else None."""
        with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as said:
            if self.account:
                os.chown(made, *self.account)
            command = Command(
                ["/bin/sh", "-c", ": >works"],
                Path(made),
                HOME,
                (subprocess.DEVNULL, subprocess.DEVNULL, said.fileno()),
                environment_of(HOME, {}, False),
                False,
                has_network,
            )
            problem = ""
            try:
                running = self.started(command)
                running.watch(lambda _: None)
                running.process.wait()
                running.close()
            except NoSandbox as error:
                problem = str(error)
                if has_network:
                    return problem
            if Path(made, "works").exists():
                return None
            said.seek(0)
            # What bwrap says is more exact.
            return "".join(said.read(1000).decode(errors="replace").strip().splitlines()[-1:]) or problem

    def started(self, command: Command) -> Running:
        """Start bwrap, and learn the first process of the new namespace from it. Raise NoSandbox."""
        with ExitStack() as opened:
            (told, tell), (wait, go) = os.pipe(), os.pipe()
            opened.callback(os.close, told)
            opened.callback(os.close, go)
            descriptors = [tell, wait, os.dup(wait)]
            try:
                arguments = [*self._arguments(command, descriptors), "--info-fd", str(tell)]
                text = "\0".join([*arguments, "--block-fd", str(wait), ""])
                _in_memory(os.fsencode(text), descriptors)
                process = self._launched(command, descriptors)
            finally:
                for each in descriptors:
                    os.close(each)
            try:
                first = int(json.loads(_line(told))["child-pid"])
                namespace = os.pidfd_open(first)
            except (ValueError, KeyError, OSError) as error:
                process.kill()
                process.wait()
                raise NoSandbox(
                    "The sandbox could not be started. `convserver doctor` says whether it works here."
                ) from error
            running = _Namespace(process, namespace, first, self.limits)
            if command.has_network:
                running.open_gate()
            _yield_to_others(first)
            if not _tell_to_go(os.dup(go), command, running):
                running.end()
                process.wait()
                running.close()
                raise NoSandbox("The directory of the conversation was replaced. Try again.")
        return running

    def _launched(self, command: Command, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
        launch = ["bwrap", "--args", str(descriptors[-1]), "--", *self._limited(command, descriptors[2])]
        if self.account is not None:
            uid, gid = self.account
            launch = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--", *launch]
        # As root: each directory is bound to a place that can be reached without the rights of root, which
        # setpriv gives up. The workspace comes last: its place may hide where the others are.
        binds = [] if self.account is None else list(reversed(_places(command)))
        stdin, stdout, stderr = command.streams
        try:
            with bound(binds) if binds else nullcontext():
                return subprocess.Popen(
                    launch,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd="/",
                    # The launcher, which may be root, obeys no variable that a client has chosen.
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
                    pass_fds=descriptors,
                    start_new_session=True,
                    umask=0o022,
                )
        except OSError as error:
            raise NoSandbox(f"The sandbox could not be started: {error.strerror}.") from error

    def _limited(self, command: Command, wait: int) -> list[str]:
        """Return the command with its limits, and the descriptor from which it gets its environment."""
        # In KiB, as the shell counts.
        memory, file = (each * 1_000_000 // 1024 for each in (self.limits.memory_mb, self.limits.file_mb))
        limits = map(str, (self.limits.processes, memory, file))
        # The session of bwrap is outside, where a shell could not tell which program has the terminal.
        leader = ["/usr/bin/setsid", "--ctty"] if command.own_terminal else []
        return [*leader, "/bin/bash", "-pc", _BEGIN, str(wait), *limits, *command.argv]

    def _arguments(self, command: Command, descriptors: list[int]) -> Iterator[str]:
        """Yield the arguments of bwrap, and append the descriptors that they name."""
        yield from ("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts")
        yield from ("--unshare-net", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL")
        yield from ("--uid", "1000", "--gid", "1000", "--hostname", "sandbox")
        if not command.own_terminal:
            yield "--new-session"
        yield from _system_directories()
        yield from _etc(command, descriptors)
        for each in ("/home", "/root", "/run", "/srv", "/var", "/opt", "/mnt", "/media"):
            yield from ("--dir", each)
        # Files in memory count for no process, so each place for them has a size.
        shared = self.limits.memory_mb * 1_000_000 // 4
        yield from ("--proc", "/proc", "--dev", "/dev")
        yield from ("--perms", "1777", "--size", str(shared), "--tmpfs", "/dev/shm")
        yield from ("--perms", "1777", "--size", str(2 * shared), "--tmpfs", "/tmp")
        seen = (command.home, *command.further)
        for (directory, place), seen_at in zip(_places(command), seen, strict=True):
            yield from ("--bind", directory if self.account is None else place, seen_at)
        yield from ("--seccomp", _in_memory(WITHOUT_RESERVING, descriptors))
        yield from ("--chdir", command.home, "--remount-ro", "/dev", "--remount-ro", "/", "--clearenv")


class _Namespace(Running):
    """A running bwrap, with the first process of the namespace that it made."""

    def __init__(
        self, process: subprocess.Popen[bytes], namespace: int, first: int, limits: SandboxLimits
    ) -> None:
        self.process = process
        self._namespace, self._first, self._limits = namespace, first, limits
        self._bwrap = os.pidfd_open(process.pid)
        self._gate: Gate | None = None

    def open_gate(self) -> None:
        """Give the namespace, which runs nothing yet, the proxy. Raise NoSandbox, after the end of it."""
        try:
            network = os.open(f"/proc/{self._first}/ns/net", os.O_RDONLY)
            try:
                self._gate = Gate(listening.listener_in(network))
            finally:
                os.close(network)
        except (OSError, CannotListen) as error:
            self.end()
            self.process.kill()
            self.process.wait()
            self.close()
            raise NoSandbox(
                f"The network of the sandbox could not be made ({error}). Switch it off for this "
                "conversation, or ask the server's operator: `convserver doctor` says whether it works here."
            ) from error

    def end(self) -> None:
        """End the first process, and with it all others."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._namespace, signal.SIGKILL)

    def end_watch(self) -> None:
        """End all at once: it is one signal."""
        self.end()

    def watch(self, end_because: Callable[[str], None]) -> None:
        """Wait for the end of bwrap, which is that of the program, and then of the namespace."""
        watch(self._bwrap, self._first, self._limits, end_because)
        self.end()
        # The first process ends after all others.
        poll = select.poll()
        poll.register(self._namespace, select.POLLIN)
        poll.poll()
        # In a container, the server may be who takes orphans.
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self._namespace, os.WEXITED | os.WNOHANG)
        # Here, because a caller of `end` waits while `close` runs.
        if self._gate is not None:
            self._gate.close()

    def shows(self, home: str, identity: tuple[int, int]) -> bool:
        """Wait until the sandbox is made; return whether this directory is at `home`, or bwrap has failed."""
        root = f"/proc/{self._first}/root"
        poll = select.poll()
        poll.register(self._bwrap, select.POLLIN)
        wait_ms = 1
        while not poll.poll(wait_ms):
            with suppress(OSError):
                # Until the sandbox has its own root, this is the /proc of the machine.
                if Path(root, "proc").stat().st_dev != Path("/proc").stat().st_dev:
                    found = Path(f"{root}{home}").stat()
                    return (found.st_dev, found.st_ino) == identity
        return True

    def processes(self) -> Sequence[str]:
        """Return the processes of the namespace, which has a /proc of its own."""
        return processes_in(f"/proc/{self._first}/root/proc")

    def close(self) -> None:
        """Close the descriptors of the two processes."""
        os.close(self._namespace)
        os.close(self._bwrap)


def _places(command: Command) -> list[tuple[str, str]]:
    """Return each directory with where root binds it, the workspace first. Raise NoSandbox."""
    directories = [command.directory, *command.further.values()]
    hidden = [each.resolve() for each in directories]
    free = [
        each
        for each in ("/mnt", "/media", "/srv", "/opt", "/home")
        if Path(each).is_dir() and not any(directory.is_relative_to(each) for directory in hidden)
    ]
    places = ["/tmp", *free]
    if len(places) < len(directories):
        raise NoSandbox("The sandbox could not be started: there is no place to bind directories to.")
    return [(str(directory), place) for directory, place in zip(directories, places, strict=False)]


def _system_directories() -> Iterator[str]:
    """Yield the arguments that show the system's programs."""
    for each in (Path("/usr"), *map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"))):
        if each.is_symlink():
            yield from ("--symlink", str(each.readlink()), str(each))
        elif each.is_dir():
            yield from ("--ro-bind", str(each), str(each))


def _etc(command: Command, descriptors: list[int]) -> Iterator[str]:
    """Yield the arguments that make /etc, and append the descriptors that they name.

    Files are copied, because each mount makes bwrap read the list of all others.
    """
    # A minute later the system may have other libraries, certificates or another time zone.
    arguments, files = _of_system(int(time.monotonic() // 60))
    yield from arguments
    passwd = f"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:{command.home}:/bin/bash\n"
    contents = {**{name: text.encode() for name, text in {**_MADE_IN_ETC, "passwd": passwd}.items()}, **files}
    for name, content in contents.items():
        yield from ("--perms", "0644", "--file", _in_memory(content, descriptors), f"/etc/{name}")


# Looking for the names and reading the files took a tenth of the time of a start.
@lru_cache(maxsize=1)
def _of_system(_minute: int) -> tuple[Sequence[str], Mapping[str, bytes]]:
    """Return the arguments for the system's directories and links of /etc, and its files by name."""
    arguments: list[str] = []
    files: dict[str, bytes] = {}
    etc = Path("/etc")
    for path in (each for name in _IN_ETC for each in etc.glob(name)):
        with suppress(OSError):  # this account may not read it
            if path.is_dir():
                arguments += ("--ro-bind", str(path), str(path))
            elif (target := path.resolve()).is_relative_to("/usr"):
                arguments += ("--symlink", str(target), str(path))
            else:
                files[str(path.relative_to(etc))] = path.read_bytes()
    return arguments, files


def _tell_to_go(pipe: int, command: Command, running: _Namespace) -> bool:
    """Write a byte for bwrap, the environment, and an empty variable, which is its end.

    Return False, before the program begins, if the sandbox shows another directory than the workspace.
    """
    variables = [f"{name}={value}" for name, value in command.environment.items()]
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb", 0) as file:  # bwrap has failed, and said why
        file.write(b"1")
        if command.identity is not None and not running.shows(command.home, command.identity):
            return False
        text = memoryview(os.fsencode("\0".join([*variables, "", ""])))
        while text:
            text = text[file.write(text) :]
    return True


def _yield_to_others(first: int) -> None:
    """Give a process and its children less priority than the server and the rest of the machine."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, first, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    # The kernel, when it has no memory left, ends these programs before the server and its database.
    with suppress(PermissionError):
        Path(f"/proc/{first}/oom_score_adj").write_text("1000")


def _in_memory(content: bytes, descriptors: list[int]) -> str:
    """Return the number of a descriptor from which this can be read, which it appends."""
    descriptors.append(os.memfd_create("sandbox"))
    left = memoryview(content)
    while left:
        left = left[os.write(descriptors[-1], left) :]
    os.lseek(descriptors[-1], 0, os.SEEK_SET)
    return str(descriptors[-1])


def _line(pipe: int) -> bytes:
    """Read JSON up to its end, or that of the pipe."""
    found = b""
    while b"}" not in found and (part := os.read(pipe, 4096)):
        found += part
    return found
