"""Search: what was acknowledged is found at once, by its owner alone, and the same on every engine."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from typing import Any, Literal

import httpx
import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from conversations.dialects import columns
from conversations.engines import guards
from conversations.engines.watermark import EventHorizon
from conversations.events import TEXT_MAX_BYTES
from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationRef,
    Event,
    Purge,
    SearchProgress,
    Version,
)
from conversations.search import titles
from conversations.search.fulltext import index, indexing, limits, questions, search, snippets, words
from conversations.search.fulltext.indexing import IndexingStep
from conversations.search.fulltext.search import Scope, SearchConditions
from conversations.store import creation, deletion, forks, importing
from sessions_app import astore, background, search_indexer
from sessions_app.models import AgentLoop, ExecutionStatus
from tests.conftest import on_postgresql, on_sqlite, once
from tests.support.data.events import event
from tests.support.data.threads import in_threads, is_somebody_waiting
from tests.support.people.clients import WAIT_S, database_url
from tests.support.people.scripted_agent import until
from tests.support.wires.network import wait_until

PATH = "/api/native/search"
SETTLED_WITHIN_S = 4 * WAIT_S
"""Others' transactions, which hold the index back, may take long: some make and migrate whole databases."""


def index_all() -> None:
    """Index everything, once what others do with the database server lets it settle."""
    watermark, newest = EventHorizon(), newest_key()

    def is_indexed() -> bool:
        watermark.look()
        indexing.step(watermark)
        return SearchProgress.through_now() >= newest

    wait_until(is_indexed, within_s=SETTLED_WITHIN_S)


def newest_key() -> int:
    return max(Event.objects.values_list("pk", flat=True))


def leave() -> None:
    """Index nothing."""


def in_part() -> None:
    """Index all but the newest few events."""
    watermark = EventHorizon()
    watermark.settled = newest_key() - 3
    while not indexing.step(watermark).is_last:
        pass


Indexing = Callable[[], None]


@pytest.fixture(params=[index_all, leave, in_part])
def write_index(request: pytest.FixtureRequest) -> Indexing:
    """Index all that there is, or nothing of it, or most."""
    write: Indexing = request.param
    return write


def ask(question: str, **query: Any) -> dict[str, Any]:
    answer = Browser().get(PATH, {"q": question, **query}, headers={"host": "localhost"})
    assert answer.status_code == 200, answer.content
    page: dict[str, Any] = answer.json()
    return page


def refusal(question: str, **query: Any) -> str:
    answer = Browser().get(PATH, {"q": question, **query}, headers={"host": "localhost"})
    assert answer.status_code == 400, answer.content
    return str(answer.json()["detail"])


def found(question: str, **query: Any) -> list[tuple[str, int]]:
    return [(hit["conversation"]["id"], hit["seq"]) for hit in ask(question, **query)["hits"]]


def seqs(question: str, **query: Any) -> list[int]:
    """Return the places of the hits, which are all of one conversation."""
    return [seq for _, seq in found(question, **query)]


def say(conversation: ConversationRef, *texts: str) -> None:
    writes.append(conversation, [event(text) for text in texts])


def result(text: str, **members: Any) -> str:
    return json.dumps(
        {"observation": "run", "source": "environment", "content": text, "extras": {}, **members}
    )


# What is found


@pytest.mark.no_second_try
def test_what_was_acknowledged_is_found_at_once(conversation: ConversationRef, write_index: Indexing) -> None:
    say(conversation, *(f"number {n}" for n in range(8)))
    write_index()
    for number in range(8):
        assert seqs(f"number {number}") == [number]
    say(conversation, "and the last one")
    assert seqs("last") == [8]


def test_the_newest_comes_first_across_conversations(alice: User, write_index: Indexing) -> None:
    one, other = (creation.create(alice, conversation_id=name) for name in ("one", "other"))
    for conversation in (one, other, one, one, other):
        say(conversation, "again", "never mind")
    write_index()
    assert found("again") == [("other", 2), ("one", 4), ("one", 2), ("other", 0), ("one", 0)]


