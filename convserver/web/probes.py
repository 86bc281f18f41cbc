"""Probes: whether the server lives, whether it can work, and what it uses (spec V0 §1.8)."""

from __future__ import annotations

import logging
from typing import Any

import psutil
from django.conf import settings
from django.db import Error as DatabaseProblem
from django.db import connection
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from conversations.models import Conversation
from convserver import __version__
from convserver.activity import activity
from convserver.api.negotiation import OneRenderer
from convserver.api.schema import Door, NativeRefusal

CONNECTION_WAIT_S = 2.0
"""How long a probe waits for one of the pool's connections: less than whoever probes waits for the answer."""

logger = logging.getLogger(__name__)

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

    cpu_percent: float = Field(description="Since it was asked before; 0 when it is asked first.")
    memory: Memory
    disk: Disk
    io: Io


class ServerInfo(BaseModel):
    """What everybody may know."""

    uptime: float = Field(ge=0, description="Seconds since the process began.")
    idle_time: float = Field(
        ge=0,
        description="Seconds since somebody sent the process a frame, or a request that is no probe.",
    )
    title: str
    version: str


class DetailedServerInfo(ServerInfo):
    """What those may know who may come in."""

    resources: Resources


@method_decorator(never_cache, name="dispatch")
class Probe(APIView):
    """What every probe is: open to all, and never kept."""

    door = PROBES
    permission_classes = (AllowAny,)
    content_negotiation_class = OneRenderer

    def handle_exception(self, exc: Exception) -> Response:
        """Answer 503 when the database fails: a probe is there to say so."""
        if isinstance(exc, DatabaseProblem):
            # Why is for the log alone: it names hosts and users.
            logger.warning("A probe found that the database cannot be reached: %s", exc)
            body = {"code": "unavailable", "detail": "The database cannot be reached."}
            return Response(body, status=503)
        return super().handle_exception(exc)


class AliveView(Probe):
    """Whether the process answers; nothing else is looked at."""

    authentication_classes = ()

    @extend_schema(responses={200: Alive})
    def get(self, request: Request) -> Response:
        """Say that the process answers."""
        return Response(Alive(status="ok").model_dump())


class HealthView(Probe):
    """Whether the server can work."""

    authentication_classes = ()

    @extend_schema(responses={200: str, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Say that the server reaches its database."""
        _reach_database()
        return Response("OK")


class ReadyView(Probe):
    """Whether requests may be sent here."""

    authentication_classes = ()

    @extend_schema(responses={200: Alive, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Say that the server reaches its database, in the words that agent servers have for it."""
        _reach_database()
        return Response(Alive(status="ready").model_dump())


class ServerInfoView(Probe):
    """What runs here."""

    def perform_authentication(self, request: Request) -> None:
        """Look at the credentials, which the database knows. Raise DatabaseProblem, soon."""
        _reach_database()
        super().perform_authentication(request)

    @extend_schema(responses={200: DetailedServerInfo | ServerInfo, 503: NativeRefusal})
    def get(self, request: Request) -> Response:
        """Say since when the server runs; with valid credentials also what it uses."""
        info = ServerInfo(
            idle_time=activity.idle_s, uptime=activity.uptime_s, title="convserver", version=__version__
        )
        if not request.user.is_authenticated:
            return Response(info.model_dump())
        return Response(DetailedServerInfo(**dict(info), resources=resources()).model_dump())


def _reach_database() -> None:
    """Ask it something. Raise DatabaseProblem, soon."""
    if connection.vendor == "postgresql":
        # Django would wait for the pool for half a minute.
        pool: Any = getattr(connection, "pool")  # noqa: B009 - only this engine's connection has one
        with connection.wrap_database_errors, pool.connection(timeout=CONNECTION_WAIT_S):
            pass
    Conversation.objects.exists()


_process = psutil.Process()


def resources() -> Resources:
    """Measure this process."""
    with _process.oneshot():
        memory = _process.memory_info()
        return Resources(
            cpu_percent=_process.cpu_percent(),
            memory=Memory(rss=memory.rss, vms=memory.vms, percent=_process.memory_percent()),
            disk=_disk(),
            io=_io(),
        )


def _disk() -> Disk:
    # The data directory is made when there is something to keep in it.
    data_dir = settings.CONFIGURATION.data_dir
    there = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    usage = psutil.disk_usage(str(there))
    return Disk(total=usage.total, used=usage.used, free=usage.free, percent=usage.percent)


def _io() -> Io:
    try:
        counters = _process.io_counters()
    except (AttributeError, psutil.Error):
        return Io(read_bytes=0, write_bytes=0)
    return Io(read_bytes=counters.read_bytes, write_bytes=counters.write_bytes)
