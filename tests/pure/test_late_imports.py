"""What a process imports at its start, and what only with the first request that needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = (
    "convserver.urls",
    "convserver.admin",
    "convserver.rendering",
    "convserver.api.direct.appends",
    "unfold.admin",
)
"""Pages, the admin and the routes of REST: together 20 MB."""
ANSWER = """
from asyncio import run
from asgiref.testing import ApplicationCommunicator
async def answer(path):
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")]}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http"}
    client = ApplicationCommunicator(convserver.asgi.application, scope)
    await client.send_input({"type": "http.request"})
    start = await client.receive_output(60)
    assert start["status"] == (200 if path == "/alive" else 404), start
"""


def imported_after(code: str) -> set[str]:
    """Return which of the LATE modules a new process has imported once it has run this."""
    shown = f"import sys\nprint([name for name in {LATE} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", f"import convserver.asgi\n{code}\n{shown}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in LATE if f"{name!r}" in run.stdout.splitlines()[-1]}


@pytest.mark.parametrize("code", ["", f"{ANSWER}run(answer('/alive'))"], ids=["start", "probe"])
def test_a_start_and_a_probe_import_no_page_and_no_route(code: str) -> None:
    assert not imported_after(code)


def test_the_first_request_imports_them_all() -> None:
    assert imported_after(f"{ANSWER}run(answer('/api/nowhere'))") == set(LATE)
