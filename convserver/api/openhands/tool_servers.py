"""Configurations of tool servers in the form of the V0 wire (spec V0 §1.9)."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from convserver.api.openhands.bounds import KnownMembers, members_at_most
from convserver.api.openhands.text import StorableText, storable
from sessions_app.outbound.hosts import HostRefused, require_allowed_text

SERVERS_MAX = 100
"""Of each kind."""
ARGUMENTS_MAX = 1000
ENVIRONMENT_MAX = 1000
LINE_MAX = 100_000
"""The longest text that is parsed; a list of arguments or an object may be longer."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")


def _server_url(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
    except ValueError as error:
        raise ValueError("the URL cannot be read") from error
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.netloc:
        raise ValueError("the URL must begin with http://, https://, ws:// or wss:// and name a host")
    return url.strip()


def entered_url(url: str) -> str:
    """Return a URL that a user enters for this server to ask. Raise ValueError if it may not ask it."""
    try:
        require_allowed_text(url)
    except HostRefused as error:
        raise ValueError(str(error)) from None
    return url


def entered_config(config: McpConfig) -> McpConfig:
    """Return tool servers that a user enters. Raise ValueError for an address that may not be asked."""
    # Stored ones are not judged anew, or one refused address would make all of them unreadable.
    for server in (*config.sse_servers, *config.shttp_servers):
        entered_url(server.url)
    return config


def _server_name(name: str) -> str:
    if not _NAME.fullmatch(name.strip()):
        raise ValueError("a name has letters, digits, hyphens and underscores only")
    return name.strip()


def _command(command: str) -> str:
    if not command.strip() or " " in command.strip():
        raise ValueError("the command is one word: give its arguments in args")
    return command.strip()


def _arguments(value: Any) -> Any:
    """Split a shell-quoted text."""
    if not isinstance(value, str):
        return value
    _require_line(value)
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError("the arguments are not quoted as a shell would read them") from error


def _environment(value: Any) -> Any:
    """Parse `NAME=value,NAME=value`."""
    if not isinstance(value, str):
        return value
    _require_line(value)
    pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
    if any(not equals or not name.strip() for name, equals, _ in pairs):
        raise ValueError("the environment is written as NAME=value,NAME=value")
    return {name.strip(): text for name, _, text in pairs}


def _require_line(text: str) -> None:
    if len(text) > LINE_MAX:
        raise ValueError(f"one text may hold {LINE_MAX} characters: give a list or an object instead")


def _server(value: Any) -> Any:
    """Accept a plain text as a server at that URL."""
    return {"url": value} if isinstance(value, str) else value


ServerUrl = Annotated[str, Field(max_length=8000), AfterValidator(storable), AfterValidator(_server_url)]


class SseServer(KnownMembers):
    """A tool server with server-sent events."""

    url: ServerUrl
    api_key: StorableText | None = None


class StreamableServer(SseServer):
    """A tool server with streamable HTTP."""

    timeout: int | None = Field(default=60, ge=1, le=3600)
    """Seconds."""


class StdioServer(KnownMembers):
    """A tool server that is a program."""

    name: Annotated[str, Field(max_length=200), AfterValidator(_server_name)]
    command: Annotated[StorableText, AfterValidator(_command)]
    args: Annotated[
        list[StorableText],
        Field(max_length=ARGUMENTS_MAX, fail_fast=True),
        BeforeValidator(_arguments),
    ] = []
    env: Annotated[
        dict[StorableText, StorableText],
        Field(max_length=ENVIRONMENT_MAX, fail_fast=True),
        # Of several checks before, pydantic runs the last one first: a text is read, and then its members are
        # counted.
        members_at_most(ENVIRONMENT_MAX),
        BeforeValidator(_environment),
    ] = {}


# Without `fail_fast`, pydantic would list a problem for each of many wrong items.
_FewServers = Field(max_length=SERVERS_MAX, fail_fast=True)


class McpConfig(KnownMembers):
    """The tool servers of one conversation or user."""

    sse_servers: Annotated[list[Annotated[SseServer, BeforeValidator(_server)]], _FewServers] = []
    stdio_servers: Annotated[list[StdioServer], _FewServers] = []
    shttp_servers: Annotated[list[Annotated[StreamableServer, BeforeValidator(_server)]], _FewServers] = []


EnteredMcpConfig = Annotated[McpConfig, AfterValidator(entered_config)]
"""Tool servers as a client sends them, whose addresses may be asked."""
