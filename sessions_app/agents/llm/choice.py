"""The model of a conversation: the one chosen for it, or that of its start, its owner or the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings

from conversations.dialects import columns
from conversations.models import Conversation, ConversationRef
from conversations.store import changes
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.llm import names
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import DEFAULT_MODEL, SecretKind
from sessions_app.settings import (
    agent_setups,
    chosen_models,
    model_notes,
    model_providers,
    run_options,
    user_settings,
)
from sessions_app.settings.chosen_models import ChosenModel
from sessions_app.settings.model_notes import ModelName, ModelPrice
from sessions_app.settings.model_providers import ProviderNotFound
from sessions_app.settings.user_settings import SettingSecret, TooManySecrets

NO_KEY_FOR_CHOSEN = (
    "There is no key for the model `{model}`, which was chosen for this conversation: a key is used only "
    "with the provider that it was entered for. Choose another model, or enter this one and its key in "
    "Settings."
)
TOLD = "model_told"
"""The parameter of a conversation whose user knows that the recorded model does not answer."""
RECORDED_MAX_CHARS = 200
KEY_UNREADABLE = "The saved key of the model can't be read any more. Enter it again in Settings."


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """The name of a model, with the key and the server that were entered with it."""

    model: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    is_operators: bool = False
    """Whether it is the operator's: its address may then be private."""
    is_listed: bool = False
    """Whether the name is the server's own, in which no part names a provider."""
    reasoning_effort: str = ""
    temperature: float | None = None
    price: ModelPrice | None = None
    """The price that the user has entered."""

    @property
    def has_access(self) -> bool:
        """Return whether a key or a server was entered."""
        return bool(self.key or self.base_url)


def model_of(
    conversation: ConversationRef, turn_model: Mapping[str, Any] | None = None
) -> ModelChoice | None:
    """Return the model of a conversation, or of one turn; None without one. Raise AgentFailure."""
    chosen = chosen_models.chosen_for(conversation) if turn_model is None else ChosenModel.of(turn_model)
    if chosen.provider:
        found: ModelChoice | None = _of_provider(conversation, chosen)
    else:
        found = _of_settings(conversation, chosen.model)
    if found is None:
        return None
    name = ModelName(chosen.provider, found.model)
    return replace(
        found,
        reasoning_effort=chosen.reasoning_effort,
        temperature=chosen.temperature,
        price=None if found.is_operators else model_notes.notes_of(conversation.owner_id).prices.get(name),
    )


def _of_provider(conversation: ConversationRef, chosen: ChosenModel) -> ModelChoice:
    try:
        found = model_providers.provider(conversation.owner_id, chosen.provider)
        # The key may be another one than when the provider was chosen.
        chosen_models.mask(conversation, found.key)
    except (ProviderNotFound, TooManySecrets) as error:
        raise AgentFailure(str(error), code="LLMAuthenticationError") from error
    if chosen.model == found.model:  # as a V1 client wrote it
        return ModelChoice(model=found.model, base_url=found.base_url, key=found.key)
    return ModelChoice(model=chosen.model, base_url=found.server, key=found.key, is_listed=True)


def _of_settings(conversation: ConversationRef, chosen: str) -> ModelChoice | None:
    """Return the model of this name at a server that is known without a provider, or the one of no name.

    A chosen model uses the key and server of the start or, if these do not fit, of the owner; otherwise
    AgentFailure. A start's model without key and base URL is asked at the owner's server, if the owner set a
    base URL or has the same provider; otherwise the owner's model answers.
    """
    # The model in the conversation's row is only a label of its recorded history.
    started = _of_start(conversation)
    if chosen:
        return _chosen(chosen, started, model_of_user(conversation.owner_id))
    if started is not None and started.has_access:
        return started
    usual = model_of_user(conversation.owner_id)
    if usual is None:
        # Ollama has a server of its own on this machine.
        needs_no_key = started is not None and names.parts_of(started.model)[0] == "ollama"
        return started if needs_no_key else None
    if started is None or usual.is_operators or not usual.has_access:
        return usual
    is_served = usual.base_url or names.are_of_one_provider(started.model, usual.model)
    return replace(usual, model=started.model) if is_served else usual


def named_for(conversation: ConversationRef) -> str:
    """Return the model that was chosen for a conversation, or that of its start; empty without one."""
    chosen = run_options.model_of(conversation)
    started = None if chosen else _of_start(conversation)
    return started.model if started is not None else chosen


def untold_record(conversation: ConversationRef, used: str) -> str:
    """Return the recorded model of the history, if it is not the used one and the user does not know yet."""
    row = Conversation.objects.filter(pk=conversation.pk)
    found = row.values_list("llm_model", "creation_parameters__parameters").first()
    model, parameters = found or (None, None)
    recorded = " ".join((model or "").replace("`", "").split())  # for a notice in Markdown
    if recorded in ("", DEFAULT_MODEL) or TOLD in (parameters or {}):
        return ""
    return "" if names.parts_of(recorded)[1] == names.parts_of(used)[1] else recorded[:RECORDED_MAX_CHARS]


def note_told(conversation: ConversationRef) -> None:
    """Store that the user knows which model answers instead of the recorded one."""
    changes.set_parameter_once(conversation, TOLD, True)


def _chosen(model: str, *known: ModelChoice | None) -> ModelChoice:
    """Return the chosen model at the first server whose key may be used for it."""
    for each in known:
        if each is None or not each.has_access:
            continue
        if each.model == model:
            return each
        if not each.is_operators and (each.base_url or names.are_of_one_provider(model, each.model)):
            return replace(each, model=model)
    if names.parts_of(model)[0] == "ollama":
        return ModelChoice(model=model)
    raise AgentFailure(NO_KEY_FOR_CHOSEN.format(model=model), code="LLMAuthenticationError")


def model_of_user(user_id: int) -> ModelChoice | None:
    """Return the model of a user's new conversations; None without one. Raise AgentFailure."""
    return _of_owner(user_id) or _of_server()


def _of_start(conversation: ConversationRef) -> ModelChoice | None:
    """Return the `llm` of a V1 client's agent."""
    try:
        llm = columns.fields(agent_setups.agent_of(conversation).get("llm"))
    except SecretUnreadable as error:
        raise AgentFailure(KEY_UNREADABLE, code="LLMAuthenticationError") from error
    model, base_url, key = (
        columns.first_text(llm.get(name)).strip() for name in ("model", "base_url", "api_key")
    )
    if not model or model == DEFAULT_MODEL:
        return None
    # A client may have sent back the mask that it was shown.
    return ModelChoice(model=model, base_url=base_url, key="" if key.strip("*") == "" else key)


def _of_owner(user_id: int) -> ModelChoice | None:
    stored = user_settings.settings_of(user_id)
    model = (stored.llm_model or "").strip() if stored else ""
    if stored is None or not model:
        return None
    try:
        key = user_settings.secret_value(user_id, SecretKind.SETTING, name=SettingSecret.LLM_API_KEY)
    except SecretUnreadable as error:
        raise AgentFailure(KEY_UNREADABLE, code="LLMAuthenticationError") from error
    return ModelChoice(model=model, base_url=(stored.llm_base_url or "").strip(), key=(key or "").strip())


def _of_server() -> ModelChoice | None:
    configuration = settings.CONFIGURATION
    if configuration.llm_model is None:
        return None
    return ModelChoice(
        model=configuration.llm_model,
        base_url=configuration.llm_base_url or "",
        key=configuration.llm_api_key or "",
        is_operators=True,
    )
