"""The deletion of a person: the account is closed and loses its names at once, the rest goes in steps.

The row of the account stays without names, since tombstones of conversations and the admin's log refer to
it. Any process may continue an unfinished deletion.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string

from conversations.models import Conversation, Purge
from conversations.server_log import log_act, log_on_commit
from conversations.store import copying, purging
from sessions_app.identity.authentication import LOCAL_USERNAME
from sessions_app.imports.uploads import runs
from sessions_app.models import ImportRun, UserDeletion
from sessions_app.retention import places
from sessions_app.retention.failures import RetentionFailures

REASON = "its owner was deleted"


class UserNotDeletable(Exception):
    """This user cannot be deleted; the message has the reason."""


def check(user: User) -> None:
    """Raise UserNotDeletable for a user whom the server needs."""
    if settings.CONFIGURATION.auth == "local" and user.username == LOCAL_USERNAME:
        raise UserNotDeletable("Local mode needs this user. Purge its conversations instead.")
    others = User.objects.filter(is_active=True, is_superuser=True).exclude(pk=user.pk)
    if user.is_superuser and not others.exists():
        raise UserNotDeletable("This is the only superuser. Create another one first.")


def begin(user: User, *, requested_by: str) -> UserDeletion:
    """Close the account and remove its names; `go_on` does the rest. A repeat changes nothing.

    Raise UserNotDeletable.
    """
    with transaction.atomic():
        row = User.objects.select_for_update().get(pk=user.pk)
        deletion, is_new = UserDeletion.objects.get_or_create(
            user=row, defaults={"requested_by": requested_by}
        )
        if not is_new:
            return deletion
        check(row)
        _forget_names(row, _free_name(row))
        row.groups.clear()
        row.user_permissions.clear()
        row.save()  # its signals close sockets, rotate keys and stop agents
        log_on_commit("User deletion begun", user=row.pk, by=requested_by)
    return deletion


def go_on(limit: int, failures: RetentionFailures) -> int:
    """Continue all deletions: remove the users' rows, and begin at most `limit` purges.

    Return how many purges were begun. Failures are recorded, and the other deletions continue.
    """
    begun = 0
    for deletion in UserDeletion.objects.under_way(places.LATE).select_related("user"):
        with failures.noted("user", str(deletion.user_id)):
            begun += _go_on(deletion, limit - begun, failures)
    return begun


def is_any_unfinished() -> bool:
    return UserDeletion.objects.filter(finished_at=None).exists()


def _go_on(deletion: UserDeletion, limit: int, failures: RetentionFailures) -> int:
    user = deletion.user
    for run in ImportRun.objects.filter(user=user):
        runs.cancel(run)
        runs.forget(run)
    # Before the purges, which may take long: settings, secrets and tokens go at once.
    while places.remove_some_of_user(user):
        pass
    copying.give_up_all(user.pk, reason=REASON)  # they are hidden, so no purge would find them
    begun = _begin_purges(deletion, limit, failures)
    if deletion.finished_at is None and not begun and not _is_anything_left(user):
        UserDeletion.objects.filter(pk=deletion.pk).update(finished_at=timezone.now())
        log_act("User deleted", user=user.pk, by=deletion.requested_by)
    return begun


def _begin_purges(deletion: UserDeletion, limit: int, failures: RetentionFailures) -> int:
    owned, by = Conversation.objects.owned_by(deletion.user_id), deletion.requested_by
    begun = 0
    for row in owned.unpurged().order_by("pk")[:limit]:
        with failures.noted("conversation", row.public_id):
            purge = purging.begin(row.ref, among=owned, requested_by=by, reason=REASON)
            begun += purge is not None
    return begun


def _is_anything_left(user: User) -> bool:
    return (
        ImportRun.objects.filter(user=user).exists()
        or Conversation.objects.owned_by(user.pk).unpurged().exists()
        or Purge.objects.unfinished().filter(conversation__owner=user).exists()
    )


def _free_name(user: User) -> str:
    """Return a name made of the account's number only."""
    # A user may have chosen such a name.
    name = f"deleted-{user.pk}"
    while User.objects.filter(username=name).exists():
        name = f"deleted-{user.pk}-{get_random_string(6).lower()}"
    return name


def _forget_names(user: User, name: str) -> None:
    """Replace the names of the account in its row and in the records of other rows."""
    of_user: Any = ContentType.objects.get_for_model(User)
    LogEntry.objects.filter(content_type=of_user, object_id=str(user.pk)).update(object_repr=name)
    Purge.objects.filter(requested_by=user.username).update(requested_by=name)
    UserDeletion.objects.filter(requested_by=user.username).update(requested_by=name)
    user.username = name
    user.first_name = user.last_name = user.email = ""
    user.last_login = None
    user.is_active = user.is_staff = user.is_superuser = False
    user.set_unusable_password()
