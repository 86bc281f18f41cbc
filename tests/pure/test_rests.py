"""What no event says of a record is kept where it is new, and once."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.transcripts.sources.nodes import (
    PATHS_MAX,
    Kept,
    Record,
    Rests,
    filled_rests,
    rest_of_block,
)


def kept(rest_of: Rests, rest: Mapping[str, object]) -> object:
    """Return the value of the record that a rest becomes; None for none."""
    parts = rest_of.parts("line", rest)
    assert all(
        part == Record(name="members of line", value=part.value, why=Kept.BOOKKEEPING) for part in parts
    )
    return parts[0].value if parts else None


def test_a_member_is_kept_where_its_value_changes() -> None:
    rest_of = Rests({"directory": "/shop"})
    first = {"directory": "/shop", "release": "1", "used": {"tier": "a", "of": [1, 2]}}
    assert kept(rest_of, first) == {"release": "1", "used": {"tier": "a", "of": [1, 2]}}
    assert kept(rest_of, first) is None
    assert kept(rest_of, {"release": "1"}) is None
    assert kept(rest_of, {"directory": "/", "used": {"tier": "a", "of": [1]}}) == {
        "directory": "/",
        "used": {"of": [1]},
    }
    assert kept(rest_of, {"release": 1}) == {"release": 1}
    assert kept(rest_of, {"release": True}) == {"release": True}


def test_values_are_compared_whatever_they_are() -> None:
    rest_of = Rests()
    odd: tuple[object, ...] = ("\ud800", "\ud800" * 200, "x" * 10_000, [["\ud800"]], {}, 1.5, float("nan"))
    for value in odd:
        assert kept(rest_of, {"odd": value}) is not None
    for text in ("x" * 10_000, "x" * 9_999):
        assert kept(rest_of, {"odd": text}) == {"odd": text}


def test_more_members_than_can_be_compared_are_kept_each_time() -> None:
    rest_of = Rests()
    many: dict[str, object] = {f"m{number}": number for number in range(PATHS_MAX + 1)}
    kept(rest_of, many)
    assert kept(rest_of, many) == {f"m{PATHS_MAX}": PATHS_MAX}


def test_the_rest_of_a_block_has_its_type_and_only_if_there_is_any() -> None:
    block = {"type": "text", "text": "words", "of": {"a": 1, "b": None}, "none": None}
    assert rest_of_block(block, {"text"}) == {"type": "text", "of": {"a": 1, "b": None}}
    assert rest_of_block(block, {"text", "of"}) == {}
    assert rest_of_block(block, {"text"}, {"of": {}}) == {}
    assert filled_rests([{}, {"type": "text", "of": 1}]) == [{}, {"type": "text", "of": 1}]
    assert filled_rests([{}, {}]) == []
