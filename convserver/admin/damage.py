"""The banner of the admin's first page about damage of the store."""

from __future__ import annotations

from typing import NamedTuple

from django.utils.safestring import SafeString

from conversations.models import Conversation, VerificationFinding
from convserver.admin import cells

LINKS_SHOWN = 5
COUNTED_MAX = 1_000


class DamageBanner(NamedTuple):
    """What is said about damage."""

    text: str
    links: list[SafeString]
    """To the conversations, those first where damage was found last."""


def banner() -> DamageBanner | None:
    """Return what to say about damage that was found and is not mended; None when there is none."""
    newest = list(VerificationFinding.objects.order_by("-pk").values_list("conversation")[: COUNTED_MAX + 1])
    if not newest:
        return None
    count = len(newest)
    places = "1 place" if count == 1 else f"{min(count, COUNTED_MAX):,} places"
    more = "More than " if count > COUNTED_MAX else ""
    pks = list(dict.fromkeys(pk for (pk,) in newest if pk is not None))[:LINKS_SHOWN]
    rows = Conversation.objects.in_bulk(pks)
    return DamageBanner(
        f"The store is damaged in {more.lower()}{places}.", [cells.link(rows[pk]) for pk in pks]
    )
