"""The arguments of a call beside the schema of its tool, both of which strangers have written."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.llm.tools import arguments, offers
from sessions_app.agents.llm.tools.arguments import problems_of
from sessions_app.agents.llm.tools.calls import wanted
from sessions_app.agents.llm.tools.offers import Tool

ROWS = {
    "type": "object",
    "properties": {
        "table": {"type": "string", "enum": ["users", "orders"]},
        "limit": {"type": "integer"},
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"column": {"type": "string"}, "low": {"type": ["number", "null"]}},
                "required": ["column"],
            },
        },
        "of": {"$ref": "#/$defs/place"},
        "exact": {"type": "boolean"},
        "version": {"const": 2},
    },
    "required": ["table"],
    "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}},
}
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["`table` is missing"]),
    ({"table": "users", "limit": "5"}, ["`limit` must be an integer, and is a string"]),
    ({"table": "users", "limit": 1.5}, ["`limit` must be an integer, and is a number"]),
    ({"table": "users", "limit": True}, ["`limit` must be an integer, and is true or false"]),
    ({"table": "users", "exact": 0}, ["`exact` must be true or false, and is an integer"]),
    ({"table": "secrets"}, ["`table` must be one of `users`, `orders`"]),
    ({"table": "users", "version": 3}, ["`version` must be `2`"]),
    ({"table": "users", "filters": {}}, ["`filters` must be an array, and is an object"]),
    ({"table": "users", "filters": [{"column": "a"}, {}]}, ["`filters[1].column` is missing"]),
    (
        {"table": "users", "filters": [{"column": "a", "low": "b"}]},
        ["`filters[0].low` must be a number or null, and is a string"],
    ),
    ({"table": "users", "of": {}}, ["`of.city` is missing"]),
    ({"limit": None}, ["`table` is missing", "`limit` must be an integer, and is null"]),
]
RIGHT: list[dict[str, Any]] = [
    {"table": "users"},
    {"table": "orders", "limit": 5, "exact": False, "version": 2, "other": 1},
    {"table": "users", "limit": 5.0, "filters": [], "of": {"city": "Oslo"}},
    {"table": "users", "filters": [{"column": "a", "low": None}, {"column": "b", "low": 1e300}]},
]
HOSTILE: dict[str, dict[str, Any]] = {
    "a reference to itself": {"$ref": "#", "properties": {"a": {"$ref": "#"}}},
    "references in a circle": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    },
    "a reference to elsewhere": {"properties": {"a": {"$ref": "https://127.0.0.1:1/x"}}},
    "a reference to nothing": {"properties": {"a": {"$ref": "#/nothing/at/all"}}},
    "a pattern without end": {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "members that are none": {"required": 5, "properties": [1], "enum": {}, "items": "x", "type": 7},
    "properties that are none": {"properties": {"a": 5, "b": None, "c": True}},
}


def test_arguments_that_do_not_match_the_schema_are_named_with_what_is_wrong(
    subtests: pytest.Subtests,
) -> None:
    for given_, problems in WRONG:
        with subtests.test(given=given_):
            assert problems_of(ROWS, given_) == problems


def test_arguments_that_match_the_schema_have_no_problem(subtests: pytest.Subtests) -> None:
    for given_ in RIGHT:
        with subtests.test(given=given_):
            assert problems_of(ROWS, given_) == []


def test_a_hostile_schema_neither_hangs_nor_fetches_and_lets_a_call_through(
    subtests: pytest.Subtests,
) -> None:
    for name, schema in HOSTILE.items():
        with subtests.test(name):
            value = {"a": "a" * 5_000 + "b", "b": [1], "c": {"a": {}}}
            assert problems_of(schema, value) == []
            tools, left_out = offers.listed([{"name": "t", "inputSchema": schema}, {"name": "u"}])
            assert len(tools) + len(left_out) == 2


def test_a_check_of_long_arguments_beside_a_long_enumeration_ends_soon() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"enum": [*range(1, 4_000)]}}}}
    begun = time.process_time()
    assert problems_of(schema, {"a": [0.5] * 40_000})[:1] == [
        "`a[0]` must be one of `1`, `2`, `3`, `4`, `5`, `6`, `7`, `8`, `9`, `10` …"
    ]
    assert problems_of(schema, {"a": [3_999] * 40_000}) == []
    assert time.process_time() - begun < 1


def test_a_check_of_many_objects_beside_a_schema_with_many_members_ends_soon() -> None:
    shapes: list[dict[str, Any]] = [
        {"properties": {f"p{number}": {} for number in range(2_000)}},
        {"required": ["a"] * 4_000},
    ]
    for members in shapes:
        schema = {"properties": {"rows": {"type": "array", "items": members}}}
        begun = time.process_time()
        assert problems_of(schema, {"rows": [{"a": 1}] * 30_000}) == []
        assert time.process_time() - begun < 0.5
    schema = {"properties": {"rows": {"type": "array", "items": {"required": ["b"]}}}}
    assert problems_of(schema, {"rows": [{"b": 1}] * 5_000 + [{}]}) == ["`rows[5000].b` is missing"]


def test_a_call_with_wrong_arguments_cannot_be_run_and_says_why() -> None:
    tool = Tool(name="rows", description="", schema=ROWS, server=0, own_name="rows")
    call = wanted("rows", '{"limit": "5"}', {"rows": tool})
    assert call.tool is None
    assert (
        "so nothing was run: `table` is missing; `limit` must be an integer, and is a string." in call.problem
    )
    assert wanted("rows", '{"table": "users"}', {"rows": tool}).tool is tool


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
MEMBERS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "const", "$ref", "anyOf", "$defs", "description", "x"]
)
SCHEMAS = st.recursive(
    VALUES | st.sampled_from(["object", "array", "string", "#", "#/properties/a"]),
    lambda inner: (
        st.dictionaries(MEMBERS | st.sampled_from("ab"), inner, max_size=5) | st.lists(inner, max_size=3)
    ),
    max_leaves=20,
)


@given(schema=SCHEMAS, value=VALUES)
def test_no_schema_and_no_arguments_make_a_check_fail(schema: Any, value: Any) -> None:
    given_ = {"a": value, "b": value}
    as_written = schema if isinstance(schema, dict) else {"properties": schema}
    assert len(problems_of(as_written, given_)) <= arguments.PROBLEMS_MAX
    tools, left_out = offers.listed([{"name": "t", "inputSchema": schema}])
    assert len(tools) + len(left_out) == 1
    for tool in tools:
        offered = json.loads(json.dumps(tool.schema))
        assert (offered["type"], type(offered["properties"])) == ("object", dict)
        problems_of(offered, given_)
