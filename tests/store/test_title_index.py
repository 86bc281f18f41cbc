"""The index of titles: it holds what the conversations hold, and finds what reading them all would find."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import example, given
from hypothesis import strategies as st

from conversations.engines import case_insensitive
from conversations.models import Conversation, ConversationRef, TitleChange
from conversations.search import titles
from conversations.search.fulltext import questions
from conversations.search.fulltext.search import by_title
from conversations.store import changes, creation
from sessions_app import astore, background
from tests.conftest import on_postgresql
from tests.support.data.threads import in_threads, is_somebody_waiting
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import until

LETTERS = st.sampled_from([*"aAbBß ﬁİıſǆΣς%_\\\"'*-.", "\u0301", "语", "😀"])


def index() -> int:
    """Index every title that has changed; return how many are in the index then."""
    while titles.step():
        pass
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {titles.TABLE}")
        return int(cursor.fetchone()[0])


def found(text: str) -> list[str]:
    rows = Conversation.objects.filter(titles.holding(text)).order_by("pk")
    return list(rows.values_list("public_id", flat=True))


def test_a_title_is_found_as_it_is_now(conversation: ConversationRef) -> None:
    assert found("first") == []
    changes.retitle(conversation, "The first one")
    assert (found("FIRST"), index()) == (["talk"], 1)
    changes.retitle(conversation, "The second one")
    assert (found("first"), found("second"), index()) == ([], ["talk"], 1)
    Conversation.objects.update(title=None)
    assert (found("second"), index()) == ([], 0)
    Conversation.objects.update(title="By hand")
    Conversation.objects.all().delete()
    assert index() == 0


@given(
    stored=st.text(LETTERS, max_size=8),
    asked=st.text(LETTERS, min_size=1, max_size=4),
    is_indexed=st.booleans(),
)
@example(stored="Straße", asked="STRASSE", is_indexed=True)
@example(stored='say "when"', asked='"when"', is_indexed=True)
@example(stored="a\\_b%", asked="\\_B%", is_indexed=True)
def test_the_index_finds_what_reading_every_title_finds(
    django_db_setup: None, django_db_blocker: Any, stored: str, asked: str, is_indexed: bool
) -> None:
    with django_db_blocker.unblock(), transaction.atomic():
        owner = User.objects.get_or_create(username="tests")[0]
        for number, title in enumerate((stored, stored + asked.swapcase() + stored, None)):
            Conversation.objects.create(owner=owner, public_id=str(number), title=title)
        if is_indexed:
            index()
        read = Conversation.objects.filter(case_insensitive.holds("title", asked)).order_by("pk")
        assert found(asked) == list(read.values_list("public_id", flat=True))
        transaction.set_rollback(True)


def test_a_question_of_three_letters_or_more_goes_by_the_index(alice: User) -> None:
    Conversation.objects.bulk_create(
        Conversation(owner=alice, public_id=f"c{number}", title=f"{number} conversations")
        for number in range(titles.CANDIDATES_MAX + 1)
    )
    index()
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # SQLite would plan by this for the tests that follow, too
            cursor.execute("ANALYZE")
            cursor.execute("SET LOCAL enable_seqscan = off")  # so few are quickly read
        with CaptureQueriesContext(connection) as asked:
            assert found("1000") == ["c1000"]
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        cursor.execute(f"{explain} {asked[0]['sql']}")
        plan = str(cursor.fetchall())
    names = {"sqlite": "VIRTUAL TABLE INDEX", "postgresql": "conversations_titletext_pieces"}
    assert names[connection.vendor] in plan
    assert len(found("99")) == 19
    assert len(found("conversation")) == titles.CANDIDATES_MAX + 1


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_title_is_found_by_a_text_of_any_length(conversation: ConversationRef, is_indexed: bool) -> None:
    title = "Die Straße 100% \u0390 😀" * 10_000
    changes.retitle(conversation, title)
    if is_indexed:
        index()
    assert found(title.swapcase()) == ["talk"]
    assert found(title + "!") == found("😀" * 60_000) == []


def test_the_index_is_asked_once_for_each_text_and_one_list_of_keys_is_looked_through(alice: User) -> None:
    for number, title in enumerate(("Mend the login page", "Login", "The page", "A PAGE to LOGIN")):
        creation.create(alice, conversation_id=f"c{number}", title=title)
    index()
    with CaptureQueriesContext(connection) as asked:
        rows = by_title(Conversation.objects.all(), questions.read("login page Login LOGIN page -mend -mend"))
        assert [row.public_id for row in rows] == ["c3"]
    *in_index, finding = [query["sql"] for query in asked.captured_queries]
    assert len(in_index) == 2
    assert finding.count('"id" IN (') == 1
    assert finding.lower().count("upper(") == 3


def test_the_index_is_rebuilt_by_a_command(alice: User) -> None:
    creation.create(alice, conversation_id="talk", title="The needle")
    assert index() == 1
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {titles.TABLE}")
    assert found("needle") == []
    call_command("rebuild_search", stdout=StringIO())
    assert not TitleChange.objects.exists()
    assert found("needle") == ["talk"]


def test_what_was_there_before_the_index_comes_into_it(alice: User) -> None:
    creation.create(alice, conversation_id="talk", title="The needle")
    creation.create(alice, conversation_id="untitled")
    assert index() == 1
    titles.drop(connection)
    titles.create(connection)
    assert (found("needle"), index(), found("needle")) == (["talk"], 1, ["talk"])


async def test_the_server_indexes_titles_as_they_change(live: None, alice: User) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="talk", title="The needle"))
    background.start()
    await until(lambda: not TitleChange.objects.exists())
    assert await astore.call(lambda: found("needle")) == ["talk"]


@on_postgresql
def test_without_the_extension_titles_are_found_by_reading_them(
    alice: User, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "_INDEX", ["CREATE EXTENSION there_is_no_such_extension"])
    creation.create(alice, conversation_id="talk", title="The needle")
    with transaction.atomic():
        titles.drop(connection)
        titles.create(connection)
    assert "searched without an index" in caplog.text
    assert (found("needle"), index(), found("needle")) == (["talk"], 1, ["talk"])
    monkeypatch.undo()
    titles.begin_anew()
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM pg_indexes WHERE tablename = %s", [titles.TABLE])
        assert cursor.fetchone() == (2,)


# Others at the same moment


@pytest.mark.no_second_try
@on_postgresql
def test_a_title_that_changes_while_it_is_indexed_is_indexed_again(alice: User) -> None:
    conversation = creation.create(alice, title="The hay")

    def change() -> None:
        changes.retitle(conversation, "The needle")

    meanwhile(change, index)
    index()
    assert found("needle") == [conversation.public_id]


@pytest.mark.no_second_try
@on_postgresql
def test_what_is_deleted_while_it_is_indexed_leaves_no_title(alice: User) -> None:
    creation.create(alice, title="The needle")
    meanwhile(lambda: Conversation.objects.all().delete(), index)
    assert index() == 0


@pytest.mark.no_second_try
@on_postgresql
def test_an_index_is_begun_anew_once_who_is_just_writing_it_is_done(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = creation.create(alice, conversation_id="talk", title="The needle")
    are_taken = threading.Event()
    renew = titles._renew

    def renew_slowly(*arguments: Any) -> None:
        are_taken.set()
        await_somebody_waiting()
        renew(*arguments)

    def write() -> None:
        titles.step()

    def begin_anew() -> None:
        assert are_taken.wait(WAIT_S)
        titles.begin_anew()

    with monkeypatch.context() as patch:
        patch.setattr(titles, "_renew", renew_slowly)
        in_threads(2, lambda number: (write, begin_anew)[number]())
    assert list(TitleChange.objects.values_list("pk", flat=True)) == [conversation.pk]
    assert (found("needle"), index(), found("needle")) == (["talk"], 1, ["talk"])


@pytest.mark.no_second_try
@on_postgresql
def test_a_title_that_changes_while_the_index_is_begun_anew_comes_into_it(alice: User) -> None:
    conversation = creation.create(alice, title="The hay")
    index()
    meanwhile(lambda: changes.retitle(conversation, "The needle"), titles.begin_anew)
    index()
    assert found("needle") == [conversation.public_id]


def meanwhile(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Do the one and, before that is committed, the other, which may wait for it."""
    is_done, is_over = threading.Event(), threading.Event()

    def begin() -> None:
        with transaction.atomic():
            first()
            is_done.set()
            await_somebody_waiting(is_over)

    def follow() -> None:
        assert is_done.wait(WAIT_S)
        second()
        is_over.set()

    in_threads(2, lambda number: (begin, follow)[number]())


def await_somebody_waiting(is_over: threading.Event | None = None) -> None:
    """Return once somebody waits for a lock, or needs none any more."""
    deadline = time.monotonic() + WAIT_S
    while not is_somebody_waiting() and not (is_over and is_over.is_set()):
        assert time.monotonic() < deadline
