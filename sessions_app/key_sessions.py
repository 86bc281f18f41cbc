"""The path of the server key's backend that stored logins have."""

from __future__ import annotations

from sessions_app.identity.key_sessions import ServerKeyBackend as ServerKeyBackend
