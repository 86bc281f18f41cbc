"""Which model answers in a conversation: what its start, its owner or the server's operator has named."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from django.conf import settings

from conversations.dialects import columns
from conversations.events import Dialect
from conversations.models import Conversation, ConversationRef
from conversations.store import changes
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.llm import names
from sessions_app.encryption import SecretUnreadable
from sessions_app.models import AgentSetup, SecretKind
from sessions_app.models.v1 import DEFAULT_MODEL
from sessions_app.settings import run_options, user_settings
from sessions_app.settings.user_settings import SettingSecret

NO_KEY_FOR_CHOSEN = (
    "There is no key for the model `{model}`, which was chosen for this conversation: a key is used only "
    "with the provider that it was entered for. Choose another model, or enter this one and its key in "
    "Settings."
)
TOLD = "model_told"
"""The parameter of a conversation whose user knows that another model answers than the recorded one."""
RECORDED_MAX_CHARS = 200
KEY_UNREADABLE = "The saved key of the model can't be read any more. Enter it again in Settings."


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """A model as somebody has named it, with the key and the server that were named with it."""

    model: str
    base_url: str = ""
    key: str = field(default="", repr=False)
    is_operators: bool = False
    """Whether the server's operator named it: its address may then be a private one."""

    @property
    def has_access(self) -> bool:
        """Say whether more is known than the name."""
        return bool(self.key or self.base_url)


def model_of(conversation: ConversationRef) -> ModelChoice | None:
    """Return the model of a conversation; None if nobody has named one. Raise AgentFailure.

    A key is used only with the server that it was entered for, so a start that brings neither key nor base
    URL gets its model from the owner's provider, if that is the same one. A model that was chosen for the
    conversation is asked where one of these would be, or not at all. The model that the conversation's row
    names is a label: a history was recorded with it, elsewhere or under other settings.
    """
    chosen = run_options.model_of(conversation)
    started = _of_start(conversation)
    if chosen:
        return _chosen(chosen, started, model_of_user(conversation.owner_id))
    if started is not None and started.has_access:
        return started
    usual = model_of_user(conversation.owner_id)
    if usual is None:
        needs_no_key = started is not None and names.parts_of(started.model)[0] == "ollama"
        return started if needs_no_key else None
    if started is None or usual.is_operators or not usual.has_access:
        return usual
    is_served = usual.base_url or names.are_of_one_provider(started.model, usual.model)
    return replace(usual, model=started.model) if is_served else usual


def named_for(conversation: ConversationRef) -> str:
    """Return the model that was chosen for a conversation or named by its start; empty if none was."""
    chosen = run_options.model_of(conversation)
    started = None if chosen else _of_start(conversation)
    return started.model if started is not None else chosen


def untold_record(conversation: ConversationRef, used: str) -> str:
    """Return the model that the history was recorded with, if it is another one and the user is to be told.

    Empty if the used one has the same name, or no history was recorded elsewhere.
    """
    row = Conversation.objects.filter(pk=conversation.pk)
    columns = ("llm_model", "creation_parameters__parameters")
    model, parameters = row.values_list(*columns).first() or (None, None)
    recorded = " ".join(_text(model).replace("`", "").split())
    if recorded in ("", DEFAULT_MODEL) or TOLD in (parameters or {}):
        return ""
    return "" if names.parts_of(recorded)[1] == names.parts_of(used)[1] else recorded[:RECORDED_MAX_CHARS]


def note_told(conversation: ConversationRef) -> None:
    """Keep that the user knows which model answers instead of the recorded one."""
    changes.set_parameter_once(conversation, TOLD, True)


def _chosen(model: str, *known: ModelChoice | None) -> ModelChoice:
    """Return the model that was chosen for a conversation, at the first server that it may be asked at."""
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
    """Return the model of a user's new conversations; None if nobody has named one. Raise AgentFailure."""
    return _of_owner(user_id) or _of_server()


def _of_start(conversation: ConversationRef) -> ModelChoice | None:
    """Return what a V1 client sent as its agent's `llm`."""
    if conversation.dialect is not Dialect.V1:
        return None
    setup = AgentSetup.objects.filter(pk=conversation.pk).only("sealed_agent").first()
    if setup is None:
        return None
    try:
        agent = json.loads(setup.sealed_agent.open())
    except SecretUnreadable as error:
        raise AgentFailure(KEY_UNREADABLE, code="LLMAuthenticationError") from error
    llm = columns.fields(columns.fields(agent).get("llm"))
    model, base_url, key = (_text(llm.get(name)) for name in ("model", "base_url", "api_key"))
    if not model or model == DEFAULT_MODEL:
        return None
    return ModelChoice(model=model, base_url=base_url, key="" if key.strip("*") == "" else key)


def _of_owner(user_id: int) -> ModelChoice | None:
    stored = user_settings.settings_of(user_id)
    if stored is None or not _text(stored.llm_model):
        return None
    try:
        key = user_settings.secret_value(user_id, SecretKind.SETTING, name=SettingSecret.LLM_API_KEY)
    except SecretUnreadable as error:
        raise AgentFailure(KEY_UNREADABLE, code="LLMAuthenticationError") from error
    return ModelChoice(model=_text(stored.llm_model), base_url=_text(stored.llm_base_url), key=_text(key))


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


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
