"""Commands and their ends as the events of both wires."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from conversations import dialects
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.v0 import reading as v0_reading
from conversations.dialects.v1 import reading as v1_reading
from conversations.events import Dialect

IDS: dict[str, Any] = {"tool_call_id": "call_1", "event_id": "0d0b8f0e-0000-4000-8000-000000000001"}


def call(dialect: Dialect, arguments: Mapping[str, object]) -> dict[str, Any]:
    authored = dialects.author(dialect).tool_call(name=COMMAND_TOOL, arguments=arguments, **IDS)
    written: dict[str, Any] = json.loads(authored.payload)
    return written


def result(dialect: Dialect, *, exit_code: int, end: CommandEnd | None = None) -> dict[str, Any]:
    authored = dialects.author(dialect).tool_result(
        name=COMMAND_TOOL,
        arguments={"command": "ls"},
        content="a.txt",
        exit_code=exit_code,
        end=end,
        call_event_id=IDS["event_id"],
        **IDS,
    )
    written: dict[str, Any] = json.loads(authored.payload)
    return written


GIVEN: list[dict[str, object]] = [
    {"command": "ls"},
    {"command": "yes", "is_input": True},
    {"command": "make", "timeout": 90},
    {"command": "", "reset": True},
    {"command": "C-c", "is_input": True, "timeout": 1.5, "reset": True},
]


@pytest.mark.parametrize("given", GIVEN)
def test_a_call_is_read_with_the_arguments_with_which_it_was_written(given: dict[str, object]) -> None:
    assert v0_reading.called_tool(call(Dialect.V0, given)) == (COMMAND_TOOL, given)
    assert v1_reading.called_tool(call(Dialect.V1, given)) == (COMMAND_TOOL, given)


def test_defaults_and_unusable_values_of_a_model_are_left_out() -> None:
    given = {"command": "ls", "is_input": False, "timeout": None, "reset": "no"}
    assert v0_reading.called_tool(call(Dialect.V0, given)) == (COMMAND_TOOL, {"command": "ls"})
    action = call(Dialect.V1, {**given, "timeout": -1})["action"]
    assert action == {"kind": "TerminalAction", "command": "ls", "is_input": False, "reset": False}


def test_a_v1_call_is_a_terminal_action_with_all_that_was_given() -> None:
    event = call(Dialect.V1, GIVEN[-1])
    assert event["tool_name"] == "terminal"
    assert event["action"] == {
        "kind": "TerminalAction",
        "command": "C-c",
        "is_input": True,
        "timeout": 1.5,
        "reset": True,
    }


def test_a_v0_call_has_in_its_args_only_what_strict_readers_know() -> None:
    event = call(Dialect.V0, GIVEN[-1])
    known = {"command", "is_input", "thought", "blocking", "is_static", "cwd", "hidden"}
    assert event["args"].keys() == {*known, "confirmation_state", "security_risk"}
    assert (event["args"]["command"], event["args"]["is_input"]) == ("C-c", True)


def test_the_end_of_a_command_is_stored_with_its_place() -> None:
    end = CommandEnd("/workspace/src")
    v0, v1 = (result(dialect, exit_code=2, end=end) for dialect in (Dialect.V0, Dialect.V1))
    metadata = v0["extras"]["metadata"]
    assert (metadata["exit_code"], metadata["working_dir"], metadata["pid"]) == (2, "/workspace/src", -1)
    assert v0["success"] is False
    seen = v1["observation"]
    assert (seen["kind"], seen["command"], seen["exit_code"]) == ("TerminalObservation", "ls", 2)
    assert (seen["timeout"], seen["is_error"]) == (False, True)
    assert seen["metadata"]["working_dir"] == "/workspace/src"


def test_a_command_that_still_runs_is_no_error() -> None:
    seen = result(Dialect.V1, exit_code=-1, end=CommandEnd("/workspace", has_timed_out=True))["observation"]
    assert (seen["exit_code"], seen["timeout"], seen["is_error"]) == (-1, True, False)


def test_without_a_known_place_none_is_written() -> None:
    assert "working_dir" not in result(Dialect.V1, exit_code=0)["observation"]["metadata"]
    assert result(Dialect.V0, exit_code=0)["extras"]["metadata"]["working_dir"] is None
