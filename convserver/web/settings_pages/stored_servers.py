"""A user's tool servers: as the page shows them, added and removed."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.crypto import salted_hmac
from pydantic import ValidationError

from conversations.dialects import columns
from convserver.api.openhands.tool_servers import (
    SERVERS_MAX,
    McpConfig,
    SseServer,
    StdioServer,
    StreamableServer,
)
from sessions_app.agents.llm.tools.servers import ToolServer, of_lists
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import SecretKind
from sessions_app.settings import named_servers, user_settings
from sessions_app.settings.user_settings import SettingSecret, TooManySecrets

SALT = "convserver.web.settings_pages.stored_servers"
KINDS = {SseServer: "sse_servers", StreamableServer: "shttp_servers", StdioServer: "stdio_servers"}
TRANSPORTS = {"sse_servers": "SSE", "shttp_servers": "HTTP", "stdio_servers": "Command"}

Server = SseServer | StdioServer


class ServersUnreadable(SecretUnreadable):
    """The stored text is not a list of tool servers, or cannot be decrypted."""


class ShownServer(NamedTuple):
    """One tool server without its keys."""

    reference: str  # its name in forms, which reveals nothing of it
    title: str
    transport: str
    detail: str


def servers_of(user_id: int) -> list[ShownServer] | None:
    """Return the user's tool servers; None if the stored ones cannot be read."""
    try:
        return [_shown(kind, server) for kind, server in _each(_stored(user_id))]
    except SecretUnreadable:
        return None


def tool_server(user_id: int, reference: str) -> ToolServer | None:
    """Return one of the user's tool servers with its keys, if it exists. Raise SecretUnreadable."""
    for kind, server in _each(_stored(user_id)):
        if _reference(kind, server) == reference:
            entries = named_servers.entries_of(user_id)  # the headers of a V1 client open it, too
            on = {name: {**columns.fields(entry), "enabled": True} for name, entry in entries.items()}
            return next(of_lists({kind: [server.model_dump(mode="json")]}, on))
    return None


def add(user_id: int, server: Server) -> None:
    """Add a tool server. Raise SecretUnreadable or TooManySecrets; then nothing has changed."""
    kind = KINDS[type(server)]

    # Called under the lock of the row, so that two tabs do not overwrite each other's servers.
    def with_it(text: str | None) -> str:
        config = _config(text)
        others = getattr(config, kind)
        if len(others) >= SERVERS_MAX:
            raise TooManySecrets(
                f"You can have at most {SERVERS_MAX} tool servers of a kind. Remove one first."
            )
        return config.model_copy(update={kind: [*others, server]}).model_dump_json()

    user_settings.change_tool_servers(user_id, with_it)


def remove(user_id: int, reference: str) -> None:
    """Remove a tool server, if it exists. Raise SecretUnreadable."""

    def without_it(text: str | None) -> str:
        config = _config(text)
        for kind, server in _each(config):
            if _reference(kind, server) == reference:
                others = list(getattr(config, kind))
                others.remove(server)
                config = config.model_copy(update={kind: others})
                break
        return config.model_dump_json() if any(_each(config)) else ""

    user_settings.change_tool_servers(user_id, without_it)


def remove_all(user_id: int) -> None:
    """Remove all tool servers, also unreadable ones."""
    user_settings.set_secret(user_id, SettingSecret.MCP_CONFIG, "")


def _stored(user_id: int) -> McpConfig:
    text = user_settings.secret_value(user_id, SecretKind.SETTING, name=SettingSecret.MCP_CONFIG)
    return _config(text)


def _config(text: str | None) -> McpConfig:
    try:
        return McpConfig() if text is None else McpConfig.model_validate_json(text)
    except ValidationError:  # its text would repeat the value with its keys
        raise ServersUnreadable("The stored tool servers are not a valid list.") from None


def _each(config: McpConfig) -> list[tuple[str, Server]]:
    return [(kind, server) for kind in TRANSPORTS for server in getattr(config, kind)]


def _shown(kind: str, server: Server) -> ShownServer:
    if isinstance(server, StdioServer):
        words = [server.command, *server.args]
        names = f" · {', '.join(server.env)}" if server.env else ""
        return ShownServer(
            _reference(kind, server), server.name, TRANSPORTS[kind], f"{' '.join(words)[:200]}{names[:200]}"
        )
    detail = "Key set" if server.api_key else "No key"
    return ShownServer(_reference(kind, server), server.url, TRANSPORTS[kind], detail)


def _reference(kind: str, server: Server) -> str:
    # Of the whole entry: servers have no ids, and one that was changed meanwhile must not be found.
    return salted_hmac(SALT, f"{kind} {server.model_dump_json()}", algorithm="sha256").hexdigest()[:32]
