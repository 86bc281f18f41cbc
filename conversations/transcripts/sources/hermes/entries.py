"""The nodes of a conversation before they are read: rows, and other members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes import copies, rows
from conversations.transcripts.sources.hermes.copies import DATABASE, JOURNAL, Copy, Lost, Row
from conversations.transcripts.sources.hermes.heads import FROM, Branch, Head, TakenRow
from conversations.transcripts.sources.hermes.journals import Run
from conversations.transcripts.sources.nodes import Kept, Node, Part, Record, ToolCall, ToolResult, rest_of

INACTIVE = "the program had taken it out of the conversation"
REPEATED = "the row before it says the same"
REPLACED = "a later row is the same answer, further on"
WAITING = "was being answered"
STILL_WRITTEN = "it is still being written"
ONLY_IN_TURN_JOURNAL = "only the turn journal has it"
FROM_A_CARD = "only the program's screen had it"
FOREIGN_ID = "the id in the file is another one"
DAMAGED_LINES = "lines of the run journal are damaged"


@dataclass(kw_only=True, slots=True)
class Entry:
    """A node that is not read yet."""

    digest: str
    place: str
    # Read what it is made of. Raise Unreadable.
    load: Callable[[], object]
    # Make the parts of that, and of the node's id.
    parts: Callable[[object, str], tuple[Part, ...]] = rows.parts
    at: Callable[[object], datetime | None] = rows.at
    noted: tuple[str, ...] = ()
    skipped: str = ""
    is_row: bool = False  # whether it is a row of the conversation
    is_said: bool = False
    is_damaged: bool = False
    node_id: str = ""

    def node(self) -> Node:
        """Read the node. Raise Unreadable."""
        value = self.load()
        at = self.at(value)
        noted = (*self.noted, *rows.noted(value))
        if self.skipped:
            return Node(node_id=self.node_id, place=self.place, at=at, skipped=self.skipped, noted=noted)
        parts = self.parts(value, self.node_id)
        return Node(node_id=self.node_id, place=self.place, at=at, parts=parts, noted=noted)


def number(own: Sequence[Entry], shared: Sequence[Entry]) -> None:
    """Give each entry an id: its digest, and the number of equal entries before it.

    A skipped entry has another id than a stored one, as it may be stored later.
    """
    counted = Counter(map(_numbered, shared))
    for entry in own:
        name = _numbered(entry)
        counted[name] += 1
        entry.node_id = f"{name}-{counted[name]}"


def _numbered(entry: Entry) -> str:
    return f"{entry.digest}-skipped" if entry.skipped else entry.digest


def of_head(head: Head, answer: Run | None, *, is_growing: bool) -> list[Entry]:
    left = [replace(_of_row(taken), is_row=False) for taken in head.left]
    if head.is_deleted:
        return left
    found = _with_cards(_with_lost(_of_rows(head.rows), head.copy), head)
    found += _of_pending(head, answer, is_growing=is_growing)
    found += left
    if head.unread:
        digest = rows.digest_of(["backup", head.unread])
        found.append(Entry(digest=digest, place="backup", load=lambda: None, skipped=head.unread))
    found.append(_of_session(head.copy, head.rows, is_growing=is_growing))
    if head.newest is not None and all(head.newest is not branch.copy for branch in head.branches):
        found += [_of_lost(lost, head.newest) for lost in head.newest.lost]
        found.append(_of_session(head.newest, head.rows, is_growing=is_growing))
    return found


def of_branch(branch: Branch, *, is_growing: bool) -> list[Entry]:
    """Return the entries of the continuation in another copy."""
    found = _with_lost(_of_rows(branch.rows), branch.copy, start=branch.shared)
    found.append(_of_session(branch.copy, branch.rows, is_growing=is_growing))
    return found


def of_prompts(prompts: Sequence[Mapping[str, object]], head: Head, *, is_growing: bool) -> list[Entry]:
    """Return the prompts that no copy has, as records: their places in the conversation are unknown."""
    lists = [head.rows, head.left, *(branch.rows for branch in head.branches)]
    there = {taken.row.facts.digest for each in lists for taken in each}
    there |= {row.facts.digest for row in _pending_rows(head)}
    name, found = "prompt of turn journal", []
    for place, prompt in enumerate(prompts, 1):
        told = {"role": "user", "content": prompt["content"], "timestamp": prompt.get("created_at")}
        if copies.row_of(told, place).facts.digest not in there:
            found.append(
                _kept(
                    name,
                    f"turn journal {place}",
                    partial(dict, prompt),
                    [name, dict(prompt)],
                    noted=(ONLY_IN_TURN_JOURNAL,),
                    is_said=True,
                    is_growing=is_growing,
                )
            )
    return found


def overlap(above: Sequence[str], below: Sequence[str], *, is_fork: bool) -> tuple[int, int]:
    """Return how much a conversation shares with the one above, and how many of its own rows repeat that.

    A fork begins with what both have. A continuation begins with all of the one above, or with its end, or
    follows it.
    """
    pairs = zip(above, below, strict=False)
    same = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(above), len(below)))
    if is_fork or same == len(above):
        return same, same
    ends = range(min(len(above), len(below)), 0, -1)
    repeated = next((count for count in ends if list(above[-count:]) == list(below[:count])), 0)
    return (len(above), repeated) if repeated >= same else (same, same)


def _of_rows(taken: Sequence[TakenRow]) -> list[Entry]:
    found = [_of_row(each) for each in taken]
    last = {each.row.facts.item_id: place for place, each in enumerate(taken) if each.row.facts.item_id}
    before = ""
    for place, (each, entry) in enumerate(zip(taken, found, strict=True)):
        facts = each.row.facts
        if facts.partial and facts.partial == before:
            entry.skipped = entry.skipped or REPEATED
        elif facts.item_id and last[facts.item_id] != place:
            entry.skipped = entry.skipped or REPLACED
        before = facts.partial
    return found


def _of_row(taken: TakenRow) -> Entry:
    row, origin = taken.row, taken.copy.origin
    skipped = taken.skipped or (INACTIVE if row.is_inactive else "")
    entry = _beside(row, f"{origin} row {row.number}".strip(), noted=taken.noted, skipped=skipped)
    return replace(entry, is_row=True)


def _beside(row: Row, place: str, *, noted: tuple[str, ...] = (), skipped: str = "") -> Entry:
    return Entry(
        digest=row.facts.digest,
        place=place,
        load=row.load,
        noted=noted,
        skipped=skipped,
        is_said=row.facts.is_said,
    )


def _kept(
    name: str,
    place: str,
    load: Callable[[], object],
    digested: object,
    *,
    noted: tuple[str, ...] = (),
    is_said: bool = False,
    is_growing: bool,
) -> Entry:
    """Return what is stored unchanged, once the conversation no longer grows: until then it may change."""
    return Entry(
        digest=rows.digest_of(digested),
        place=place,
        load=load,
        parts=lambda value, _: (Record(name=name, value=value, why=Kept.BOOKKEEPING),),
        at=lambda _: None,  # an earlier time than that of the last row would become the conversation's
        noted=noted,
        skipped=STILL_WRITTEN if is_growing else "",
        is_said=is_said,
    )


def _with_lost(found: list[Entry], copy: Copy, start: int = 0) -> list[Entry]:
    """Put damaged bytes where they were."""
    for lost in reversed(copy.lost):
        found.insert(max(lost.before - start, 0), _of_lost(lost, copy))
    return found


def _of_lost(lost: Lost, copy: Copy) -> Entry:
    return Entry(
        digest=rows.digest_of([lost.start, lost.end, lost.why]),
        place=f"{copy.origin} {lost.place}".strip(),
        load=lost.parts,
        parts=lambda parts, _: parts if isinstance(parts, tuple) else (),
        at=lambda _: None,
        noted=(lost.why,),
        is_damaged=True,
    )


def _with_cards(found: list[Entry], head: Head) -> list[Entry]:
    """Put the calls that only the screen had after the rows with which they were shown."""
    known = {call_id for taken in head.rows for call_id in taken.row.facts.call_ids}
    silent = {taken.row.number for taken in head.rows if not taken.row.facts.call_ids}
    after: dict[int, list[Entry]] = {}
    for row in head.copy.cards:
        card = columns.fields(row.load())
        shown_with = card.get("assistant_msg_idx")
        number = shown_with + 1 if isinstance(shown_with, int) else -1
        tid = columns.first_text(card.get("tid"))
        if tid not in known if tid else (number in silent or number < 1):
            entry = _beside(row, f"card {row.number}", noted=(FROM_A_CARD,))
            after.setdefault(number, []).append(replace(entry, parts=_card_parts, is_said=True))
    if not after:
        return found
    placed: list[Entry] = []
    count = 0
    for entry in found:
        placed.append(entry)
        count += entry.is_row
        placed += after.pop(count, []) if entry.is_row else []
    return [*placed, *(entry for rest in after.values() for entry in rest)]


def _card_parts(value: object, node_id: str) -> tuple[Part, ...]:
    card = columns.fields(value)
    tool = columns.first_text(card.get("name"))
    if not tool:
        return (Record(name="card", value=value, why=Kept.UNKNOWN),)
    call_id = columns.first_text(card.get("tid"), node_id)
    call = ToolCall(call_id=call_id, tool=tool, arguments=lines.arguments(card.get("args") or {}))
    text = columns.first_text(card.get("snippet"), card.get("preview"))
    result = ToolResult(call_id=call_id, tool=tool, text=text, is_error=card.get("is_error") is True)
    used = "snippet" if columns.first_text(card.get("snippet")) else "preview"
    left = rest_of(card, {"name", "tid", "args", "is_error", "assistant_msg_idx", used})
    kept = (Record(name="members of card", value=left, why=Kept.BOOKKEEPING),) if left else ()
    return (call, result, *kept) if text else (call, *kept)


def _of_pending(head: Head, answer: Run | None, *, is_growing: bool) -> Iterator[Entry]:
    """Yield the prompt in progress, and the answer so far."""
    if not head.told.get("pending_user_message"):
        return
    for row in _pending_rows(head):
        yield _beside(row, "pending prompt", noted=(WAITING,))
    stream_id = head.told.get("active_stream_id")
    if answer is None or any(taken.row.facts.stream_id == stream_id for taken in head.rows):
        return
    noted: tuple[str, ...] = (FROM[JOURNAL],)
    if answer.damaged:
        noted = (*noted, DAMAGED_LINES)
    for place, told in enumerate(answer.rows, 1):
        is_cut = place == len(answer.rows) and answer.ended != "done"
        row = copies.row_of(told | ({"_partial": True} if is_cut else {}), place)
        yield _beside(row, f"{JOURNAL} row {place}", noted=noted, skipped=STILL_WRITTEN if is_growing else "")
    if answer.rest:
        name, rest = f"members of {JOURNAL}", answer.rest  # of its events, that no row has
        yield _kept(name, JOURNAL, lambda: rest, [name, rest], is_growing=is_growing)


def _pending_rows(head: Head) -> Iterator[Row]:
    """Yield the prompt of the running turn, unless it is the last prompt of the rows."""
    told = head.told
    prompt = told.get("pending_user_message")
    if not isinstance(prompt, str) or not prompt:
        return
    row = {
        "role": "user",
        "content": prompt,
        "timestamp": told.get("pending_started_at"),
        "attachments": told.get("pending_attachments"),
    }
    if told.get("pending_user_source") == "process_wakeup":
        row["_source"] = "process_wakeup"
    last = next((each.row for each in reversed(head.rows) if each.row.facts.is_user), None)
    token = f"{told.get('active_stream_id')}:{told.get('pending_started_at')}"
    if last is not None and (last.facts.token == token or _is_same(columns.fields(last.load()), row)):
        return
    yield copies.row_of(row, 1)


def _is_same(row: Fields, prompt: Fields) -> bool:
    """Return whether a row is the prompt: by its words, its attachments, and the second of its time."""
    one, other = rows.at(row), rows.at(prompt)
    if one is None or other is None or one.replace(microsecond=0) != other.replace(microsecond=0):
        return False
    attached = (row.get("attachments") or []) == (prompt.get("attachments") or [])
    return attached and rows.text_of(row) == prompt["content"]


def _of_session(copy: Copy, taken: Sequence[TakenRow], *, is_growing: bool) -> Entry:
    """Return the conversation's members beside its rows, and the model's history that no row has."""
    context = _context(copy, [each.row for each in taken])
    refs = [row.facts.digest if isinstance(row, Row) else row for row in context or []]
    noted = (FOREIGN_ID,) if copy.is_foreign and copy.origin not in (DATABASE, JOURNAL) else ()
    load, digested = partial(_told, copy, context), [copy.told, refs]
    return _kept("session", "session", load, digested, noted=noted, is_growing=is_growing)


def _told(copy: Copy, context: list[Row | int] | None) -> dict[str, object]:
    told = dict(copy.told)
    if context is not None:
        told["context_messages"] = [row.load() if isinstance(row, Row) else row for row in context]
    return told


def _context(copy: Copy, taken: Sequence[Row]) -> list[Row | int] | None:
    """Return the model's history: for each of its rows the number of the same row, or else the row."""
    if copy.context is None:
        return None
    by_digest: dict[str, list[int]] = {}
    for row in reversed(taken):
        by_digest.setdefault(row.facts.digest, []).append(row.number)
    found: list[Row | int] = []
    for row in copy.context:
        places = by_digest.get(row.facts.digest)
        found.append(places.pop() if places else row)
    return found
