"""Signed checkpoints: the state of every log at a time, so that even a rewritten chain is noticed.

A checkpoint is a file of JSON lines. The first line is the header. Each further line covers up to 2,000
events of one log: the chain's digest at their end, a digest of the facts outside the chain, and three bytes
of both digests for each event, which locate a difference. The last two lines are the totals and the
signature.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from conversations.models import Conversation, DamageKind
from conversations.verification import facts
from conversations.verification.damage import Damage, DamageList
from conversations.verification.rows import (
    Batch,
    LogHead,
    between,
    heads_of,
    stretches,
)
from conversations.verification.signatures import Key
from conversations.verification.store import VerificationStep

FORMAT, VERSION = "convserver-checkpoint", 1
TAG = 3  # bytes of either digest that a line has of each event

EXAMINED = frozenset({DamageKind.REWRITTEN, DamageKind.FACTS, DamageKind.GONE})


class CheckpointRefused(Exception):
    """The file is no trusted checkpoint; the text says why."""


class Stretch(NamedTuple):
    """Digests of consecutive events of a log."""

    first: int
    end: int  # the place after the last one; there are fewer `events` if one was missing already
    events: int
    head: str  # the digest of the last of them; that of an empty log is empty
    facts: str
    tags: bytes  # of each event TAG bytes of its digest in the chain, then TAG bytes of that of its facts

    @classmethod
    def of(cls, head: LogHead, first: int, end: int) -> Stretch:
        """Read a stretch of a log, from a place up to but not including another."""
        events, digest, whole, tags = 0, "", sha256(), bytearray()
        for page in between(head.pk, first, end, facts.columns()):
            for row in page:
                events, digest, own = events + 1, facts.chained(row), facts.digest_of(row)
                whole.update(own)
                tags += _tag(digest) + own[:TAG]
        return cls(first, end, events, digest, whole.hexdigest(), bytes(tags))


def write(target: BinaryIO, key: Key) -> Iterator[VerificationStep]:
    """Write a checkpoint of all logs, step by step. Raise KeyUnusable."""
    key.sign(b"")  # fail before anything is read
    signed, conversations, events, above = sha256(), 0, 0, 0
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    _write(target, signed, {"format": FORMAT, "version": VERSION, "made_at": made_at})
    while (batch := Batch.after(above, Conversation.objects.all())) is not None:
        for head in batch.heads:
            if head.is_purged:
                continue
            conversations += 1
            # An empty log has one stretch, too: the checkpoint is to show that it was there.
            for first, end in list(stretches(head)) or [(0, 0)]:
                stretch = Stretch.of(head, first, end)
                events += stretch.events
                tags = base64.b64encode(stretch.tags).decode()
                line = {"conversation": head.public_id, **stretch._asdict(), "tags": tags}
                _write(target, signed, line)
                yield VerificationStep(events=stretch.events)
        above = batch.through
        yield VerificationStep(conversations=sum(not head.is_purged for head in batch.heads))
    _write(target, signed, {"conversations": conversations, "events": events})
    _write(target, sha256(), {"key": key.name, "signature": key.sign(signed.digest())})


def compare(path: Path, key: Key) -> Iterator[VerificationStep]:
    """Compare all logs with a checkpoint, step by step. Raise CheckpointRefused before the first."""
    made_at = require_signed(path, key)
    with path.open("rb") as source:
        lines = (json.loads(line) for line in source)
        stretches = (line for line in lines if "conversation" in line)
        rewritten = ""
        while some := list(islice(stretches, 200)):
            for step in _compared(some, made_at):
                # The rest of the same log is another history, too: report it once.
                again = bool(step.found) and step.found[0].conversation_id == rewritten != ""
                yield step._replace(found=[]) if again else step
                if any(damage.problem is DamageKind.REWRITTEN for damage in step.found):
                    rewritten = step.found[0].conversation_id


def _write(target: BinaryIO, signed: Any, line: dict[str, Any]) -> None:
    text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    signed.update(text)
    target.write(text)


def require_signed(path: Path, key: Key) -> str:
    """Return when a checkpoint was made. Raise CheckpointRefused unless it is whole and signed by the key."""
    try:
        return _signed_at(path, key)
    except OSError as error:
        raise CheckpointRefused(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointRefused(f"{path} is not a checkpoint.") from error


def _signed_at(path: Path, key: Key) -> str:
    signed, last = sha256(), b""
    first: dict[str, Any] = {}
    with path.open("rb") as source:
        for line in source:
            signed.update(last)
            last = line
            first = first or json.loads(line)
    if first["format"] != FORMAT:
        raise CheckpointRefused(f"{path} is not a checkpoint.")
    if first["version"] != VERSION:
        raise CheckpointRefused(f"{path} is a checkpoint of another version: {first['version']}.")
    signature = json.loads(last)
    if not key.has_signed(signed.digest(), signature["signature"]):
        raise CheckpointRefused(
            f"{path} was changed, or signed by another key: it names {signature['key']}, this is {key.name}."
        )
    return str(first["made_at"])


def _compared(lines: Sequence[dict[str, Any]], made_at: str) -> Iterator[VerificationStep]:
    ids = {line["conversation"] for line in lines}
    heads = {head.public_id: head for head in heads_of(Conversation.objects.with_public_ids(ids))}
    for line in lines:
        head = heads.get(line["conversation"])
        if head is None:
            detail = f"The conversation {line['conversation']} is in the checkpoint of {made_at}, and gone."
            yield VerificationStep(found=() if line["first"] else [Damage.of_none(DamageKind.GONE, detail)])
        elif not head.is_purged:
            yield VerificationStep(found=list(_differences(head, line, made_at)))


def _differences(head: LogHead, line: dict[str, Any], made_at: str) -> DamageList:
    found = DamageList(head.pk, head.public_id)
    first, then = line["first"], base64.b64decode(line["tags"])
    now = Stretch.of(head, first, line["end"])
    checkpoint = f"in the checkpoint of {made_at}"
    if (now.head, now.events) != (line["head"], line["events"]):
        pairs = zip(_tags(now.tags), _tags(then), strict=False)
        differing = (at for at, (one, other) in enumerate(pairs) if one[:TAG] != other[:TAG])
        # Without one, the shorter log is a beginning of the other.
        seq = first + next(differing, min(len(now.tags), len(then)) // (2 * TAG))
        found.add(
            DamageKind.REWRITTEN, seq, f"From event {seq} on the history is another one than {checkpoint}."
        )
    elif now.facts != line["facts"]:
        pairs = zip(_tags(now.tags), _tags(then), strict=True)
        places = [first + at for at, (one, other) in enumerate(pairs) if one[TAG:] != other[TAG:]]
        for seq in places or [first]:
            found.add(
                DamageKind.FACTS,
                seq,
                f"Event {seq} has another time, cause, epoch or other fact than {checkpoint}.",
            )
    return found


def _tag(digest: str) -> bytes:
    """Return the first bytes of a digest; of the text's hash if the text is no digest."""
    try:
        return bytes.fromhex(digest[: 2 * TAG]).rjust(TAG, b"\0")
    except ValueError:
        return sha256(digest.encode(errors="surrogateescape")).digest()[:TAG]


def _tags(tags: bytes) -> Iterator[bytes]:
    return (tags[at : at + 2 * TAG] for at in range(0, len(tags), 2 * TAG))
