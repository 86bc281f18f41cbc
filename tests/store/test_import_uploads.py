"""Uploaded files: each piece is stored once, each file is imported once, whatever is cut off or repeated."""

from __future__ import annotations

import contextlib
import io
import os
import random
import stat
import zipfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, OperationalError
from django.utils import timezone

from conversations.confined import processes
from conversations.events import NewEvent
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.storage import quotas
from conversations.storage.stored_bytes import Meter
from conversations.transcripts.sources import archives
from convserver.quotas import Quotas
from sessions_app.imports.uploads import leases, pieces, runs, sources, work
from sessions_app.imports.uploads.problems import (
    FileTooLarge,
    ImportNotFound,
    InvalidImport,
    NoRoom,
    NotTheSender,
    NotWhole,
    TooManyImports,
    WrongOffset,
)
from sessions_app.imports.uploads.runs import Chosen, NewImport
from sessions_app.imports.uploads.work import NOT_STORED, ImportWork
from sessions_app.models import LEASE_S, ImportedConversation, ImportPiece, ImportRun, ImportState
from sessions_app.processes import Process, this_process
from tests.support.data.import_files import SAID, chat, chats, export, zipped
from tests.support.data.threads import in_threads

pytestmark = pytest.mark.one_engine

CLAUDE_CODE = Path(__file__).parents[1] / "data" / "claude-code" / "projects"
GONE = Process(this_process().host, this_process().pid, this_process().started - 1)
"""A process of this host that has ended: another one has its number by now."""


@pytest.fixture(autouse=True)
def data_directory(configured: Callable[..., None], tmp_path: Path) -> Path:
    configured(data_dir=tmp_path)
    return tmp_path


def begun(user: User, content: bytes, name: str = "export.zip", **options: Any) -> ImportRun:
    return runs.begin(user.pk, NewImport(file_name=name, size=len(content), **options))


def uploaded(user: User, content: bytes, name: str = "export.zip", **options: Any) -> ImportRun:
    run = begun(user, content, name, **options)
    pieces.put(run, 0, content)
    run.refresh_from_db()
    runs.start(run)
    return run


def held_by(run: ImportRun) -> leases.Held:
    return leases.Held(run.pk, run.attempt)


def carried_out(run: ImportRun) -> ImportRun:
    """Take the import and do all of its work, as a server would."""
    claimed = leases.claim(this_process())
    assert claimed is not None
    assert claimed.pk == run.pk
    ImportWork(run=claimed).carry_out()
    run.refresh_from_db()
    return run


def refused(user: User, content: bytes, name: str = "export.zip", **options: Any) -> str:
    """Return why an import has failed, of which nothing is stored."""
    run = carried_out(uploaded(user, content, name, **options))
    assert run.state == ImportState.FAILED
    assert not Conversation.objects.exists()
    return run.problem


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: object, **options: object) -> Any:
        raise error

    return fail


def said() -> list[str]:
    """Return what messages say, conversation by conversation."""
    rows = Event.objects.filter(kind="message").order_by("conversation__title", "seq")
    return list(rows.values_list("text", flat=True))


def texts_of(run: ImportRun) -> dict[str, Any]:
    added, already_here = (run.totals["events"][name] for name in ("added", "already_here"))
    return {"state": run.state, "added": added > 0, "already_here": already_here > 0}


# Pieces


@pytest.mark.no_second_try
def test_a_file_is_what_was_sent_however_it_was_cut_repeated_and_disordered(
    alice: User, chance: random.Random
) -> None:
    content = chance.randbytes(5_000)
    run = begun(alice, content)
    while run.received < run.size:
        offset, length = chance.randrange(run.size), chance.randrange(1, 900)
        if offset > run.received:
            with pytest.raises(WrongOffset) as error:
                pieces.put(run, offset, content[offset : offset + length])
            assert error.value.received == run.received
            offset = run.received
        pieces.put(run, offset, content[offset : offset + length])
        run.refresh_from_db()
    with pieces.local_file(run) as path:
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_piece_that_comes_twice_at_once_is_stored_once(alice: User) -> None:
    content = b"0123456789" * 1_000
    run = begun(alice, content)
    answers: list[int] = []
    in_threads(4, lambda number: answers.append(pieces.put(run, 0, content)))
    assert answers == [len(content)] * 4
    run.refresh_from_db()
    with pieces.local_file(run) as path:
        assert path.read_bytes() == content


