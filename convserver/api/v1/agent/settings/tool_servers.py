"""The tool servers of a user, by name (spec V1: `mcp_config` of the settings)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from pydantic import TypeAdapter, ValidationError

from conversations.dialects import columns
from convserver.api.openhands.errors import InvalidRequest
from convserver.api.openhands.tool_servers import EnteredMcpConfig, entered_url
from convserver.api.openhands.view import problems_in
from convserver.api.v1.agent.settings.merging import merged
from sessions_app.agents.llm.tools.servers import ToolServer, of_agent
from sessions_app.encryption import SecretUnreadable
from sessions_app.settings import named_servers, user_settings
from sessions_app.settings.named_servers import LISTS, Entries
from sessions_app.settings.setup_keys import MASK, masked, unmasked, without_keys
from sessions_app.settings.user_settings import SettingSecret

_CONFIG: TypeAdapter[Any] = TypeAdapter(EnteredMcpConfig)


def of_user(user_id: int) -> Entries:
    """Return the tool servers by name, with their keys; none if they cannot be read any more."""
    try:
        return named_servers.of_user(user_id)
    except SecretUnreadable:
        return {}


def shown(user_id: int) -> Entries:
    """Return the tool servers by name, without their keys."""
    # Each entry by itself: masking the whole would take a server named `token` for a key.
    return {name: masked(entry) for name, entry in of_user(user_id).items()}


@transaction.atomic
def change(user_id: int, changes: Mapping[str, Any] | None) -> None:
    """Change the servers that are named; null for a name removes that server, null for all removes each.

    Raise InvalidRequest, TooManySecrets, or SecretUnreadable where others would be lost by the change.
    """
    # Older clients send the servers below `mcpServers`.
    inner = None if changes is None else changes.get("mcpServers")
    by_name = inner if isinstance(inner, dict) else changes
    after = {} if by_name is None else _merged(named_servers.of_user(user_id), by_name)
    lists: dict[str, list[Any]] = {kind: [] for kind in LISTS}
    for name, entry in after.items():
        kind, server = named_servers.listed(name, _checked(name, entry))
        lists[kind].append(server)
    try:
        config = _CONFIG.validate_python(lists)
    except ValidationError as error:
        # Not chained: the error repeats values, among which are keys.
        raise InvalidRequest(problems_in(error, "body")) from None
    user_settings.set_secret(user_id, SettingSecret.MCP_CONFIG, config.model_dump_json() if after else "")
    user_settings.set_secret(user_id, SettingSecret.NAMED_TOOL_SERVERS, json.dumps(after) if after else "")


def entered(user_id: int, name: str, entry: dict[str, Any]) -> ToolServer:
    """Return a server that a client enters, with the keys that were masked. Raise InvalidRequest."""
    stored = of_user(user_id).get(name)
    whole = _checked(name, opened(entry, stored, same=("url", "command")))
    return next(of_agent({name: {**whole, "enabled": True}}))


def opened(entry: Any, stored: Any, *, same: Sequence[str] = ("url", "command", "args")) -> Any:
    """Return a server with the keys that were masked, if the stored one has the `same` members."""
    if entry == MASK:  # the whole server was masked, by its name
        return stored
    known = columns.fields(stored)
    seen = masked(known)
    # Otherwise a client could learn a key by sending its mask with another address.
    is_same = isinstance(entry, dict) and all(
        entry.get(each) in (known.get(each), seen.get(each)) for each in same
    )
    return unmasked(entry, stored if is_same else None)


def all_opened(
    servers: Mapping[str, Any], stored: Mapping[str, Any], *, same: Sequence[str] = ("url", "command", "args")
) -> dict[str, Any]:
    """Return tool servers, in either form, with the keys that were masked, as `opened` does."""
    inner, known = servers.get("mcpServers"), columns.fields(stored.get("mcpServers")) or stored
    if isinstance(inner, dict):
        return {**servers, "mcpServers": all_opened(inner, known, same=same)}
    return {name: opened(server, known.get(name), same=same) for name, server in servers.items()}


def _merged(before: Entries, changes: Mapping[str, Any]) -> dict[str, Any]:
    after: dict[str, Any] = dict(before)
    for name, entry in changes.items():
        if entry is None:
            after.pop(name, None)
        else:
            after[name] = _changed(before.get(name, {}), entry) if isinstance(entry, dict) else entry
    return after


def _changed(stored: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """Return a server with its changes; its keys stay with its host and its command."""
    before = stored.get("url"), stored.get("command")
    url, command = entry.get("url", before[0]), entry.get("command", before[1])
    is_other_host = user_settings.host_of(url) != user_settings.host_of(before[0])
    # A key is sent to no other host, and given to no other program, than it was entered for.
    is_moved = is_other_host or command not in (before[1], masked(stored).get("command"))
    return merged(without_keys(stored) if is_moved else stored, entry)


def _checked(name: str, entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict) or not (entry.get("command") or entry.get("url")):
        raise refused(name, "a tool server has a `url` or a `command`")
    try:
        for url in filter(None, [entry.get("url")]):
            entered_url(str(url))
    except ValueError as error:
        raise refused(name, str(error)) from error
    return entry


def refused(name: str, words: str) -> InvalidRequest:
    """Return the refusal of one server."""
    where = ["body", "mcp_config", name[:100]]
    return InvalidRequest([{"type": "value_error", "loc": where, "msg": words, "input": None}])
