"""The agent face as tests ask it: addresses, bodies, and a conversation with a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx

AGENT = "/agent/api/conversations"
SHARED = "/api/conversations"
ID = "0b9d0d9c-5f5e-4d0c-8a43-6f0a4f9f3c11"
HEX = UUID(ID).hex
NONE = "5e1d9a7e-3d57-4bd5-9a51-0a1f6f2b7c22"
"""An id that nobody has."""

START: dict[str, Any] = {
    "agent": {
        "kind": "Agent",
        "llm": {"model": "openai/gpt-x", "api_key": "the-model's-key", "usage_id": "agent"},
        "tools": [{"name": "terminal", "params": {}}],
        "condenser": {"kind": "LLMSummarizingCondenser", "llm": {"model": "small", "api_key": "other-key"}},
    },
    "workspace": {"kind": "LocalWorkspace", "working_dir": "/workspace/project"},
}
"""The least that the first release sends, but for its nulls."""


async def started(rest: httpx.AsyncClient, **members: Any) -> dict[str, Any]:
    """Start a conversation and return its information."""
    response = await rest.post(AGENT, json={**START, **members})
    assert response.status_code in (200, 201), response.text
    found: dict[str, Any] = response.json()
    return found


def said(text: str, *, run: bool = False) -> dict[str, Any]:
    """Return a SendMessageRequest."""
    return {"role": "user", "content": [{"type": "text", "text": text}], "run": run}


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One operation on a conversation, and what its owner is answered."""

    name: str
    method: str = "POST"
    path: str
    body: Any = None
    owner: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


ROUTES = [
    Route(name="agent-conversation", method="GET", path=""),
    Route(name="agent-conversation", method="PATCH", path="", body={"title": "new"}),
    Route(name="agent-run", path="/run"),
    Route(name="agent-pause", path="/pause"),
    Route(name="agent-interrupt", path="/interrupt"),
    Route(name="agent-condense", path="/condense"),
    Route(name="agent-secrets", path="/secrets", body={"secrets": {"KEY": "value"}}),
    Route(
        name="agent-confirmation-policy",
        path="/confirmation_policy",
        body={"policy": {"kind": "AlwaysConfirm"}},
    ),
    Route(name="agent-security-analyzer", path="/security_analyzer", body={"security_analyzer": None}),
    Route(name="agent-generate-title", path="/generate_title", body={}, owner=409),  # nothing was said
    Route(name="agent-ask-agent", path="/ask_agent", body={"question": "Why?"}),
    Route(name="agent-fork", path="/fork", body={}, owner=201),
    Route(name="agent-navigate", path="/navigate", body={"event_id": None}),
    Route(name="agent-agent-final-response", method="GET", path="/agent_final_response"),
    Route(name="agent-events-search", method="GET", path="/events/search"),
    Route(name="agent-events-count", method="GET", path="/events/count"),
    Route(name="agent-event", method="GET", path="/events/none", owner=404),
    Route(name="agent-events", method="GET", path="/events?event_ids=none"),
    Route(name="agent-events", path="/events", body={"role": "user", "content": "hello"}),
    Route(
        name="agent-events-respond-to-confirmation",
        path="/events/respond_to_confirmation",
        body={"accept": False},
    ),
    Route(name="agent-switch-llm", path="/switch_llm", body={"llm": {"model": "openai/gpt-x"}}),
    Route(name="agent-runtime", method="GET", path="/runtime"),
    *(
        Route(name=f"agent-{what.replace('/', '-').replace('_', '-')}", path=f"/{what}", body={}, owner=400)
        for what in ("goal", "goal/stop", "goal/resume", "load_plugin", "switch_acp_model")
    ),
    Route(name="agent-runtime-reprovision", path="/runtime/reprovision", owner=400),
    Route(name="agent-conversation", method="DELETE", path=""),
]
"""Every operation on one conversation."""
BEYOND_ONE = [
    Route(name="agent-switch-profile", path="/switch_profile", body={"profile_name": "none"}, owner=404),
    Route(name="agent-children", path="/children", body={"task": "Look around"}, owner=201),
]
"""Operations on a conversation that reach what its own key does not open."""


def known(response: httpx.Response, *statuses: int) -> Any:
    """Return the body of an answer with one of these statuses, by default 200."""
    assert response.status_code in (statuses or (200,)), response.text
    return response.json()


class MuteAgent:
    """An agent that answers no question."""

    async def complete(self, messages: object) -> str:
        """Fail."""
        raise RuntimeError("no answer")
