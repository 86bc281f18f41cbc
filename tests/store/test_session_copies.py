"""Sessions of Claude Code that begin with a copy of another one, and those that the web exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationQuerySet, Event
from conversations.search.fulltext import questions
from conversations.search.fulltext.search import Scope, SearchConditions, search
from conversations.store import deletion, forks
from conversations.transcripts.sources import formats
from sessions_app.imports.importer import Importer
from tests.support.data.import_samples import imported

pytestmark = pytest.mark.one_engine

FIRST, SECOND, THIRD = (f"c0ffee00-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


def line(session: str, number: int, parent: int | None, text: str, minute: int) -> dict[str, Any]:
    """Return what the user says, or for an odd number what the agent answers."""
    role = "assistant" if number % 2 else "user"
    used = {"input_tokens": 100, "output_tokens": 10}
    said: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
    return {
        "uuid": f"{number:032x}",
        "parentUuid": None if parent is None else f"{parent:032x}",
        "sessionId": session,
        "type": role,
        "timestamp": f"2026-02-03T09:{minute:02}:00.000Z",
        "message": said | ({"id": f"m{number}", "usage": used} if number % 2 else {}),
    }


def talk(session: str, numbers: list[int], *, hook: str = "") -> list[dict[str, Any]]:
    """Return lines of which each follows the one above it, below a line that the session has alone."""
    rows: list[dict[str, Any]] = [{"type": "custom-title", "customTitle": session, "sessionId": session}]
    if hook:
        rows.append(line(session, 0, None, "", 0) | {"type": "system", "uuid": hook})
    parent = None
    for number in numbers:
        rows.append(line(session, number, parent, f"words {number}", number % 60))
        parent = number
    return rows


def written(directory: Path, sessions: dict[str, list[dict[str, Any]]]) -> Path:
    directory.mkdir(exist_ok=True)
    for session, rows in sessions.items():
        (directory / f"{session}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def of(user: User, session: str) -> Conversation:
    return Conversation.objects.get(public_id=Importer(user=user, format="claude-code").id_of(session))


def said(conversation: Conversation) -> list[str]:
    rows = Event.objects.filter(conversation=conversation, kind="message").order_by("seq")
    return [row.text.removeprefix("words ") for row in rows]


def left_after(conversation: Conversation) -> str:
    assert conversation.forked_at is not None
    row = Event.objects.get(conversation=conversation.forked_from, seq=conversation.forked_at)
    return row.text.removeprefix("words ")


def records(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return by session how many records are its own, and how many count elsewhere."""
    found = ((each["source_id"], each["records"]) for each in report["conversations"])
    return {session: (counted["stored"], counted["shared"]) for session, counted in found}


def test_a_copy_is_linked_to_where_it_leaves_and_counts_what_is_its_own(alice: User, tmp_path: Path) -> None:
    sessions = {
        THIRD: talk(THIRD, [2, 3, 4, 5]),
        FIRST: talk(FIRST, [2, 3, 4, 5, 6, 7], hook="f" * 32),
        SECOND: talk(SECOND, [2, 3, 4, 5, 6, 7, 8, 9]),
    }
    report = imported("claude-code", written(tmp_path / "projects", sessions))
    assert records(report) == {THIRD: (5, 0), FIRST: (4, 4), SECOND: (3, 6)}
    first, second, third = (of(alice, session) for session in (FIRST, SECOND, THIRD))
    assert (third.forked_from, first.forked_from, second.forked_from) == (None, third, first)
    assert (left_after(first), left_after(second)) == ("5", "7")
    assert said(second) == ["2", "3", "4", "5", "6", "7", "8", "9"]
    assert [each.total_tokens for each in (third, first, second)] == [220, 110, 110]
    assert [each.title for each in (third, first, second)] == [THIRD, FIRST, SECOND]


