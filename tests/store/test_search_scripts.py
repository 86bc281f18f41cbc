"""Search in every script, and of everything that a person can type: found where it stands, never refused."""

# Texts of many scripts, easier to read in one row.
# ruff: noqa: RUF001, SIM905

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from conversations.engines.watermark import EventHorizon
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, SearchProgress
from conversations.search.fulltext import index, indexing, questions, words
from conversations.search.fulltext.index import Facets
from conversations.store import creation
from conversations.verification import derived
from sessions_app.identity.authentication import local_user
from tests.conftest import once
from tests.store.test_search import ask, index_all, leave, newest_key, say, seqs
from tests.support.data.events import event

EMOJI = (
    "☎️ ♻️ ➰ ⤴️ ⬛ ⌨️ ⏏️ ⏪ ®️ ↔️ ↩️ ▪️ ◀️ ◾ Ⓜ️ ㊙️ ‼️ ⁉️ 〽️ *️⃣ 7️⃣ 🀄 🅾️ 🆎 🫨 🛟 🇯🇵 "
    "🧑🏿\u200d🚀 ❤️\u200d🔥 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
).split()
SIGNS = "→ ≠ ∑ € ₹ ¥ ° ½ № ℃ ± 〒 ㈱ ⠿ █ ♫ ⚛ ☯ \uf8ff".split()

TEXTS = {
    "arabic": "قَالَ كِتَابٌ جَدِيدٌ",
    "arabic, made longer": "الســـلام",
    "hamza": "أسماء",
    "hebrew": "בְּרֵאשִׁית בָּרָא",
    "persian": "کتاب\u200cها",
    "hindi": "मैं विद्यार्थी हूँ",
    "half-width kana": "ﾄﾞｷｭﾒﾝﾄ ﾃﾞｰﾀ",
    "full-width": "ＨＥＬＬＯ ４２",
    "digits": "٤٥٦",
    "broken by hand": "inter\u00adnation\u00adal hyper\u200blink",
    "with a mark of its own": "s\u0323\u0307olution",
}
FOUND = {
    "كتاب": "arabic",
    "كِتَاب": "arabic",
    "قال جديد": "arabic",
    '"كتاب جديد"': "arabic",
    "كتا*": "arabic",
    "السلام": "arabic, made longer",
    "اسماء": "hamza",
    "בראשית": "hebrew",
    "בָּרָא": "hebrew",
    "ברא*": "hebrew",
    "کتابها": "persian",
    "विद्यार्थी": "hindi",
    "विद्या*": "hindi",
    "ドキュメント": "half-width kana",
    "ﾄﾞｷｭ": "half-width kana",
    "データ": "half-width kana",
    "hello": "full-width",
    "ＨＥＬＬＯ": "full-width",
    "42": "full-width",
    "456": "digits",
    "international": "broken by hand",
    "hyper\u200blink": "broken by hand",
    "hyperlink": "broken by hand",
    "solution": "with a mark of its own",
}
"""By query, the text that has it, and no other."""

TYPED = (
    '... ? - -- -login "NOT login" NOT OR AND "" " * a* -* (*) -"login page" “” ” ’ – — … ، ؟ 。 、 '
    "\u0301 \ufe0f \u200d \u20e3 \u064e \u05b8 \u200b \u00ad \ufeff \u202e "
    "´ ¨ ` ^ ~ $ + < > | \\ / ' ; % _ & # @ !"
).split(" ")


