"""The device authorization grant (RFC 8628): a program logs in, and a person approves it in a browser.

The program gets one of the user's API tokens. It is created when the program fetches it, so that its text is
stored nowhere.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple

from django.db import transaction
from django.utils import timezone

from conversations.exceptions import ConversationError, QuotaExceeded
from conversations.server_log import log_on_commit, printable
from sessions_app import housekeeping
from sessions_app.identity.addresses import subscriber
from sessions_app.identity.authentication import lets_everybody_in, local_user
from sessions_app.models import DeviceLogin, DeviceLoginState, Grant, Scope
from sessions_app.models.device_logins import (
    ADDRESS_MAX_LENGTH,
    LIFETIME_S,
    PROGRAM_MAX_LENGTH,
    code_digest,
)
from sessions_app.storage import usage

# Without vowels no code is a word.
LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters of user codes."""
HALF = 4
"""A user code has two halves of this many letters."""
OF_CLIENT_MAX = 20
"""At most this many logins of one subscriber wait for an answer."""
IN_ALL_MAX = 1000
"""At most this many logins are current."""
# As RFC 8628 has it, section 3.5.
SLOWED_BY_S = 5
INTERVAL_MAX_S = 60
# Networks delay one poll more than the next.
EARLY_S = 1.0
"""A poll that comes early by less than this is on time."""
DEFAULT_SCOPES = (Scope.READ, Scope.WRITE, Scope.RUN)
DEFAULT_DAYS = 90
TOKEN_NAME = "command line"  # noqa: S105 - a name, not a password


class TooManyDeviceLogins(ConversationError):
    """Too many programs wait for an answer."""

    code: ClassVar[str] = "too_many_device_logins"


class NewCodes(NamedTuple):
    """The codes of a new login; they cannot be shown again."""

    device: str
    user: str


class PollError(StrEnum):
    """Why a program gets no token (RFC 8628 §3.5, RFC 6749 §5.2)."""

    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"
    UNKNOWN = "invalid_grant"


@dataclass(frozen=True, kw_only=True, slots=True)
class NotGranted:
    """The answer to a poll that gets no token."""

    error: PollError
    detail: str
    interval_s: int | None = None
    """How long the program has to wait from now on; only with SLOW_DOWN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The answer to the one poll that gets the token."""

    token: str
    expires_at: datetime | None


UNKNOWN = NotGranted(error=PollError.UNKNOWN, detail="This device code is unknown or was used already.")
DENIED = NotGranted(error=PollError.DENIED, detail="The login was denied.")
EXPIRED = NotGranted(error=PollError.EXPIRED, detail="The login was not approved in time. Start it again.")


def begin(address: str, program: str) -> NewCodes:
    """Store a new login of a program at this address, and return its codes. Raise TooManyDeviceLogins.

    Where no credentials are required, it is approved at once: every client is the local user already, and
    could create this token and larger ones by itself.
    """
    client = subscriber(address)
    # Not exact where several processes count at the same time, which the bounds allow for.
    if DeviceLogin.objects.waiting().of_client(client).count() >= OF_CLIENT_MAX:
        raise TooManyDeviceLogins("Too many logins from this address wait for an answer. Try again later.")
    if DeviceLogin.objects.current().count() >= IN_ALL_MAX:
        raise TooManyDeviceLogins("Too many programs are logging in at the moment. Try again later.")
    codes = NewCodes(device=secrets.token_urlsafe(32), user=_unused_user_code())
    with transaction.atomic():
        row = DeviceLogin.objects.create(
            device_digest=code_digest(codes.device),
            user_digest=code_digest(codes.user),
            address=address[:ADDRESS_MAX_LENGTH],
            client=client,
            program=printable(program, limit=PROGRAM_MAX_LENGTH)[:PROGRAM_MAX_LENGTH],
            expires_at=timezone.now() + timedelta(seconds=LIFETIME_S),
        )
        if lets_everybody_in():
            user_pk = local_user().pk
            usage.locked(user_pk)
            approve(row, user_pk, default_grant(), name=usage.free_name(user_pk, TOKEN_NAME))
    return codes


