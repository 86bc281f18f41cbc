"""Records that a user's access was reduced, wherever the framework does it: AccessRemoval.

Changes without these signals (SQL, `update`) are found by the slow check of each open socket.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.hashers import get_hasher, identify_hasher
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models.signals import post_delete, post_save, pre_save

from sessions_app.models.access import AccessRemoval, announce_removal

_RIGHTS = ("is_active", "is_staff", "is_superuser")
_WATCHED = ("password", *_RIGHTS)


def follow() -> None:
    """Record changed passwords, users with fewer rights, and logouts from now on."""
    for signal, receiver, sender in (
        (pre_save, _user_changes, User),
        (post_save, _user_changed, User),
        (post_delete, _user_deleted, User),
        (post_delete, _login_ended, Session),
    ):
        signal.connect(receiver, sender=sender, dispatch_uid=f"convserver.access.{receiver.__name__}")


def _user_changes(
    instance: User, *, update_fields: Collection[str] | None = None, raw: bool = False, **others: object
) -> None:
    is_about_access = update_fields is None or not set(update_fields).isdisjoint(_WATCHED)
    # Read before the save, which overwrites it.
    stored = None
    if is_about_access and instance.pk is not None and not raw:
        stored = User.objects.filter(pk=instance.pk).values(*_WATCHED).first()
    has_new_password = (
        stored is not None
        and stored["password"] not in ("", instance.password)
        and not _is_rehashed(stored["password"], instance, update_fields)
    )
    lost = [name for name in _RIGHTS if stored is not None and stored[name] and not getattr(instance, name)]
    # Noted once the save has worked.
    changed: Any = instance
    changed.access_reduced = bool(lost) or has_new_password
    changed.rotates_keys = "is_active" in lost or has_new_password


def _is_rehashed(stored: str, instance: User, update_fields: Collection[str] | None) -> bool:
    """Return whether the password is the same under a newer hash, as a login stores it."""
    # The framework then writes this field alone, without the text that `set_password` leaves, and only if
    # the stored hash is outdated.
    is_by_login = update_fields is not None and set(update_fields) == {"password"}
    has_text = getattr(instance, "_password", None) is not None
    return is_by_login and not has_text and _is_outdated(stored) and not _is_outdated(instance.password)


def _is_outdated(encoded: str) -> bool:
    try:
        hasher = identify_hasher(encoded)
    except ValueError:
        return False
    preferred = get_hasher()
    return hasher.algorithm != preferred.algorithm or preferred.must_update(encoded)


def _user_changed(instance: User, **others: object) -> None:
    if getattr(instance, "access_reduced", False):
        AccessRemoval.note(instance.pk, rotates_keys=getattr(instance, "rotates_keys", False))


def _user_deleted(instance: User, **others: object) -> None:
    announce_removal(instance.pk)


def _login_ended(instance: Session, **others: object) -> None:
    # A deleted user has no row to note it at, and `_user_deleted` has announced the end.
    user_id = instance.get_decoded().get(SESSION_KEY)
    if user_id is not None and User.objects.filter(pk=user_id).exists():
        AccessRemoval.note(int(user_id))