@pytest.mark.parametrize("offset", [0, 7])
def test_no_piece_goes_beyond_the_end_of_its_file(alice: User, offset: int) -> None:
    run = begun(alice, b"12345678")
    with pytest.raises(FileTooLarge, match="beyond the end of the file, which has 8 bytes"):
        pieces.put(run, offset, b"123456789")


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_what_is_acknowledged_is_changed_by_no_late_request(alice: User) -> None:
    run = begun(alice, b"12345678")
    early = ImportRun.objects.get(pk=run.pk)
    pieces.put(run, 0, b"12345678")
    run.refresh_from_db()
    runs.start(run)
    with pytest.raises(WrongOffset):
        pieces.put(early, 0, b"87654321")
    with pieces.local_file(run) as path:
        assert path.read_bytes() == b"12345678"


def test_nothing_begins_before_the_whole_file_is_here(alice: User) -> None:
    run = begun(alice, export())
    pieces.put(run, 0, export()[:100])
    run.refresh_from_db()
    with pytest.raises(NotWhole, match="100 of"):
        runs.start(run)
    assert leases.claim(this_process()) is None


# What may be uploaded


def test_what_is_wrong_with_an_import_is_said_before_anything_is_sent(
    subtests: pytest.Subtests, alice: User
) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"size": 0}, "The file is empty"),
        ({"format": "word-perfect"}, "There is no format 'word-perfect'. Choose one of: .*chatgpt"),
        ({"labels": ["x" * 51]}, "A label has 1 to 50 characters"),
        ({"labels": [" "]}, "A label has 1 to 50 characters"),
        ({"labels": list("abcdefghijklmnopqrstuvwxyz")}, "at most 20 labels"),
        ({"zone": "Mars/Olympus"}, "'Mars/Olympus' is not a time zone"),
        ({"file_name": "ü" * 180}, "The name of the file is too long"),
    ]
    for options, problem in rows:
        with subtests.test(options=options, problem=problem):
            with pytest.raises(InvalidImport, match=problem):
                runs.begin(alice.pk, NewImport(**{"file_name": "export.zip", "size": 10, **options}))
            assert not ImportRun.objects.exists()


def test_the_size_limit_holds_for_one_file_and_for_all_that_wait(
    alice: User, configured: Callable[..., None]
) -> None:
    configured(import_max_mb=1)
    with pytest.raises(FileTooLarge, match="1,000,001 bytes, and the limit is 1,000,000"):
        runs.begin(alice.pk, NewImport(file_name="a.zip", size=1_000_001))
    runs.begin(alice.pk, NewImport(file_name="a.zip", size=600_000))
    with pytest.raises(TooManyImports, match="have 600,000 already"):
        runs.begin(alice.pk, NewImport(file_name="b.zip", size=600_000))


def test_ten_imports_may_wait(alice: User) -> None:
    for _ in range(runs.OPEN_MAX):
        begun(alice, b"1")
    with pytest.raises(TooManyImports, match="10 imports have not ended"):
        begun(alice, b"1")


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_two_imports_at_once_cannot_exceed_the_limit_together(
    alice: User, configured: Callable[..., None]
) -> None:
    configured(import_max_mb=1)

    def begin(number: int) -> None:
        with contextlib.suppress(TooManyImports):
            runs.begin(alice.pk, NewImport(file_name="a.zip", size=600_000))

    in_threads(4, begin)
    assert ImportRun.objects.count() == 1


def test_the_name_of_a_file_leads_nowhere(alice: User) -> None:
    run = begun(alice, b"1", "../../etc/pass\0wd")
    assert run.file_name == "passwd"


# What is imported


