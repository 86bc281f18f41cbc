"""Lines of exported conversations: the fast way to read one, and the way for any form, agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.events import Dialect, EventEnvelope, Kind, NewEvent
from conversations.exceptions import InvalidEvent
from conversations.payloads.jsontext import LONG_CHARACTERS
from conversations.transcripts import jsonl
from conversations.transcripts.jsonl import Beside
from conversations.transcripts.sources import own_line

REFUSALS = (ValueError, LookupError, TypeError, InvalidEvent)
TEXTS = st.text(max_size=20)
STORABLE = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
IDS, COLUMNS = st.text(STORABLE, min_size=1, max_size=20), st.text(STORABLE, max_size=20)
NUMBERS = st.none() | st.integers(0, 10**18 - 1)
EARLIEST, LATEST = datetime(1970, 1, 1), datetime(9999, 12, 30)  # noqa: DTZ001 - hypothesis adds the zone
FLOATS = st.floats(allow_nan=False, allow_infinity=False)  # the store takes no other
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
SPACES = st.sampled_from(["", " ", "\t", "\n"])
PARTS = st.sampled_from(
    [
        *('"', "\\", "{", "}", "[", "]", ",", ":", " ", "\n", "\0", "\ud800", "null", "NaN", "-0", "1e5"),
        *('"event":{}', '"payload":"{}"', '"id":7', ',"id":"twice"', "9" * 19, "9" * 700, "9" * 5000, "٣"),
        *('"event":[', "[" * 3000, '"event_type":null', '"hidden":1', '"timestamp":"never"', "\\u0022"),
    ]
)


@st.composite
def payloads(draw: st.DrawFn) -> str:
    """The text of an event of either wire, with whatever else it may hold."""
    space = draw(SPACES)
    name = draw(st.sampled_from(["action", "observation", "kind"]))
    told = draw(st.dictionaries(TEXTS, VALUES, max_size=4)) | {
        name: draw(st.sampled_from(["run", "message"]))
    }
    if draw(st.booleans()):
        told["args"] = draw(st.dictionaries(st.sampled_from(["content", "command"]), VALUES))
    return f"{{{space}{json.dumps(told, ensure_ascii=draw(st.booleans()))[1:]}"


@st.composite
def exported(draw: st.DrawFn) -> str:
    """One line as an export has it, without its line feed."""
    at = draw(st.datetimes(timezones=st.just(UTC), min_value=EARLIEST, max_value=LATEST))
    envelope = EventEnvelope(
        seq=draw(st.integers(0, 2**53)),
        fingerprint="",
        id=draw(IDS),
        dialect=draw(st.sampled_from(Dialect)),
        type=draw(COLUMNS),
        kind=draw(st.sampled_from(Kind)),
        source=draw(COLUMNS),
        timestamp=jsonl.written(at),
        cause=draw(NUMBERS),
        turn=draw(st.none() | COLUMNS),
        tool_call_id=draw(st.none() | COLUMNS),
        hidden=draw(st.booleans()),
        brings_envelope=False,
        text="",
        payload=draw(payloads()),
    )
    beside = Beside(at, epoch=draw(NUMBERS), is_input=draw(st.booleans()), wire_id=draw(NUMBERS))
    return jsonl.line(envelope, beside).removesuffix("\n")


@st.composite
def rewritten(draw: st.DrawFn) -> str:
    """A line with the same members in another order, spaced, some missing or twice."""
    members = list(json.loads(draw(exported())).items())
    chosen = draw(st.lists(st.sampled_from(members), max_size=2))
    order = draw(st.permutations([*members, *chosen]) | st.just([*members, *chosen]))
    left = draw(st.sets(st.sampled_from(members).map(lambda member: member[0]), max_size=1))
    space = draw(SPACES)
    written = (f'{space}"{name}":{space}{json.dumps(value)}' for name, value in order if name not in left)
    return f"{{{','.join(written)}{space}}}"


@st.composite
def broken(draw: st.DrawFn) -> str:
    """A line that some bytes of which were replaced."""
    line = draw(exported())
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(PARTS) + line[at + draw(st.integers(0, 10)) :]
    return line


def outcome(read: Callable[[str], NewEvent], line: str) -> object:
    """Return the event of a line, or its refusal."""
    try:
        return read(line)
    except REFUSALS as error:
        return type(error), str(error)


def agree(line: str) -> None:
    assert outcome(own_line.event, line) == outcome(own_line.in_any_form, line)


@given(line=exported())
def test_a_line_as_it_was_exported_is_read_the_fast_way(line: str) -> None:
    event = own_line.as_exported(line)
    assert event is not None
    assert event == own_line.in_any_form(line)


@given(line=rewritten() | broken())
def test_both_ways_agree_about_every_other_line(line: str) -> None:
    agree(line)


LINE = (
    '{"type":"event","seq":0,"id":"a","dialect":"v0","event_type":"run","kind":"tool_call","source":"agent",'
    '"timestamp":"2026-01-01T00:00:00Z","cause":null,"turn":null,"tool_call_id":null,"hidden":false,%s}'
)


def test_both_ways_agree_about_hostile_payloads(subtests: pytest.Subtests) -> None:
    for rest in [
        '"event":{"action":"run"}',
        '"event":{"action":"run"},"event":{"action":"read"}',
        '"event":{"action":"run"},"payload":"{}"',
        '"event":{"action":"run","n":NaN}',
        '"payload":"{\\"action\\":\\"run\\",\\"n\\":NaN}"',
        '"event":{"action":"run","action":"read"}',
        '"event":{"action":"run"} ',
        '"event":{"action":"run"}}',
        '"event":[1]',
        '"payload":"[1]"',
        '"payload":7',
        '"payload":"{\\"action\\":\\"run\\",\\"n\\":' + "[" * 5000 + '"',
        '"event":{"action":"run","n":' + "[" * 5000 + "]" * 5000 + "}",
        '"event":{"action":"run","n":' + "9" * 700 + "}",
        '"event":{"action":"run","n":' + "9" * 5000 + "}",
        '"event":{"action":"run","id":' + "9" * 700 + ',"x":"' + "x" * LONG_CHARACTERS + '"}',
        '"event":{"action":"run","n":' + "9" * 5000 + ',"x":"' + "x" * LONG_CHARACTERS + '"}',
        '"event":{"action":"run","args":{"command":"\\ud800"}}',
    ]:
        with subtests.test(rest=rest):
            agree(LINE % rest)
