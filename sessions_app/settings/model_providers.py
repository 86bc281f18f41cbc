"""A user's servers of models, each with a key: the profiles that V1 clients store, too."""

from __future__ import annotations

from typing import NamedTuple, Self

from conversations.dialects import columns
from conversations.exceptions import ConversationError
from sessions_app.models import DocumentKind
from sessions_app.outbound.model_trial import KNOWN_SERVERS
from sessions_app.settings import model_notes, user_documents
from sessions_app.settings.user_documents import DocumentNotFound
from sessions_app.settings.user_settings import ModelKeyWanted, host_of

KIND = DocumentKind.MODEL_PROFILE


class ProviderNotFound(ConversationError):
    """The user has no provider of this name."""

    code = "provider_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The provider “{name}” is not in your settings any more. Choose another model.")


class ProvidersFull(ConversationError):
    """The user has as many providers as one can have."""

    code = "too_many_providers"


class ModelProvider(NamedTuple):
    """A server of models."""

    name: str
    base_url: str
    key: str
    model: str = ""
    """The model of a V1 client's profile, as OpenHands names models; its server may be told by it alone."""

    @classmethod
    def of(cls, name: str, llm: dict[str, object]) -> Self:
        """Return the provider that a stored profile is."""
        base_url, key, model = (
            columns.first_text(llm.get(each)).strip() for each in ("base_url", "api_key", "model")
        )
        return cls(name, base_url, key, model)

    @property
    def server(self) -> str:
        """Return the address that is asked; empty if the profile does not say it."""
        return self.base_url or KNOWN_SERVERS.get(self.model.partition("/")[0], "")


def providers_of(user_id: int) -> list[ModelProvider]:
    """Return the user's providers, by name."""
    stored = user_documents.documents(user_id, KIND)
    return [ModelProvider.of(name, llm) for name, llm in stored.items()][:20]


def provider(user_id: int, name: str) -> ModelProvider:
    """Return one provider. Raise ProviderNotFound."""
    try:
        return ModelProvider.of(name, user_documents.document(user_id, KIND, name))
    except DocumentNotFound:
        raise ProviderNotFound(name) from None


def add(user_id: int, name: str, *, base_url: str, key: str) -> None:
    """Store a new provider. Raise DocumentExists or ProvidersFull."""
    present = user_documents.documents(user_id, KIND)
    if name in present:
        raise user_documents.DocumentExists("You already have a provider with this name.")
    # The menu of models asks each of them for its list.
    if len(present) >= 20:
        raise ProvidersFull("You can have at most 20 providers. Remove one first.")
    user_documents.store(user_id, KIND, {"base_url": base_url, "api_key": key or None}, name=name)


def change(user_id: int, name: str, *, base_url: str, key: str | None) -> None:
    """Store another address and key; None keeps the key. Raise ProviderNotFound or ModelKeyWanted."""
    before = provider(user_id, name)
    # Anyone who changes the address without knowing the key would get the key sent there.
    if key is None and before.key and host_of(before.server) != host_of(base_url):
        raise ModelKeyWanted("The base URL names another server. Enter its API key, or remove the key.")
    llm = user_documents.document(user_id, KIND, name)
    llm |= {"base_url": base_url, "api_key": before.key if key is None else key}
    user_documents.store(user_id, KIND, {**llm, "api_key": llm["api_key"] or None}, name=name)


def remove(user_id: int, name: str) -> bool:
    """Delete a provider with its favourites and prices; return whether there was one."""
    model_notes.forget_provider(user_id, name)
    return user_documents.remove(user_id, KIND, name)
