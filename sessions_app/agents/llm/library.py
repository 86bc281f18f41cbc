"""The libraries of models and tools, imported on first use, in a thread: they take seconds and 100 MB.

The event loop goes on meanwhile. This is the only place from which the modules that need
these libraries are imported.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING

from sessions_app.agents.llm.models import Wire

if TYPE_CHECKING:
    from sessions_app.agents.llm.known_models import KnownModel
    from sessions_app.agents.llm.requests import ModelClient
    from sessions_app.agents.llm.tools.toolbox import Toolbox


async def client_of(wire: Wire) -> ModelClient:
    """Return what asks models over a wire."""
    client = _clients.get(wire)
    return client if client is not None else await asyncio.to_thread(_imported, wire)


async def toolbox_class() -> type[Toolbox]:
    """Return what connects tool servers."""
    return _toolboxes[0] if _toolboxes else await asyncio.to_thread(_imported_toolbox)


async def known_of(base_url: str, names: Sequence[str]) -> list[KnownModel]:
    """Return what a table knows of the models of a server."""
    return await asyncio.to_thread(_known, base_url, names)


def _known(base_url: str, names: Sequence[str]) -> list[KnownModel]:
    with _importing, _without_collections():
        table = import_module("sessions_app.agents.llm.known_models")
    found: list[KnownModel] = table.known(base_url, names)
    return found


_toolboxes: list[type[Toolbox]] = []
_clients: dict[Wire, ModelClient] = {}
_importing = Lock()


def _imported(wire: Wire) -> ModelClient:
    with _importing, _without_collections():
        if wire not in _clients:
            requests = import_module("sessions_app.agents.llm.requests")
            _clients[wire] = requests.ModelClient(
                import_module(f"sessions_app.agents.llm.wires.{wire.value}")
            )
        return _clients[wire]


def _imported_toolbox() -> type[Toolbox]:
    with _importing, _without_collections():
        if not _toolboxes:
            _toolboxes.append(import_module("sessions_app.agents.llm.tools.toolbox").Toolbox)
        return _toolboxes[0]


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: that would halt the event loop for a fifth of a second."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()  # what was imported stays, as at the start
    finally:
        if was_enabled:
            gc.enable()
