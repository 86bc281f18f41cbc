"""Requests that may be repeated: a key creates once, and repeats get the answer of the first request.

Follows the IETF draft "The Idempotency-Key HTTP Header Field". The answer is recorded in the transaction
that creates, so a crash leaves both or neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from django.db import Error, OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from conversations.engines.lost_commits import LostCommit
from conversations.events import ConversationRef
from conversations.exceptions import ConversationBusy, ConversationError
from conversations.log import commits, sql
from conversations.log.append import LOCK_TIMEOUT_S
from sessions_app import housekeeping
from sessions_app.encryption import SecretUnreadable, seal
from sessions_app.models.idempotency import KEY_MAX_LENGTH, RecordedAnswer

ID_NAMES = ("id", "conversation_id", "app_conversation_id")
"""The wires' names for the id of a conversation in an answer that creates one."""

FORM = r'"(?:\\["\\]|[ !#-\[\]-~])+"|[!#-+\--~]+'
"""A quoted string, as in the draft, or without quotes, as most clients write it."""
_FORM = re.compile(FORM)
_ESCAPED = re.compile(r'\\(["\\])')


class InvalidIdempotencyKey(ConversationError):
    """The header's value is not a valid key."""

    code: ClassVar[str] = "invalid_idempotency_key"


class IdempotencyKeyReused(ConversationError):
    """The key was used for a request with another body."""

    code: ClassVar[str] = "idempotency_key_reused"


class IdempotencyKey(NamedTuple):
    """The repeatable request of a user."""

    user_id: int
    route: str
    text: str


class RepeatableAnswer(NamedTuple):
    """The answer to a request: a status, and a body of JSON."""

    status: int
    body: Any
    is_recorded: bool = True
    """False for a failure that must not be repeated to later requests."""


def key_in(header: str) -> str:
    """Return the key that an Idempotency-Key header names. Raise InvalidIdempotencyKey."""
    header = header.strip()
    if len(header) > KEY_MAX_LENGTH or not _FORM.fullmatch(header):
        raise InvalidIdempotencyKey(
            f"An Idempotency-Key has 1 to {KEY_MAX_LENGTH} printable ASCII characters, such as a UUID; one "
            "with spaces, commas or quotes stands in quotes."
        )
    return _ESCAPED.sub(r"\1", header[1:-1]) if header.startswith('"') else header


def recorded(key: IdempotencyKey, sent: Any) -> RepeatableAnswer | None:
    """Return the answer to the first request with the key; None without one, or after its expiry.

    `sent` is the body's JSON. Raise IdempotencyKeyReused if the first body was another, and
    SecretUnreadable.
    """
    row = RecordedAnswer.objects.to(*key).kept(timezone.now()).first()
    return None if row is None else _opened(row, sent)


def answered_once(key: IdempotencyKey, sent: Any, create: Callable[[], RepeatableAnswer]) -> RepeatableAnswer:
    """Return the recorded answer, or that of `create`, recorded in the transaction in which it runs.

    Of several requests at once, one creates and the others wait. A failure records nothing, so the next
    one creates. A failure that is raised undoes what `create` has stored; one that is answered keeps it.
    After a lost commit, the key shows its outcome, so nothing is created twice. Raise
    IdempotencyKeyReused, SecretUnreadable, ConversationBusy after LOCK_TIMEOUT_S, or LostCommit if the
    database does not show the outcome of a commit for LOOK_UP_S.
    """
    try:
        return _answered_once(key, sent, create)
    except LostCommit as error:
        return _looked_up(key, sent, create, error)


def _looked_up(
    key: IdempotencyKey, sent: Any, create: Callable[[], RepeatableAnswer], lost: LostCommit
) -> RepeatableAnswer:
    """Retry after a lost commit until the database answers: a successful commit left the key.

    A read-only session shows the key, and cannot claim it.
    """

    def again() -> RepeatableAnswer:
        commits.drop_broken_connections()
        return recorded(key, sent) or _answered_once(key, sent, create)

    passing = Error, ConversationBusy
    try:
        return commits.until_answered(again, is_passing=lambda error: isinstance(error, passing))
    except passing as error:
        raise lost from error


def _answered_once(
    key: IdempotencyKey, sent: Any, create: Callable[[], RepeatableAnswer]
) -> RepeatableAnswer:
    digest = _digest(sent)
    with transaction.atomic():
        row, is_new = _claimed(key)
        if not is_new:
            return _opened(row, sent)
        answer = create()
        if not answer.is_recorded:
            row.delete()
            return answer
        text = json.dumps({"sent": digest, "status": answer.status, "body": answer.body})
        RecordedAnswer.objects.filter(pk=row.pk).update(sealed=seal(text))
    return answer


def prune(now: datetime | None = None) -> int:
    """Remove some of the expired answers; return how many."""
    expired = RecordedAnswer.objects.expired(now or timezone.now())
    return housekeeping.prune(expired.order_by("created_at"))


def forget(conversation: ConversationRef) -> None:
    """Remove recorded answers about a conversation: by its address or its id."""
    names = _spellings(conversation.public_id)
    rows = RecordedAnswer.objects.filter(user_id=conversation.owner_id)
    for row in rows.iterator(chunk_size=50):
        if names.intersection(row.route.split("/")) or _is_about(row, names):
            row.delete()


def _spellings(public_id: str) -> set[str]:
    """Return the id as it is stored, and as the V1 wire writes it."""
    is_uuid = len(public_id) == 32 and public_id.isalnum() and public_id.isascii()
    ends = (8, 12, 16, 20)
    dashed = "-".join(public_id[start:end] for start, end in pairwise((0, *ends, 32)))
    return {public_id, dashed} if is_uuid else {public_id}


def _is_about(row: RecordedAnswer, names: set[str]) -> bool:
    """Return whether the answer has created the conversation; an unreadable one may have."""
    try:
        body = json.loads(row.sealed.open()).get("body")
    except SecretUnreadable:
        return True
    return isinstance(body, dict) and any(body.get(name) in names for name in ID_NAMES)


def _claimed(key: IdempotencyKey) -> tuple[RecordedAnswer, bool]:
    """Insert the key's row; all other requests with this key then wait for the transaction."""
    rows = RecordedAnswer.objects.to(*key)
    if connection.vendor == "postgresql":
        sql.limit_lock_wait(LOCK_TIMEOUT_S)
    try:
        rows.expired(timezone.now()).delete()  # not pruned yet, it would keep the key from a new request
        return RecordedAnswer.objects.get_or_create(
            user_id=key.user_id, route=key.route, key=key.text, defaults={"sealed": seal("{}")}
        )
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise ConversationBusy(
                "The request that came first under this key is still being carried out: try again."
            ) from error
        raise


def _opened(row: RecordedAnswer, sent: Any) -> RepeatableAnswer:
    answer = json.loads(row.sealed.open())
    if answer["sent"] != _digest(sent):
        raise IdempotencyKeyReused(
            "This Idempotency-Key was used for a request with another body: a new request needs a new key."
        )
    return RepeatableAnswer(answer["status"], answer["body"])


def _digest(sent: Any) -> str:
    """Return a digest of a body's JSON that does not depend on the order of its members."""
    try:
        return sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise InvalidIdempotencyKey(
            "The body is nested too deeply to be compared: leave the Idempotency-Key out."
        ) from None
