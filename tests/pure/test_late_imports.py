"""What a process imports at its start, and what only with the first request that needs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LATE = {
    "convserver.urls",
    "convserver.admin",
    "convserver.rendering",
    "convserver.api.direct.appends",
    "unfold.admin",
}
"""Pages, the admin and the routes of REST: together 20 MB."""
MODELS = {"pydantic_ai", "openai", "anthropic", "google.genai", "genai_prices", "httpx2"}
"""The libraries of models: together 100 MB and two seconds."""
TOOLS = {"mcp", "mcp_types"}
"""The library of tool servers."""

PROGRAM = f"""
import json, sys
from asyncio import run
import convserver.asgi
from asgiref.testing import ApplicationCommunicator

def show(step):
    print(json.dumps([step, [name for name in {sorted(LATE | MODELS | TOOLS)} if name in sys.modules]]))

async def answer(path):
    scope = {{"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")]}}
    scope |= {{"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}}
    scope |= {{"query_string": b"", "scheme": "http"}}
    client = ApplicationCommunicator(convserver.asgi.application, scope)
    await client.send_input({{"type": "http.request"}})
    start = await client.receive_output(60)
    assert start["status"] == (200 if path == "/alive" else 404), start

show("import")
run(answer("/alive"))
show("probe")
run(answer("/api/nowhere"))
show("request")
from convserver.commands.configured_classes import require
from django.conf import settings
require(settings.CONFIGURATION)
show("serve")
from sessions_app.agents.llm.library import client_of
from sessions_app.agents.llm.models import Wire
run(client_of(Wire.OPENAI))
show("model")
"""

Imported = dict[str, set[str]]


@pytest.fixture(scope="module")
def imported() -> Imported:
    """Which of these modules a new process has imported after each of its steps."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return {step: set(names) for step, names in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("step", ["import", "probe"])
def test_a_start_and_a_probe_import_no_page_and_no_route(imported: Imported, step: str) -> None:
    assert imported[step] & LATE == set()


def test_the_first_request_imports_them_all(imported: Imported) -> None:
    assert imported["request"] & LATE == LATE


@pytest.mark.parametrize("step", ["request", "serve"])
def test_a_start_and_a_request_import_no_library_of_models(imported: Imported, step: str) -> None:
    assert imported[step] & (MODELS | TOOLS) == set()


def test_the_first_question_to_a_model_imports_the_library_of_its_wire_alone(imported: Imported) -> None:
    assert imported["model"] & (MODELS | TOOLS) == MODELS - {"anthropic", "google.genai"}
