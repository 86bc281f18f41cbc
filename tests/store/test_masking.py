"""Secrets in events: hidden before these are stored, in every spelling and through every door."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.events import Dialect, NewEvent
from conversations.exceptions import EventConflict, InvalidEvent
from conversations.log import writes
from conversations.log.append import AppendRequest
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.redaction import masking, matching
from conversations.redaction.masking import MASK, Masks
from conversations.redaction.matching import Span, TraceMatcher
from conversations.store import changes, creation, forks
from convserver.asgi import application
from sessions_app import astore
from sessions_app.agents.base import Turn
from sessions_app.git_providers.base import ProviderType
from sessions_app.loops.inputs.titles import set_generated_title
from sessions_app.loops.manager import get_manager
from sessions_app.loops.playing import streamed_answer
from sessions_app.models import Secret, SecretKind, UnfinishedAnswer
from sessions_app.settings import agent_setups, user_settings
from sessions_app.settings.user_settings import SettingSecret, store_secret
from tests.conftest import Join
from tests.pure.test_payload import PAYLOADS, json_texts
from tests.support.data.events import event, payload
from tests.support.people.dictation import Dictate, SilentAgent, dictate, end_answer, silence
from tests.support.people.scripted_agent import until
from tests.support.wires.v0_socket import V0Client

pytestmark = pytest.mark.one_engine

__all__ = ["dictate", "silence"]

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
TALK = "/api/conversations/talk"


def keep(user: User, value: str, *, kind: SecretKind = SecretKind.CUSTOM, name: str = "DEPLOY_KEY") -> Secret:
    return store_secret(user.pk, kind, name=name, value=value)


def hidden(payload: str, *values: str) -> str:
    return masking.replaced(payload, Masks(values).in_event(payload))


def payloads(conversation: ConversationRef) -> list[str]:
    rows = Event.objects.of(conversation).oldest_first()
    return list(rows.values_list("payload", flat=True))


def last(conversation: ConversationRef) -> Any:
    return json.loads(payloads(conversation)[-1])


# The text


def test_a_value_is_found_in_every_spelling(subtests: pytest.Subtests) -> None:
    for value, spelling in [
        ("plain", "plain"),
        ("plain", r"p\u006cain"),
        ("plain", r"\u0070\u006C\u0061\u0069\u006E"),
        ("a/b", "a/b"),
        ("a/b", r"a\/b"),
        ('say "hi"', r"say \"hi\""),
        ("back\\slash", r"back\\slash"),
        ("two\nlines", r"two\nlines"),
        ("two\nlines", r"two\u000Alines"),
        ("clé", "clé"),
        ("clé", r"cl\u00e9"),
        ("clé", r"cl\u00E9"),
        ("smile 😀", "smile 😀"),
        ("smile 😀", r"smile \ud83d\uDE00"),
        ("пароль", r"\u043f\u0430\u0440\u043e\u043b\u044c"),
        ('a"b', r"{\"x\":\"a\\\"b\"}"),
        ("a/b", r"{\"x\":\"a\\\/b\"}"),
        ("clé", r"{\"x\":\"cl\\u00e9\"}"),
        ("two\nlines", r"{\"x\":\"two\\nlines\"}"),
        ('a"b', r"{\"x\":\"{\\\"y\\\":\\\"a\\\\\\\"b\\\"}\"}"),
    ]:
        with subtests.test(value=value, spelling=spelling):
            text = f'{{"args":{{"content":"before {spelling} after"}}}}'
            found = json.loads(hidden(text, value))["args"]["content"]
            assert MASK in found
            assert value not in found.replace(r"\"", '"').replace(r"\\", "\\")
            assert (found.startswith("before "), found.endswith(" after")) == (True, True)


VALUES = st.text('aé"/\\😀\n\t\x00u01<KK', max_size=6).map(lambda inner: f"K{inner}K")
"""They begin and end with a letter that nothing beside them has."""
BESIDE = st.text('xyzß"\\/\n\u2028😀 {}[]:,0u', max_size=5)
Segments = list[tuple[str, bool]]
"""Text in pieces; True for what a value was made of."""


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """Draw a spelling of what stands in a JSON string."""
    return "".join(draw(st.sampled_from(spellings(character))) for character in text)


def spellings(character: str) -> list[str]:
    short = {'"': r"\"", "\\": r"\\", "/": r"\/", "\n": r"\n", "\t": r"\t"}
    units = character.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    plain = [] if character in '"\\' or character < " " else [character]
    return [
        *plain,
        *([short[character]] if character in short else []),
        escaped,
        escaped.upper().replace("U", "u"),
    ]


@st.composite
def segments(draw: st.DrawFn, value: str, depth: int, nesting: int = 2) -> Segments:
    """Draw JSON text that may hold the value in its strings and in JSON inside them, and in names."""
    kinds = ["other", "string", "nested", "array", "object"]
    match draw(st.sampled_from(kinds if depth else kinds[:2])):
        case "string":
            before, after = draw(BESIDE.flatmap(spelled)), draw(BESIDE.flatmap(spelled))
            return [(f'"{before}', False), (draw(spelled(value)), True), (f'{after}"', False)]
        case "nested" if nesting:
            inner = draw(segments(value, depth - 1, nesting - 1))
            return [
                ('"', False),
                *((draw(spelled(text)), is_value) for text, is_value in inner),
                ('"', False),
            ]
        case "array":
            return enclosed("[]", draw(st.lists(segments(value, depth - 1, nesting), max_size=3)))
        case "object":
            return draw(objects(value, depth, nesting))
    return [(draw(st.sampled_from(["1.10", "1E5", "null", '"x"', " -0 ", r'"\/"'])), False)]


@st.composite
def objects(draw: st.DrawFn, value: str, depth: int = 3, nesting: int = 2) -> Segments:
    """Draw an object; the value may also be a member's name, where it is hidden unless it is short."""
    names = draw(st.lists(st.sampled_from(["x", "args", "message", value]), max_size=3))
    is_hidden = nesting < 2 or len(value) >= masking.NAME_MIN_CHARS
    members = [draw(member(name, name == value and is_hidden, value, depth, nesting)) for name in names]
    return enclosed("{}", members)


