"""The published path of `sessions_app.storage.attachments` (docs/agents.md)."""

from __future__ import annotations

from sessions_app.storage.attachments import *  # noqa: F403 - the same names under the older path
