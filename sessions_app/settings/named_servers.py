"""Tool servers under the names that V1 clients give them, beside V0's lists, which are the ones in use.

A list has no place for a name, for headers or for how a server is opened. What a V1 client stores is kept
whole under its name, and holds while the lists have the server that it describes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from conversations.dialects import columns
from sessions_app.models import SecretKind
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret

HTTP, SSE, STDIO = "shttp_servers", "sse_servers", "stdio_servers"
LISTS = (HTTP, SSE, STDIO)
Entries = dict[str, dict[str, Any]]

_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def of_user(user_id: int) -> Entries:
    """Return the user's tool servers by name, with their keys. Raise SecretUnreadable."""
    return named(_value(user_id, SettingSecret.MCP_CONFIG), entries_of(user_id))


def entries_of(user_id: int) -> Entries:
    """Return what V1 clients have stored, also of servers that the lists lack. Raise SecretUnreadable."""
    return _value(user_id, SettingSecret.NAMED_TOOL_SERVERS)


def _value(user_id: int, name: SettingSecret) -> dict[str, Any]:
    text = user_settings.secret_value(user_id, SecretKind.SETTING, name=name)
    return dict(columns.fields(json.loads(text))) if text else {}


def named(lists: Mapping[str, Any], entries: Mapping[str, Any]) -> Entries:
    """Return the servers of the lists by name: as a V1 client stored them, else in the form that it knows."""
    kept = {name: (entry, *listed(name, entry)) for name, entry in entries.items() if isinstance(entry, dict)}
    found: Entries = {}
    for kind in LISTS:
        for server in lists.get(kind) or ():
            known = columns.fields({"url": server} if isinstance(server, str) else server)
            name = next(
                (
                    name
                    for name, (_, its_kind, its) in kept.items()
                    # A list may have one server twice, which are two entries.
                    if its_kind == kind and _is_same(its, known) and name not in found
                ),
                None,
            )
            if name is None:
                # No name of an entry, which a later server of the lists may have.
                found[_free_name(known, {*found, *kept})] = _entry(kind, known)
            else:
                found[name] = kept[name][0]
    return found


def listed(name: str, entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the list that has a server, and the server as that has it."""
    if entry.get("command"):
        server = {
            "name": _NO_NAME.sub("-", name).strip("-") or "server",
            "command": columns.first_text(entry["command"]).strip(),
            "args": entry.get("args") or [],
            "env": entry.get("env") or {},
        }
        return STDIO, server
    key = next((value for header, value in headers_of(entry) if header.lower() == "authorization"), "")
    server = {
        "url": columns.first_text(entry.get("url")).strip(),
        "api_key": key.removeprefix("Bearer ") if key.startswith("Bearer ") else None,
    }
    return (SSE if entry.get("transport") == "sse" else HTTP), server


def headers_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers that open a server: those of its entry, and those of its `auth` object."""
    yield from _texts(entry.get("headers"))
    auth = columns.fields(entry.get("auth"))
    value = columns.first_text(auth.get("value"))
    match auth.get("strategy"):
        case "bearer" if value:
            yield "Authorization", f"Bearer {value}"
        case "api_key" if value:
            header = columns.first_text(auth.get("header_name")) or "Authorization"
            yield header, f"Bearer {value}" if header == "Authorization" else value
        case "basic":
            pair = ":".join(columns.first_text(auth.get(each)) for each in ("username", "password"))
            yield "Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"
        case "header":
            yield from _texts(auth.get("headers"))


def _texts(value: object) -> Iterator[tuple[str, str]]:
    for name, each in columns.fields(value).items():
        if isinstance(each, str):
            yield name, each


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = ("name", "command", "args", "env", "url", "api_key")
    return all((one.get(name) or None) == (other.get(name) or None) for name in names)


def _entry(kind: str, server: Mapping[str, Any]) -> dict[str, Any]:
    if kind == STDIO:
        members = {name: server[name] for name in ("command", "args", "env") if server.get(name)}
        return {"transport": "stdio", **members}
    key = server.get("api_key")
    return {
        "transport": "sse" if kind == SSE else "http",
        "url": server.get("url"),
        **({"timeout": server["timeout"]} if server.get("timeout") else {}),
        **({"auth": {"strategy": "bearer", "value": key}} if key else {}),
    }


def _free_name(server: Mapping[str, Any], taken: set[str]) -> str:
    """Return a name for a server of a list, which other servers do not have."""
    base = (
        columns.first_text(server.get("name")) or host_in(columns.first_text(server.get("url"))) or "server"
    )
    names = (base, *(f"{base}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def host_in(url: str) -> str:
    """Return the host of a URL; empty without one."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
