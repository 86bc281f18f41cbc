"""A long import in a thread gives way to calls."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest

from sessions_app.capacity import gentle_imports
from sessions_app.capacity.calls import Calls
from sessions_app.capacity.gentle_imports import giving_way


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that nobody has imported."""
    name = "convserver_imported_gently"
    (tmp_path / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


class ObservedCalls(Calls):
    """Calls that tell when somebody waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Event()

    @property
    def are_waiting(self) -> bool:
        self.asked.set()
        return super().are_waiting


def import_gently(module: str, calls: Calls) -> None:
    with giving_way(calls):
        import_module(module)


async def test_an_import_waits_for_a_call_that_has_no_answer(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gentle_imports, "WAIT_MAX_S", 60)
    calls, call = ObservedCalls(), object()
    calls.begin(call, for_s=60)
    importing = asyncio.ensure_future(asyncio.to_thread(import_gently, module, calls))
    await asyncio.to_thread(calls.asked.wait)
    assert module not in sys.modules
    calls.end(call)
    await importing
    assert module in sys.modules


async def test_an_endless_call_does_not_stop_an_import(module: str) -> None:
    calls = Calls()
    calls.begin(object(), for_s=60)
    await asyncio.to_thread(import_gently, module, calls)
    assert module in sys.modules


async def test_other_threads_import_at_once(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gentle_imports, "WAIT_MAX_S", 60)
    calls = Calls()
    calls.begin(object(), for_s=60)
    with giving_way(calls):
        await asyncio.to_thread(import_module, module)
    assert module in sys.modules