@st.composite
def member(draw: st.DrawFn, name: str, is_hidden: bool, value: str, depth: int, nesting: int) -> Segments:
    written = (draw(spelled(name)), is_hidden)
    return [('"', False), written, ('" : ', False), *draw(segments(value, depth - 1, nesting))]


def enclosed(brackets: str, items: list[Segments]) -> Segments:
    joined: Segments = []
    for item in items:
        joined += [(" , ", False), *item] if joined else item
    return [(brackets[0], False), *joined, (brackets[1], False)]


@given(value=VALUES, data=st.data())
def test_values_in_strings_are_replaced_and_every_other_byte_stays(value: str, data: st.DataObject) -> None:
    drawn = data.draw(objects(value))
    clear = "".join(text for text, _ in drawn)
    json.loads(clear)
    assert hidden(clear, value) == "".join(MASK if is_value else text for text, is_value in drawn)


def without(value: str, tree: Any) -> Any:
    match tree:
        case str():
            return tree.replace(value, MASK)
        case list():
            return [without(value, each) for each in tree]
        case dict():
            return {name: without(value, each) for name, each in tree.items()}
    return tree


TREES = st.recursive(
    st.one_of(st.text("abé", max_size=6), st.integers(), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("ab"), inner, max_size=3)),
)


@given(
    value=st.text("abé", min_size=1, max_size=3),
    tree=st.dictionaries(st.text("ab"), TREES, max_size=4),
    is_ascii=st.booleans(),
)
def test_what_is_decoded_afterwards_is_the_original_with_the_value_replaced(
    value: str, tree: dict[str, Any], is_ascii: bool
) -> None:
    assert json.loads(hidden(json.dumps(tree, ensure_ascii=is_ascii), value)) == without(value, tree)


@given(text=json_texts(), value=st.sampled_from(["nobody draws this", "пароль, который", '\\\\//\\\\//""']))
def test_where_no_value_is_nothing_is_found(text: str, value: str) -> None:
    assert Masks([value]).in_event(f'{{"x": {text}}}') == []


def test_what_stands_beside_a_value_stays_whatever_it_is(subtests: pytest.Subtests) -> None:
    for case, text in PAYLOADS.items():
        with subtests.test(case):
            holding = text.replace("{", f'{{"zz":"{TOKEN}",', 1)
            assert hidden(holding, TOKEN) == holding.replace(TOKEN, MASK)


# Encodings


def encodings(text: bytes) -> dict[str, str]:
    """Return what programs make of bytes."""
    standard, safe = b64encode(text).decode(), urlsafe_b64encode(text).decode()
    return {
        "base64": standard,
        "base64 without padding": standard.rstrip("="),
        "base64 for URLs": safe,
        "base64 for URLs without padding": safe.rstrip("="),
        "base64 in a URL": quote(standard, safe=""),
        "hexadecimal": text.hex(),
        "hexadecimal in capitals": text.hex().upper(),
        "a URL": quote(text, safe=""),
        "a URL's path": quote(text),
        "a form": quote_plus(text),
        "every character of a URL": "".join(f"%{each:02x}" for each in text),
    }


def decodings(text: str) -> Iterator[bytes]:
    """Yield what the base64, the hexadecimal and the URLs in a text say, from each place on."""
    yield text.encode()
    yield unquote_plus(text).encode()
    for each in (text, unquote(text)):
        for run in re.findall(r"[A-Za-z0-9+/_-]+", each):
            for start in range(4):
                core = run[start:].translate(str.maketrans("-_", "+/"))
                yield b64decode(core + "A" * (-len(core) % 4))
        for run in re.findall(r"[0-9a-fA-F]+", each):
            for start in range(2):
                yield bytes.fromhex(run[start : start + (len(run) - start) // 2 * 2])


@given(
    value=st.text("aZ9 é/+%ÿ~", min_size=8, max_size=12).filter(lambda value: value == value.strip()),
    before=st.binary(max_size=4),
    after=st.binary(max_size=4),
)
def test_no_encoding_of_a_value_is_left(value: str, before: bytes, after: bytes) -> None:
    for encoded in encodings(before + value.encode() + after).values():
        shown = json.loads(hidden(json.dumps({"x": encoded, f"key {encoded}": 1}), value))
        assert not [
            each for text in (shown["x"], *shown) for each in decodings(text) if value.encode() in each
        ]
        assert Masks([value]).hide(encoded) == shown["x"]


@given(value=st.text("aZ9é/+", min_size=6, max_size=12), data=st.data())
def test_an_encoded_value_is_hidden_piece_by_piece_as_in_the_whole(value: str, data: st.DataObject) -> None:
    masks = Masks([value])
    text = f"x {data.draw(st.sampled_from(list(encodings(value.encode()).values())))} y"
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4))
    shown = waiting = ""
    for start, end in pairwise(sorted({*cuts, 0, len(text)})):
        waiting += text[start:end]
        settled = masks.settled(waiting)
        shown, waiting = shown + masks.hide(waiting[:settled]), waiting[settled:]
    assert shown + masks.hide(waiting) == masks.hide(text)