def test_a_zip_file_is_imported_with_labels_and_a_report(alice: User) -> None:
    content = export(chat(said=[SAID, "In the forest."]), chat("chat-2", title="Empty", said=[]))
    run = carried_out(uploaded(alice, content, labels=["moved"]))
    assert (run.state, run.problem, run.format) == (ImportState.DONE, "", "chatgpt")
    assert said() == [SAID, "In the forest."]
    talk = Conversation.objects.get()
    assert talk.owner_id == alice.pk
    assert "moved" in talk.tags
    lines = list(ImportedConversation.objects.of(run.pk))
    assert [(line.number, line.conversation, line.title) for line in lines] == [
        (1, talk.public_id, "Cuckoo clocks"),
        (2, "", "Empty"),
    ]
    records = run.totals["records"]
    assert records["found"] == records["stored"] + sum(records["skipped"].values())
    assert (run.conversations, run.failed) == (2, 0)
    assert run.records >= 2


def test_a_file_by_itself_is_imported(alice: User) -> None:
    assert carried_out(uploaded(alice, chats(chat()), "mine.json")).state == ImportState.DONE
    assert said() == [SAID]


def test_a_packed_directory_is_imported(alice: User) -> None:
    files = {
        f"home/{file.relative_to(CLAUDE_CODE.parent)}": file.read_bytes()
        for file in CLAUDE_CODE.rglob("*.jsonl")
    }
    run = carried_out(uploaded(alice, zipped(files)))
    assert (run.state, run.format) == (ImportState.DONE, "claude-code"), run.problem
    assert Conversation.objects.count() > 1


@pytest.mark.needs_engine
def test_nothing_of_an_import_stays_on_the_disk_or_in_the_database(alice: User, data_directory: Path) -> None:
    carried_out(uploaded(alice, export()))
    assert not ImportPiece.objects.exists()
    assert [file for file in data_directory.rglob("*") if file.is_file()] == []


@pytest.mark.no_second_try
def test_a_second_import_of_the_same_file_adds_nothing(alice: User) -> None:
    runs_made = [carried_out(uploaded(alice, export())) for _ in range(2)]
    assert [texts_of(run) for run in runs_made] == [
        {"state": "done", "added": True, "already_here": False},
        {"state": "done", "added": False, "already_here": True},
    ]
    assert said() == [SAID]


def test_what_is_in_no_known_format_fails_with_a_sentence(alice: User) -> None:
    assert refused(alice, b"Dear diary", "diary.txt").startswith("It is in no format that is known here.")


def test_a_file_that_is_not_of_the_chosen_format_fails_with_a_sentence(alice: User) -> None:
    problem = refused(alice, export(), format="open-webui")
    assert problem.startswith("There is no conversation of this format in it:")


def test_a_conversation_that_fails_does_not_keep_the_others_out(alice: User, bob: User) -> None:
    first = carried_out(uploaded(alice, export(chat("a", title="A"), chat("b", title="B"))))
    gone = ImportedConversation.objects.of(first.pk).first()
    assert gone is not None
    Conversation.objects.filter(public_id=gone.conversation).update(deleted_at=timezone.now())
    again = carried_out(uploaded(alice, export(chat("a", title="A"), chat("b", title="B"))))
    assert (again.state, again.conversations, again.failed) == (ImportState.DONE, 2, 1)
    problems = [line.problem for line in ImportedConversation.objects.of(again.pk)]
    assert problems[0].endswith("was deleted here. Restore it first.")
    assert not problems[1]


# What is refused


def test_a_zip_file_that_names_a_file_outside_of_itself_is_refused(alice: User) -> None:
    problem = refused(alice, zipped({"conversations.json": chats(chat()), "../conversations.json": b"[]"}))
    assert problem == "The zip file names a file outside of itself: '../conversations.json'."


def test_a_zip_file_with_a_link_is_refused(alice: User) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("conversations.json", chats(chat()))
        link = zipfile.ZipInfo("passwords")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, "/etc/passwd")
    assert refused(alice, content.getvalue()) == "The zip file has a link in it: 'passwords'."


def test_a_zip_file_that_is_packed_by_another_method_is_refused(alice: User) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as packed:
        packed.writestr("conversations.json", chats(chat()))
    problem = refused(alice, content.getvalue())
    assert problem == "The zip file is packed by another method than deflate: 'conversations.json'."