def poll(device_code: str) -> Granted | NotGranted:
    """Return the token if the login was approved, otherwise why there is none; the token is given once."""
    row = DeviceLogin.objects.of_device(device_code).select_related("user").first()
    if row is None or row.state == DeviceLoginState.USED:
        return UNKNOWN
    if row.state == DeviceLoginState.DENIED:
        return DENIED
    now = timezone.now()
    if row.expires_at <= now:
        return EXPIRED
    if row.state == DeviceLoginState.APPROVED:
        return _granted(row)
    if row.polled_at is not None and (now - row.polled_at).total_seconds() < row.interval_s - EARLY_S:
        return _slowed_down(row)
    DeviceLogin.objects.filter(pk=row.pk).update(polled_at=now)
    return NotGranted(error=PollError.PENDING, detail="Nobody has approved the login yet.")


def called(user_code: str, user_pk: int) -> DeviceLogin | None:
    """Return the login with this user code, in its normal form, that the user can answer or has approved."""
    return DeviceLogin.objects.shown_to(user_pk).of_user_code(user_code).first()


def approve(row: DeviceLogin, user_pk: int, grant: Grant, *, name: str) -> bool:
    """Approve a login, whose program can then fetch a token; return False if it was answered or expired.

    Raise TokenNameTaken or QuotaExceeded.
    """
    with transaction.atomic():
        usage.require_free_name(user_pk, name)
        usage.require_room_for_token(user_pk)
        return _answer(
            row,
            "Program's login approved",
            state=DeviceLoginState.APPROVED,
            user_id=user_pk,
            token_name=name,
            token_scopes=" ".join(grant.scopes),
            token_expires_at=grant.expires_at,
        )


def deny(row: DeviceLogin, user_pk: int) -> bool:
    """Refuse the program's login; False if it was answered or expired before."""
    with transaction.atomic():
        return _answer(row, "Program's login denied", state=DeviceLoginState.DENIED, user_id=user_pk)


def default_grant() -> Grant:
    """Return what a program gets unless the person chooses otherwise."""
    return Grant(scopes=DEFAULT_SCOPES, expires_at=timezone.now() + timedelta(days=DEFAULT_DAYS))


def normal_user_code(text: str) -> str | None:
    """Return a typed user code as it is shown; None if it cannot be one."""
    letters = "".join(each for each in text.upper() if each not in "- \t")
    is_code = len(letters) == 2 * HALF and set(letters) <= set(LETTERS)
    return f"{letters[:HALF]}-{letters[HALF:]}" if is_code else None


def prune() -> int:
    """Delete some of the ended logins; return how many."""
    return housekeeping.prune(DeviceLogin.objects.ended())


def _unused_user_code() -> str:
    while True:
        letters = "".join(secrets.choice(LETTERS) for _ in range(2 * HALF))
        code = f"{letters[:HALF]}-{letters[HALF:]}"
        if not DeviceLogin.objects.of_user_code(code).exists():
            return code


def _answer(row: DeviceLogin, act: str, **values: object) -> bool:
    """Store a person's answer, unless another one came first."""
    is_first = bool(DeviceLogin.objects.pending().filter(pk=row.pk).update(**values))
    if is_first:
        log_on_commit(act, user=values["user_id"], address=row.address or None)
    return is_first


def _granted(row: DeviceLogin) -> Granted | NotGranted:
    """Create the token, unless another poll has done so."""
    if row.user is None or not row.user.is_active:
        return DENIED
    grant = Grant(scopes=[Scope(each) for each in row.token_scopes.split()], expires_at=row.token_expires_at)
    try:
        with transaction.atomic():
            approved = DeviceLogin.objects.filter(pk=row.pk, state=DeviceLoginState.APPROVED)
            if not approved.update(state=DeviceLoginState.USED):
                return UNKNOWN  # another poll was first: the token is given once
            usage.locked(row.user.pk)
            name = usage.free_name(row.user.pk, row.token_name)
            _, text = usage.issue_token(row.user.pk, name, grant)
    except QuotaExceeded as error:
        return NotGranted(error=PollError.DENIED, detail=str(error))
    return Granted(token=text, expires_at=grant.expires_at)


def _slowed_down(row: DeviceLogin) -> NotGranted:
    interval_s = min(row.interval_s + SLOWED_BY_S, INTERVAL_MAX_S)
    if interval_s != row.interval_s:
        DeviceLogin.objects.filter(pk=row.pk).update(interval_s=interval_s)
    detail = f"Poll every {interval_s} seconds."
    return NotGranted(error=PollError.SLOW_DOWN, detail=detail, interval_s=interval_s)
