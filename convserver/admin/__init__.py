"""The admin: a door for staff. Importing it registers every page; nothing else imports it."""

from __future__ import annotations

from convserver.admin import repairs, site
from convserver.admin.resources import (
    audit,
    connections,
    conversations,
    loops,
    outbox,
    secrets,
    tokens,
    user_settings,
    users,
)

__all__ = [
    "audit",
    "connections",
    "conversations",
    "loops",
    "outbox",
    "repairs",
    "secrets",
    "site",
    "tokens",
    "user_settings",
    "users",
]
