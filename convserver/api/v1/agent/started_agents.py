"""The agent that a start asks for: as it was sent, or as its settings or a stored profile describe it."""

from __future__ import annotations

from typing import Any

from conversations.dialects import columns
from convserver.api.v1.agent.requests import Start
from convserver.api.v1.agent.settings import agent_profiles, profiles, tool_servers
from sessions_app.models.v1 import DEFAULT_MODEL
from sessions_app.settings import model_keys

MEMBERS = ("llm", "tools", "mcp_config", "agent_context", "system_prompt_filename", "tool_concurrency_limit")
"""The members of the settings that an agent has, too."""


def agent_of(user_id: int, body: Start) -> dict[str, Any] | None:
    """Return the agent of a start; None for the server's default. Raise Refused for an unknown profile.

    What is masked in it is filled in from the user's settings.
    """
    if body.agent is not None:
        agent = dict(body.agent)
    elif body.agent_profile_id is not None:
        agent = _of_profile(user_id, str(body.agent_profile_id))
    elif body.agent_settings is not None:
        agent = _of_settings(body.agent_settings)
    else:
        return None
    # Clients send what they were shown, in which keys are asterisks.
    if isinstance(agent.get("llm"), dict):
        agent["llm"] = model_keys.with_stored_keys(user_id, agent["llm"])
    if isinstance(servers := agent.get("mcp_config"), dict):
        agent["mcp_config"] = tool_servers.all_opened(servers, tool_servers.of_user(user_id))
    return agent


def model_in(agent: dict[str, Any] | None) -> str | None:
    """Return the language model of an agent, if it names one."""
    model = columns.fields((agent or {}).get("llm")).get("model")
    return model if isinstance(model, str) else None


def _of_settings(settings: dict[str, Any]) -> dict[str, Any]:
    known = {name: settings[name] for name in MEMBERS if settings.get(name) not in (None, {})}
    if isinstance(llm := known.get("llm"), dict) and not llm.get("model"):
        known["llm"] = {**llm, "model": DEFAULT_MODEL}  # a client that reads the agent expects a name
    return {"kind": "Agent", "tools": [], **known}


def _of_profile(user_id: int, profile_id: str) -> dict[str, Any]:
    profile = agent_profiles.with_id(user_id, profile_id)
    agent = _of_settings(profile)
    if isinstance(name := profile.get("llm_profile_ref"), str):
        agent["llm"] = profiles.profile(user_id, name)
    wanted = profile.get("mcp_server_refs")
    if isinstance(wanted, list):
        servers = tool_servers.of_user(user_id)
        # A server that was removed since is left out: the profile may still name it.
        agent["mcp_config"] = {name: servers[name] for name in wanted if name in servers}
    return agent