def test_an_encoded_value_is_hidden_in_what_is_stored(
    subtests: pytest.Subtests, conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    for how, encoded in encodings(f"user:{TOKEN}\n".encode()).items():
        with subtests.test(how):
            writes.append(conversation, [event(raw=message(f"Basic {encoded}."))])
            content = last(conversation)["args"]["content"]
            assert (content.startswith("Basic "), content.endswith(".")) == (True, True)
            assert MASK in content


def test_the_encodings_of_a_short_value_are_left() -> None:
    text = f'{{"x":"{b"short".hex()}"}}'
    assert hidden(text, "short") == text


# Names, ids and types


def test_a_value_in_a_name_is_hidden_at_any_depth() -> None:
    text = f'{{"{TOKEN}":1,"args":{{"a {TOKEN}":[{{"x{TOKEN}":2}}]}}}}'
    assert hidden(text, TOKEN) == text.replace(TOKEN, MASK)


def test_names_that_are_words_of_the_wires_and_short_values_in_names_stay() -> None:
    text = '{"observation":"x","extras":{"tool_call_metadata":{"short":1}}}'
    assert hidden(text, "observation", "tool_call_metadata", "short") == text


@pytest.mark.parametrize(
    "name", ["tool_name", "tool_call_id", "llm_response_id", "key", "cause", "timestamp"]
)
def test_a_value_in_a_member_that_names_no_event_is_hidden(name: str) -> None:
    text = f'{{"kind":"ObservationEvent","{name}":"at {TOKEN}"}}'
    assert hidden(text, TOKEN) == text.replace(TOKEN, MASK)


def test_a_tool_call_is_known_by_its_masked_id(conversation: ConversationRef, alice: User) -> None:
    keep(alice, TOKEN)
    writes.append(conversation, [event(raw=f'{{"kind":"ObservationEvent","tool_call_id":"call {TOKEN}"}}')])
    assert Event.objects.get().tool_call_id == f"call {MASK}"


def test_an_event_whose_id_or_type_contains_a_secret_is_refused_and_says_so(
    subtests: pytest.Subtests, conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    for raw in [
        *(
            f'{{"kind":"MessageEvent","{name}":"my {TOKEN}"}}'
            for name in ("id", "parent_id", "action_id", "source")
        ),
        *(f'{{"{name}":"{TOKEN}"}}' for name in ("kind", "action", "observation")),
        f'{{"\\u006bind":"{TOKEN}"}}',
        f'{{"kind":"{TOKEN.encode().hex()}"}}',
    ]:
        with subtests.test(raw=raw):
            with pytest.raises(InvalidEvent, match="contains a secret") as refusal:
                writes.append(conversation, [event(raw=raw)])
            assert (payloads(conversation), TOKEN in str(refusal.value)) == ([], False)


async def test_a_frame_whose_id_contains_a_secret_is_refused_and_says_so(
    conversation: ConversationRef, secret: str, rest: httpx.AsyncClient
) -> None:
    frame = {"type": "event", "id": f"my-{secret}", "event": {"action": "message", "args": {"content": "x"}}}
    answer = await rest.post(f"/api/native/conversations/{conversation.public_id}/events", json=frame)
    assert (answer.status_code, "contains a secret" in answer.text) == (400, True)
    assert not await astore.call(payloads, conversation)


# Many values, long texts


def cpu_s(work: Callable[[], object]) -> float:
    """Return the processor time of this thread for it, the best of three."""

    def once() -> float:
        before = time.thread_time()
        work()
        return time.thread_time() - before

    return min(once() for _ in range(3))


def tokens(number: int) -> list[str]:
    return [hashlib.sha256(str(each).encode()).hexdigest()[:40] for each in range(number)]


def test_a_thousand_values_take_hardly_longer_than_ten() -> None:
    few, many = Masks(tokens(10)), Masks(tokens(1000))
    text = message("", more=[f"{value} and what follows it" * 3 for value in tokens(10)] * 100)
    assert len(few.in_event(text)) == len(many.in_event(text)) == 3000
    assert cpu_s(lambda: many.in_event(text)) < 5 * cpu_s(lambda: few.in_event(text))


def test_twice_the_text_takes_about_twice_as_long() -> None:
    masks = Masks(tokens(1000))
    texts = [message("", more=[f"{value} %41 \n" for value in tokens(number)]) for number in (1000, 4000)]
    masks.in_event(texts[0])
    times = [cpu_s(partial(masks.in_event, text)) for text in texts]
    assert times[1] < 10 * times[0]


@given(
    texts=st.sets(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=5),
    text=st.text("abcd", max_size=30),
    slice_chars=st.integers(1, 8),
    group_chars=st.integers(1, 10),
)
def test_what_is_found_is_where_the_texts_are_and_nothing_else(
    texts: set[str], text: str, slice_chars: int, group_chars: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matching, "SLICE_CHARS", slice_chars)
        patched.setattr(matching, "AUTOMATON_MAX_CHARS", group_chars)
        found = list(matching.Matcher(texts).spans(text, matching.Work(10**6)))
        assert TraceMatcher(texts).may_hold_any(text) == bool(found)
    places = {
        Span(at, at + len(each)) for each in texts for at in range(len(text)) if text.startswith(each, at)
    }
    hidden_at = {at for span in found for at in range(*span)}
    assert hidden_at <= {at for place in places for at in range(*place)}
    assert all(hidden_at & set(range(*place)) for place in places)


def test_values_that_overlap_too_often_to_be_looked_at_hide_their_string(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "OVERLAPS_MAX_CHARS", 3)
    assert hidden('{"x":["-abcde-","no a"]}', "abc", "cde") == f'{{"x":["{MASK}","no a"]}}'


def test_longer_values_win_over_those_that_they_contain() -> None:
    assert hidden('{"x":"the abcdef, abc"}', "abc", "abcdef") == f'{{"x":"the {MASK}, {MASK}"}}'


def test_values_that_overlap_are_hidden_whole() -> None:
    assert hidden('{"x":"-abcde-"}', "abc", "cde") == f'{{"x":"-{MASK}-"}}'


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_blank_values_hide_nothing(blank: str) -> None:
    text = '{"x":"two words\\n"}'
    assert hidden(text, blank) == text


def test_a_value_never_breaks_names_numbers_or_what_says_which_event_it_is(subtests: pytest.Subtests) -> None:
    text = (
        '{"id":"abc-1","timestamp":"2000-01-01T00:00:00","source":"agent","kind":"MessageEvent","action":"message",'
        '"observation":"run","cause":10,"action_id":"abc-1","parent_id":"abc-1","tool_call_id":"abc-1",'
        '"content":1.10,"message":true}'
    )
    kinds_and_names = ["message", "run", "content", "agent", "abc-1", "MessageEvent"]
    for value in [*kinds_and_names, "2000-01-01", "1.10", "10", "true"]:
        with subtests.test(value=value):
            assert hidden(text, value) == text


def test_what_only_looks_like_such_a_member_is_hidden() -> None:
    text = '{"source":["run"],"action":{"kind":"run"},"args":{"id":"run"}}'
    assert hidden(text, "run") == text.replace("run", MASK)


def test_a_string_with_more_values_than_can_be_counted_in_time_is_hidden_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "SPANS_MAX", 3)
    assert hidden('{"x":["a a a","b"]}', "a") == f'{{"x":["{MASK} {MASK} {MASK}","b"]}}'
    assert hidden('{"x":["\\/a a a a","b","no a"]}', "a") == f'{{"x":["{MASK}","b","no {MASK}"]}}'
    assert hidden('{"x":["a a a","b","no a"]}', "a") == f'{{"x":["{MASK} {MASK} {MASK}","b","{MASK}"]}}'


def test_an_event_with_more_strings_with_values_than_can_be_read_in_time_is_refused(
    conversation: ConversationRef, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(alice, TOKEN)
    monkeypatch.setattr(masking, "STRINGS_MAX", 2)
    other = creation.create(alice)
    few, many = (event(raw=message("", more=[TOKEN] * number)) for number in (2, 3))
    with pytest.raises(InvalidEvent, match="More than 2 strings"):
        writes.append(conversation, [many])
    writes.append(other, [few])
    assert (payloads(conversation), last(other)["more"]) == ([], [MASK] * 2)


def test_a_value_behind_more_escapes_than_can_be_followed_in_time_hides_its_string(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masking, "ESCAPES_MAX", 3)
    text = r'{"x":["\n\n\n\n","\n\n\n\n plain","plain"]}'
    assert hidden(text, "plain") == rf'{{"x":["\n\n\n\n","{MASK}","{MASK}"]}}'


BACKSLASHES = "\\" * 200_000
LONG = {
    "backslashes before a letter": ("\\" * 8 + "x", BACKSLASHES),
    "a backslash before letters": ("\\srv", BACKSLASHES),
    "a quote": ('a"b', BACKSLASHES),
    "a letter with an accent": ("é" * 64 + "x", "é" * 200_000),
    "line ends": ("a\n" * 20, "\\n" * 100_000),
    "half an escape": ("é", "\\ud83d" * 50_000),
    "code escapes": ("plain text", r"\u0041" * 50_000),
    "masks": ("e", MASK * 20_000),
    "beginnings": ("a" * 16_000 + "b", "a" * 100_000),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("which", LONG)
def test_a_long_text_is_looked_through_in_a_time_that_grows_with_its_length_only(which: str) -> None:
    value, text = LONG[which]
    masks = Masks([value])
    assert masks.in_event(f'{{"x":"{text}"}}') == []
    assert masks.hide(text) == text
    assert masks.settled(text) <= len(text)


def test_a_value_that_is_part_of_the_mask_leaves_masks_alone() -> None:
    assert hidden(f'{{"x":"{MASK} secret"}}', "secret", "hidden") == f'{{"x":"{MASK} {MASK}"}}'


@given(
    text=st.lists(st.sampled_from(["Kab", "K", "a", "b", '"', "x", "\\", '\\"', "Kab\\n\\u0", '"K'])).map(
        "".join
    ),
    cuts=st.lists(st.integers(0, 20), max_size=5),
)
def test_a_text_shown_piece_by_piece_shows_what_the_whole_shows(text: str, cuts: list[int]) -> None:
    masks = Masks(['Kab"K', "Kab\n", "b\\x"])
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    shown = waiting = ""
    for start, end in pairwise(places):
        waiting += text[start:end]
        settled = masks.settled(waiting)
        shown, waiting = shown + masks.hide(waiting[:settled]), waiting[settled:]
    assert shown + masks.hide(waiting) == masks.hide(text)


def test_printing_masks_shows_no_value() -> None:
    assert TOKEN not in repr(Masks([TOKEN]))


# The log


def message(text: str, **members: Any) -> str:
    return json.dumps({"action": "message", "source": "user", "args": {"content": text}, **members})


def test_a_secret_is_hidden_from_the_first_event_on_and_every_other_byte_stays(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    raw = f'{{ "action":"message", "message":"{TOKEN}","args":{{"content":"a\\/b {TOKEN}","n":[1.10,1E5]}} }}'
    writes.append(conversation, [event(raw=raw)])
    assert payloads(conversation) == [raw.replace(TOKEN, MASK)]


@pytest.mark.needs_engine
def test_size_digest_text_and_last_message_are_those_of_what_is_stored(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    writes.append(conversation, [event(f"my token is {TOKEN}", event_id="x")])
    row = Event.objects.get()
    head = Conversation.objects.get(pk=conversation.pk)
    assert (row.text, row.size) == (f"my token is {MASK}", len(row.payload.encode()))
    assert (head.last_message, head.head_digest) == (row.text, row.digest)
    assert TOKEN not in row.payload


@pytest.mark.needs_engine
def test_a_secret_at_the_end_of_what_the_text_column_keeps_is_not_shown_in_part(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN)
    writes.append(conversation, [event("x" * 99_990 + TOKEN)])
    assert not Event.objects.filter(text__contains=TOKEN[:4]).exists()


def test_lists_tool_calls_and_nested_json_are_no_hiding_places(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, f'quote" {TOKEN}')
    clear = f'quote" {TOKEN}'
    call = {"function": {"name": "run", "arguments": json.dumps({"command": f"echo {clear}"})}}
    raw = json.dumps(
        {
            "action": "task_tracking",
            "message": clear,
            "args": {"task_list": [{"title": clear, "notes": [[clear]]}]},
            "tool_call_metadata": {"model_response": {"choices": [{"message": {"tool_calls": [call]}}]}},
        }
    )
    writes.append(conversation, [event(raw=raw)])
    stored = payloads(conversation)[0]
    assert (stored.count(MASK), TOKEN in stored) == (4, False)
    (choice,) = json.loads(stored)["tool_call_metadata"]["model_response"]["choices"]
    arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"command": f"echo {MASK}"}


KINDS = {
    "a custom secret": (SecretKind.CUSTOM, "DEPLOY_KEY"),
    "a provider's token": (SecretKind.PROVIDER_TOKEN, ProviderType.GITHUB),
    "the model's key": (SecretKind.SETTING, SettingSecret.LLM_API_KEY),
    "the search key": (SecretKind.SETTING, SettingSecret.SEARCH_API_KEY),
    "the sandbox key": (SecretKind.SETTING, SettingSecret.SANDBOX_API_KEY),
}


@pytest.mark.parametrize("which", KINDS)
def test_whatever_is_sealed_is_hidden(conversation: ConversationRef, alice: User, which: str) -> None:
    kind, name = KINDS[which]
    keep(alice, f" {TOKEN}\n", kind=kind, name=name)
    writes.append(conversation, [event(f"it is {TOKEN}.")])
    assert last(conversation)["args"]["content"] == f"it is {MASK}."


@pytest.mark.parametrize("shown", ["a\nb", "a\r\nb"])
@pytest.mark.parametrize("kept", ["a\nb", "a\r\nb", "\na\nb\n", "\r\na\r\nb\r\n"])
def test_a_value_of_several_lines_is_hidden_whatever_ends_them(
    conversation: ConversationRef, alice: User, kept: str, shown: str
) -> None:
    keep(alice, kept)
    writes.append(conversation, [event(f"it is {shown}.")])
    assert last(conversation)["args"]["content"] == f"it is {MASK}."


def test_keys_and_longer_environment_values_of_tool_servers_are_hidden_and_nothing_else_of_them(
    conversation: ConversationRef, alice: User
) -> None:
    config = {
        "sse_servers": [{"url": "https://a.example", "api_key": "first-key"}],
        "stdio_servers": [{"name": "tools", "command": "serve", "env": {"DEBUG": "1", "PASS": "swordfish"}}],
        "shttp_servers": [
            {"url": "https://b.example", "api_key": "second-key"},
            {"url": "c", "api_key": None},
        ],
    }
    keep(alice, json.dumps(config), kind=SecretKind.SETTING, name=SettingSecret.MCP_CONFIG)
    writes.append(conversation, [event("first-key second-key swordfish https://a.example tools 1")])
    assert last(conversation)["args"]["content"] == f"{MASK} {MASK} {MASK} https://a.example tools 1"


def test_a_custom_secret_does_not_switch_off_the_mask_of_a_token(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, TOKEN, kind=SecretKind.PROVIDER_TOKEN, name=ProviderType.GITHUB)
    user_settings.create_custom_secret(alice.pk, "OTHER", "other value", description="")
    writes.append(conversation, [event(f"{TOKEN} and other value")])
    assert last(conversation)["args"]["content"] == f"{MASK} and {MASK}"


def test_secrets_of_others_are_not_hidden_whoever_shares_the_batch(
    conversation: ConversationRef, alice: User, bob: User
) -> None:
    keep(alice, "alice's value")
    keep(bob, "bob's value")
    bobs = creation.create(bob)
    both = "alice's value, bob's value"
    writes.append_many(
        [AppendRequest(conversation=each, events=[event(both)]) for each in (conversation, bobs)]
    )
    assert last(conversation)["args"]["content"] == f"{MASK}, bob's value"
    assert last(bobs)["args"]["content"] == f"alice's value, {MASK}"


def test_a_secret_is_hidden_as_soon_as_and_as_long_as_it_is_stored(
    conversation: ConversationRef, alice: User
) -> None:
    writes.append(conversation, [event(f"1 {TOKEN}")])
    keep(alice, TOKEN)
    writes.append(conversation, [event(f"2 {TOKEN}")])
    keep(alice, "replaced")
    writes.append(conversation, [event(f"3 {TOKEN} replaced")])
    texts = [json.loads(each)["args"]["content"] for each in payloads(conversation)]
    assert texts == [f"1 {TOKEN}", f"2 {MASK}", f"3 {TOKEN} {MASK}"]


def test_a_secret_that_no_key_opens_keeps_no_event_out(
    conversation: ConversationRef,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keep(alice, TOKEN)
    monkeypatch.setattr(settings, "SECRET_KEY", "another " * 10)
    keep(alice, "readable value", name="NEWER")
    writes.append(conversation, [event(f"{TOKEN}, readable value")])
    assert last(conversation)["args"]["content"] == f"{TOKEN}, {MASK}"
    assert "'DEPLOY_KEY'" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.needs_engine
@pytest.mark.parametrize("version", list(Version))
def test_a_repeated_event_keeps_its_place_whatever_was_a_secret_in_between(
    alice: User, version: Version
) -> None:
    talk = creation.create(alice, version=version)
    author = dialects.author(Dialect(version.lower()))

    def again() -> list[tuple[int, bool]]:
        texts = (f"one {TOKEN}", f"two {TOKEN}, {TOKEN}")
        authored = [author.user_message(text=text, event_id=text[:3]) for text in texts]
        events = [
            NewEvent(
                event_id=text[:3], payload=each.payload, reading=each.reading, stamp_offset=each.stamp_offset
            )
            for text, each in zip(texts, authored, strict=True)
        ]
        return [(each.seq, each.is_new) for each in writes.append(talk, events)]

    assert again() == [(0, True), (1, True)]
    keep(alice, TOKEN)
    assert again() == [(0, False), (1, False)]
    talk = creation.create(alice, version=version)
    assert again() == [(0, True), (1, True)]
    user_settings.remove_custom_secret(alice.pk, "DEPLOY_KEY")
    assert again() == [(0, False), (1, False)]


@pytest.mark.needs_engine
@pytest.mark.parametrize(
    "other",
    [
        message("my token"),
        message(f"my token {TOKEN}", more=1),
        f'{{"action":"run","args":{{"content":"{TOKEN}"}}}}',
    ],
)
def test_other_bytes_beside_what_is_hidden_are_still_a_conflict(
    conversation: ConversationRef, alice: User, other: str
) -> None:
    keep(alice, TOKEN)
    writes.append(conversation, [event(raw=message(f"my token {TOKEN}"), event_id="x")])
    with pytest.raises(EventConflict):
        writes.append(conversation, [event(raw=other, event_id="x")])


def test_what_is_hidden_never_stands_for_more_than_a_piece_of_one_string() -> None:
    assert masking.may_hide(f'{{"a":"{MASK}"}}', r'{"a":"x\"y"}')
    assert not masking.may_hide(f'{{"a":"{MASK}"}}', '{"a":"x","b":"y"}')
    assert not masking.may_hide(f'{{"a":"{MASK}"}}', '{"a":""}')


def test_a_mask_in_what_is_sent_hides_itself_and_nothing_more() -> None:
    assert masking.may_hide(f'{{"a":"{MASK} {MASK}"}}', f'{{"a":"{MASK} x"}}')
    assert not masking.may_hide(f'{{"a":"{MASK}"}}', f'{{"a":"{MASK} and more"}}')


def test_replaced_values_are_not_kept_in_clear(conversation: ConversationRef, alice: User) -> None:
    for number in range(3):
        keep(alice, f"value {number}")
        writes.append(conversation, [event(f"value {number}")])
    # By its type: some lazy objects of other tests cannot be asked what they are.
    objects = [each for each in gc.get_objects() if type(each) is Masks]
    assert [[each.hide(f"value {number}") for number in range(3)] for each in objects].count(
        [MASK, "value 1", "value 2"]
    ) == 0


def test_the_servers_time_stays_in_its_place_behind_what_is_hidden(
    conversation: ConversationRef, alice: User
) -> None:
    keep(alice, "long " * 20 + "value")
    keep(alice, "v", name="SHORT")
    raw = json.dumps(
        {
            "kind": "MessageEvent",
            "sender": ["long " * 20 + "value", "v v"],
            "timestamp": "2000-01-01T00:00:00.000000",
            "after": "v",
        }
    )
    stamped = event(raw=raw, event_id="x", stamp_offset=raw.index("2000-01-01"))
    assert [writes.append(conversation, [stamped])[0].seq for _ in range(2)] == [0, 0]
    row = Event.objects.get()
    stored = json.loads(row.payload)
    assert stored["sender"] == [MASK, f"{MASK} {MASK}"]
    assert stored["timestamp"] == row.timestamp.replace(tzinfo=None).isoformat(timespec="microseconds")


# The doors


@pytest.fixture
def secret(alice: User) -> str:
    keep(alice, TOKEN)
    return TOKEN


Connect = Callable[..., Awaitable[V0Client]]


@pytest.fixture
async def connect(live: None, alice: User) -> AsyncIterator[Connect]:
    """Connect by Socket.IO to a conversation, as alice."""
    clients: list[V0Client] = []

    async def connected(conversation_id: str) -> V0Client:
        client = V0Client(application, conversation_id=conversation_id)
        clients.append(client)
        await client.connect()
        return client

    yield connected
    for client in clients:
        await client.leave()


async def until_stored(conversation_id: str) -> list[str]:
    """Return the payloads of a conversation once the user's message is stored."""
    rows = Event.objects.filter(conversation__public_id=conversation_id).order_by("seq")
    await until(rows.filter(kind="message", source="user").exists)
    return await astore.call(list, rows.values_list("payload", flat=True))


def shows_only_the_mask(*texts: str) -> bool:
    return any(MASK in text for text in texts) and not any(TOKEN in text for text in texts)


ACTION = {"action": "message", "args": {"content": f"take {TOKEN}"}}


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("path", ["events", "message"])
async def test_what_v0_rest_takes_is_masked(
    conversation: ConversationRef, secret: str, rest: httpx.AsyncClient, path: str
) -> None:
    body = ACTION if path == "events" else {"message": f"take {secret}"}
    assert (await rest.post(f"{TALK}/{path}", json=body)).status_code == 200
    shown = (await rest.get(f"{TALK}/events")).text
    assert shows_only_the_mask(*await until_stored("talk"))
    assert shows_only_the_mask(shown)


@pytest.mark.usefixtures("silence")
async def test_a_secret_registered_by_rest_is_masked_in_what_comes_next(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    body = {"name": "DEPLOY_KEY", "value": TOKEN}
    assert (await rest.post("/api/secrets", json=body)).status_code == 201
    await rest.post(f"{TALK}/events", json=ACTION)
    assert shows_only_the_mask(*await until_stored("talk"))


@pytest.mark.usefixtures("silence")
async def test_a_first_message_is_masked(secret: str, rest: httpx.AsyncClient) -> None:
    answer = await rest.post("/api/conversations", json={"initial_user_msg": f"take {secret}"})
    assert shows_only_the_mask(*await until_stored(answer.json()["conversation_id"]))


async def test_what_socketio_takes_is_masked_live_and_replayed_and_in_the_answer(
    conversation: ConversationRef, secret: str, connect: Connect
) -> None:
    client = await connect("talk")
    await client.say(f"take {secret}")
    asked, answer = await client.said("user"), await client.said()
    again = await connect("talk")
    replayed = [await again.said("user"), await again.said()]
    assert [asked["message"], asked["args"]["content"]] == [f"take {MASK}"] * 2
    assert replayed == [asked, answer]
    assert shows_only_the_mask(json.dumps(answer))


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("version", list(Version))
@pytest.mark.parametrize("frame", ["event", "message"])
async def test_what_the_native_socket_takes_is_masked_live_and_replayed(
    alice: User, secret: str, join: Join, version: Version, frame: str
) -> None:
    talk = await astore.call(creation.create, alice, conversation_id="talk", version=version)
    client = await join(talk)
    member = {"event": ACTION} if frame == "event" else {"text": f"take {secret}"}
    await client.send({"type": frame, "id": "mine", **member})
    live = await client.until("event", kind="message")
    replayed = (await (await join(talk)).replayed())[0]
    assert shows_only_the_mask(json.dumps(live))
    assert replayed == live
    assert live["text"] == f"take {MASK}"


@pytest.mark.usefixtures("silence")
async def test_what_native_rest_takes_is_masked(
    conversation: ConversationRef, secret: str, rest: httpx.AsyncClient
) -> None:
    frame = {"type": "event", "id": "mine", "event": ACTION}
    assert (await rest.post("/api/native/conversations/talk/events", json=frame)).status_code == 200
    assert shows_only_the_mask(*await until_stored("talk"))


class TellingAgent(SilentAgent):
    """Tells a secret: in a call, its result and its answer."""

    async def play(self, turn: Turn) -> None:
        call = await turn.call_tool("run", {"command": f"echo {TOKEN}"}, thought=f"I need {TOKEN}.")
        assert call.arguments == {"command": f"echo {TOKEN}"}  # what is called is called as it was meant
        await turn.tool_result(call, f"{TOKEN}\n")
        await turn.say(f"It was {TOKEN}.")


@pytest.mark.parametrize("version", list(Version))
async def test_an_agents_calls_results_and_answers_are_masked(
    alice: User, secret: str, join: Join, configured: Callable[..., None], version: Version
) -> None:
    configured(agent="tests.store.test_masking.TellingAgent")
    client = await join(await astore.call(creation.create, alice, version=version))
    await client.send({"type": "message", "text": "tell"})
    shown = [
        json.dumps(await client.until("event", kind=kind)) for kind in ("tool_call", "tool_result", "message")
    ]
    assert [shows_only_the_mask(each) for each in shown] == [True] * 3


@pytest.mark.usefixtures("live")
async def test_an_answer_hides_a_conversations_own_secret_while_it_is_given(
    alice: User, join: Join, dictate: Dictate
) -> None:
    talk = await astore.call(agent_setups.create, alice, SETUP)
    client = await join(talk)
    await client.send({"type": "message", "text": "tell"})
    await client.send({"type": "run"})
    await dictate("It was ", OWN[:5], OWN[5:], " and done")
    shown = ""
    while not shown.endswith("done"):
        frame = await client.receive()
        if frame["type"] in ("delta", "answer"):
            shown = shown + frame["text"] if frame["type"] == "delta" else frame["text"]
    end_answer()
    assert shown == f"It was {MASK} and done"


@pytest.mark.usefixtures("live")
async def test_an_answer_is_masked_while_it_is_given_though_pieces_cut_the_secret(
    conversation: ConversationRef, secret: str, join: Join, dictate: Dictate
) -> None:
    client = await join(conversation)
    await client.send({"type": "message", "text": "tell"})
    await dictate("It was ", secret[:5], secret[5:20], f"{secret[20:]} an", "d ", secret[:3])
    snapshots = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk)
    shown = ""
    while not shown.endswith("and "):
        frame = await client.receive()
        if frame["type"] in ("delta", "answer"):
            shown = shown + frame["text"] if frame["type"] == "delta" else frame["text"]
    stored = await astore.call(list, snapshots.values_list("text", flat=True))
    end_answer()
    answer = await client.until("event", kind="message")
    assert shown == f"It was {MASK} and "
    assert not any(secret[:5] in text for text in stored)
    assert answer["text"] == f"It was {MASK} and {secret[:3]}"


@pytest.mark.usefixtures("live")
async def test_a_secret_stored_during_an_answer_is_hidden_from_the_next_snapshot_on(
    conversation: ConversationRef,
    alice: User,
    join: Join,
    dictate: Dictate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 0.0)
    client = await join(conversation)
    await client.send({"type": "message", "text": "tell"})
    await dictate(f"It was {TOKEN}")
    await astore.call(keep, alice, TOKEN)
    await dictate(", ", TOKEN, ".")
    snapshot = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk)
    await until(snapshot.filter(text=f"It was {MASK}, {MASK}.").exists)
    assert (await client.until("delta", index=2))["text"] == MASK


@pytest.mark.usefixtures("live")
async def test_an_answer_that_is_interrupted_keeps_the_end_that_was_held_back(
    conversation: ConversationRef, secret: str, join: Join, dictate: Dictate
) -> None:
    client = await join(conversation)
    await client.send({"type": "message", "text": "tell"})
    await client.until("event", source="user")
    await dictate(f"It was {secret} and ", secret[:3])
    await get_manager().interrupt(conversation)
    answer = await client.until("event", kind="message")
    assert answer["text"] == f"It was {MASK} and {secret[:3]}"


@pytest.mark.usefixtures("live")
async def test_an_answer_that_is_interrupted_hides_most_of_a_secret(
    conversation: ConversationRef, secret: str, join: Join, dictate: Dictate
) -> None:
    client = await join(conversation)
    await client.send({"type": "message", "text": "tell"})
    await client.until("event", source="user")
    await dictate("It was ", secret[:-1])
    await get_manager().interrupt(conversation)
    answer = await client.until("event", kind="message")
    assert answer["text"] == f"It was {MASK}"


@pytest.mark.usefixtures("live")
async def test_a_title_is_made_of_the_masked_message(conversation: ConversationRef, secret: str) -> None:
    await astore.call(writes.append, conversation, [event(f"use {secret}")])
    await set_generated_title(conversation, SilentAgent())
    row = await astore.call(lambda: Conversation.objects.get(pk=conversation.pk))
    assert (row.title, row.last_message) == (f"use {MASK}", f"use {MASK}")


# Titles and tags


def test_a_secret_in_a_title_or_tag_is_hidden_however_it_is_set(alice: User) -> None:
    keep(alice, TOKEN)
    facts: dict[str, Any] = {"title": f"use {TOKEN}", "tags": {f"of {TOKEN}": f"is {TOKEN}"}}
    hidden_facts = (f"use {MASK}", {f"of {MASK}": f"is {MASK}"})
    made, changed = creation.create(alice, **facts), creation.create(alice)
    changes.retitle(changed, facts["title"])
    changes.retag(changed, facts["tags"])
    forked = forks.fork(alice, made, **facts)
    rows = Conversation.objects.filter(pk__in=[made.pk, changed.pk, forked.pk])
    assert [(row.title, row.tags) for row in rows] == [hidden_facts] * 3


def test_a_conversations_own_secret_is_hidden_in_its_title(alice: User) -> None:
    talk = agent_setups.create(alice, SETUP, title=f"use {OWN}")
    assert Conversation.objects.get(pk=talk.pk).title == f"use {MASK}"
    changes.retitle(talk, f"with {OWN}")
    assert Conversation.objects.get(pk=talk.pk).title == f"with {MASK}"


# Secrets of one conversation


OWN = "own-secret-of-this-conversation"
SETUP = agent_setups.NewSetup(secrets={"KEY": {"kind": "StaticSecret", "value": OWN}})


def test_a_conversations_own_secrets_are_hidden_in_it_and_in_no_other(alice: User) -> None:
    talk, other = agent_setups.create(alice, SETUP), agent_setups.create(alice, agent_setups.NewSetup())
    keep(alice, TOKEN)
    text = payload(f"{OWN} {TOKEN}")
    writes.append_many(
        [
            AppendRequest(conversation=each, events=[event(raw=text, event_id=each.public_id)])
            for each in (other, talk)
        ]
    )
    assert payloads(talk) == [hidden(text, OWN, TOKEN)]
    assert payloads(other) == [hidden(text, TOKEN)]


def test_a_secret_that_is_added_to_a_conversation_is_hidden_from_then_on(alice: User) -> None:
    talk = agent_setups.create(alice, agent_setups.NewSetup())
    texts = [payload(f"{OWN} {number}") for number in range(2)]
    writes.append(talk, [event(raw=texts[0], event_id="first")])
    agent_setups.add_secrets(talk, SETUP.secrets)
    writes.append(talk, [event(raw=texts[1], event_id="second")])
    assert payloads(talk) == [texts[0], hidden(texts[1], OWN)]


def test_what_a_conversation_begins_with_shows_none_of_its_own_secrets(alice: User) -> None:
    text = payload(OWN)
    talk = agent_setups.create(alice, SETUP, events=[event(raw=text)])
    assert payloads(talk) == [hidden(text, OWN)]


def test_headers_that_fetch_a_conversations_secret_are_hidden(alice: User) -> None:
    source = {"kind": "LookupSecret", "url": "https://a.b", "headers": {"X-Key": OWN}}
    talk = agent_setups.create(alice, agent_setups.NewSetup(secrets={"KEY": source}))
    text = payload(OWN)
    writes.append(talk, [event(raw=text)])
    assert payloads(talk) == [hidden(text, OWN)]


def test_a_conversations_own_value_of_several_lines_is_hidden_whatever_ends_them(alice: User) -> None:
    source = {"kind": "StaticSecret", "value": "a\r\nb\r\n"}
    talk = agent_setups.create(alice, agent_setups.NewSetup(secrets={"KEY": source}))
    writes.append(talk, [event("it is a\nb.")])
    assert last(talk)["args"]["content"] == f"it is {MASK}."


def test_a_forks_events_show_none_of_the_secrets_that_it_was_given(alice: User) -> None:
    fork = agent_setups.fork(alice, agent_setups.create(alice, SETUP))
    text = payload(OWN)
    writes.append(fork, [event(raw=text)])
    assert payloads(fork) == [hidden(text, OWN)]


@pytest.mark.needs_engine
@pytest.mark.parametrize("setup", [SETUP, agent_setups.NewSetup()], ids=["secrets", "none"])
def test_secrets_of_a_conversation_cost_an_append_no_statement(
    alice: User, setup: agent_setups.NewSetup
) -> None:
    plain, talk = creation.create(alice), agent_setups.create(alice, setup)
    costs = []
    for each in (plain, talk):
        with CaptureQueriesContext(connection) as captured:
            writes.append(each, [event(event_id="once")])
        costs.append(len(captured))
    assert costs[0] == costs[1]
