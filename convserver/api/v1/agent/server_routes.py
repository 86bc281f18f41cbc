"""The agent face's information about the server itself, open to all (spec V1 §2.5)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from convserver import WIRE_VERSION, __version__
from convserver.activity import activity
from convserver.api.scopes import WRITES
from convserver.web.probes import Probe

DOCS = "/api/docs/"


class AgentServerInfo(BaseModel):
    """The server's name, the release whose wire it speaks, its own, and where its routes are described."""

    uptime: float
    idle_time: float
    title: str
    version: str
    sdk_version: str
    convserver_version: str
    usable_tools: list[str]
    docs: str
    redoc: str


class AgentServerInfoView(Probe):
    """What runs here."""

    needs = WRITES
    authentication_classes = ()

    @extend_schema(responses={200: AgentServerInfo})
    def get(self, request: Request) -> Response:
        """Report how long the server has been running, and where its API is described."""
        info = AgentServerInfo(
            uptime=activity.uptime_s,
            idle_time=activity.idle_s,
            title="convserver",
            # Clients compare these with their own release; the server's own number is beside them.
            version=WIRE_VERSION,
            sdk_version=WIRE_VERSION,
            convserver_version=__version__,
            usable_tools=[],
            docs=DOCS,
            redoc=DOCS,
        )
        return Response(info.model_dump())
