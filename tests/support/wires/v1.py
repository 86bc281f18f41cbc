"""The agent face as tests ask it: addresses, bodies, and a conversation with a log."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from typing import Any
from uuid import UUID

import httpx

from convserver.api.v1.agent import absent

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
    response = await rest.post(AGENT, json={**START, **members})
    assert response.status_code in (200, 201), response.text
    found: dict[str, Any] = response.json()
    return found


def said(text: str, *, run: bool = False) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "run": run}


@dataclass(frozen=True, slots=True)
class Route:
    """One operation on a conversation, and what its owner is answered."""

    name: str
    path: str
    _: KW_ONLY
    method: str = "POST"
    body: Any = None
    owner: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def filled(address: str) -> str:
    """Return an address without segments in braces."""
    return re.sub(r"\{\w+\}", "none", address)


OF_ACTION = {"empty": 200, "refuse": 400, "miss": 404}
"""The status of each action about what is not here."""

ROUTES = [
    Route("agent-conversation", "", method="GET"),
    Route("agent-conversation", "", method="PATCH", body={"title": "new"}),
    Route("agent-run", "/run"),
    Route("agent-pause", "/pause"),
    Route("agent-interrupt", "/interrupt"),
    Route("agent-condense", "/condense"),
    Route("agent-secrets", "/secrets", body={"secrets": {"KEY": "value"}}),
    Route("agent-confirmation-policy", "/confirmation_policy", body={"policy": {"kind": "AlwaysConfirm"}}),
    Route("agent-security-analyzer", "/security_analyzer", body={"security_analyzer": None}),
    Route("agent-generate-title", "/generate_title", body={}, owner=409),  # nothing was said
    Route("agent-ask-agent", "/ask_agent", body={"question": "Why?"}),
    Route("agent-fork", "/fork", body={}, owner=201),
    Route("agent-navigate", "/navigate", body={"event_id": None}),
    Route("agent-agent-final-response", "/agent_final_response", method="GET"),
    Route("agent-events-search", "/events/search", method="GET"),
    Route("agent-events-count", "/events/count", method="GET"),
    Route("agent-event", "/events/none", method="GET", owner=404),
    Route("agent-events", "/events?event_ids=none", method="GET"),
    Route("agent-events", "/events", body={"role": "user", "content": "hello"}),
    Route("agent-events-respond-to-confirmation", "/events/respond_to_confirmation", body={"accept": False}),
    Route("agent-switch-llm", "/switch_llm", body={"llm": {"model": "openai/gpt-x"}}),
    Route("agent-runtime", "/runtime", method="GET"),
    *(
        Route(each.name, f"/{filled(each.rest)}", method=method.upper(), owner=OF_ACTION[action])
        for each in absent.absences()
        if each.base == absent.ONE
        for method, action in each.actions.items()
    ),
    # no sandbox works here
    Route("agent-conversation-bash-start", "/bash/start_bash_command", body={"command": "true"}, owner=400),
    Route(
        "agent-conversation-bash-execute", "/bash/execute_bash_command", body={"command": "true"}, owner=400
    ),
    Route("agent-conversation-bash-search", "/bash/bash_events/search", method="GET"),
    Route("agent-conversation-bash-batch", "/bash/bash_events/?event_ids=none", method="GET"),
    Route("agent-conversation-bash-retrieve", "/bash/bash_events/none", method="GET", owner=404),
    Route("agent-conversation-bash-clear", "/bash/bash_events", method="DELETE"),
    Route("agent-conversation-bash-stop", f"/bash/bash_commands/{NONE}/stop", owner=404),
    Route("agent-conversation-git-changes", "/git/changes?path=/workspace", method="GET"),
    Route("agent-conversation-git-diff", "/git/diff?path=/workspace/a", method="GET"),
    Route("agent-conversation-git-commits", "/git/commits?path=/workspace", method="GET"),
    Route("agent-conversation-git-commit-changes", "/git/commits/abcd/changes?path=/workspace", method="GET"),
    Route("agent-conversation-file-upload", "/file/upload?path=/workspace/a", owner=422),  # no form
    Route("agent-conversation-file-create-directory", "/file/create_directory?path=/workspace/a"),
    Route("agent-conversation-file-download", "/file/download?path=/workspace/none", method="GET", owner=404),
    Route("agent-conversation-workspace-file", "/workspace/none", method="GET", owner=404),
    Route("agent-conversation-file-archive", "/file/archive?path=/workspace&format=tar.gz", method="GET"),
    Route("agent-conversation", "", method="DELETE"),
]
"""Every operation on one conversation."""
BEYOND_ONE = [
    Route("agent-switch-profile", "/switch_profile", body={"profile_name": "none"}, owner=404),
    Route("agent-children", "/children", body={"task": "Look around"}, owner=201),
]
"""Operations on a conversation that reach what its own key does not open."""


def known(response: httpx.Response, *statuses: int) -> Any:
    """Return the body of an answer with one of these statuses, by default 200."""
    assert response.status_code in (statuses or (200,)), response.text
    return response.json()


class MuteAgent:
    """An agent that answers no question."""

    async def complete(self, messages: object) -> str:
        raise RuntimeError("no answer")
