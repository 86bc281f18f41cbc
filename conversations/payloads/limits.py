"""Limits of a visitor who came by less than a login: what is beyond them looks like not there."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

_ATTRIBUTE = "_conversation_limits"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the visitor may reach of the user's conversations."""

    only: int | None = None
    """The key of the one conversation; None for all."""
    may_create: bool = True
    """Whether joining an unknown id makes a conversation."""


UNLIMITED = Limits()


def limit(user: AbstractBaseUser, limits: Limits) -> None:
    """Limit what this object, which stands for one request or socket of the user, may reach."""
    setattr(user, _ATTRIBUTE, limits)


def limits_of(user: AbstractBaseUser | AnonymousUser) -> Limits:
    """Return the limits of a visitor."""
    found: Limits = getattr(user, _ATTRIBUTE, UNLIMITED)
    return found
