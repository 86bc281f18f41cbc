"""The models that servers list, asked side by side, and kept for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

from cachetools import TTLCache

from conversations.dialects import columns
from sessions_app.outbound.model_trial import InvalidBaseUrl, ServerFault, checked_base_url, listed, opened

NO_LIST = "The server has no list of models (404). Check the base URL; most end with /v1."
# As OpenRouter, vLLM, LM Studio and llama.cpp name it.
_CONTEXT = ("context_length", "max_model_len", "loaded_context_length", "max_context_length", "n_ctx_train")


class ListedModel(NamedTuple):
    """A model as its server lists it; None for what the server does not say."""

    name: str
    context: int | None = None
    """Tokens."""
    read: float | None = None
    """US dollars per million tokens that it reads, and `written` for those that it writes."""
    written: float | None = None


class ModelServer(NamedTuple):
    """A server to ask for its list."""

    base_url: str
    key: str


class ServerModels(NamedTuple):
    """The list of a server, or why there is none."""

    models: Sequence[ListedModel] = ()
    problem: str = ""


# 500 lists, each for 60 s.
_kept: TTLCache[tuple[int, str, bytes], ServerModels] = TTLCache(500, 60)
_lock = Lock()


async def lists_of(
    user_id: int, servers: Sequence[ModelServer], *, is_fresh: bool = False
) -> list[ServerModels]:
    """Return the lists of a user's servers, in their order; `is_fresh` asks each again. Raise nothing."""
    places = asyncio.Semaphore(5)  # each list takes memory while it is read

    async def one(server: ModelServer) -> ServerModels:
        # By the key too: another one may open other models.
        name = user_id, server.base_url, sha256(server.key.encode()).digest()
        with _lock:
            known = None if is_fresh else _kept.get(name)
        if known is None:
            async with places:
                known = await _asked(server)
            with _lock:
                _kept[name] = known
        return known

    return await asyncio.gather(*map(one, servers))


async def _asked(server: ModelServer) -> ServerModels:
    try:
        async with opened(checked_base_url(server.base_url), server.key) as client:
            rows = await listed(client)
    except (ServerFault, InvalidBaseUrl) as error:
        return ServerModels(problem=str(error))
    if rows is None:
        return ServerModels(problem=NO_LIST)
    # The largest known list has half as many.
    return ServerModels(list(_read(rows))[:1000])


def _read(rows: Sequence[Mapping[str, Any]]) -> Iterable[ListedModel]:
    """Return the models by name, each once, without names that cannot be stored."""
    by_name = {row["id"]: row for row in rows}
    for name in sorted(by_name, key=str.casefold):
        # An option of a conversation holds 200 characters.
        if not name.strip() or len(name) > 200 or columns.clean(name) != name:
            continue
        row = by_name[name]
        prices = columns.fields(row.get("pricing"))
        sizes = {**columns.fields(row.get("meta")), **row}
        yield ListedModel(
            name,
            next((size for each in _CONTEXT if (size := _count(sizes.get(each)))), None),
            _per_million(prices.get("prompt")),
            _per_million(prices.get("completion")),
        )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 2**53 else None


def _per_million(price: object) -> float | None:
    """Return the price of a million tokens from that of one, which OpenRouter writes as a text."""
    with suppress(TypeError, ValueError):
        dollars = float(str(price)) * 1e6
        if 0 <= dollars < 1e6:
            return round(dollars, 6)
    return None
