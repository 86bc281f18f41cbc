"""The models that a user can choose, by server, as the menu shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from convserver.event_loop import in_loop
from sessions_app.agents.llm import library, names
from sessions_app.outbound.model_lists import ListedModel, ModelServer, lists_of
from sessions_app.settings import model_keys, model_notes, model_providers
from sessions_app.settings.chosen_models import ChosenModel
from sessions_app.settings.model_notes import ModelName, ModelNotes, ModelPrice
from sessions_app.settings.model_providers import ModelProvider

OF_SETTINGS = "Your settings"


class ShownModel(NamedTuple):
    """One model of the menu."""

    value: str
    """Its provider, a slash, and its name there."""
    name: str
    facts: str
    is_favourite: bool
    is_chosen: bool


class ModelGroup(NamedTuple):
    """The models of one server, or why they are not listed."""

    title: str
    models: Sequence[ShownModel]
    problem: str = ""


class ModelMenu(NamedTuple):
    """All that can be chosen."""

    servers: Sequence[ModelGroup]
    left_out: int
    """The number of models that only a search finds."""


def name_in(value: str) -> ModelName:
    """Return the model that a value of the menu names; no provider's name has a slash."""
    provider, _, model = value.partition("/")
    return ModelName(provider, model)


def menu_of(user_id: int, chosen: ChosenModel, *, query: str = "", is_fresh: bool = False) -> ModelMenu:
    """Return the models of the user's providers whose names contain the query."""
    providers = [*_of_settings(user_id), *model_providers.providers_of(user_id)]
    notes = model_notes.notes_of(user_id)
    asked = [ModelServer(each.server, each.key) for each in providers]
    words = query.casefold().split()
    servers, favourites, left_out = [], [], 0
    room = 300  # models in all; a search finds the others
    for provider, (listed, problem) in zip(
        providers, in_loop(lists_of, user_id, asked, is_fresh=is_fresh), strict=True
    ):
        rows = list(_with_facts(provider, _all_of(provider, listed, notes, chosen)))
        shown = [_shown(provider, row, notes, chosen) for row in rows]
        found = [each for each in shown if all(word in each.value.casefold() for word in words)]
        favourites += [each for each in found if each.is_favourite]
        others = [each for each in found if not each.is_favourite]
        servers.append(ModelGroup(provider.name or OF_SETTINGS, others[:room], problem))
        left_out += max(0, len(others) - room)
        room = max(0, room - len(others))
    if favourites:
        servers.insert(0, ModelGroup("Favourites", favourites))
    return ModelMenu(servers, left_out)


def known_price(user_id: int, name: ModelName) -> ModelPrice | None:
    """Return the price that a table has for a model, which comes before the one that a user enters."""
    for provider in [*_of_settings(user_id), *model_providers.providers_of(user_id)]:
        if provider.name == name.provider:
            [row] = _with_facts(provider, [ListedModel(name.model)])
            return None if row.read is None or row.written is None else ModelPrice(row.read, row.written)
    return None


def _of_settings(user_id: int) -> Iterator[ModelProvider]:
    """Yield the server of the settings as a provider without a name, if there is one."""
    provider = ModelProvider.of("", dict(model_keys.of_settings(user_id)))
    if provider.server:
        yield provider


def _all_of(
    provider: ModelProvider, listed: Sequence[ListedModel], notes: ModelNotes, chosen: ChosenModel
) -> list[ListedModel]:
    """Return what a server lists, with what is known of it without its list."""
    rows = {row.name: row for row in (each._replace(name=_name(provider, each.name)) for each in listed)}
    kept = [provider.model, *(each.model for each in notes.favourites if each.provider == provider.name)]
    if chosen.provider == provider.name:
        kept.append(chosen.model)
    return [*(ListedModel(each) for each in dict.fromkeys(kept) if each and each not in rows), *rows.values()]


def _name(provider: ModelProvider, listed: str) -> str:
    """Return the name by which a listed model is chosen."""
    if provider.name:
        return listed
    # The settings name models as OpenHands does, where a known beginning names the wire.
    if provider.base_url and names.parts_of(listed) == ("", listed):
        return listed
    return f"{names.parts_of(provider.model)[0] or 'openai'}/{listed}"


def _with_facts(provider: ModelProvider, rows: Sequence[ListedModel]) -> Iterable[ListedModel]:
    """Yield the models with what a table knows and their server does not say."""
    own = [row.name if provider.name else names.parts_of(row.name)[1] for row in rows]
    for row, known in zip(rows, in_loop(library.known_of, provider.server, own), strict=True):
        yield row._replace(
            context=row.context or known.context,
            read=known.read if known.read is not None else row.read,
            written=known.written if known.written is not None else row.written,
        )


def _shown(provider: ModelProvider, row: ListedModel, notes: ModelNotes, chosen: ChosenModel) -> ShownModel:
    name = ModelName(provider.name, row.name)
    entered = notes.prices.get(name)
    read, written = (row.read, row.written) if row.read is not None or entered is None else entered
    facts = [
        "" if row.context is None else f"{_tokens(row.context)} context",
        "price unknown" if read is None or written is None else f"${read:,.2f} in, ${written:,.2f} out",
    ]
    return ShownModel(
        value="/".join(name),
        name=row.name,
        facts=" · ".join(filter(None, facts)),
        is_favourite=name in notes.favourites,
        is_chosen=name == (chosen.provider, chosen.model),
    )


def _tokens(number: int) -> str:
    """Return a number of tokens, shortened as providers write it."""
    if number >= 1_000_000:
        return f"{number / 1_000_000:.3g}M"
    return f"{number / 1000:.3g}k" if number >= 1000 else str(number)
