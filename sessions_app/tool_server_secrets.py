"""What is secret in a configuration of tool servers (spec V0 §1.9)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from conversations.dialects import columns
from sessions_app import setup_keys

ENVIRONMENT_MIN_CHARS = 8
"""A shorter value in the environment of a program, such as `1` or `true`, is no secret."""


def secret_values(config: str) -> Iterator[str]:
    """Yield the API keys, those in URLs and arguments, and what programs are given in their environment."""
    try:
        servers_by_kind = columns.fields(json.loads(config))
    except (ValueError, RecursionError):
        return
    yield from setup_keys.keys_of(servers_by_kind)
    groups = servers_by_kind.values()
    for servers in groups:
        for server in servers if isinstance(servers, list) else ():
            members = columns.fields(server)
            if isinstance(key := members.get("api_key"), str):
                yield key
            for value in columns.fields(members.get("env")).values():
                if isinstance(value, str) and len(value.strip()) >= ENVIRONMENT_MIN_CHARS:
                    yield value
