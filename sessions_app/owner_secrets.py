"""The secret values that no event of their owner's may show: all that are sealed, whatever they open."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from conversations import sql
from conversations.dialects import columns
from conversations.masking import Masks
from conversations.secrecy import SecretValues
from conversations.sql import Found
from sessions_app.encryption import Sealed, SecretUnreadable
from sessions_app.models import Secret, SecretKind
from sessions_app.user_settings import SettingSecret

logger = logging.getLogger(__name__)

OWNERS_MAX = 256
"""For so many owners the values stay open."""


class _Row(NamedTuple):
    """A stored secret, as the database has it."""

    user_id: int
    kind: str
    name: str
    value: str


class OwnerSecrets(SecretValues):
    """Custom secrets, tokens of git providers, keys among the settings, and those of tool servers."""

    def find(self, owners: Sequence[int]) -> Found:
        """Find them by one statement; see the seam."""
        return sql.rows_of_users(Secret._meta.db_table, _Row._fields, owners)

    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Open the values, once as long as what is stored stays the same; see the seam."""
        return _opened(frozenset(_Row(*secret) for secret in secrets))


@lru_cache(maxsize=OWNERS_MAX)
def _opened(secrets: frozenset[_Row]) -> Masks:
    return Masks(value.strip() for secret in secrets for value in _values(secret))


def _values(secret: _Row) -> Iterator[str]:
    try:
        value = Sealed(secret.value).open()
    except SecretUnreadable as error:
        logger.warning(
            "%s %r of user %s is not masked in events: %s", secret.kind, secret.name, secret.user_id, error
        )
        return
    if (secret.kind, secret.name) == (SecretKind.SETTING, SettingSecret.MCP_CONFIG):
        yield from _keys_of_tool_servers(value)
    else:
        yield value


def _keys_of_tool_servers(config: str) -> Iterator[str]:
    """Yield the API keys in a configuration (spec V0 §1.9)."""
    try:
        groups = columns.fields(json.loads(config)).values()
    except (ValueError, RecursionError):
        return
    for servers in groups:
        for server in servers if isinstance(servers, list) else ():
            key = columns.fields(server).get("api_key")
            if isinstance(key, str):
                yield key
