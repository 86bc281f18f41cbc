"""The tool servers of a conversation: those of its start, and of its owner's settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import get_user_model

from conversations.dialects import columns
from conversations.events import ConversationRef
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import RUN_TOOL_PROGRAMS, SecretKind
from sessions_app.outbound.hosts import server_url
from sessions_app.settings import agent_setups, named_servers, tool_servers, user_settings
from sessions_app.settings.user_settings import SettingSecret

SERVERS_MAX = 20
NAME_MAX_CHARS = 60
CALL_S = 120.0
"""The time of a call to a server without a `timeout`."""
CALL_MAX_S = 3600.0
UNREADABLE = "The saved tool servers can't be read any more. Enter them again in Settings."
NOT_ALLOWED = (
    "The tool server `{name}` is a program, and your account isn't allowed to run programs on this server. "
    "Ask its administrator for the permission."
)
BAD_ADDRESS = (
    "The tool server `{name}` has no address that can be asked: it must begin with http:// or https://."
)
TOO_MANY = f"Only the first {SERVERS_MAX} tool servers are used."


class ToolTransport(StrEnum):
    """The transport of a tool server."""

    PROGRAM = "program"
    """A local program, over its standard input and output."""
    STREAMABLE = "streamable"
    SSE = "sse"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolServer:
    """A tool server as it was entered; all but its name and transport may have keys."""

    name: str
    way: ToolTransport
    command: tuple[str, ...] = field(default=(), repr=False)
    """A program with its arguments."""
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    folder: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    call_s: float = CALL_S

    @property
    def fingerprint(self) -> str:
        """Return what stays the same while all but its name does: another key may open another account."""
        entered = (self.command, self.environment, self.folder, self.url, self.headers)
        told = json.dumps([self.way, *entered])
        return sha256(told.encode(errors="surrogatepass")).hexdigest()


class FoundServers(NamedTuple):
    """The tool servers of a conversation, and sentences about unusable ones."""

    servers: tuple[ToolServer, ...]
    notices: tuple[str, ...]


def servers_of(conversation: ConversationRef) -> FoundServers:
    """Return the tool servers of a conversation, without repetitions."""
    notices: list[str] = []
    servers: list[ToolServer] = []
    for read in (_of_start, _of_agent, _of_owner):
        try:
            servers += [server for server in read(conversation) if server not in servers]
        except SecretUnreadable:
            notices.append(UNREADABLE)
    if len(servers) > SERVERS_MAX:
        notices.append(TOO_MANY)
    usable = []
    for server in servers[:SERVERS_MAX]:
        if (problem := problem_of(server, conversation.owner_id)) is None:
            usable.append(server)
        else:
            notices.append(problem)
    return FoundServers(tuple(usable), tuple(dict.fromkeys(notices)))


def problem_of(server: ToolServer, owner_id: int) -> str | None:
    """Return the sentence about a server that its owner may not use, or that has no usable address."""
    if server.way is ToolTransport.PROGRAM:
        if settings.CONFIGURATION.auth != "accounts":
            return None
        # Programs run with the rights of the server itself.
        user = get_user_model().objects.filter(pk=owner_id).first()
        is_allowed = user is not None and user.has_perm(RUN_TOOL_PROGRAMS)
        return None if is_allowed else NOT_ALLOWED.format(name=server.name)
    return BAD_ADDRESS.format(name=server.name) if server_url(server.url) is None else None


def _of_start(conversation: ConversationRef) -> Iterator[ToolServer]:
    yield from of_settings(tool_servers.tool_servers_of(conversation))


def _of_owner(conversation: ConversationRef) -> Iterator[ToolServer]:
    """Yield the servers of the settings, as V0's lists have them or V1 clients have stored them."""
    texts = (
        user_settings.secret_value(conversation.owner_id, SecretKind.SETTING, name=name)
        for name in (SettingSecret.MCP_CONFIG, SettingSecret.NAMED_TOOL_SERVERS)
    )
    lists, entries = map(_parsed, texts)
    yield from of_lists(lists, entries)


def of_lists(lists: object, entries: object) -> Iterator[ToolServer]:
    """Yield the servers of V0's lists, with the members that V1 clients have stored beside them."""
    if entries:
        yield from of_agent(named_servers.named(columns.fields(lists), columns.fields(entries)))
    else:
        yield from of_settings(lists)


def _of_agent(conversation: ConversationRef) -> Iterator[ToolServer]:
    yield from of_agent(agent_setups.agent_of(conversation).get("mcp_config"))


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def of_settings(config: object) -> Iterator[ToolServer]:
    """Yield the servers of a V0 configuration (spec V0 §1.9)."""
    kinds = columns.fields(config)
    for way, kind in ((ToolTransport.STREAMABLE, "shttp_servers"), (ToolTransport.SSE, "sse_servers")):
        for server in _listed(kinds.get(kind)):
            yield _at_url(way, _text(server.get("url")), server)
    for server in _listed(kinds.get("stdio_servers")):
        yield _program(_text(server.get("name")), server)


def of_agent(config: object) -> Iterator[ToolServer]:
    """Yield the servers of a V1 agent's configuration, by their names."""
    named = columns.fields(config)
    for name, entry in columns.fields(named.get("mcpServers", named)).items():
        server = columns.fields(entry)
        if server.get("enabled") is False:
            continue
        if server.get("command"):
            yield _program(name, server)
        elif url := _text(server.get("url")):
            # FastMCP, whose form of a configuration this is, guesses in the same way.
            guess = "sse" if "/sse" in url.partition("?")[0] else "http"
            kind = _text(server.get("transport")) or _text(server.get("type")) or guess
            yield _at_url(
                ToolTransport.SSE if kind == "sse" else ToolTransport.STREAMABLE, url, server, name=name
            )


def _program(name: str, server: Mapping[str, Any]) -> ToolServer:
    command = _text(server.get("command"))
    arguments = server.get("args")
    return ToolServer(
        name=_shown(name or command),
        way=ToolTransport.PROGRAM,
        command=(command, *map(str, arguments if isinstance(arguments, list) else ())),
        environment=_pairs(server.get("env")),
        folder=_text(server.get("cwd")),
        call_s=_seconds(server.get("timeout")),
    )


def _at_url(way: ToolTransport, url: str, server: Mapping[str, Any], *, name: str = "") -> ToolServer:
    headers = dict(_pairs(server.get("headers")))
    if key := _text(server.get("api_key")):
        headers = {"authorization": f"Bearer {key}", "x-session-api-key": key} | headers
    elif (auth := _text(server.get("auth"))) and auth != "oauth":
        headers = {"authorization": f"Bearer {auth}"} | headers
    elif isinstance(server.get("auth"), dict):
        headers = dict(named_servers.headers_of(server))
    return ToolServer(
        name=_shown(name or named_servers.host_in(url) or "?"),
        way=way,
        url=url,
        headers=tuple(headers.items()),
        call_s=_seconds(server.get("timeout")),
    )


def _shown(name: str) -> str:
    return "".join(char for char in columns.clean(name) if char.isprintable() and char != "`")[
        :NAME_MAX_CHARS
    ]


def _listed(servers: object) -> Iterator[Mapping[str, Any]]:
    for server in servers if isinstance(servers, list) else ():
        yield {"url": server} if isinstance(server, str) else columns.fields(server)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(each)) for name, each in columns.fields(value).items() if each is not None)


def _seconds(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(float(value), CALL_MAX_S) if is_number and value > 0 else CALL_S  # type: ignore[operator, arg-type]


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
