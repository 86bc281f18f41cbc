"""Exports as JSON lines that another server imports: what it exports then has the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from uuid import uuid4
from zipfile import ZipFile

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import v1
from conversations.events import NewEvent
from conversations.exceptions import ConversationError
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation
from conversations.transcripts.sources import own
from conversations.transcripts.sources.nodes import Unreadable
from convserver.exports import conversation as export
from sessions_app.imports.own import ANOTHER_DIGEST, OwnImporter
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.watching import UNWATCHED, Watch
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import create_custom_secret
from sessions_app.storage import attachments
from sessions_app.storage.attachments import NewFile
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

TEXTS = st.text(max_size=30)
NEW = ("received_at", "epoch", "input", "wire_id")
"""The members of lines that the first version did not have."""
SPACES = st.sampled_from(["", " ", "\n", "\r\n", "\t"])


def exported(conversation: ConversationRef) -> bytes:
    row = Conversation.objects.get(pk=conversation.pk)
    return "".join(export.json_lines(export.source(row))).encode()


def ended(rest: bytes) -> bytes:
    """Return events' lines with the last line that they need."""
    return rest + json.dumps({"type": "end", "sha256": sha256(rest).hexdigest()}).replace(" ", "").encode()


def free(conversation: ConversationRef) -> None:
    """Let another conversation have the id of this one, as on another server."""
    Conversation.objects.filter(pk=conversation.pk).update(public_id=f"before-{uuid4()}")


def imported(user: User, content: bytes, watch: Watch = UNWATCHED) -> ConversationReport:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "talk.jsonl"
        file.write_bytes(content)
        (found,) = own.exports(file)
        return OwnImporter(user=user, watch=watch).take(found)


def again(user: User, content: bytes) -> bytes:
    """Return what is exported of a conversation that was imported."""
    report = imported(user, content)
    return exported(Conversation.objects.get(public_id=report.conversation_id).ref)


@st.composite
def events(draw: st.DrawFn) -> NewEvent:
    """One event of either wire, with any text, white space and columns."""
    text, space = draw(TEXTS), draw(SPACES)
    if draw(st.booleans()):
        payload = f'{{{space}"action":"message","args":{{"content":{json.dumps(text)}}}}}'
    else:
        written = v1.written(
            v1.user_message([v1.text_part(text)]), event_id=str(uuid4()), timestamp="2026-01-01"
        )
        payload = f"{{{space}{written[1:]}"
    return NewEvent(
        event_id=str(uuid4()),
        payload=payload,
        reading=dialects.read(json.loads(payload)),
        turn_id=draw(st.none() | st.just("turn")),
        is_input=draw(st.booleans()),
        asks=False,
    )


@pytest.mark.needs_engine
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=st.lists(events(), max_size=8), version=st.sampled_from(Version), epoch=st.none() | st.just(0))
def test_what_was_imported_is_exported_with_the_same_bytes(
    alice: User, log: list[NewEvent], version: Version, epoch: int | None
) -> None:
    facts: dict[str, Any] = {"title": "A talk", "tags": {"team": "red"}, "branch": "main", "prompt_tokens": 7}
    talk = creation.create(alice, conversation_id=str(uuid4()), version=version, **facts)
    if version == Version.V1:
        agent_setups.add(talk, NewSetup())
    if log:
        writes.append(talk, log, epoch=epoch)
    content = exported(talk)
    free(talk)
    assert again(alice, content) == content


