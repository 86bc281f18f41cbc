"""The published path of `sessions_app.settings.user_settings` (docs/agents.md)."""

from __future__ import annotations

from sessions_app.settings.user_settings import *  # noqa: F403 - the same names under the older path
