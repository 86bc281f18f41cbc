"""What is secret in a configuration of tool servers (spec V0 §1.9)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from conversations.dialects import columns

ENVIRONMENT_MIN_CHARS = 8
"""A shorter value in the environment of a program, such as `1` or `true`, is no secret."""


def secret_values(config: str) -> Iterator[str]:
    """Yield the API keys, and what programs are given in their environment."""
    try:
        groups = columns.fields(json.loads(config)).values()
    except (ValueError, RecursionError):
        return
    for servers in groups:
        for server in servers if isinstance(servers, list) else ():
            members = columns.fields(server)
            if isinstance(key := members.get("api_key"), str):
                yield key
            for value in columns.fields(members.get("env")).values():
                if isinstance(value, str) and len(value.strip()) >= ENVIRONMENT_MIN_CHARS:
                    yield value
