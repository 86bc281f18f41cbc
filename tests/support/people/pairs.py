"""Pairs of users for the rows of a table: what one row changes is none of another's business."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex

from django.contrib.auth.models import User

from sessions_app.models import ApiToken


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """An owner and a stranger, with a token each."""

    owner: User
    stranger: User
    tokens: dict[str, str]
    """By `owner` and `stranger`."""
    token_id: str
    """The public id of the owner's token."""


def new_pair() -> Pair:
    """Store two users whom no other row has."""
    name = token_hex(8)
    owner, stranger = (User.objects.create_user(f"{who}-{name}") for who in ("owner", "stranger"))
    row, text = ApiToken.issue(owner.pk, "laptop")
    tokens = {"owner": text, "stranger": ApiToken.issue(stranger.pk, "laptop")[1]}
    return Pair(owner=owner, stranger=stranger, tokens=tokens, token_id=str(row.public_id))
