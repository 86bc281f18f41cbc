"""Servers that start more quickly still: copies of a process that has loaded the application.

Beside the libraries (`forks`), a start loads hundreds of modules of the project: most of what is left to
compute. A waiting process has done so under the settings of one environment, which differs from that of its
copies in OF_A_COPY alone: a copy reads the settings again, and if more of them has changed than it can take
over, it becomes a program that starts as usual. It migrates, checks and serves like any other server.

As a program, this module is the waiting process, begun as a copy of the one that has the libraries:
`python -m tests.support.runner.prepared_servers [module.NAME=number …] SOCKET`.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from importlib import import_module, reload
from types import ModuleType
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from tests.support.runner import forks

OF_A_COPY = {
    *("CONVSERVER_AGENT", "CONVSERVER_ALLOWED_HOSTS", "CONVSERVER_DATA_DIR", "DATABASE_URL"),
    *("PGAPPNAME", "PORT", "REDIS_URL", "SESSION_API_KEY"),
}
"""Variables in which copies of one process may differ; their databases are of one engine."""
TAKEN_OVER = {"ALLOWED_HOSTS", "CHANNEL_LAYERS", "CONFIGURATION", "DATABASES", "HINTS_PREFIX"}
"""Settings that are read when they are needed; others may have been read by the modules that are loaded."""
OBJECTS = {"LOGGING"}
"""Settings that hold objects and so are never equal; what they are made from is the same for all copies."""
COMMANDS = {"serve", "worker"}
APPLICATION = ("convserver.asgi", "convserver.serving.doors", "uvicorn.lifespan.on", "uvicorn.loops.auto")
FACTS_OF_A_PROCESS = (("convserver.activity", "activity"), ("convserver.web.probes", "_process"))
"""What is taken down about a process when these modules are imported."""
KEPT_MAX = 8
"""At most this many processes wait; the one that was not copied for longest ends first."""


class Start(NamedTuple):
    """What has to be the same for two servers to be copies of one process."""

    constants: tuple[str, ...]
    engine: str
    environment: frozenset[tuple[str, str]]


def start_of(command: Sequence[str], environment: Mapping[str, str]) -> Start | None:
    """Return what makes this start like others; None if the command does not serve."""
    module, *rest = command
    constants: Sequence[str] = ()
    if module == "tests.support.servers.serve_with" and "--" in rest:
        end = rest.index("--")
        constants, rest = rest[:end], rest[end + 1 :]
    elif module != "convserver":
        return None
    # Without its key, a server finds or makes one in its directory.
    if rest[:1] and rest[0] in COMMANDS and environment.get("SECRET_KEY"):
        same = frozenset(item for item in environment.items() if item[0] not in OF_A_COPY)
        engine = urlsplit(environment.get("DATABASE_URL", "")).scheme or "sqlite"
        return Start(tuple(constants), engine, same)
    return None


class PreparedServers:
    """The processes that wait, each for servers that are alike; the first of them begins one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Start, tuple[socket.socket, forks.Fork]] = OrderedDict()
        atexit.register(self._end_all)

    @property
    def waiting_for(self) -> Set[Start]:
        return self._waiting.keys()

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], stdout: IO[Any], stderr: IO[Any]
    ) -> forks.Fork | None:
        """Let a copy run the command; None if it must start in another way."""
        start = start_of(command, environment)
        if start is None or not forks.waiting.copies(environment):
            return None
        with self._lock:
            waiting = self._found(start, environment)
            try:
                return forks.copied(waiting, command, environment, [stdout.fileno(), stderr.fileno()])
            except (OSError, RuntimeError):  # the configuration is wrong: who starts as usual says how
                self._end(start)
                return None

    def _found(self, start: Start, environment: Mapping[str, str]) -> socket.socket:
        if start in self._waiting:
            self._waiting.move_to_end(start)
        else:
            self._waiting[start] = self._begun(start, environment)
            while len(self._waiting) > KEPT_MAX:
                self._end(next(iter(self._waiting)))
        return self._waiting[start][0]

    def _begun(self, start: Start, environment: Mapping[str, str]) -> tuple[socket.socket, forks.Fork]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = ["tests.support.runner.prepared_servers", *start.constants]
        with theirs, open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device
            return ours, forks.waiting.start(command, environment, nowhere, nowhere, passed=[theirs.fileno()])

    def _end(self, start: Start) -> None:
        ours, process = self._waiting.pop(start)
        ours.close()  # the other end is told
        process.wait(forks.END_WAIT_S)

    def _end_all(self) -> None:
        for start in list(self._waiting):
            self._end(start)


prepared_servers = PreparedServers()


def _load(constants: Sequence[str]) -> None:
    """Import what a server imports until it has answered a page, in the same order."""
    import django
    from django.conf import settings
    from django.db.migrations.loader import MigrationLoader
    from django.utils.module_loading import import_string

    from convserver import cli  # noqa: F401
    from tests.support.servers import serve_with

    django.setup()
    serve_with.change(constants)
    for name in (*APPLICATION, settings.ROOT_URLCONF):
        import_module(name)
    with suppress(Exception):  # the server's own start says what is wrong
        import_string(settings.CONFIGURATION.agent)
    MigrationLoader(None)


def _become_another() -> None:
    """Take over what the environment says. Raise RuntimeError if the loaded modules stand against it."""
    from channels.layers import channel_layers
    from django.conf import settings
    from django.core.cache import caches
    from django.db import connections

    from convserver import settings as module

    loaded = _values(module)
    own = _values(reload(module))
    changed = {name for name in loaded.keys() | own.keys() if loaded.get(name) != own.get(name)}
    if changed - TAKEN_OVER:
        raise RuntimeError(f"Modules may have read {changed - TAKEN_OVER} of the process that waited.")
    for name in changed:
        setattr(settings, name, own[name])
    for opened in (connections, caches):
        vars(opened).clear()
        vars(opened).update(vars(type(opened)()))
    channel_layers.backends.clear()
    for name, attribute in FACTS_OF_A_PROCESS:
        found = getattr(sys.modules[name], attribute)
        vars(found).update(vars(type(found)()))


def _values(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name.isupper() and name not in OBJECTS}


def _main(*arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    *constants, descriptor = arguments
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller
    gc.disable()
    _load(constants)
    if threading.active_count() > 1:
        raise RuntimeError("A process with threads cannot be copied.")
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as requests:
        command = forks.answer_requests(requests)
    if command is None:
        return
    signal.signal(signal.SIGINT, interrupted)
    try:
        _become_another()
    except Exception:
        os.execv(sys.executable, [sys.executable, "-m", *command])
    gc.enable()
    forks.run_module(command)


if __name__ == "__main__":
    _main(*sys.argv[1:])
