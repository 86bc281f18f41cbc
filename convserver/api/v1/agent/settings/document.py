"""The settings document of the agent face: read from, and written to, the same rows as V0's settings.

What V0 has no setting for is kept as it was sent, so that a client reads back what it stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings as configuration
from django.db import transaction

from convserver.api.openhands.errors import InvalidRequest
from convserver.api.openhands.new_settings import NewSettings
from convserver.api.openhands.view import body_in
from convserver.api.v1.agent.settings import tool_servers
from convserver.api.v1.agent.settings.merging import merged
from sessions_app.models import DocumentKind, UserSettings
from sessions_app.settings import user_documents, user_settings
from sessions_app.settings.setup_keys import MASK, masked
from sessions_app.settings.user_documents import DocumentNotFound
from sessions_app.settings.user_settings import SettingSecret

AGENT, CONVERSATION, OTHERS = PARTS = ("agent_settings", "conversation_settings", "misc_settings")
POINTERS = ("active_profile", "active_agent_profile_id", "active_meta_profile")
TOOL_SERVERS = "mcp_config"
PREFERENCES = "app_preferences"

SETTING_AT: Mapping[tuple[str, ...], str] = {
    (AGENT, "agent"): "agent",
    (AGENT, "llm", "model"): "llm_model",
    (AGENT, "llm", "api_key"): SettingSecret.LLM_API_KEY,
    (AGENT, "llm", "base_url"): "llm_base_url",
    (AGENT, "condenser", "enabled"): "enable_default_condenser",
    (AGENT, "condenser", "max_size"): "condenser_max_size",
    (CONVERSATION, "max_iterations"): "max_iterations",
    (CONVERSATION, "confirmation_mode"): "confirmation_mode",
    (CONVERSATION, "security_analyzer"): "security_analyzer",
    (OTHERS, PREFERENCES, "language"): "language",
    (OTHERS, PREFERENCES, "enable_sound_notifications"): "enable_sound_notifications",
    (OTHERS, PREFERENCES, "user_consents_to_analytics"): "user_consents_to_analytics",
    (OTHERS, PREFERENCES, "git_user_name"): "git_user_name",
    (OTHERS, PREFERENCES, "git_user_email"): "git_user_email",
}
"""Where the document has what is a setting of V0's, too."""
DEFAULTS: Mapping[str, object] = {
    "agent": "CodeActAgent",
    "condenser_max_size": 240,
    "max_iterations": 500,
    "confirmation_mode": False,
}
"""What is shown of a setting that is not set."""
# A null leaves these unchanged on V0's wire; here it clears them, as a blank does there.
CLEARED_BY_BLANK = frozenset({"llm_model", "llm_base_url", SettingSecret.LLM_API_KEY})


def shown(user_id: int) -> dict[str, Any]:
    """Return the document without any key."""
    stored = user_settings.settings_of(user_id) or UserSettings()
    key_is_set = SettingSecret.LLM_API_KEY in user_settings.setting_secrets(user_id)
    kept = kept_of(user_id)
    document: dict[str, Any] = {
        AGENT: {"schema_version": 9, "agent_kind": "openhands", **masked(kept.get(AGENT) or {})},
        CONVERSATION: {"schema_version": 1, **masked(kept.get(CONVERSATION) or {})},
        OTHERS: masked(kept.get(OTHERS) or {}),
        **{name: kept.get(name) for name in POINTERS},
    }
    for path, name in SETTING_AT.items():
        value = MASK if key_is_set else None
        if name != SettingSecret.LLM_API_KEY:
            value = getattr(stored, name)
        if value is None and path[0] == OTHERS:
            continue
        _put(document, path, DEFAULTS.get(name) if value is None else value)
    # A user without a model gets the operator's, whose key the user never sees.
    is_operators = not stored.llm_model and configuration.CONFIGURATION.llm_model is not None
    if is_operators:
        document[AGENT]["llm"]["model"] = configuration.CONFIGURATION.llm_model
    document[AGENT][TOOL_SERVERS] = tool_servers.shown(user_id)
    document["llm_api_key_is_set"] = key_is_set or is_operators
    return document


def kept_of(user_id: int) -> dict[str, Any]:
    """Return the members that only this document has, with their keys."""
    try:
        return user_documents.document(user_id, DocumentKind.SETTINGS)
    except DocumentNotFound:
        return {}


@transaction.atomic
def change(
    user_id: int,
    changes: Mapping[str, Mapping[str, Any]],
    *,
    pointers: Mapping[str, Any],
    settings: NewSettings | None = None,
) -> None:
    """Change the members that are named, and `settings` with them.

    Raise InvalidRequest, or what refuses a setting; then nothing is changed.
    """
    UserSettings.objects.get_or_create(user_id=user_id)
    # Each change is made of what is stored: changes take turns.
    UserSettings.objects.select_for_update().get(pk=user_id)
    _require_objects(changes)
    own: dict[str, Any] = {}
    rest = {part: dict(diff) for part, diff in changes.items()}
    for path, name in SETTING_AT.items():
        if path[0] in rest and (found := _take(rest, path)):
            (value,) = found
            # A client sends back what it was shown in the place of the key.
            if value != MASK:
                own[name] = "" if value is None and name in CLEARED_BY_BLANK else value
    if own:
        body = body_in(own, NewSettings)
        user_settings.change_settings(user_id, body.values(), secrets=body.secrets())
    if settings is not None:
        user_settings.change_settings(user_id, settings.values(), secrets=settings.secrets())
    if TOOL_SERVERS in rest.get(AGENT, {}):
        tool_servers.change(user_id, rest[AGENT].pop(TOOL_SERVERS))
    kept = kept_of(user_id)
    changed = {**merged(kept, rest), **pointers}
    # A change of V0's settings alone leaves this document as it is.
    if changed != kept:
        user_documents.store(user_id, DocumentKind.SETTINGS, changed)


def _require_objects(changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Make sure that what holds settings is an object. Raise InvalidRequest."""
    for part, *parents in {path[:-1] for path in SETTING_AT}:
        for name in parents:
            if not isinstance(changes.get(part, {}).get(name, {}), dict):
                raise _no_object(part, name)
    if not isinstance(changes.get(AGENT, {}).get(TOOL_SERVERS), dict | None):
        raise _no_object(AGENT, TOOL_SERVERS)


def _no_object(part: str, name: str) -> InvalidRequest:
    where = ["body", f"{part}_diff", name]
    return InvalidRequest([{"type": "dict_type", "loc": where, "msg": "It is an object.", "input": None}])


def _put(document: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    *parents, name = path
    for parent in parents:
        document = document.setdefault(parent, {})
    document[name] = value


def _take(document: dict[str, Any], path: tuple[str, ...]) -> tuple[Any] | None:
    """Take the value at a path out of a document; None if there is none. Objects on the way are copied."""
    *parents, name = path
    for parent in parents:
        below = document.get(parent)
        if not isinstance(below, dict):
            return None
        document[parent] = document = dict(below)
    return (document.pop(name),) if name in document else None