def test_an_encrypted_zip_file_is_refused(alice: User) -> None:
    content = bytearray(export())
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        flags = content.index(start) + (6 if start.endswith(b"\x04") else 8)
        content[flags] |= 1
    assert refused(alice, bytes(content)).startswith("The zip file is encrypted: ")


def test_a_zip_file_that_unpacks_to_far_more_than_it_holds_is_refused(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "BOMB_MIN_BYTES", 100_000)
    many = {f"{number}.bin": bytes(90_000) for number in range(20)}
    problem = refused(alice, zipped({"conversations.json": chats(chat()), **many}))
    assert problem == "The zip file would unpack to far more than it holds."


def test_a_zip_file_that_unpacks_to_more_than_the_server_takes_is_refused(
    alice: User, configured: Callable[..., None], data_directory: Path
) -> None:
    configured(import_max_mb=1)
    problem = refused(alice, zipped({"conversations.json": chats(chat()), "a.bin": bytes(11_000_000)}))
    assert problem == "The zip file would unpack to more than this server takes."


def test_a_zip_file_whose_members_lie_over_each_other_is_refused(alice: User) -> None:
    content = bytearray(zipped({"a.bin": random.Random(1).randbytes(2_000), "conversations.json": b"[]"}))
    place = content.rindex(b"PK\x01\x02")
    content[place + 20 : place + 24] = (2_500).to_bytes(4, "little")
    assert refused(alice, bytes(content)) == "The members of the zip file lie over each other."


def test_a_zip_file_with_an_endless_list_of_members_is_not_read(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "DIRECTORY_MAX_BYTES", 50)
    problem = refused(alice, export())
    assert problem == "Export.zip is a zip file with more members than can be listed."


def test_the_list_of_a_zip_file_is_read_once_to_find_out_what_it_is(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Path]()

    def open_(path: Path) -> zipfile.ZipFile:
        opened.append(path)
        return zipfile.ZipFile(path)

    monkeypatch.setattr(archives, "ZipFile", open_)
    assert refused(alice, zipped({f"{number}.txt": b"" for number in range(5)}))
    assert len(opened) == 1


@pytest.mark.parametrize("kept", [10, 100, 300])
def test_a_zip_file_that_is_cut_off_is_refused(alice: User, kept: int) -> None:
    assert refused(alice, export()[:kept])


