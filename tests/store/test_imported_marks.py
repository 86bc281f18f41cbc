"""Tags, pins and archive of another program become the user's own marks, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Event
from conversations.transcripts.sources.chats import open_webui
from sessions_app.imports.importer import Importer
from sessions_app.live import marks
from sessions_app.models import Mark

pytestmark = pytest.mark.one_engine


def chat(**members: Any) -> dict[str, Any]:
    messages = {
        "q": {"role": "user", "content": "Compare.", "parentId": None, "childrenIds": ["a", "b"]},
        "a": {"role": "assistant", "content": "One.", "parentId": "q", "childrenIds": []},
        "b": {"role": "assistant", "content": "", "parentId": "q", "childrenIds": [], "error": "No model"},
    }
    return {"id": "x", "title": "x", "chat": {"history": {"messages": messages, "currentId": "a"}}, **members}


def taken(user: User, value: Any, directory: Path, *labels: str) -> list[Conversation]:
    """Import a chat and return its conversations, the trunk first."""
    file = directory / "chat.json"
    file.write_text(json.dumps(value))
    importer = Importer(user=user, format="open-webui", labels=labels)
    for transcript in open_webui.EXPORT.transcripts(file):
        importer.take(transcript)
    return list(Conversation.objects.filter(owner=user).order_by("pk"))


def test_tags_are_labels_and_replace_nothing_that_an_import_says(alice: User, tmp_path: Path) -> None:
    tags = ["garden", "source", " ", "x" * 300, *map(str, range(99))]
    trunk, branch = taken(alice, chat(meta={"tags": tags}), tmp_path, "mine")
    assert trunk.tags["source"] == "open-webui"
    assert {"garden", "mine", "x" * 100} <= set(trunk.tags)
    assert set(trunk.tags) == set(branch.tags)
    assert len(trunk.tags) < 50


def test_pins_and_archive_are_marks_of_the_user_who_imports(alice: User, bob: User, tmp_path: Path) -> None:
    trunk, branch = taken(alice, chat(pinned=True, archived=True), tmp_path)
    every = Conversation.objects.all()
    assert set(marks.put_away(every, alice.pk, archived=True)) == {trunk, branch}
    assert set(marks.kept_on_top(every, alice.pk, pinned=True)) == {trunk}
    assert not Mark.objects.filter(user=bob).exists()


def test_a_later_import_leaves_the_marks_to_the_user(alice: User, tmp_path: Path) -> None:
    trunk, _ = taken(alice, chat(pinned=True, archived=True), tmp_path)
    marks.mark(alice.pk, trunk.ref, pinned=False, archived=False)
    taken(alice, chat(pinned=True, archived=True, meta={"tags": ["late"]}), tmp_path)
    every = Conversation.objects.all()
    assert trunk not in marks.kept_on_top(every, alice.pk, pinned=True)
    assert trunk not in marks.put_away(every, alice.pk, archived=True)
    assert "late" not in Conversation.objects.get(pk=trunk.pk).tags


def test_a_failure_is_an_error_that_is_not_the_words_of_the_agent(alice: User, tmp_path: Path) -> None:
    _, branch = taken(alice, chat(), tmp_path)
    row = Event.objects.filter(conversation=branch).exclude(type="ConversationStateUpdateEvent").last()
    assert row is not None
    assert (row.type, row.kind, row.source, row.text) == (
        "ConversationErrorEvent",
        "error",
        "environment",
        "No model",
    )
