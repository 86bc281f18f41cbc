"""The secret values that no event of their owner's may show: all that are sealed, whatever they open."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

from conversations import sql
from conversations.masking import NO_MASKS, Masks
from conversations.secrecy import SecretValues
from conversations.sql import Found
from sessions_app import tool_server_secrets
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
        rows = frozenset(_Row(*secret) for secret in secrets)
        return _opened.masks(next(iter(rows)).user_id, rows) if rows else NO_MASKS


class _Opened:
    """The values in clear, those of one moment for each owner: what was replaced is not kept."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[int, tuple[frozenset[_Row], Masks]] = OrderedDict()
        self._lock = Lock()

    def masks(self, owner: int, rows: frozenset[_Row]) -> Masks:
        """Return what hides the values of an owner's rows; they are opened once as long as they stay."""
        with self._lock:
            stored, masks = self._by_owner.get(owner, (None, NO_MASKS))
            if stored == rows:
                self._by_owner.move_to_end(owner)
                return masks
        masks = Masks(value.strip() for secret in rows for value in _values(secret))
        with self._lock:
            self._by_owner[owner] = rows, masks
            self._by_owner.move_to_end(owner)
            if len(self._by_owner) > OWNERS_MAX:
                self._by_owner.popitem(last=False)
        return masks


_opened = _Opened()


def _values(secret: _Row) -> Iterator[str]:
    try:
        value = Sealed(secret.value).open()
    except SecretUnreadable as error:
        logger.warning(
            "%s %r of user %s is not masked in events: %s", secret.kind, secret.name, secret.user_id, error
        )
        return
    if (secret.kind, secret.name) == (SecretKind.SETTING, SettingSecret.MCP_CONFIG):
        yield from tool_server_secrets.secret_values(value)
    else:
        yield value
