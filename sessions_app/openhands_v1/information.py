"""A conversation as the agent face shows it: ConversationInfo (spec V1 §2.2)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

from django.db.models import Field, QuerySet

from conversations.dialects import columns
from conversations.dialects.v1 import state
from conversations.events import Metrics
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, Version, children_in
from sessions_app.live.status import iso
from sessions_app.models import (
    DEFAULT_MODEL,
    AgentSetup,
    ExecutionStatus,
    default_workspace,
    json_size,
)
from sessions_app.models.v1 import DEFAULT_WORKING_DIR
from sessions_app.repositories.preparing import directory_name
from sessions_app.settings import run_options
from sessions_app.workspaces.paths import HOME, PROJECT

ConversationInformation = dict[str, Any]

# What older clients do not know; facts of the conversation's start replace these defaults.
_NEWER: ConversationInformation = {
    "invoked_skills": [],
    "blocked_actions": {},
    "blocked_messages": {},
    "last_user_message_id": None,
    "agent_state": {},
    "hook_config": None,
    "forked_from_event_id": None,
    "current_model_id": None,
    "available_models": [],
    "supports_runtime_model_switch": False,
    "launched_agent_profile": None,
    "client_tools": [],
    "tool_module_qualnames": {},
    "runtime_info": None,
}
_LONG = ("shown_agent", "shown_secrets", "workspace", "confirmation_policy", "security_analyzer", "facts")
_SETUP = (*_LONG, "max_iterations", "stuck_detection", "leaf_event_id")
SIZE = json_size(*(f"agent_setup__{column}" for column in _LONG))
"""The size of the parts of a conversation's information that may be long, for queries."""
_COLUMNS = (
    "pk",
    "public_id",
    "version",
    "repository",
    "title",
    *run_options.MODEL_COLUMNS,
    "accumulated_cost",
    "prompt_tokens",
    "completion_tokens",
    "tags",
    "created_at",
    "updated_at",
    "forked_at",
    "forked_from__public_id",
    "parent__public_id",
    "loop__execution_status",
    "child_ids",
    "agent_setup",
    *(f"agent_setup__{name}" for name in _SETUP),
)


def information_of(pks: Sequence[int], *, deleted: bool = False) -> dict[int, ConversationInformation]:
    """Return the information of the existing conversations by key, by one query.

    With `deleted`, of tombstones, too.
    """
    found = Conversation.objects.all() if deleted else Conversation.objects.active()
    return {row["pk"]: information_in(row) for row in information_rows(found.with_pks(pks))}


def information_rows(rows: ConversationQuerySet) -> QuerySet[Conversation, dict[str, Any]]:
    found: QuerySet[Conversation, dict[str, Any]] = rows.with_children(Conversation.objects.active()).values(
        *_COLUMNS
    )
    return found


def information_in(row: Mapping[str, Any]) -> ConversationInformation:
    model = run_options.shown_model(row) or DEFAULT_MODEL
    setup = _setup_in(row)
    metrics = _metrics(row, model)
    return {
        **_NEWER,
        **setup["facts"],
        "id": dashed(row["public_id"]),
        "agent": _agent(setup["shown_agent"] or default_agent(model), row["run_options__model"]),
        "workspace": _workspace(setup["workspace"], row),
        "persistence_dir": f"workspace/conversations/{row['public_id']}",
        "max_iterations": setup["max_iterations"],
        "stuck_detection": setup["stuck_detection"],
        "execution_status": row["loop__execution_status"] or ExecutionStatus.IDLE.value,
        "confirmation_policy": setup["confirmation_policy"],
        "security_analyzer": setup["security_analyzer"],
        "activated_knowledge_skills": [],
        "stats": {"usage_to_metrics": {"agent": metrics} if metrics else {}},
        "secret_registry": {"secret_sources": setup["shown_secrets"]},
        "title": row["title"],
        "metrics": metrics,
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "tags": row["tags"],
        "leaf_event_id": setup["leaf_event_id"],
        "forked_from_conversation_id": _dashed_or_none(row["forked_from__public_id"]),
        "parent_conversation_id": _dashed_or_none(row["parent__public_id"]),
        "sub_conversation_ids": [dashed(child) for child in children_in(row)],
    }


def _setup_in(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agent's setup as stored, or the defaults."""
    if row["agent_setup"] is None:
        fields = (cast("Field[Any, Any]", AgentSetup._meta.get_field(name)) for name in _SETUP)
        return {field.name: field.get_default() for field in fields}
    return {name: row[f"agent_setup__{name}"] for name in _SETUP}


def working_directory(conversation: ConversationRef) -> str:
    """Return the absolute directory that clients are shown as the conversation's own."""
    columns = ("version", "repository", "agent_setup__workspace")
    row = Conversation.objects.values(*columns).get(pk=conversation.pk)
    shown = _workspace(row["agent_setup__workspace"] or default_workspace(), row)
    return f"/{str(shown.get('working_dir', '')).lstrip('/')}"


def _workspace(named: Mapping[str, Any], row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the workspace that a start has named, or the directory with which paths begin."""
    if named.get("working_dir") != DEFAULT_WORKING_DIR:
        return named
    # Clients run commands and ask for changes in this directory; a relative one would be below the workspace,
    # and above a repository git knows no commits.
    home = PROJECT if row["version"] == Version.V1 else HOME
    name = directory_name(row["repository"] or "")
    return {**named, "working_dir": posixpath.join(home, name).rstrip("/")}


def default_agent(model: str) -> dict[str, Any]:
    """Return the agent of a conversation that no V1 client has set up."""
    return {"kind": "Agent", "llm": {"model": model, "usage_id": "agent"}, "tools": []}


def _agent(agent: Mapping[str, Any], chosen_model: str | None) -> Mapping[str, Any]:
    """Return an agent with the model that was chosen since its start, if one was."""
    if not chosen_model:
        return agent
    return {**agent, "llm": {**columns.fields(agent.get("llm")), "model": chosen_model}}


def dashed(public_id: str) -> str:
    """Return an id as the agent face prints it: a UUID with dashes (R1), any other unchanged."""
    try:
        return str(UUID(public_id))
    except ValueError:
        return public_id


def _dashed_or_none(public_id: str | None) -> str | None:
    return None if public_id is None else dashed(public_id)


def _metrics(row: Mapping[str, Any], model: str) -> dict[str, object] | None:
    """Return the totals, None while nothing was counted."""
    names = ("accumulated_cost", "prompt_tokens", "completion_tokens")
    counted = Metrics(**{name: row[name] for name in names})
    return None if counted == Metrics() else state.snapshot(counted, model=model)
