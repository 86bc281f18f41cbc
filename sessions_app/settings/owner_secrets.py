"""The secret values to mask in events: the owner's, and the conversation's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Any, NamedTuple

from cachetools import LRUCache
from django.db import connection

from conversations.log import sql
from conversations.log.sql import Result
from conversations.redaction.masking import NO_MASKS, Masks
from conversations.redaction.secrets import SecretValues
from sessions_app.encryption import Sealed, SecretUnreadable
from sessions_app.models import SecretKind
from sessions_app.settings import agent_setups, placeholder_keys, tool_server_secrets
from sessions_app.settings.user_settings import TOOL_SERVERS, SettingSecret

logger = logging.getLogger(__name__)

OWNERS_MAX = 256
"""The decrypted values of at most this many owners and conversations are cached."""
# Each character takes some 300 bytes of the automaton that searches for it.
CACHED_MAX_CHARS = 600_000
OWN = "of a conversation"
"""The kind of a conversation's own secrets, which are sealed as one."""

_OF_USERS = "SELECT user_id, 0, kind, name, value, NULL FROM sessions_app_secret WHERE user_id"
_OF_CONVERSATIONS = (
    "SELECT 0, conversation_id, 'of a conversation', '', sealed_secrets, sealed_keys "
    "FROM sessions_app_agentsetup "
    "WHERE has_secrets AND conversation_id"
)
# SQLite would also read the rows of conversations without secrets, which may be long.
_OF_CONVERSATIONS_SQLITE = _OF_CONVERSATIONS.replace("WHERE", "INDEXED BY agent_setup_secrets WHERE")


class _Row(NamedTuple):
    """A stored secret, as it is in the database."""

    user_id: int
    conversation_id: int
    kind: str
    name: str
    value: str
    keys: str | None
    """Of a conversation: the keys in its agent's setup."""


class OwnerSecrets(SecretValues):
    """All sealed values, of every kind.

    Of users: custom secrets, tokens of git providers, keys in the settings, and those of tool servers. Of
    conversations: the secrets that clients gave to their agents.
    """

    def find(self, owners: Sequence[int], conversations: Sequence[int]) -> Result:
        """Find them with one statement; see the seam."""
        of_users = (_OF_USERS, owners)
        if not conversations:
            return sql.rows_with_keys(of_users)
        is_sqlite = connection.vendor == "sqlite"
        own = _OF_CONVERSATIONS_SQLITE if is_sqlite else _OF_CONVERSATIONS
        return sql.rows_with_keys(of_users, (own, conversations))

    def masks(self, secrets: Iterable[tuple[Any, ...]]) -> Masks:
        """Decrypt the values, once while the stored ones stay the same; see the seam."""
        rows = frozenset(_Row(*secret) for secret in secrets)
        return _opened.masks(frozenset(secret[:2] for secret in rows), rows) if rows else NO_MASKS


_Owner = frozenset[tuple[Any, ...]]
"""The owner of cached secrets: a user, a conversation, or both."""


class _Opened:
    """The decrypted values, as of one moment for each owner: replaced values are not kept."""

    def __init__(self, max_chars: int = CACHED_MAX_CHARS) -> None:
        self._by_owner: LRUCache[_Owner, tuple[frozenset[_Row], Masks]] = LRUCache(max_chars, self._cost)
        self._max_chars = max_chars
        self._lock = Lock()

    def masks(self, owner: _Owner, rows: frozenset[_Row]) -> Masks:
        """Return the masks for rows, which are decrypted once while they stay the same."""
        with self._lock:
            stored, masks = self._by_owner.get(owner, (None, NO_MASKS))
            if stored == rows:
                return masks
        # Decrypting takes long, so it runs without the lock; two threads may do it twice.
        values = (value for secret in rows for value in _values(secret))
        masks = Masks(spelling for value in values for spelling in _spellings(value))
        with self._lock:
            self._by_owner[owner] = rows, masks
        return masks

    def _cost(self, cached: tuple[frozenset[_Row], Masks]) -> int:
        _, masks = cached
        # Each costs its share of OWNERS_MAX; none costs more than the whole, or it would not be cached.
        return min(max(masks.size, self._max_chars // OWNERS_MAX), self._max_chars)


_opened = _Opened()


def _values(secret: _Row) -> Iterator[str]:
    try:
        value = Sealed(secret.value).open()
        keys = Sealed(secret.keys).open() if secret.keys is not None else "[]"
    except SecretUnreadable as error:
        logger.warning(
            "%s %r of %s is not masked in events: %s",
            secret.kind,
            secret.name,
            f"user {secret.user_id}" if secret.user_id else f"conversation {secret.conversation_id}",
            error,
        )
        return
    if secret.kind == OWN:
        yield from agent_setups.secret_values(value)
        # Those of tool servers were added as they are, placeholders among them.
        yield from (key for key in agent_setups.key_values(keys) if not placeholder_keys.is_placeholder(key))
    elif secret.kind == SecretKind.SETTING and secret.name in TOOL_SERVERS:
        yield from tool_server_secrets.secret_values(value)
    elif (secret.kind, secret.name) == (SecretKind.SETTING, SettingSecret.LLM_API_KEY):
        # A key such as `ollama` would be masked in all that people say, and models would read the mask.
        if placeholder_keys.is_masked(value):
            yield value
    else:
        yield value


def _spellings(value: str) -> Iterator[str]:
    """Yield the forms in which programs print a value."""
    shown = value.strip()  # output seldom has the white space around it
    yield shown
    # Browsers send CRLF, files have LF, and terminals print CRLF.
    if "\n" in shown:
        lines = shown.replace("\r\n", "\n")
        yield lines
        yield lines.replace("\n", "\r\n")