def test_two_sessions_that_go_on_from_the_same_lines_are_forks(alice: User, tmp_path: Path) -> None:
    sessions = {FIRST: talk(FIRST, [2, 3, 4, 5]), SECOND: talk(SECOND, [2, 3, 14, 15])}
    imported("claude-code", written(tmp_path / "projects", sessions))
    assert of(alice, SECOND).forked_from == of(alice, FIRST)
    assert left_after(of(alice, SECOND)) == "3"
    assert said(of(alice, SECOND)) == ["2", "3", "14", "15"]


def test_a_copy_without_words_of_its_own_is_no_conversation(alice: User, tmp_path: Path) -> None:
    sessions = {FIRST: talk(FIRST, [2, 3]), SECOND: talk(SECOND, [2, 3])}
    report = imported("claude-code", written(tmp_path / "projects", sessions))
    assert Conversation.objects.filter(owner=alice).count() == 1
    assert records(report)[SECOND] == (0, 2)


def test_sessions_stay_whole_when_the_one_they_were_copied_from_is_removed(
    alice: User, tmp_path: Path
) -> None:
    sessions = {FIRST: talk(FIRST, [2, 3]), SECOND: talk(SECOND, [2, 3, 4, 5])}
    projects = written(tmp_path / "projects", sessions)
    imported("claude-code", projects)
    (projects / f"{FIRST}.jsonl").unlink()
    written(projects, {SECOND: talk(SECOND, [2, 3, 4, 5, 6, 7])})
    imported("claude-code", projects)
    assert said(of(alice, SECOND)) == ["2", "3", "4", "5", "6", "7"]


def test_a_session_on_the_web_is_read(alice: User, tmp_path: Path) -> None:
    rows = talk("", [2, 3])[1:]
    bare = [{name: row[name] for name in ("type", "timestamp", "message")} for row in rows]
    for number, document in enumerate(
        ({"loglines": bare}, {"loglines": rows, "model": "m"}, {"of": ["web"], "loglines": [*bare, "odd"]})
    ):
        file = tmp_path / str(number) / f"web-{number}.json"
        file.parent.mkdir()
        file.write_text(json.dumps(document, indent=number or None))
        assert formats.guessed(file.parent).name == formats.guessed(file).name == "claude-code"
        (conversation,) = imported("claude-code", file)["conversations"]
        assert conversation["title"] == "words 2"
        assert said(Conversation.objects.get(public_id=conversation["conversation_id"])) == ["2", "3"]
        assert conversation["records"]["found"] == (2, 3, 4)[number]


def hits(user: User, question: str, *, among: ConversationQuerySet | None = None) -> list[tuple[str, int]]:
    """Return the titles and places of what a search finds, a page of two after the other."""
    conversations = Conversation.objects.visible_to(user) if among is None else among
    scope = Scope(user=user, conversations=conversations, is_narrow=among is not None)
    found: list[tuple[str, int]] = []
    below: int | None = None
    while True:
        page = search(scope, questions.read(question), SearchConditions(), below=below, limit=2)
        found += [(hit.title or "", hit.seq) for hit in page.hits]
        if page.below is None:
            return found
        below = page.below


@pytest.mark.needs_engine
def test_a_search_finds_what_copies_share_once(alice: User, tmp_path: Path) -> None:
    sessions = {
        FIRST: talk(FIRST, [2, 3, 4, 5]),
        SECOND: talk(SECOND, [2, 3, 4, 5, 6, 7], hook="f" * 32),
        THIRD: talk(THIRD, [2, 3, 4, 5, 6, 7, 8, 9]),
    }
    imported("claude-code", written(tmp_path / "projects", sessions))
    first, second, third = (of(alice, session) for session in (FIRST, SECOND, THIRD))
    found = hits(alice, "words")
    assert [title for title, _ in found] == [THIRD] * 2 + [SECOND] * 2 + [FIRST] * 4
    only = Conversation.objects.with_pks([third.pk])
    assert len(hits(alice, "words", among=only)) == 8
    deletion.soft_delete(second.ref)
    assert [title for title, _ in hits(alice, "words 6")] == [THIRD]
    copy = forks.fork(alice, first.ref)
    assert len(hits(alice, "words 2", among=Conversation.objects.with_pks([first.pk, copy.pk]))) == 2
