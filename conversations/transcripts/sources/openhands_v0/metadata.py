"""The metadata of a conversation in a store; missing facts are derived."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.local_times import LocalTimes
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import Unreadable
from conversations.transcripts.sources.openhands_v0.events import COUNT_LIMIT, events, tokens
from conversations.transcripts.sources.openhands_v0.files import MORE_TEXT, Told, object_in
from conversations.transcripts.sources.openhands_v0.stores import METADATA, EventFile, Stored, tell_of_others

MISSING = "it is missing: what it tells is derived from the events"
NOT_KEPT = "it has members that are not known, and left out"
KNOWN = frozenset(
    {
        *("conversation_id", "conversation_version", "user_id", "github_user_id", "sandbox_id", "public"),
        *("title", "created_at", "last_updated_at", "trigger", "pr_number", "llm_model", "git_provider"),
        *("selected_repository", "selected_branch"),
        *("accumulated_cost", "prompt_tokens", "completion_tokens", "total_tokens"),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFacts:
    created_at: datetime  # aware, UTC
    title: str | None  # None for the default one
    repository: str | None
    branch: str | None
    provider: str | None  # of the repository, whatever name it has
    trigger: str | None
    pr_number: tuple[int, ...]
    llm_model: str | None
    user_id: str  # the owner; an empty text for none
    accumulated_cost: float
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def read(stored: Stored, files: Sequence[EventFile], *, zone: tzinfo, note: Told) -> StoredFacts:
    """Return the facts, and report missing and omitted ones. Raise Unreadable."""
    told = _metadata(stored, note)
    tell_of_others(stored, note)
    title = _text(told, "title")
    # The part of the id in the title that a conversation has at first
    default_title_id_chars = 5
    default = f"Conversation {stored.sid[:default_title_id_chars]}"
    prompt, completion = (tokens(told.get(f"{name}_tokens")) for name in ("prompt", "completion"))
    return StoredFacts(
        created_at=columns.instant(told.get("created_at")) or _began(stored, files, zone),
        title=None if title == default else title,
        repository=_text(told, "selected_repository"),
        branch=_text(told, "selected_branch"),
        provider=_text(told, "git_provider"),
        trigger=_text(told, "trigger"),
        pr_number=_pr_number(told.get("pr_number")),
        llm_model=_text(told, "llm_model"),
        user_id=_user_id(told.get("user_id")) or stored.user_id,
        accumulated_cost=columns.amount(told.get("accumulated_cost"), below=COUNT_LIMIT),
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=max(tokens(told.get("total_tokens")), prompt + completion),
    )


def _metadata(stored: Stored, note: Told) -> Fields:
    """Return the content of the first readable file."""
    problems: list[str] = []
    # The part of the omitted members that the report shows
    noted_max_chars = 2_000
    for directory in stored.directories:
        path = directory / METADATA
        try:
            if not path.exists():
                continue
            found = object_in(path)
            told = columns.fields(lines.storable(json.loads(found.text, parse_constant=lambda _: None)))
        except (OSError, ValueError, RecursionError) as error:  # Unreadable and Damaged are ValueErrors
            problems.append(str(error) if isinstance(error, Unreadable | Damaged) else "it cannot be read")
            continue
        if not found.is_all:
            problems.append(MORE_TEXT)
        unknown = {name: told[name] for name in told.keys() - KNOWN}
        if told.get("pr_number") not in (None, list(_pr_number(told.get("pr_number")))):
            unknown["pr_number"] = told["pr_number"]
        if unknown:
            problems.append(f"{NOT_KEPT}: {columns.as_json(dict(sorted(unknown.items())))[:noted_max_chars]}")
        break
    else:
        told = {}
        problems = problems or [MISSING]
    for problem in problems:
        note(METADATA, problem)
    return told


def _began(stored: Stored, files: Sequence[EventFile], zone: tzinfo) -> datetime:
    """Return the time of the first event with one, or else of the directory. Raise Unreadable."""
    for event in events(stored, files, times=LocalTimes(zone), skip=_ignore, note=_ignore):
        if event.reading.timestamp is not None:
            return event.reading.timestamp
    try:
        return datetime.fromtimestamp(stored.directories[0].stat().st_mtime, UTC)
    except OSError as error:
        raise Unreadable(f"{stored.sid} cannot be read: {error.strerror}") from error


def _ignore(_name: str, _reason: str) -> None:
    """Hear nothing: the events are read again."""


def _text(told: Fields, name: str) -> str | None:
    return columns.first_text(told.get(name)) or None


def _pr_number(value: object) -> tuple[int, ...]:
    numbers = map(columns.wire_id, columns.items(value))
    return tuple(number for number in numbers if number is not None)


def _user_id(value: object) -> str:
    """Return the user's id, which old releases wrote as a number."""
    number = columns.whole_number(value)
    return columns.first_text(value) if number is None else str(number)
