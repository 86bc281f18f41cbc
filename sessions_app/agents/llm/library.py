"""The model library, imported on first use: it takes seconds and 100 MB, so never before and in a thread.

The event loop goes on meanwhile. This is the only place from which the modules that need it are imported.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from sessions_app.agents.llm.models import Wire

if TYPE_CHECKING:
    from sessions_app.agents.llm.requests import ModelClient


async def client_of(wire: Wire) -> ModelClient:
    """Return what asks models over a wire."""
    return await asyncio.to_thread(_client, wire)


@cache
def _client(wire: Wire) -> ModelClient:
    client: ModelClient = import_module("sessions_app.agents.llm.requests").ModelClient(
        import_module(f"sessions_app.agents.llm.wires.{wire.value}")
    )
    return client