@pytest.mark.no_second_try
def test_an_import_that_is_repeated_adds_nothing(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk")
    writes.append(talk, [event("one"), event("two")])
    report = imported(alice, exported(talk))
    assert (report.events_added, report.events_already_here, report.noted) == (0, 2, {})


def test_nothing_that_was_asked_elsewhere_is_asked_here(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk")
    writes.append(talk, [event("question", is_input=True)])
    content = exported(talk)
    free(talk)
    imported(alice, content)
    row = Conversation.objects.get(public_id="talk")
    assert (row.asked_through, Event.objects.get(conversation=row).is_input) == (-1, True)


@pytest.mark.parametrize("cut", [2, 40, 400])
def test_a_truncated_file_is_refused_whole(alice: User, cut: int) -> None:
    talk = creation.create(alice, conversation_id="talk")
    writes.append(talk, [event("one"), event("two")])
    content = exported(talk)
    free(talk)
    with pytest.raises(Unreadable):
        imported(alice, content[:-cut])
    assert not Conversation.objects.filter(public_id="talk").exists()


WRONG_LAST: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda line: b"{\n",
    "an id that is no text": lambda line: re.sub(rb'"id":"[^"]*"', b'"id":7', line, count=1) + b"\n",
    "half of a surrogate pair": lambda line: (
        re.sub(rb'"source":"[^"]*"', b'"source":"\\\\ud800"', line) + b"\n"
    ),
    "a payload that is no object": lambda line: line.partition(b'"event":')[0] + b'"event":7}\n',
    "an event less than the first line says": lambda line: b"",
}


@pytest.mark.needs_engine
@pytest.mark.parametrize("wrong", WRONG_LAST)
def test_an_export_with_a_wrong_last_line_stores_nothing_though_its_digest_is_right(
    alice: User, wrong: str
) -> None:
    talk = creation.create(alice, conversation_id="talk")
    for _ in range(2):
        writes.append(talk, [event("one") for _ in range(300)])  # more than are stored at once
    head, *lines, last, _ = exported(talk).splitlines()
    rest = ended(b"".join(line + b"\n" for line in lines) + WRONG_LAST[wrong](last))
    free(talk)
    with pytest.raises(Unreadable):
        imported(alice, head + b"\n" + rest)
    assert not Conversation.objects.filter(public_id="talk").exists()


class Stopped(Exception):
    """What a server that ends raises in its imports."""


def test_an_import_may_be_stopped_while_the_file_is_only_looked_through(alice: User) -> None:
    conversation = creation.create(alice)
    writes.append(conversation, [event() for _ in range(50)])
    content = exported(conversation)
    free(conversation)
    left = iter(range(40))

    def look() -> None:
        if next(left, None) is None:
            raise Stopped

    def read() -> NoReturn:
        raise AssertionError("It is stopped before the first event is taken.")

    with pytest.raises(Stopped):
        imported(alice, content, Watch(look=look, read=read))
    assert Conversation.objects.count() == 1


def test_secrets_of_the_new_owner_are_masked_and_the_report_says_so(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk")
    writes.append(talk, [event("the word is hunter2-hunter2")])
    content = exported(talk)
    free(talk)
    create_custom_secret(alice.pk, "TOKEN", "hunter2-hunter2", description="")
    report = imported(alice, content)
    assert report.noted == {ANOTHER_DIGEST: 1}
    assert b"hunter2-hunter2" not in exported(Conversation.objects.get(public_id="talk").ref)


def test_a_conversation_of_another_user_is_not_touched(alice: User, bob: User) -> None:
    talk = creation.create(alice, conversation_id="talk")
    writes.append(talk, [event("one")])
    with pytest.raises(ConversationError):
        imported(bob, exported(talk))


def test_a_zip_file_of_exports_is_read_in_place(alice: User, tmp_path: Path) -> None:
    content = []
    for name in ("one", "two"):
        talk = creation.create(alice, conversation_id=name)
        writes.append(talk, [event(name)])
        content.append(exported(talk))
        free(talk)
    with ZipFile(tmp_path / "all.zip", "w") as packed:
        for number, each in enumerate(content):
            packed.writestr(f"account/{number}.jsonl", each)
    for found in own.exports(tmp_path / "all.zip"):
        OwnImporter(user=alice).take(found)
    refs = [Conversation.objects.get(public_id=name).ref for name in ("one", "two")]
    assert [exported(ref) for ref in refs] == content


def test_an_account_is_exported_as_a_whole_and_imported_elsewhere(
    alice: User, bob: User, tmp_path: Path
) -> None:
    one = creation.create(alice, conversation_id="one", title="One")
    other = creation.create(alice, conversation_id="two", title="Two")
    for talk in (one, other):
        writes.append(talk, [event("hello")])
    attachments.attach(one, [NewFile(name="receipt.png", content=b"png")])
    creation.create(bob, conversation_id="bobs")
    content = [exported(one), exported(other)]
    file = tmp_path / "all.zip"
    call_command("export_conversations", str(file), owner=alice.username, stdout=StringIO())
    with ZipFile(file) as packed:
        names = packed.namelist()
        assert [packed.read(name) for name in names if name.endswith(".jsonl")] == content
        assert [packed.read(name) for name in names if name.startswith("attachments/")] == [b"png"]
    for talk in (one, other):
        free(talk)
    call_command("import_transcripts", str(file), owner=bob.username, stdout=StringIO())
    refs = [Conversation.objects.get(public_id=name).ref for name in ("one", "two")]
    assert [exported(ref) for ref in refs] == content


def test_an_export_that_exists_is_not_overwritten(alice: User, tmp_path: Path) -> None:
    file = tmp_path / "all.zip"
    file.write_bytes(b"precious")
    with pytest.raises(CommandError):
        call_command("export_conversations", str(file), owner=alice.username, stdout=StringIO())
    assert file.read_bytes() == b"precious"


def test_links_are_carried_whatever_the_order_of_the_files(alice: User, tmp_path: Path) -> None:
    parent = creation.create(alice, conversation_id="zz-parent", title="Parent")
    child = creation.create(alice, conversation_id="aa-child", title="Child", parent_id=parent.pk)
    writes.append(parent, [event("one")])
    branch = agent_setups.fork(alice, parent, conversation_id="bb-branch", through=0)
    names = ("zz-parent", "aa-child", "bb-branch")
    content = [exported(each) for each in (parent, child, branch)]
    for number, each in enumerate(content):
        (tmp_path / f"{9 - number}.jsonl").write_bytes(each)
    for ref in (branch, child, parent):
        free(ref)
    for found in own.exports(tmp_path):
        assert OwnImporter(user=alice).take(found).noted == {}
    refs = [Conversation.objects.get(public_id=name).ref for name in names]
    assert [exported(ref) for ref in refs] == content


def test_an_export_whose_hash_comes_first_is_imported(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk", title="A talk")
    writes.append(talk, [event("one"), event("two")])
    content = exported(talk)
    head, *events, _ = content.splitlines(keepends=True)
    rest = b"".join(events)
    first = json.loads(head) | {"version": 2, "kinds": {}, "sha256": sha256(rest).hexdigest()}
    free(talk)
    with pytest.raises(Unreadable, match="truncated"):
        imported(alice, json.dumps(first).encode() + b"\n" + events[0])
    assert imported(alice, json.dumps(first).encode() + b"\n" + rest).events_added == 2
    assert exported(Conversation.objects.get(public_id="talk").ref) == content


def test_an_export_that_was_cut_off_stores_nothing(alice: User, subtests: pytest.Subtests) -> None:
    talk = creation.create(alice, conversation_id="talk", title="A talk")
    writes.append(talk, [event("one"), event("two")])
    lines = exported(talk).splitlines(keepends=True)
    free(talk)
    ends = [lines[:count] for count in range(1, 4)]
    for left in (*ends, [*lines[:3], lines[3][:-9]], [*lines[:2], lines[3]], [*lines, lines[1]]):
        with subtests.test(lines=len(left)), pytest.raises(Unreadable):
            imported(alice, b"".join(left))
    assert not Conversation.objects.filter(public_id="talk").exists()


def test_an_export_of_an_earlier_release_is_imported(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk", title="A talk")
    writes.append(talk, [event("one"), event("two")])
    _, *events, _ = exported(talk).splitlines()
    older = [
        json.dumps({name: value for name, value in json.loads(line).items() if name not in NEW})
        for line in events
    ]
    rest = "".join(f"{line}\n" for line in older).encode()
    head = json.loads(exported(talk).splitlines()[0]) | {"version": 1, "sha256": sha256(rest).hexdigest()}
    free(talk)
    report = imported(alice, json.dumps(head).encode() + b"\n" + rest)
    assert report.events_added == 2


@pytest.mark.parametrize(
    "wrong", [{"title": 5}, {"accumulated_cost": "x"}, {"prompt_tokens": -1}, {"tags": 1}]
)
def test_a_manifest_with_wrong_members_is_no_traceback(alice: User, wrong: dict[str, object]) -> None:
    talk = creation.create(alice, conversation_id="talk", title="A talk")
    writes.append(talk, [event("one")])
    head, rest = exported(talk).split(b"\n", 1)
    manifest = json.loads(head)
    manifest["conversation"] |= wrong
    free(talk)
    assert imported(alice, json.dumps(manifest).encode() + b"\n" + rest).events_added == 1