TEXTS = [
    "The login page",
    "A page without a login",
    "login only",
    "LOGOUT",
    "see foo_bar.py there",
    "open /src/app.ts:12",
    "It says: ERR_42!",
    "run --verbose",
    "Ein naïves Cafe\u0301 in der Straße",
    "彼は東京都庁にいる",
    "나는 한국인이다",
    "well done👍👍",
    "ฉันมีแมวสองตัว",
]

FOUND = {
    "login": {0, 1, 2},
    "login page": {0, 1},
    '"login page"': {0},
    '"page login"': set(),
    "login OR logout": {0, 1, 2, 3},
    "page login OR logout": {0, 1, 3},
    "login -page": {2},
    "login NOT page": {2},
    'login -"login page"': {1, 2},
    "logout OR login -page": {2, 3},
    "LOGIN AND Page": {0, 1},
    "log*": {0, 1, 2, 3},
    "logi* -pag*": {2},
    "foo_bar.py": {4},
    "foo": {4},
    "bar": {4},
    "py": {4},
    "oo_bar": set(),
    "foo_ba*": {4},
    "/src/app.ts": {5},
    "app.ts": {5},
    "src ts": {5},
    "ERR_42": {6},
    "err": {6},
    "42": {6},
    "--verbose": {7},
    "café": {8},
    "CAFE": {8},
    "naïve OR strasse": {8},
    "東京": {9},
    "京都": {9},
    "東都": set(),
    '"東京都庁"': {9},
    "한국": {10},
    "👍": {11},
    "แมว": {12},
    "OR login page OR": {0, 1},
    "login NOT": {0, 1, 2},
    "login -": {0, 1, 2},
    "AND logout": {3},
    'login "': {0, 1, 2},
    '"login page': {0},
    "login.*": {0, 1, 2},
    "login 'page'; DROP TABLE x": set(),
    "login & ! ( | page : *": {0, 1},
    'login NEAR("a")': set(),
    "“login page”": {0},
}
"""By question, which of these texts have what is asked for."""


def test_a_question_finds_what_has_what_is_asked_for(
    conversation: ConversationRef, write_index: Indexing
) -> None:
    say(conversation, *TEXTS)
    write_index()
    assert {question: set(seqs(question)) for question in FOUND} == FOUND


def test_a_text_in_pieces_of_letters_is_found_by_one_in_whole_letters_and_the_other_way_round(
    conversation: ConversationRef, write_index: Indexing
) -> None:
    whole = "Résumé 한국어 보고서 ガイドブック.txt"
    texts = [unicodedata.normalize(form, whole) for form in ("NFC", "NFD")]
    say(conversation, *texts)
    write_index()
    for asked in ("한국", "보고서", "ガイド", '"어 보고"', "résumé", "résumé*", "ブ*"):
        for form in ("NFC", "NFD"):
            assert seqs(unicodedata.normalize(form, asked)) == [1, 0], (asked, form)
    for hit in ask("보고서")["hits"]:
        parts = [(unicodedata.normalize("NFC", part["text"]), part["match"]) for part in hit["snippet"]]
        assert parts == [("Résumé 한국어 ", False), ("보고서", True), (" ガイドブック.txt", False)]


def test_a_word_at_the_end_of_a_long_tool_output_is_found(
    conversation: ConversationRef, write_index: Indexing
) -> None:
    lines = "".join(f"line {n} of the output\n" for n in range(5_000))
    kept, cut = lines[:90_000] + " needle ", " haystack"
    long = event(raw=result(kept + lines[: TEXT_MAX_BYTES - len(kept)] + cut))
    writes.append(conversation, [long, event(), event(), event()])
    write_index()
    (hit,) = ask("needle")["hits"]
    assert hit["seq"] == 0
    assert [part["text"] for part in hit["snippet"] if part["match"]] == ["needle"]
    assert seqs('"output line 3790"') == [0]
    assert seqs("haystack") == []


