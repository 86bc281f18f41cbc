"""Requests that may be repeated: under one key something is created once, and answered as the first time.

As the IETF draft "The Idempotency-Key HTTP Header Field" has it. The answer is recorded in the transaction
that creates, so that a crash leaves both or neither.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from conversations import commits, sql
from conversations.engines.lost_commits import LostCommit
from conversations.exceptions import ConversationBusy, ConversationError
from conversations.log import LOCK_TIMEOUT_S
from sessions_app.encryption import seal
from sessions_app.idempotency_models import KEY_MAX_LENGTH, RecordedAnswer

PRUNED_MAX = 1000
"""At most this many expired answers are removed at a time."""

FORM = r'"(?:\\["\\]|[ !#-\[\]-~])+"|[!#-+\--~]+'
"""A string in quotes, as the draft writes keys, or as most clients do, the same without quotes."""
_FORM = re.compile(FORM)
_ESCAPED = re.compile(r'\\(["\\])')


class InvalidIdempotencyKey(ConversationError):
    """What the header says cannot be a key."""

    code: ClassVar[str] = "invalid_idempotency_key"


class IdempotencyKeyReused(ConversationError):
    """The key was used for a request with another body."""

    code: ClassVar[str] = "idempotency_key_reused"


class IdempotencyKey(NamedTuple):
    """Which request of which user is repeated."""

    user_id: int
    route: str
    text: str


class Answer(NamedTuple):
    """What a request is answered: a status, and a body of JSON."""

    status: int
    body: Any
    is_recorded: bool = True
    """False for a failure that the next request under the key may mend: nothing is recorded of it."""


def key_in(header: str) -> str:
    """Return the key that an Idempotency-Key header names. Raise InvalidIdempotencyKey."""
    header = header.strip()
    if len(header) > KEY_MAX_LENGTH or not _FORM.fullmatch(header):
        raise InvalidIdempotencyKey(
            f"An Idempotency-Key has 1 to {KEY_MAX_LENGTH} printable ASCII characters, such as a UUID; one "
            "with spaces, commas or quotes stands in quotes."
        )
    return _ESCAPED.sub(r"\1", header[1:-1]) if header.startswith('"') else header


def recorded(key: IdempotencyKey, sent: Any) -> Answer | None:
    """Return what the request was answered when it came first; None if it was not, or too long ago.

    `sent` is the body's JSON. Raise IdempotencyKeyReused if something else was sent then; SecretUnreadable.
    """
    row = RecordedAnswer.objects.to(*key).kept(timezone.now()).first()
    return None if row is None else _opened(row, sent)


def answered_once(key: IdempotencyKey, sent: Any, create: Callable[[], Answer]) -> Answer:
    """Return what `create` answers, recorded in the transaction that it runs in, or what was recorded.

    Of several at once the others wait for the one that creates; after a failure, which records nothing, the
    next one creates. A failure that is raised undoes what `create` has stored, one that is answered keeps it.
    Where a commit is lost, the key tells what became of it: nothing is created twice. Raise
    IdempotencyKeyReused, SecretUnreadable, ConversationBusy after LOCK_TIMEOUT_S, or LostCommit if the
    database does not say for LOOK_UP_S what became of a commit.
    """
    try:
        return _answered_once(key, sent, create)
    except LostCommit as error:
        return _looked_up(key, sent, create, error)


def _looked_up(key: IdempotencyKey, sent: Any, create: Callable[[], Answer], lost: LostCommit) -> Answer:
    """Repeat what was lost in a commit until the database answers: a commit that was done left the key."""
    until = time.monotonic() + commits.LOOK_UP_S
    while True:
        commits.drop_broken_connections()
        try:
            return _answered_once(key, sent, create)
        except (OperationalError, InterfaceError, ConversationBusy) as error:
            if time.monotonic() > until:
                raise lost from error
        time.sleep(commits.AGAIN_S)


def _answered_once(key: IdempotencyKey, sent: Any, create: Callable[[], Answer]) -> Answer:
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
    """Remove answers that count no longer; return how many, PRUNED_MAX at the most."""
    rows = RecordedAnswer.objects.expired(now or timezone.now()).order_by("created_at")
    pks = list(rows.values_list("pk", flat=True)[:PRUNED_MAX])
    return RecordedAnswer.objects.filter(pk__in=pks).delete()[0] if pks else 0


def _claimed(key: IdempotencyKey) -> tuple[RecordedAnswer, bool]:
    """Insert the key's row, which makes all others with this key wait until the transaction ends."""
    rows = RecordedAnswer.objects.to(*key)
    if connection.vendor == "postgresql":
        sql.limit_lock_wait(LOCK_TIMEOUT_S)
    try:
        rows.expired(timezone.now()).delete()
        return RecordedAnswer.objects.get_or_create(
            user_id=key.user_id, route=key.route, key=key.text, defaults={"sealed": seal("{}")}
        )
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise ConversationBusy(
                "The request that came first under this key is still being carried out: try again."
            ) from error
        raise


def _opened(row: RecordedAnswer, sent: Any) -> Answer:
    answer = json.loads(row.sealed.open())
    if answer["sent"] != _digest(sent):
        raise IdempotencyKeyReused(
            "This Idempotency-Key was used for a request with another body: a new request needs a new key."
        )
    return Answer(answer["status"], answer["body"])


def _digest(sent: Any) -> str:
    """Return a digest of a body's JSON, in whatever order its members stand."""
    try:
        return sha256(json.dumps(sent, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise InvalidIdempotencyKey(
            "The body is nested too deeply to be compared: leave the Idempotency-Key out."
        ) from None
