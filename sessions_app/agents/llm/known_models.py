"""What a kept table knows of models: the size of their context, and their prices.

Imported late (`library`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices


class KnownModel(NamedTuple):
    """A model in the table; None for what it does not say."""

    context: int | None = None
    """Tokens."""
    read: float | None = None
    """US dollars per million tokens that it reads, and `written` for those that it writes."""
    written: float | None = None


def known(base_url: str, names: Sequence[str]) -> list[KnownModel]:
    """Return what is known of the models of a server; nothing at an address that the table does not have."""
    return [_known(base_url, name) for name in names]


def _known(base_url: str, name: str) -> KnownModel:
    with suppress(LookupError, ValueError, ArithmeticError):
        # By the address: a free model of a local server may have the same name.
        _, model = get_snapshot().find_provider_model(name, None, None, base_url)
        price = model.get_prices(datetime.now(UTC))
        return KnownModel(model.context_window, _least(price.input_mtok), _least(price.output_mtok))
    return KnownModel()


def _least(price: object) -> float | None:
    """Return a price, of several that of the shortest requests."""
    found = price.base if isinstance(price, TieredPrices) else price
    return None if found is None else float(str(found))
