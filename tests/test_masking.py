"""Secrets in events: hidden before these are stored, in every spelling and through every door."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import masking
from conversations.masking import MASK, Masks
from tests.test_payload import PAYLOADS, each_of, json_texts

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"


def hidden(payload: str, *values: str) -> str:
    return masking.replaced(payload, Masks(values).in_event(payload))


# The text


@pytest.mark.parametrize(
    ("value", "spelling"),
    [
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
    ],
)
def test_a_value_is_found_in_every_spelling(value: str, spelling: str) -> None:
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
    """Draw an object; the value may also be a member's name, where it is hidden only inside a string."""
    names = draw(st.lists(st.sampled_from(["x", "args", "message", value]), max_size=3))
    members = [draw(member(name, name == value and nesting < 2, value, depth, nesting)) for name in names]
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


@each_of(PAYLOADS)
def test_what_stands_beside_a_value_stays_whatever_it_is(text: str) -> None:
    holding = text.replace("{", f'{{"zz":"{TOKEN}",', 1)
    assert hidden(holding, TOKEN) == holding.replace(TOKEN, MASK)


def test_longer_values_win_over_those_that_they_contain() -> None:
    assert hidden('{"x":"the abcdef, abc"}', "abc", "abcdef") == f'{{"x":"the {MASK}, {MASK}"}}'


def test_values_that_overlap_are_hidden_whole() -> None:
    assert hidden('{"x":"-abcde-"}', "abc", "cde") == f'{{"x":"-{MASK}-"}}'


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_blank_values_hide_nothing(blank: str) -> None:
    text = '{"x":"two words\\n"}'
    assert hidden(text, blank) == text


@pytest.mark.parametrize(
    "value",
    ["message", "run", "content", "agent", "2000-01-01", "abc-1", "MessageEvent", "1.10", "10", "true"],
)
def test_a_value_never_breaks_names_numbers_or_what_says_which_event_it_is(value: str) -> None:
    text = (
        '{"id":"abc-1","timestamp":"2000-01-01T00:00:00","source":"agent","kind":"MessageEvent","action":"message",'
        '"observation":"run","cause":10,"action_id":"abc-1","parent_id":"abc-1","tool_call_id":"abc-1",'
        '"content":1.10,"message":true}'
    )
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


def test_what_is_hidden_never_stands_for_more_than_a_piece_of_one_string() -> None:
    assert masking.may_hide(f'{{"a":"{MASK}"}}', r'{"a":"x\"y"}')
    assert not masking.may_hide(f'{{"a":"{MASK}"}}', '{"a":"x","b":"y"}')
    assert not masking.may_hide(f'{{"a":"{MASK}"}}', '{"a":""}')
