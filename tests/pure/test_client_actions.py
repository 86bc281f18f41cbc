"""Calls of a V1 client's own tools: written only as its library reads them."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.dialects import v1
from sessions_app.agents.llm.tools import clients
from sessions_app.settings.client_tools import ClientTool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": ["number", "null"]},
        "open": {"type": "boolean"},
        "rows": {"type": "array", "items": {"type": "string"}},
        "style": {"type": "object"},
        "anything": {},
    },
    "required": ["title"],
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"title": "a"},
        {"title": "a", "count": 1, "share": 0.5, "open": True, "rows": ["b"], "style": {"c": 1}},
        {"title": "a", "count": None, "anything": [None, 1]},
    ],
)
def test_a_call_that_matches_the_schema_is_an_action_of_the_tools_own_kind(arguments: dict[str, Any]) -> None:
    assert v1.client_action("chart", SCHEMA, arguments) == {"kind": "ClientAction_chart", **arguments}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"title": None},
        {"title": 1},
        {"title": "a", "more": 1},
        {"title": "a", "count": True},
        {"title": "a", "count": "1"},
        {"title": "a", "rows": ["b", 2]},
        {"title": "a", "style": []},
        {"title": "a", "kind": "b"},
    ],
)
def test_a_call_that_the_clients_library_would_refuse_is_no_such_action(arguments: dict[str, Any]) -> None:
    assert v1.client_action("chart", SCHEMA, arguments) is None


@pytest.mark.parametrize("beside", [{"summary": "Show it"}, {"security_risk": "LOW"}, {"summary": 3}])
def test_what_a_model_adds_beside_the_arguments_is_no_part_of_the_action(beside: dict[str, Any]) -> None:
    action = v1.client_action("chart", SCHEMA, {"title": "a", **beside})
    assert action == {"kind": "ClientAction_chart", "title": "a"}
    own = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}
    assert v1.client_action("note", own, {"summary": "s"}) == {"kind": "ClientAction_note", "summary": "s"}


def tool(name: str, schema: dict[str, Any] = SCHEMA) -> ClientTool:
    return ClientTool(name=name, description="", schema=schema, is_destructive=True)


def test_a_tool_that_a_model_or_the_wire_cannot_name_is_left_out_with_a_sentence() -> None:
    clashing = {"type": "object", "properties": {"kind": {"type": "string"}}}
    tools, notices = clients.offered(
        [
            tool("chart"),
            tool("two words"),
            tool("run"),
            tool("odd", clashing),
            tool("list", {"type": "array"}),
        ]
    )
    assert {name: each.risk for name, each in tools.items()} == {"chart": "HIGH"}
    assert ["`two_words`" in notices[0], "`run`" in notices[1], len(notices)] == [True, True, 4]