@pytest.mark.needs_engine
def test_the_quota_of_stored_bytes_holds(
    alice: User, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(quotas=Quotas(stored_mb=1))
    monkeypatch.setattr(quotas, "meter", Meter())
    large = [chat(str(number), said=["x" * 700_000]) for number in range(3)]
    run = carried_out(uploaded(alice, export(*large)))
    assert run.state == ImportState.FAILED
    assert "CONVSERVER_QUOTA_STORED_MB" in run.problem
    assert Event.objects.filter(kind="message").count() == 1


def test_an_operator_imports_for_somebody_beyond_the_quota(
    alice: User, bob: User, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(quotas=Quotas(stored_mb=1))
    monkeypatch.setattr(quotas, "meter", Meter())
    content = export(*(chat(str(number), said=["x" * 700_000]) for number in range(3)))
    run = runs.begin(bob.pk, NewImport(file_name="a.zip", size=len(content)), by=alice.pk)
    pieces.put(run, 0, content)
    run.refresh_from_db()
    runs.start(run)
    assert carried_out(run).state == ImportState.DONE
    assert Conversation.objects.filter(owner=bob).count() == 3


# Once, by one process, to the end


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_two_starts_at_once_import_once(alice: User) -> None:
    run = begun(alice, export())
    pieces.put(run, 0, export())
    run.refresh_from_db()
    claimed: list[ImportRun | None] = []

    def start(number: int) -> None:
        runs.start(ImportRun.objects.get(pk=run.pk))
        claimed.append(leases.claim(this_process()))

    in_threads(4, start)
    assert len([each for each in claimed if each is not None]) == 1


@pytest.mark.needs_engine
def test_a_user_has_one_running_and_all_together_two(alice: User, bob: User) -> None:
    eve = User.objects.create_user("eve")
    for user in (alice, alice, bob, eve):
        uploaded(user, export())
    taken = [leases.claim(this_process()) for _ in range(4)]
    assert [run and run.user_id for run in taken] == [alice.pk, bob.pk, None, None]


def test_the_import_of_a_deactivated_user_does_not_begin(bob: User) -> None:
    uploaded(bob, export())
    User.objects.filter(pk=bob.pk).update(is_active=False)
    assert leases.claim(this_process()) is None


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_places_taken_at_the_same_moment_are_no_more_than_there_are(alice: User, bob: User) -> None:
    for user in (alice, bob, User.objects.create_user("eve"), User.objects.create_user("joe")):
        uploaded(user, export())

    def claim(number: int) -> None:
        leases.claim(this_process())

    in_threads(4, claim)
    assert ImportRun.objects.running().count() <= 2


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_an_import_of_a_process_that_was_killed_goes_on_in_another_one(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = export(*(chat(str(number), title=f"{number}", said=[f"said {number}"]) for number in range(5)))
    run = uploaded(alice, content)
    killed = leases.claim(GONE)
    assert killed is not None
    note = ImportWork._note

    def note_two(work: ImportWork, line: ImportedConversation) -> None:
        note(work, line)
        if line.number == 2:
            raise KeyboardInterrupt  # as abrupt as can be

    with monkeypatch.context() as patched:
        patched.setattr(ImportWork, "_note", note_two)
        with pytest.raises(KeyboardInterrupt):
            ImportWork(run=killed).carry_out()
    assert Conversation.objects.count() == 2
    assert carried_out(run).state == ImportState.DONE
    assert said() == [f"said {number}" for number in range(5)]
    assert run.totals["events"]["already_here"] == 0  # this import has brought them
    assert ImportedConversation.objects.of(run.pk).count() == 5


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_process_that_says_nothing_for_long_loses_its_import(alice: User) -> None:
    run = uploaded(alice, export())
    elsewhere = Process("another host", 1, 1.0)
    first = leases.claim(elsewhere)
    assert first is not None
    assert leases.claim(this_process()) is None
    ImportRun.objects.update(touched_at=timezone.now() - timedelta(seconds=60))
    second = leases.claim(this_process())
    assert second is not None
    assert second.attempt == 2
    assert leases.renew({held_by(each): {} for each in (first, second)}) == {leases.Held(run.pk, 2): False}
    leases.end(first, ImportState.FAILED, progress={})  # it has nothing to say any more
    run.refresh_from_db()
    assert run.state == ImportState.RUNNING


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_an_attempt_that_was_left_behind_takes_nothing_from_the_one_that_follows(alice: User) -> None:
    run = uploaded(alice, export())
    first = leases.claim(GONE)
    assert first is not None
    with contextlib.ExitStack() as left:
        old = left.enter_context(pieces.local_file(first))
        unpacked = pieces.unpacked_of(first) / "old"
        os.close(pieces.private_file(unpacked))
        second = leases.claim(this_process())
        assert second is not None
        with pieces.local_file(second) as path:
            os.close(pieces.private_file(pieces.unpacked_of(second) / "new"))
            assert old.exists()
            assert unpacked.exists()
            left.close()
            assert not unpacked.exists()
            assert path.read_bytes() == export()
            assert (pieces.unpacked_of(second) / "new").exists()
    ImportWork(run=second).carry_out()
    run.refresh_from_db()
    assert run.state == ImportState.DONE


def test_what_a_killed_attempt_has_left_is_removed_when_all_is_tidied(
    alice: User, data_directory: Path
) -> None:
    uploaded(alice, export())
    for process in (GONE, this_process()):
        run = leases.claim(process)
        assert run is not None
        os.close(pieces.private_file(pieces.unpacked_of(run) / str(run.attempt)))
    runs.tidy()
    assert [file.name for file in data_directory.rglob("unpacked/*")] == ["2"]


def test_a_file_may_have_the_name_of_a_directory_here(alice: User) -> None:
    content = zipped({f"home/{file.name}": file.read_bytes() for file in CLAUDE_CODE.rglob("*.jsonl")})
    run = carried_out(uploaded(alice, content, "unpacked"))
    assert (run.state, run.problem) == (ImportState.DONE, "")


def test_a_server_that_ends_gives_its_import_back(alice: User) -> None:
    run = uploaded(alice, export())
    claimed = leases.claim(this_process())
    assert claimed is not None
    ending = ImportWork(run=claimed)
    ending.progress.is_stopped = True
    ending.carry_out()
    run.refresh_from_db()
    assert (run.state, run.slot) == (ImportState.WAITING, None)
    assert carried_out(run).state == ImportState.DONE


def test_a_file_that_ends_every_server_is_given_up(alice: User) -> None:
    run = uploaded(alice, export())
    for _ in range(leases.CRASHES_MAX):
        assert leases.claim(GONE) is not None
    assert leases.claim(GONE) is None
    run.refresh_from_db()
    assert (run.state, run.problem) == (ImportState.FAILED, leases.GIVEN_UP)


def test_a_server_that_is_restarted_often_and_orderly_does_not_give_up(alice: User) -> None:
    run = uploaded(alice, export())
    for _ in range(leases.CRASHES_MAX + 2):
        claimed = leases.claim(this_process())
        assert claimed is not None
        leases.give_back(claimed)
    assert carried_out(run).state == ImportState.DONE


def test_an_import_that_gets_further_between_crashes_is_not_given_up(alice: User) -> None:
    run = uploaded(alice, export())
    for number in range(1, leases.CRASHES_MAX + 3):
        claimed = leases.claim(GONE)
        assert claimed is not None
        leases.renew({held_by(claimed): {"conversations": number}})
    assert carried_out(run).state == ImportState.DONE


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_after_a_failure_of_the_database_an_import_pauses_and_goes_on(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uploaded(alice, export())
    claimed = leases.claim(this_process())
    assert claimed is not None
    with monkeypatch.context() as patched:
        patched.setattr(writes, "append", raising(OperationalError("the disk is gone")))
        ImportWork(run=claimed).carry_out()
    run.refresh_from_db()
    assert run.state == ImportState.RUNNING
    assert leases.claim(this_process()) is None
    ImportRun.objects.update(touched_at=timezone.now() - timedelta(seconds=LEASE_S + 1))
    assert carried_out(run).state == ImportState.DONE
    assert said() == [SAID]


@pytest.mark.needs_engine
def test_a_conversation_that_the_database_refuses_does_not_keep_the_others_out(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = writes.append

    def refuse_one(conversation: ConversationRef, events: Sequence[NewEvent], **rest: Any) -> Any:
        if any("cannot be stored" in event.payload for event in events):
            raise DataError("it is not text")
        return append(conversation, events, **rest)

    monkeypatch.setattr(writes, "append", refuse_one)
    content = export(chat("a", said=["This cannot be stored."]), chat("b", said=[SAID]))
    run = carried_out(uploaded(alice, content))
    assert (run.state, run.conversations, run.failed) == (ImportState.DONE, 2, 1)
    assert [line.problem for line in ImportedConversation.objects.of(run.pk)] == [NOT_STORED, ""]
    assert said() == [SAID]


def test_a_report_lists_so_many_conversations_and_counts_all(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LINES_MAX", 2)
    run = carried_out(uploaded(alice, export(*(chat(str(number)) for number in range(3)))))
    assert (run.state, run.conversations) == (ImportState.DONE, 3)
    assert ImportedConversation.objects.of(run.pk).count() == 2


@pytest.mark.needs_engine
def test_who_has_no_room_is_left_no_empty_conversation(
    alice: User, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(quotas=Quotas(stored_mb=1))
    monkeypatch.setattr(quotas, "meter", Meter())
    run = carried_out(uploaded(alice, export(chat(said=["x" * 1_200_000]))))
    assert run.state == ImportState.FAILED
    assert not Conversation.objects.exists()


# Cancelling and forgetting


def test_an_upload_that_is_forgotten_leaves_nothing(alice: User, data_directory: Path) -> None:
    run = begun(alice, export())
    pieces.put(run, 0, export()[:50])
    runs.forget(run)
    assert not ImportRun.objects.exists()
    assert not ImportPiece.objects.exists()
    assert [file for file in data_directory.rglob("*") if file.is_file()] == []


def test_an_import_that_waits_is_cancelled_at_once_and_can_then_be_forgotten(alice: User) -> None:
    run = uploaded(alice, export())
    runs.forget(run)  # which does not end what has not ended
    runs.cancel(run)
    assert leases.claim(this_process()) is None
    run.refresh_from_db()
    assert run.state == ImportState.CANCELLED
    runs.forget(run)
    with pytest.raises(ImportNotFound):
        runs.found(alice.pk, run.public_id)


def test_an_import_that_runs_is_cancelled_between_conversations(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uploaded(alice, export(chat("a", said=["one"]), chat("b", said=["two"])))
    claimed = leases.claim(this_process())
    assert claimed is not None
    running = ImportWork(run=claimed)

    def note(work: ImportWork, line: ImportedConversation) -> None:
        runs.cancel(claimed)
        running.progress.is_cancelled = leases.renew({held_by(claimed): {}}) == {held_by(claimed): True}

    monkeypatch.setattr(ImportWork, "_note", note)
    running.carry_out()
    run.refresh_from_db()
    assert run.state == ImportState.CANCELLED
    assert said() == ["one"]


def test_an_import_is_cancelled_while_its_file_is_looked_through(
    alice: User, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "chats.json": b"[[" + b"[[]]," * 400_000,
        "lines.jsonl": b"\n" * 400_000,
        "members.zip": zipped({f"{number}.jsonl": b"{}\n" for number in range(2_000)}),
    }

    def ask(work: ImportWork) -> None:
        asked.append(True)
        work.progress.is_cancelled = len(asked) == 20

    monkeypatch.setattr(ImportWork, "_require_going_on", ask)
    for name, content in files.items():
        run = uploaded(alice, content, name)
        claimed = leases.claim(this_process())
        assert claimed is not None
        asked = list[bool]()
        ImportWork(run=claimed).carry_out()
        run.refresh_from_db()
        with subtests.test(name):
            assert (run.state, len(asked)) == (ImportState.CANCELLED, 20)


def test_a_cancel_while_a_conversation_is_read_leaves_the_whole_of_it(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uploaded(alice, export(chat("a", said=["one", "two"]), chat("b", said=["three"])))
    claimed = leases.claim(this_process())
    assert claimed is not None
    work = ImportWork(run=claimed)
    read = ImportWork._read

    def cancel_and_check(work: ImportWork) -> None:
        work.progress.is_cancelled = True
        processes.check()
        read(work)

    monkeypatch.setattr(ImportWork, "_read", cancel_and_check)
    work.carry_out()
    run.refresh_from_db()
    assert run.state == ImportState.CANCELLED
    assert said() == ["one", "two"]


def test_a_cancel_that_comes_too_late_changes_nothing(alice: User) -> None:
    run = carried_out(uploaded(alice, export()))
    runs.cancel(run)
    again = runs.found(alice.pk, run.public_id)
    assert (again.state, again.is_cancelled) == (ImportState.DONE, False)


def test_the_imports_of_a_deactivated_user_are_cancelled(alice: User, bob: User) -> None:
    ended = [uploaded(bob, export()), begun(bob, export())]
    stays = uploaded(alice, export())
    User.objects.filter(pk=bob.pk).update(is_active=False)
    runs.tidy()
    for run in (*ended, stays):
        run.refresh_from_db()
    assert [run.state for run in (*ended, stays)] == ["cancelled", "cancelled", "waiting"]


def test_what_is_chosen_when_an_import_starts_replaces_what_was_said_before(alice: User) -> None:
    run = begun(alice, export(), labels=["old"], format="codex")
    pieces.put(run, 0, export())
    run.refresh_from_db()
    with pytest.raises(InvalidImport):
        runs.start(run, Chosen(zone="Mars/Olympus"))
    runs.start(run, Chosen(labels=["new"], zone="Europe/Berlin"))
    assert carried_out(run).state == ImportState.DONE
    assert (run.labels, run.zone, run.format) == (["new"], "Europe/Berlin", "chatgpt")


def test_only_who_has_begun_an_import_sends_its_file(alice: User, bob: User) -> None:
    run = runs.begin(bob.pk, NewImport(file_name="a.zip", size=9), by=alice.pk)
    assert runs.found_by_sender(alice.pk, run.public_id) == run
    assert runs.found(bob.pk, run.public_id) == run
    with pytest.raises(NotTheSender):
        runs.found_by_sender(bob.pk, run.public_id)


def test_the_files_of_all_users_have_a_limit_together(
    alice: User, bob: User, configured: Callable[..., None]
) -> None:
    configured(imports_open_max_mb=1)
    runs.begin(alice.pk, NewImport(file_name="a.zip", size=600_000))
    with pytest.raises(TooManyImports, match="CONVSERVER_IMPORTS_OPEN_MAX_MB"):
        runs.begin(bob.pk, NewImport(file_name="b.zip", size=600_000))
    configured(imports_open_max_mb=0)
    runs.begin(bob.pk, NewImport(file_name="b.zip", size=600_000))


def test_a_piece_that_the_disk_has_no_room_for_is_refused(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(alice, b"12345678")
    monkeypatch.setattr(pieces, "RESERVE_BYTES", 2**62)
    with pytest.raises(NoRoom):
        pieces.put(run, 0, b"1234")
    run.refresh_from_db()
    assert run.received == 0


def test_uploads_that_nobody_goes_on_with_are_removed(alice: User, data_directory: Path) -> None:
    old, new = (begun(alice, export()) for _ in range(2))
    for run in (old, new):
        pieces.put(run, 0, export()[:50])
    ImportRun.objects.filter(pk=old.pk).update(touched_at=timezone.now() - timedelta(hours=25))
    stray = data_directory / pieces.DIRECTORY / "0123" / "left"
    stray.parent.mkdir(parents=True)
    stray.touch()
    runs.tidy()
    assert list(ImportRun.objects.all()) == [new]
    assert not stray.exists()
    new.refresh_from_db()
    assert pieces.put(new, 50, export()[50:]) == len(export())


def deepened(directory: Path) -> str:
    """Make directories in a directory, deeper than `shutil.rmtree` can go; return the last."""
    directory.mkdir(parents=True, exist_ok=True)
    deep = str(directory)
    for _ in range(1_600):
        deep += "/a"
        os.mkdir(deep)  # noqa: PTH102 - `Path` would walk it
    return deep


def test_a_directory_that_cannot_be_removed_keeps_none_of_the_others(data_directory: Path) -> None:
    strays = [data_directory / pieces.DIRECTORY / name for name in ("0123", "4567", "89ab")]
    for stray in strays:
        stray.mkdir(parents=True)
    deep = deepened(strays[1])
    try:
        runs.tidy()
        assert [stray for stray in strays if stray.exists()] == strays[1:2]
    finally:
        os.removedirs(deep)


def test_an_import_whose_files_cannot_be_removed_has_ended(alice: User) -> None:
    run = uploaded(alice, export())
    deep = deepened(pieces.directory_of(run))
    try:
        assert carried_out(run).state == ImportState.DONE
    finally:
        os.removedirs(deep)


def test_the_newest_reports_are_kept(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEPT_MAX", 2)
    made = [begun(alice, b"1") for _ in range(4)]
    for run in made:
        ImportRun.objects.filter(pk=run.pk).update(state=ImportState.DONE)
    last = begun(alice, b"1")
    kept = list(ImportRun.objects.order_by("pk").values_list("pk", flat=True))
    assert kept == [made[2].pk, made[3].pk, last.pk]


def test_nobody_finds_a_strangers_import(alice: User, bob: User) -> None:
    run = begun(alice, b"1")
    with pytest.raises(ImportNotFound):
        runs.found(bob.pk, run.public_id)
