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
MODELS = ("pydantic_ai", "openai", "anthropic", "google.genai", "genai_prices", "httpx2")
"""The libraries of models: together 100 MB and two seconds."""
TOOLS = ("mcp", "mcp_types")
"""The library of tool servers."""
A_MODEL_IS_ASKED = """
from asyncio import run
from sessions_app.agents.llm.library import client_of
from sessions_app.agents.llm.models import Wire
run(client_of(Wire.OPENAI))
"""
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


def imported_after(code: str, modules: tuple[str, ...] = LATE) -> set[str]:
    """Return which of these modules a new process has imported once it has run this."""
    shown = f"import sys\nprint([name for name in {modules} if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", f"import convserver.asgi\n{code}\n{shown}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in modules if f"{name!r}" in run.stdout.splitlines()[-1]}


@pytest.mark.parametrize("code", ["", f"{ANSWER}run(answer('/alive'))"], ids=["start", "probe"])
@pytest.mark.sampled(1)
def test_a_start_and_a_probe_import_no_page_and_no_route(code: str) -> None:
    assert not imported_after(code)


def test_the_first_request_imports_them_all() -> None:
    assert imported_after(f"{ANSWER}run(answer('/api/nowhere'))") == set(LATE)


STARTED = """
from convserver.commands.configured_classes import require
from django.conf import settings
require(settings.CONFIGURATION)
"""


@pytest.mark.parametrize("code", [STARTED, f"{ANSWER}run(answer('/api/nowhere'))"], ids=["start", "request"])
@pytest.mark.sampled(1)
def test_a_start_and_a_request_import_no_library_of_models(code: str) -> None:
    assert not imported_after(code, MODELS + TOOLS)


def test_the_first_question_to_a_model_imports_the_library_of_its_wire_alone() -> None:
    assert imported_after(A_MODEL_IS_ASKED, MODELS + TOOLS) == set(MODELS) - {"anthropic", "google.genai"}
