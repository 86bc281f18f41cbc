"""The model that was chosen for a conversation, or for its next message alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from django.db import transaction

from conversations.log import reads
from conversations.models import ConversationRef
from sessions_app.models import RunOptions
from sessions_app.settings import agent_setups, model_providers, run_options, setup_keys


class ChosenModel(NamedTuple):
    """A model, and how it is asked; the first three are empty and the last is None for the defaults."""

    model: str = ""
    provider: str = ""
    """The name of the owner's provider; empty for the server of the settings."""
    reasoning_effort: str = ""
    temperature: float | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `_asdict` gave, of this release or another one."""
        return cls(**{name: stored[name] for name in cls._fields if name in stored})


def chosen_for(conversation: ConversationRef) -> ChosenModel:
    """Return the model of a conversation."""
    return of_options(run_options.options_of(conversation))


def of_options(options: RunOptions) -> ChosenModel:
    """Return the model that these options choose."""
    return ChosenModel(options.model.strip(), options.provider, options.reasoning_effort, options.temperature)


def next_of(options: RunOptions) -> ChosenModel | None:
    """Return the model that these options choose for the next message alone, if any."""
    return ChosenModel.of(options.for_next_message) if options.for_next_message else None


def mask(conversation: ConversationRef, key: str) -> None:
    """Mask the key of a provider in the events of a conversation. Raise TooManySecrets."""
    if keys := setup_keys.keys_of({"api_key": key}):
        agent_setups.add_keys(conversation, keys)


@transaction.atomic
def choose(conversation: ConversationRef, chosen: ChosenModel, *, is_for_next: bool = False) -> None:
    """Choose a model for the next turns, or only for the one that answers the next message.

    Raise ConversationNotFound, ProviderNotFound or TooManySecrets; then nothing has changed.
    """
    if chosen.provider:
        # Masked before the model is asked: tools may print it.
        mask(conversation, model_providers.provider(conversation.owner_id, chosen.provider).key)
    if is_for_next:
        after = reads.last_seq(conversation)
        run_options.change(conversation, {"for_next_message": {**chosen._asdict(), "after": after}})
    else:
        run_options.change(conversation, chosen._asdict())


def forget_next(conversation: ConversationRef) -> None:
    """Answer the next message with the model of the conversation."""
    run_options.change(conversation, {"for_next_message": None})


def take_next(conversation: ConversationRef, through: int) -> dict[str, Any] | None:
    """Return the model of the turn that begins, and forget it, if it was chosen for one of its messages.

    Call it under the conversation's lock, in the transaction that stores it with the turn.
    """
    row = RunOptions.objects.of(conversation).filter(for_next_message__isnull=False)
    stored: dict[str, Any] | None = row.values_list("for_next_message", flat=True).first()
    if stored is None or through <= stored["after"]:  # what the turn answers was said before the choice
        return None
    row.update(for_next_message=None)
    return stored
