"""Limits of a visitor with less than a login: everything beyond them looks nonexistent."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

_ATTRIBUTE = "_conversation_limits"


@dataclass(frozen=True, kw_only=True, slots=True)
class VisitorLimits:
    """What the visitor may reach of the user's conversations."""

    only: int | None = None  # the key of the one conversation; None for all
    may_create: bool = True  # whether joining an unknown id makes a conversation


UNLIMITED = VisitorLimits()


def limit(user: AbstractBaseUser, limits: VisitorLimits) -> None:
    """Limit what the bearer of this user object, one request or socket, may reach."""
    setattr(user, _ATTRIBUTE, limits)


def limits_of(user: AbstractBaseUser | AnonymousUser) -> VisitorLimits:
    found: VisitorLimits = getattr(user, _ATTRIBUTE, UNLIMITED)
    return found
