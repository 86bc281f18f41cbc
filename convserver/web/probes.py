"""Probes: whether the server runs, can store data, and what it uses (spec V0 §1.8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from conversations import live
from conversations.engines import durability
from conversations.exceptions import StoreUnavailable
from conversations.payloads.limits import limits_of
from convserver import WIRE_VERSION, __version__
from convserver.activity import activity
from convserver.api.negotiation import OneRenderer
from convserver.api.schema import Door, NativeRefusal
from convserver.api.scopes import WRITES
from convserver.health import health
from sessions_app.identity import scopes
from sessions_app.live.status import iso
from sessions_app.models import Scope
from sessions_app.operation import figures, problems
from sessions_app.operation.problems import ProblemKind

# The health probe shows these to every client: their words name neither a host nor a conversation.
SHOWN_TO_ALL = {ProblemKind.GONE, ProblemKind.WAITING}
PROBES = Door(tag="probes", key_refusals={401: NativeRefusal})


class Alive(BaseModel):
    """The process answers."""

    status: str


class Memory(BaseModel):
    """Of the process, in bytes; `percent` of the machine's."""

    rss: int
    vms: int
    percent: float


class Disk(BaseModel):
    """The one that holds the data directory, in bytes."""

    total: int
    used: int
    free: int
    percent: float


class Io(BaseModel):
    """What the process has read and written, in bytes; 0 where the system does not count."""

    read_bytes: int
    write_bytes: int


class Resources(BaseModel):
    """What the process uses."""

    cpu_percent: float = Field(description="Since the previous request; 0 at the first one.")
    memory: Memory
    disk: Disk
    io: Io


class ServerInfo(BaseModel):
    """What everybody may know."""

    uptime: float = Field(ge=0, description="Seconds since the process started.")
    idle_time: float = Field(
        ge=0,
        description="Seconds since the process last received a frame, or a request that is not a probe.",
    )
    title: str
    version: str = Field(description="The release of OpenHands' agent server whose wire this server speaks.")
    sdk_version: str
    convserver_version: str
    usable_tools: list[str] = Field(description="None: agents have tools of their own.")


# The resources for users: clients of the V0 wire read these members, but only operators may know them.
NOTHING_TOLD = Resources(
    cpu_percent=0.0,
    memory=Memory(rss=0, vms=0, percent=0.0),
    disk=Disk(total=0, used=0, free=0, percent=0.0),
    io=Io(read_bytes=0, write_bytes=0),
)


class DetailedServerInfo(ServerInfo):
    """What those get who may come in."""

    resources: Resources


@method_decorator(never_cache, name="dispatch")
class Probe(APIView):
    """A probe: open to all clients, and never cached."""

    door = PROBES
    permission_classes = (AllowAny,)
    content_negotiation_class = OneRenderer

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, StoreUnavailable):
            return Response({"code": exc.code, "detail": str(exc)}, status=503)
        return super().handle_exception(exc)


class AliveView(Probe):
    """Whether the process answers; nothing else is looked at."""

    needs = WRITES

    authentication_classes = ()

    @extend_schema(responses={200: Alive})
    def get(self, request: Request) -> Response:
        """Report that the process responds."""
        return Response(Alive(status="ok").model_dump())


class HealthView(Probe):
    """Whether the server can work."""

    needs = WRITES

    authentication_classes = ()

    @extend_schema(responses={200: str, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Report that the server can store data."""
        _require_health()
        headers = {"X-Hints": _hints(), "X-Processes": _processes()}
        warnings = (durability.of_file(connection), durability.of_library(connection))
        if any(warnings):
            headers["X-Warning"] = " ".join(filter(None, warnings))
        return Response("OK", headers=headers)


def _hints() -> str:
    """Return whether hints of other processes arrive; without them, readers get events later."""
    since = live.hints_away_since()
    return "ok" if since is None else f"away since {iso(since)}"


def _processes() -> str:
    """Return what this process's last heartbeat found about all processes and their work."""
    found = figures.latest()
    if found is None:
        return "unknown"
    shown = [each for each in problems.problems(found) if each.kind in SHOWN_TO_ALL]
    return "; ".join(f"{each.brief} since {iso(each.since)}" for each in shown if each.since) or "ok"


class ReadyView(Probe):
    """Whether requests may be sent here."""

    needs = WRITES

    authentication_classes = ()

    @extend_schema(responses={200: Alive, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Report that the server can store data, in the format of agent servers."""
        _require_health()
        return Response(Alive(status="ready").model_dump())


class ServerInfoView(Probe):
    """What runs here."""

    needs = WRITES

    # Before the credentials, whose look-up would wait for a database that is away much longer.
    def perform_authentication(self, request: Request) -> None:
        """Check the credentials. Raise StoreUnavailable."""
        _require_health()
        super().perform_authentication(request)

    @extend_schema(responses={200: DetailedServerInfo | ServerInfo, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Report how long the server has been running, and to staff what it uses; users get zeros."""
        info = ServerInfo(
            idle_time=activity.idle_s,
            uptime=activity.uptime_s,
            title="convserver",
            version=WIRE_VERSION,
            sdk_version=WIRE_VERSION,
            convserver_version=__version__,
            usable_tools=[],
        )
        if not request.user.is_authenticated:
            return Response(info.model_dump())
        user = request.user
        has_all_rights = limits_of(user).only is None and scopes.may(user, Scope.ADMIN)
        is_operator = isinstance(user, User) and user.is_staff and has_all_rights
        used = resources() if is_operator else NOTHING_TOLD
        return Response(DetailedServerInfo(**dict(info), resources=used).model_dump())


def _require_health() -> None:
    """Raise StoreUnavailable, soon, if nothing can be stored."""
    if problem := health.problem():
        raise StoreUnavailable(problem)


_process = psutil.Process()


def resources() -> Resources:
    """Return what this process uses."""
    with _process.oneshot():
        memory, disk = _process.memory_info(), disk_usage()
        try:
            counters = _process.io_counters()
            io = Io(read_bytes=counters.read_bytes, write_bytes=counters.write_bytes)
        except (AttributeError, psutil.Error):  # macOS counts none, a container may forbid it
            io = Io(read_bytes=0, write_bytes=0)
        return Resources(
            cpu_percent=_process.cpu_percent(),
            memory=Memory(rss=memory.rss, vms=memory.vms, percent=_process.memory_percent()),
            disk=Disk(**{name: getattr(disk, name) for name in Disk.model_fields}),
            io=io,
        )


def disk_usage(directory: Path | None = None) -> Any:
    """Return the total, used and free bytes of the disk that holds a directory: that of data, or this one."""
    # A directory is made when there is something to keep in it.
    kept = directory or settings.CONFIGURATION.data_dir
    there = next(path for path in (kept, *kept.parents) if path.exists())
    return psutil.disk_usage(str(there))