def test_a_text_of_as_many_different_words_as_there_may_be_is_indexed(conversation: ConversationRef) -> None:
    arabic = "".join(chr(n) for n in range(0xFDF0, 0xFDFB))
    many = " ".join(f"{arabic[n % 9 :]}{chr(0x4E00 + n % 5000)}ﷺﷺﷺ{n}" for n in range(3_000))
    writes.append(conversation, [event(many), event("東" * 33_000 + "京"), event("x" * 99_000)])
    index_all()
    assert seqs("東京") == [1]
    assert seqs("x" * 60) == [2]


def test_a_text_that_is_one_long_word_is_not_kept_in_the_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(10):
            letters = f"{number}{'x' * 100_000}"
            assert words.Words(f"é {letters} é{letters}").all[1:] == [letters[:50], f"e{letters}"[:50]]
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_a_long_row_of_accents_is_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_order: list[str] = []
    normalize = unicodedata.normalize

    def noted(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
        put_in_order.append(text)
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", noted)
    row = "\u0301\u0323" * 200
    assert words.Words(f"e{row}a\u0345 \u00e9").all == ["ea\u03b9", "e"]
    assert max(map(len, put_in_order)) < 10


def test_what_an_author_hid_is_not_found(conversation: ConversationRef, write_index: Indexing) -> None:
    raw = json.dumps({"action": "message", "source": "user", "args": {"content": "token", "hidden": True}})
    writes.append(conversation, [event(raw=raw), event("a token"), event(), event()])
    write_index()
    assert seqs("token") == [1]


def test_a_deleted_conversation_is_not_found_until_it_is_restored(alice: User, write_index: Indexing) -> None:
    talk = creation.create(alice, conversation_id="talk", title="A needle")
    say(talk, "needle", "hay", "hay", "hay")
    write_index()
    deletion.soft_delete(talk)
    assert ask("needle") == {"conversations": [], "hits": [], "next_page_id": None, "notice": None}
    deletion.restore(talk)
    page = ask("needle")
    assert ([each["id"] for each in page["conversations"]], len(page["hits"])) == (["talk"], 1)


def test_a_fork_is_found_as_well(alice: User, conversation: ConversationRef, write_index: Indexing) -> None:
    say(conversation, "needle", "hay", "hay")
    forks.fork(alice, conversation, conversation_id="fork")
    write_index()
    assert found("needle") == [("fork", 0), ("talk", 0)]


def test_an_import_is_found_as_well(alice: User, write_index: Indexing) -> None:
    events = [event(text) for text in ("needle", "hay", "hay", "hay")]
    importing.import_conversation(alice, events, conversation_id="brought", version=Version.V0)
    write_index()
    assert found("needle") == [("brought", 0)]


def test_a_purge_takes_the_words_along(conversation: ConversationRef, alice: User) -> None:
    say(conversation, "needle")
    other = creation.create(alice, conversation_id="other")
    say(other, "needle")
    index_all()
    purge(conversation)
    assert words_kept() == 1
    assert found("needle") == [("other", 0)]


def words_kept() -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {index.TABLE}")
        return int(cursor.fetchone()[0])


def purge(conversation: ConversationRef) -> None:
    Purge.objects.create(conversation_id=conversation.pk, requested_by="tests", reason="to see")
    Event.objects.of(conversation)._raw_delete("default")


@pytest.mark.no_second_try
def test_what_is_purged_while_it_is_being_indexed_leaves_no_words(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(conversation, "needle")
    move = SearchProgress.move

    def purge_first(*arguments: Any) -> bool:
        purge(conversation)
        return move(*arguments)

    monkeypatch.setattr(SearchProgress, "move", purge_first)
    watermark = EventHorizon()
    watermark.settled = newest_key()
    indexing.step(watermark)
    assert words_kept() == 0


@pytest.mark.no_second_try
@on_postgresql
def test_a_purge_waits_for_words_that_are_just_being_added(conversation: ConversationRef) -> None:
    say(conversation, "needle")
    watermark = EventHorizon()
    watermark.settled = newest_key()
    is_added, is_purged = threading.Event(), threading.Event()

    def index_slowly() -> None:
        with transaction.atomic():
            indexing.step(watermark)
            is_added.set()
            deadline = time.monotonic() + WAIT_S
            while not is_purged.is_set() and not is_somebody_waiting():
                assert time.monotonic() < deadline

    def purge_meanwhile() -> None:
        assert is_added.wait(WAIT_S)
        purge(conversation)
        is_purged.set()

    in_threads(2, lambda number: (index_slowly, purge_meanwhile)[number]())
    assert words_kept() == 0


# By whom


def test_a_stranger_finds_nothing(conversation: ConversationRef, bob: User, write_index: Indexing) -> None:
    say(conversation, "needle", "needle", "needle", "needle")
    strange = creation.create(bob, conversation_id="bobs", title="needle")
    say(strange, "needle", "hay", "hay", "hay")
    write_index()
    page = ask("needle")
    assert {hit["conversation"]["id"] for hit in page["hits"]} == {"talk"}
    assert page["conversations"] == []


def test_a_conversation_of_a_stranger_is_not_there(alice: User, bob: User) -> None:
    creation.create(bob, conversation_id="bobs")
    answers = [
        Browser().get(PATH, {"q": "a", "conversation": name}, headers={"host": "localhost"})
        for name in ("bobs", "nobodys")
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].content == answers[1].content


# Filters


@pytest.fixture
def corpus(alice: User) -> None:
    """Two conversations that differ in everything, and one that says nothing."""
    one = creation.create(
        alice, conversation_id="one", repository="a/b", trigger="gui", title="needle", version=Version.V0
    )
    other = creation.create(alice, conversation_id="other", repository="c/d", version=Version.V1)
    creation.create(alice, conversation_id="empty", repository="e/f")
    AgentLoop.objects.create(conversation_id=one.pk, execution_status=ExecutionStatus.RUNNING)
    times = [{"timestamp": f"2026-01-0{day}T12:00:00"} for day in (1, 2, 3)]
    writes.append(one, [event(raw=result("needle", **times[0])), event("needle")])
    writes.append(other, [event(raw=result("needle", **day)) for day in times])


FILTERED: list[tuple[dict[str, Any], set[tuple[str, int]]]] = [
    ({}, {("one", 0), ("one", 1), ("other", 0), ("other", 1), ("other", 2)}),
    ({"repository": "a/b"}, {("one", 0), ("one", 1)}),
    ({"repository": "e/f"}, set()),
    ({"repository": "nothing"}, set()),
    ({"trigger": "gui"}, {("one", 0), ("one", 1)}),
    ({"version": "V1"}, {("other", 0), ("other", 1), ("other", 2)}),
    ({"status": "running"}, {("one", 0), ("one", 1)}),
    ({"status": "idle"}, {("other", 0), ("other", 1), ("other", 2)}),
    ({"conversation": "other"}, {("other", 0), ("other", 1), ("other", 2)}),
    ({"kind": "message"}, {("one", 1)}),
    ({"kind": ["message", "tool_result"], "conversation": "one"}, {("one", 0), ("one", 1)}),
    ({"source": "user"}, {("one", 1)}),
    ({"source": ["user", "nobody"]}, {("one", 1)}),
    ({"since": "2026-01-02T12:00:00Z", "until": "2026-01-03T12:00:00Z"}, {("other", 1)}),
    ({"until": "2026-01-02"}, {("one", 0), ("other", 0)}),
    ({"since": "2026-01-02T13:00:00+01:00", "source": "environment"}, {("other", 1), ("other", 2)}),
]


def test_filters_leave_what_they_name(corpus: None, write_index: Indexing) -> None:
    write_index()
    for query, expected in FILTERED:
        assert (query, set(found("needle", **query))) == (query, expected)


def test_titles_are_found_by_what_is_written_in_them(alice: User) -> None:
    for name, title in (("a", "Fix the LOGIN page"), ("b", "Logins of pages"), ("c", None), ("d", "foo_bar")):
        creation.create(alice, conversation_id=name, title=title)
    for question, expected in {
        "login page": ["b", "a"],
        '"login page"': ["a"],
        "ogin -fix": ["b"],
        "fix OR foo": ["d", "a"],
        "oo_ba": ["d"],
        "conversation": [],
    }.items():
        assert [each["id"] for each in ask(question)["conversations"]] == expected


def test_titles_stand_on_the_first_page_alone_and_not_where_events_are_asked_for(
    corpus: None,
) -> None:
    page = ask("needle", limit=2)
    assert [each["id"] for each in page["conversations"]] == ["one"]
    assert ask("needle", limit=2, page_id=page["next_page_id"])["conversations"] == []
    assert ask("needle", kind="message")["conversations"] == []
    assert ask("needle", repository="c/d")["conversations"] == []


# Pages


@pytest.mark.no_second_try
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
@pytest.mark.sampled(6)
def test_pages_bring_every_hit_once(conversation: ConversationRef, write_index: Indexing, limit: int) -> None:
    say(conversation, *(f"needle {n}" if n % 3 else "hay" for n in range(20)))
    write_index()
    seen, page_id = [], None
    while True:
        page = ask("needle", limit=limit, **({"page_id": page_id} if page_id else {}))
        seen += [hit["seq"] for hit in page["hits"]]
        assert len(page["hits"]) == limit or page["next_page_id"] is None
        say(conversation, "needle, but later")
        if (page_id := page["next_page_id"]) is None:
            break
    assert seen == [n for n in range(19, -1, -1) if n % 3]


@pytest.mark.parametrize(
    ("bound", "value", "count"), [("EVENTS_MAX", 10, 100), ("BYTES_MAX", 10, 30), ("READING_S", 0.0, 30)]
)
@pytest.mark.sampled(4)
def test_a_page_ends_early_where_much_has_to_be_looked_through_and_the_next_one_goes_on(
    conversation: ConversationRef,
    write_index: Indexing,
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    value: float,
    count: int,
) -> None:
    monkeypatch.setattr(search, bound, value)
    say(conversation, "the needle is here", *["here is the needle"] * count)
    write_index()
    pages, page_id = 0, None
    while not (page := ask('"the needle is"', **({"page_id": page_id} if page_id else {})))["hits"]:
        page_id = page["next_page_id"]
        assert page_id is not None
        pages += 1
    assert (pages > 1, page["hits"][0]["seq"]) == (True, 0)


@on_sqlite
async def test_a_search_that_takes_too_long_is_ended_with_advice(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        say(conversation, *["here is the needle"] * 50)
        index_all()

    await astore.call(fill)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "STEPS", 1)
        patched.setattr(limits, "STATEMENT_S", -1.0)
        answer = await rest.get("/api/native/search?q=needle")
        assert (answer.status_code, answer.json()["code"]) == (400, "search_too_broad")
        assert "Narrow it" in answer.json()["detail"]
        page = await rest.get("/search?q=needle")
        assert (page.status_code, "Narrow it" in page.text) == (400, True)
    assert len((await rest.get("/api/native/search?q=needle")).json()["hits"]) == 20


@on_postgresql
def test_a_statement_that_takes_too_long_on_postgresql_is_ended_with_advice(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(conversation, "here is the needle")
    index_all()
    with psycopg.connect(database_url()) as outside, monkeypatch.context() as patched:
        patched.setattr(limits, "STATEMENT_S", 0.1)
        outside.execute(f"LOCK TABLE {guards.SEARCH_TEXT} IN ACCESS EXCLUSIVE MODE")
        assert "Narrow it" in refusal("needle")
    assert len(ask("needle")["hits"]) == 1


def test_a_page_takes_the_same_number_of_statements_whatever_is_there(
    alice: User, write_index: Indexing
) -> None:
    def statements(count: int) -> int:
        for _ in range(count):
            writes.append(creation.create(alice, title="needle"), [event("needle")] * 1)
        write_index()
        with CaptureQueriesContext(connection) as captured:
            assert len(ask("needle", limit=5)["hits"]) == 5
        return len(captured)

    assert statements(10) == statements(60) <= 9


# Snippets


def snippet(question: str) -> list[tuple[str, bool]]:
    (hit,) = ask(question)["hits"]
    return [(part["text"], part["match"]) for part in hit["snippet"]]


def test_a_snippet_marks_what_was_looked_for(conversation: ConversationRef) -> None:
    say(conversation, "Öffne  die <b>Login</b>-Seite\nvon foo_bar.py, dann login")
    assert snippet("login OR foo_bar.py OR offne -nothing") == [
        ("Öffne", True),
        (" die <b>", False),
        ("Login", True),
        ("</b>-Seite von ", False),
        ("foo_bar.py", True),
        (", dann ", False),
        ("login", True),
    ]


def test_a_snippet_of_a_long_text_is_short_and_holds_the_first_match(conversation: ConversationRef) -> None:
    say(conversation, "hay " * 5_000 + "needle " + "hay " * 5_000 + "needle")
    parts = snippet("needle")
    text = "".join(part for part, _ in parts)
    assert [part for part, match in parts if match] == ["needle"]
    assert (text[0], text[-1]) == ("…", "…")
    assert len(text) < 300


class ReadWords(list[str]):
    """Words of a text that count how often one of them is read."""

    read = 0

    def __iter__(self) -> Iterator[str]:
        for word in super().__iter__():
            self.read += 1
            yield word

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.read += len(found) if isinstance(at, slice) else 1
        return found


@pytest.mark.parametrize("absent", ["absent{}", "absent{}*", '"needle absent{}"', '"hay ha{}"'])
def test_words_that_are_not_there_do_not_make_a_hit_dearer(absent: str) -> None:
    text = "hay " * 5_000 + "needle" + " ha1 ha2" * 30

    def reads(question: questions.Question) -> int:
        there = words.Words(text)
        vars(there)["all"] = counted = ReadWords(there.all)
        assert question.is_met_by(there)
        assert {"text": "needle", "match": True} in snippets.snippet(there, question.wanted)
        return counted.read

    others = [absent.format(number) for number in range(30)]
    few = reads(questions.read(f"needle OR {others[0]}"))
    assert reads(questions.read(" OR ".join([*others, "needle"]))) == few


def test_a_hit_says_what_it_is(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("needle", event_id="first")])
    (hit,) = ask("needle")["hits"]
    row = Event.objects.get()
    assert hit == {
        "conversation": {
            "id": "talk",
            "title": "Conversation talk",
            "version": "V0",
            "repository": None,
            "trigger": None,
        },
        "seq": 0,
        "id": "first",
        "event_type": "message",
        "kind": "message",
        "source": "user",
        "timestamp": row.timestamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "snippet": [{"text": "needle", "match": True}],
    }


# Wrong input


@once
def test_a_query_that_cannot_be_typed_is_refused_with_a_sentence(alice: User) -> None:
    assert refusal("a\0b").endswith(".")
    answer = Browser().get(PATH, headers={"host": "localhost"})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


@once
def test_a_wrong_parameter_is_refused_with_a_sentence(subtests: pytest.Subtests, alice: User) -> None:
    queries: list[dict[str, Any]] = [
        {"limit": 0},
        {"limit": 101},
        {"page_id": "nonsense"},
        {"page_id": "LTE"},
        {"page_id": "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"},
        {"page_id": "²"},
        {"page_id": base64.urlsafe_b64encode(b"9" * 5_001).decode()},
        {"kind": "no such kind"},
        {"status": "no such status"},
        {"version": "V9"},
        {"since": "yesterday"},
        {"source": ["a"] * 21},
        {"source": "a" * 51},
        {"source": ["user", "a" * 4_000]},
    ]
    for query in queries:
        with subtests.test(query=query):
            assert refusal("hello", **query).endswith(".")


# One truth


ALPHABET = "ab_. éÉ東京👍ß½\u0301ﬁ\u0661ก-*\"'&|!():\\\n"
ANY_TEXT = st.text(alphabet=ALPHABET, max_size=12) | st.text(max_size=12)


def plainly(text: str, question: questions.Question) -> bool:
    """Say whether a text has what is asked for, without an index and without hurry."""

    def is_there(at: list[str], term: questions.Term) -> bool:
        *before, last = term.words
        word = at[len(before)]
        return at[: len(before)] == before and (word.startswith(last) if term.is_beginning else word == last)

    def stands(term: questions.Term) -> bool:
        there = words.Words(text).all
        places = range(len(there) - len(term.words) + 1)
        return any(is_there(there[at:], term) for at in places)

    return any(
        all(map(stands, branch.wanted)) and not any(map(stands, branch.unwanted))
        for branch in question.branches
    )


QUESTIONS = st.lists(
    st.sampled_from(
        ["OR", "NOT", "AND", "ab", "a", "b*", "ab*", "-b", "é", "東", '"a b"', "a_b", '"東京', "👍"]
    )
    | st.text(alphabet=ALPHABET, max_size=6),
    min_size=1,
    max_size=5,
).map(" ".join)


@hypothesis_settings(max_examples=150)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=6), question=QUESTIONS, indexed=st.integers(0, 6))
def test_every_engine_finds_what_a_plain_look_at_the_texts_finds(
    django_db_setup: None, django_db_blocker: Any, texts: Sequence[str], question: str, indexed: int
) -> None:
    with django_db_blocker.unblock(), transaction.atomic():
        read = questions.read(question)
        owner = User.objects.get_or_create(username="tests")[0]
        row = Conversation.objects.create(owner=owner, next_seq=len(texts))
        now = timezone.now()
        pks = []
        for seq, text in enumerate(texts):
            kept = columns.readable(text)
            one = Event.objects.create(
                conversation=row, seq=seq, event_id=str(seq), dialect="v0", type="message", kind="message",
                source="user", timestamp=now, received_at=now, size=0, digest="", text=kept, payload="{}",
            )  # fmt: skip
            pks.append(one.pk)
        watermark = EventHorizon()
        watermark.settled = pks[min(indexed, len(pks)) - 1] if indexed else 0
        while not indexing.step(watermark).is_last:
            pass
        scope = Scope(user=owner, conversations=Conversation.objects.visible_to(owner), is_narrow=False)
        hits = search.search(scope, read, SearchConditions(), limit=100).hits
        expected = [
            seq
            for seq, text in Event.objects.order_by("-seq").values_list("seq", "text")
            if plainly(text, read)
        ]
        transaction.set_rollback(True)
        assert [hit.seq for hit in hits] == expected