@pytest.fixture(params=[index_all, leave])
def write_index(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Index all that there is, or nothing of it."""
    write: Callable[[], None] = request.param
    return write


def test_an_emoji_or_a_symbol_alone_is_found(
    conversation: ConversationRef, write_index: Callable[[], None], subtests: pytest.Subtests
) -> None:
    say(conversation, *(f"tests{each} {each} done" for each in EMOJI + SIGNS))
    write_index()
    for number, each in enumerate(EMOJI + SIGNS):
        with subtests.test(each.encode("unicode_escape").decode()):
            assert number in seqs(f"{each} OR nowhere", limit=100)
            assert number not in seqs(f"done -{each.replace(chr(0xFE0F), '')}", limit=100)


def test_a_word_is_found_however_its_script_is_written(
    conversation: ConversationRef, write_index: Callable[[], None], subtests: pytest.Subtests
) -> None:
    say(conversation, *TEXTS.values())
    write_index()
    places = list(TEXTS)
    for asked, name in FOUND.items():
        for form in ("NFC", "NFD"):
            with subtests.test(asked.encode("unicode_escape").decode(), form=form):
                assert seqs(unicodedata.normalize(form, asked)) == [places.index(name)]


def test_pointed_words_find_plain_ones(
    conversation: ConversationRef, write_index: Callable[[], None]
) -> None:
    say(conversation, "كتاب جديد", "בראשית ברא", "ドキュメント")
    write_index()
    assert [seqs(text) for text in ("كِتَابٌ", "בְּרֵאשִׁית", "ﾄﾞｷｭﾒﾝﾄ")] == [[0], [1], [2]]


def test_a_snippet_marks_the_whole_word_with_its_points(conversation: ConversationRef) -> None:
    say(conversation, "وَ كِتَابٌ ⭐️ هُنا")
    for asked, marked in (("كتاب", "كِتَابٌ"), ("⭐", "⭐")):
        (hit,) = ask(asked)["hits"]
        assert [part["text"] for part in hit["snippet"] if part["match"]] == [marked]


@once
def test_what_has_no_word_finds_nothing_and_says_so(
    conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    say(conversation, "login page")
    for asked in ("...", "  ", "", '""', '"', "*", "\u0301", "\u200b", "؟", "“”"):
        with subtests.test(asked.encode("unicode_escape").decode()):
            page = ask(asked)
            assert (page["conversations"], page["hits"], page["next_page_id"]) == ([], [], None)
            assert page["notice"].endswith(".")


@once
def test_operators_without_a_word_beside_them_are_searched_for(
    conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    say(conversation, "login page", "this or that", "run -v now", "a plan", *["ab"] * 3, "東" * 70)
    said = {
        "-login": [0],
        "NOT login": [],  # both words
        '-"login page"': [0],
        "OR": [1],
        "-v": [2],
        "login OR -page": [0],
        "a*": [3],
        " ".join(["ab"] * 65): [6, 5, 4],
        "東" * 65: [7],
        "x" * 10_000: [],
        "ab " * 1_000: [6, 5, 4],
    }
    for asked, places in said.items():
        with subtests.test(asked[:20]):
            page = ask(asked)
            assert [hit["seq"] for hit in page["hits"]] == places
            assert (page["notice"] is None) == (asked == "OR")


@once
def test_what_a_person_can_type_is_answered_at_every_door(
    conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    say(conversation, "login page")
    key = conversation.public_id
    doors = [
        ("/search", "q"),
        ("/", "q"),
        ("/api/native/search", "q"),
        ("/api/native/conversations", "title"),
        (f"/api/conversations/{key}/events", "query"),
        (f"/api/conversations/{key}/events/search", "query"),
        ("/api/v1/app-conversations/search", "title__contains"),
        ("/api/v1/app-conversations/count", "title__contains"),
        (f"/agent/api/conversations/{key}/events/search", "body"),
        ("/agent/api/conversations/search", "title"),
    ]
    browser = Browser()
    for path, name in doors:
        all_at_native = TYPED if name == "q" and path.startswith("/api") else [" ".join(TYPED), *TYPED[::9]]
        for asked in [*all_at_native, " ".join(EMOJI[:8]), "".join(SIGNS), "login " * 30]:
            with subtests.test(path, asked=asked.encode("unicode_escape").decode()):
                answer = browser.get(path, {name: asked}, headers={"host": "localhost"})
                assert answer.status_code == 200, answer.content


@once
def test_the_page_says_what_was_not_searched_for(conversation: ConversationRef) -> None:
    say(conversation, "login page")
    browser = Browser()
    for asked, sentence in (("...", "There is no word in this"), ("-login", "all words were searched for")):
        answer = browser.get("/search", {"q": asked}, headers={"host": "localhost"})
        assert answer.status_code == 200
        assert sentence in answer.content.decode()


# Words in the form of an earlier release


def as_an_earlier_release(conversation: ConversationRef, pk: int, *kept: str) -> None:
    """Replace the entry of an event by one with these words."""
    row = Conversation.objects.get(pk=conversation.pk)
    facets = Facets((row.owner_id,), (row.pk,), ("message",), ("user",))
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {index.TABLE} WHERE {derived._KEY[connection.vendor]} = %s", [pk])
    index.add([index.entry(pk, facets, kept)])


def test_what_an_earlier_release_indexed_is_found_before_and_after_it_is_indexed_again(
    conversation: ConversationRef,
) -> None:
    say(conversation, "كِتَابٌ", "⭐", "plain words")
    index_all()
    newest = newest_key()
    for pk, kept in ((newest - 2, ("ك", "ت", "ا", "ب")), (newest - 1, ("nothing",))):
        as_an_earlier_release(conversation, pk, *kept)
    assert seqs("كتاب") == []  # as it would stay
    SearchProgress.objects.update(through=newest, words_through=0)
    assert [seqs("كتاب"), seqs("⭐"), seqs("plain")] == [[0], [1], [2]]
    with CaptureQueriesContext(connection) as captured:
        index_all()
    assert [seqs("كتاب"), seqs("⭐"), seqs("plain")] == [[0], [1], [2]]
    assert [step.found for step in derived.steps(everything=True) if step.found] == []
    assert not [each["sql"] for each in captured if "INTO" in each["sql"] and "plain" in each["sql"]]


def test_an_earlier_release_that_still_runs_does_not_move_the_cursor(conversation: ConversationRef) -> None:
    say(conversation, "needle")
    SearchProgress.objects.update(through=newest_key(), words_through=0)
    watermark = EventHorizon()
    watermark.settled = newest_key()
    while not indexing.step(watermark).is_last:
        pass
    SearchProgress.objects.update(through=newest_key() + 5)
    assert SearchProgress.through_now() == newest_key()
    call_command("rebuild_search")
    assert SearchProgress.known_through() == 0


# Any text

SCRIPTS = st.characters(exclude_categories=("Cs", "Cc", "Cn"))
TEXT = st.text(
    st.sampled_from("ab é ⭐️\u200d👍🏽#\u20e3\u0301كِتَاب שָׁלוֹם ﾊﾟパ ＡＢ４ नमस्ते 東 ก\u00ad\u200b") | SCRIPTS,
    max_size=20,
)


def is_plain(text: str) -> bool:
    """Return whether a text is no query with operators."""
    return not any(
        chunk in ("OR", "AND", "NOT") or chunk.startswith("-") or "*" in chunk for chunk in text.split()
    ) and not any(quote in text for quote in '"“”„«»')


@once
@hypothesis_settings(max_examples=80, derandomize=True)
@given(typed=TEXT, around=st.lists(TEXT, max_size=2))
def test_any_text_that_can_be_typed_is_found_where_it_stands(
    django_db_setup: None, django_db_blocker: Any, typed: str, around: list[str]
) -> None:
    text = " ".join([*around[:1], typed, *around[1:]])
    with django_db_blocker.unblock(), transaction.atomic():
        owner = local_user()
        talk = creation.create(owner, conversation_id="typed")
        raw = json.dumps({"action": "message", "source": "user", "args": {"content": text}})
        writes.append(talk, [event(raw=raw)])
        answer = Browser().get("/api/native/search", {"q": typed}, headers={"host": "localhost"})
        assert answer.status_code == 200, answer.content
        if is_plain(typed) and questions.read(typed).branches:
            assert [hit["seq"] for hit in answer.json()["hits"]] == [0], ascii((typed, text))
        transaction.set_rollback(True)


@hypothesis_settings(max_examples=300, derandomize=True)
@given(typed=TEXT)
def test_words_have_nothing_that_an_engine_reads_as_syntax(typed: str) -> None:
    for word in words.Words(typed).all:
        assert word
        assert not word.startswith(words.RESERVED)
        assert all(each.isalnum() for each in word if each.isascii())
        assert not any(map(str.isspace, word))
