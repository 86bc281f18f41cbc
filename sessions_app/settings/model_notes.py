"""What a user has noted about models: favourites, and the prices of those that no table knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from django.db import transaction

from sessions_app.models import DocumentKind, UserSettings
from sessions_app.settings import user_documents
from sessions_app.settings.user_documents import DocumentNotFound, DocumentRefused

KIND = DocumentKind.MODEL_NOTES


class ModelPrice(NamedTuple):
    """US dollars per million tokens."""

    read: float
    written: float


class ModelName(NamedTuple):
    """A model at one of the user's providers; the empty provider is the server of the settings."""

    provider: str
    model: str


class ModelNotes(NamedTuple):
    """All notes of a user."""

    favourites: Sequence[ModelName] = ()
    prices: dict[ModelName, ModelPrice] = {}

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Self:
        """Return what `stored` has made."""
        return cls(
            [ModelName(*each) for each in stored["favourites"]],
            {ModelName(*names): ModelPrice(*price) for names, price in stored["prices"]},
        )

    def stored(self) -> dict[str, Any]:
        """Return them as JSON."""
        return {"favourites": list(self.favourites), "prices": list(self.prices.items())}


def notes_of(user_id: int) -> ModelNotes:
    """Return the user's notes."""
    try:
        return ModelNotes.of(user_documents.document(user_id, KIND))
    except DocumentNotFound:
        return ModelNotes()


def toggle_favourite(user_id: int, name: ModelName) -> None:
    """Add a model to the favourites, or take it out. Raise DocumentRefused."""
    with transaction.atomic():
        notes = _locked(user_id)
        others = [each for each in notes.favourites if each != name]
        is_new = len(others) == len(notes.favourites)
        _store(user_id, notes._replace(favourites=[*others, name] if is_new else others))


def set_price(user_id: int, name: ModelName, price: ModelPrice | None) -> None:
    """Store the price of a model, or forget it. Raise DocumentRefused."""
    with transaction.atomic():
        notes = _locked(user_id)
        others = {each: known for each, known in notes.prices.items() if each != name}
        _store(user_id, notes._replace(prices=others if price is None else {**others, name: price}))


def forget_provider(user_id: int, provider: str) -> None:
    """Forget what is noted of a provider's models."""
    with transaction.atomic():
        notes = _locked(user_id)
        kept = ModelNotes(
            [each for each in notes.favourites if each.provider != provider],
            {each: price for each, price in notes.prices.items() if each.provider != provider},
        )
        if kept != notes:
            _store(user_id, kept)


def _locked(user_id: int) -> ModelNotes:
    """Return the notes, which no other change reads until the transaction ends."""
    UserSettings.objects.get_or_create(user_id=user_id)
    UserSettings.objects.select_for_update().get(pk=user_id)
    return notes_of(user_id)


def _store(user_id: int, notes: ModelNotes) -> None:
    # Each start of a turn opens them.
    if max(len(notes.favourites), len(notes.prices)) > 200:
        raise DocumentRefused("You can have at most 200 favourites and 200 prices. Remove one first.")
    user_documents.store(user_id, KIND, notes.stored())