# The index


@pytest.mark.no_second_try
def test_indexing_twice_at_once_indexes_once(conversation: ConversationRef) -> None:
    say(conversation, *["needle"] * 50)

    in_threads(4, lambda number: index_all())
    assert len(found("needle", limit=100)) == 50


@pytest.mark.no_second_try
@on_postgresql
def test_an_event_whose_key_is_lower_and_shows_later_is_found(
    alice: User, conversation: ConversationRef
) -> None:
    other = creation.create(alice, conversation_id="other")
    has_key, may_commit = threading.Event(), threading.Event()

    def append_slowly() -> None:
        with transaction.atomic():
            say(other, "slow needle")
            has_key.set()
            assert may_commit.wait(30)

    def index_meanwhile() -> None:
        assert has_key.wait(30)
        say(conversation, "quick needle")
        watermark = EventHorizon()
        for _ in range(3):
            watermark.look()
            indexing.step(watermark)
        assert found("needle") == [("talk", 0)]
        may_commit.set()

    in_threads(2, lambda number: (append_slowly, index_meanwhile)[number]())
    assert found("needle") == [("talk", 0), ("other", 0)]
    index_all()
    assert found("needle") == [("talk", 0), ("other", 0)]


@pytest.mark.no_second_try
def test_a_search_beside_which_the_index_is_emptied_finds_all(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(conversation, "needle")
    index_all()
    newest = index.newest
    asked: list[Any] = []

    def empty_first(*arguments: Any, **options: Any) -> list[int]:
        if not asked:
            indexing.begin_anew()
        asked.append(arguments)
        return newest(*arguments, **options)

    monkeypatch.setattr(index, "newest", empty_first)
    assert seqs("needle") == [0]


def test_an_index_that_cannot_be_begun_anew_stays_as_it_is(conversation: ConversationRef) -> None:
    say(conversation, "needle")
    index_all()
    through = SearchProgress.through_now()
    titles.drop(connection)
    try:
        with pytest.raises(DatabaseError):
            indexing.begin_anew()
    finally:
        titles.create(connection)
    assert (words_kept(), SearchProgress.through_now()) == (1, through)


def test_the_index_is_rebuilt_by_a_command(conversation: ConversationRef) -> None:
    say(conversation, *["needle"] * 5)
    index_all()
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {index.TABLE}")
    assert seqs("needle") == []
    call_command("rebuild_search", stdout=(said := StringIO()))
    assert said.getvalue() == "The index is complete. Events read: 5.\n"
    assert seqs("needle") == [4, 3, 2, 1, 0]
    say(conversation, "needle")
    call_command("rebuild_search", "--resume", stdout=(said := StringIO()))
    assert said.getvalue() == "The index is complete. Events read: 1.\n"
    assert SearchProgress.through_now() >= Event.objects.order_by("-pk")[0].pk


async def test_the_server_indexes_what_is_appended(
    live: None,
    conversation: ConversationRef,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_indexer, "GATHER_S", 0.01)
    monkeypatch.setattr(search_indexer, "POLL_S", 0.2)
    background.start()
    await astore.append(conversation, [event("needle")])
    newest = await astore.call(lambda: Event.objects.order_by("-pk")[0].pk)
    await until(lambda: SearchProgress.through_now() >= newest)


async def test_what_is_appended_right_after_the_last_step_waits_for_no_poll(
    live: None, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_indexer, "GATHER_S", 0.01)
    monkeypatch.setattr(search_indexer, "POLL_S", 3600.0)
    step = indexing.step
    appended: list[int] = []

    def append_after(watermark: EventHorizon) -> IndexingStep:
        done = step(watermark)
        if done.is_last and not appended:
            say(conversation, "needle")
            appended.append(newest_key())
        return done

    monkeypatch.setattr(indexing, "step", append_after)
    background.start()
    await until(lambda: appended and SearchProgress.through_now() >= appended[0])


def test_searching_writes_nothing(conversation: ConversationRef) -> None:
    say(conversation, "needle")
    with CaptureQueriesContext(connection) as captured:
        ask("needle")
    bound = re.compile(r"\s*SET LOCAL statement_timeout = \d+;")
    statements = [bound.sub("", each["sql"]).lstrip() for each in captured]
    assert [each for each in statements if not each.startswith(("SELECT", "WITH"))] == []


def test_an_append_writes_nothing_for_the_search(conversation: ConversationRef) -> None:
    with CaptureQueriesContext(connection) as captured:
        say(conversation, "needle")
    assert not [each["sql"] for each in captured if "search" in each["sql"]]


async def test_the_door_is_open_to_programs(conversation: ConversationRef, rest: httpx.AsyncClient) -> None:
    await astore.append(conversation, [event("needle")])
    answer = await rest.get(PATH, params={"q": "needle"})
    assert (answer.status_code, len(answer.json()["hits"])) == (200, 1)


def test_blocks_cover_all_keys_and_windows_meet() -> None:
    for below in (1, 2, 8_192, 8_193, 200_000, 5_000_000, 10_000_001):
        end = below
        for first, blocks in index._windows(below):
            covered = [
                (int(number) << int(shift), (int(number) + 1) << int(shift))
                for shift, number in (block.lstrip("\ue000b").split("x") for block in blocks)
            ]
            if blocks:
                assert covered[0][0] == first
                assert covered[-1][1] >= end
                assert all(left[1] == right[0] for left, right in pairwise(covered))
            assert first < end
            end = first
        assert end == 0


def test_a_time_without_a_zone_is_utc(corpus: None) -> None:
    assert datetime(2026, 1, 2, 12, tzinfo=UTC) in Event.objects.values_list("timestamp", flat=True)
    assert found("needle", until="2026-01-02T12:00:01", since="2026-01-02T12:00:00") == [("other", 1)]
