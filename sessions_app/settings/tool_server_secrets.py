"""What is secret in a configuration of tool servers (spec V0 §1.9)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from conversations.dialects import columns
from sessions_app.settings import setup_keys
from sessions_app.settings.placeholder_keys import MASKED_MIN_CHARS

# Letters and digits are no word, and 16 of them are too long for a version.
_PATH_KEY = re.compile(r"(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[^/]{16,}")


def secret_values(config: str) -> Iterator[str]:
    """Yield the API keys, those in URLs and arguments, and what programs are given in their environment."""
    try:
        servers_by_kind = columns.fields(json.loads(config))
    except (ValueError, RecursionError):
        return
    yield from setup_keys.keys_of(servers_by_kind)
    for servers in servers_by_kind.values():
        for server in servers if isinstance(servers, list) else ():
            members = columns.fields(server)
            yield from _keys_in_path(members.get("url"))
            if isinstance(key := members.get("api_key"), str):
                yield key
            for value in columns.fields(members.get("env")).values():
                # A shorter value, such as `1` or `true`, is no secret.
                if isinstance(value, str) and len(value.strip()) >= MASKED_MIN_CHARS:
                    yield value


def _keys_in_path(url: object) -> Iterator[str]:
    """Yield the parts of an address's path that are keys."""
    try:
        path = urlsplit(url).path if isinstance(url, str) else ""
    except ValueError:
        return
    # Some services know their users by a part of the path alone.
    for part in filter(_PATH_KEY.fullmatch, path.split("/")):
        yield part
        yield unquote(part)
