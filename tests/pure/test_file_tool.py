"""Calls of the tool for files in the shapes of both wires, and in each other's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import file_tool, v0, v1
from conversations.dialects.file_tool import FILE_TOOL, FileEdit
from conversations.dialects.views import CallView, ResultView
from conversations.events import Dialect, EventEnvelope
from tests.support.wires.v0_wire import stored
from tests.support.wires.v1_wire import require_strict

ID = "00000000-0000-4000-8000-000000000001"
IDS: dict[str, Any] = {"tool_call_id": "c1", "event_id": ID}
ANSWERED = {**IDS, "call_event_id": "00000000-0000-4000-8000-000000000002"}
CONVERSATION = "3c294d959ff64d2d9c530a5849f2c4a0"
PATHS = st.sampled_from(["/workspace/a.py", "a", "/workspace/é \u2028x"])
STRINGS = st.text(st.sampled_from("ab\n é"), max_size=5)
LINES = st.integers(-1, 10_000)

VIEWS = st.fixed_dictionaries(
    {"command": st.just("view"), "path": PATHS}, optional={"view_range": st.lists(LINES, max_size=2)}
)
EDITS = st.fixed_dictionaries(
    {"command": st.sampled_from(file_tool.EDITS), "path": PATHS},
    optional={
        "file_text": STRINGS,
        "old_str": STRINGS,
        "new_str": STRINGS,
        "insert_line": st.integers(0, 99),
    },
)
ODD = st.fixed_dictionaries(
    {"command": st.sampled_from([*file_tool.COMMANDS, "delete", 1]), "path": PATHS | st.integers()},
    optional={"view_range": STRINGS, "old_str": LINES, "more": STRINGS, "insert_line": st.booleans()},
)
CONTENTS = st.none() | STRINGS


def call(dialect: Dialect, arguments: dict[str, Any]) -> EventEnvelope:
    authored = dialects.author(dialect).tool_call(name=FILE_TOOL, arguments=arguments, thought="Hm.", **IDS)
    return stored(authored.payload, seq=7)


def result(dialect: Dialect, arguments: dict[str, Any], **others: Any) -> EventEnvelope:
    author = dialects.author(dialect)
    authored = author.tool_result(name=FILE_TOOL, arguments=arguments, content="Done.", **others, **ANSWERED)
    return stored(authored.payload, seq=8, cause=7)


def on_the_other_wire(event: EventEnvelope) -> EventEnvelope:
    """Return what readers of the other wire are shown, as if it was stored there."""
    if event["dialect"] == Dialect.V0:
        shown = v1.shown(event, CONVERSATION)
        require_strict(json.loads(shown))
        return stored(shown, seq=event["seq"], cause=event["cause"])
    return stored(v0.shown(event), seq=event["seq"], cause=event["cause"])


@pytest.mark.parametrize("dialect", Dialect)
@given(arguments=VIEWS | EDITS | ODD)
def test_a_stored_call_gives_back_what_the_model_wrote_on_both_wires(
    dialect: Dialect, arguments: dict[str, Any]
) -> None:
    event = call(dialect, arguments)
    assert dialects.called_tool(event) == (FILE_TOOL, arguments)
    assert dialects.called_tool(on_the_other_wire(event)) == (FILE_TOOL, arguments)


@given(VIEWS | EDITS)
def test_a_call_is_the_wires_own(arguments: dict[str, Any]) -> None:
    is_view = arguments["command"] == "view"
    assert call(Dialect.V0, arguments)["type"] == ("read" if is_view else "edit")
    action = json.loads(call(Dialect.V1, arguments)["payload"])["action"]
    assert action == {"kind": "FileEditorAction", **arguments}
    translated = json.loads(v1.shown(call(Dialect.V0, arguments), CONVERSATION))
    assert translated["action"] == action


@given(ODD)
def test_a_call_that_the_wires_own_events_cannot_carry_is_one_of_an_mcp_tool(
    arguments: dict[str, Any],
) -> None:
    if file_tool.arguments_in(FILE_TOOL, arguments) is not None:
        return
    assert call(Dialect.V0, arguments)["type"] == "call_tool_mcp"
    assert json.loads(call(Dialect.V1, arguments)["payload"])["action"]["kind"] == "MCPToolAction"
    assert result(Dialect.V0, arguments)["type"] == "mcp"


@pytest.mark.parametrize("dialect", Dialect)
@given(arguments=VIEWS | EDITS, is_new=st.booleans(), old=CONTENTS, new=STRINGS, fails=st.booleans())
def test_a_result_says_the_same_on_both_wires(
    dialect: Dialect, arguments: dict[str, Any], is_new: bool, old: str | None, new: str, fails: bool
) -> None:
    is_view = arguments["command"] == "view"
    edit = FileEdit("/workspace/a", not is_new, old, new, file_tool.unified("/workspace/a", old or "", new))
    edit = FileEdit("/workspace/a") if is_view or fails else edit
    event = result(dialect, arguments, exit_code=int(fails), edit=edit)
    views = [dialects.view_of(each) for each in (event, on_the_other_wire(event))]
    for view in views:
        assert isinstance(view, ResultView)
        assert view.action == ("read" if is_view else "edit")
        assert view.text.endswith("Done.")
        assert view.is_error is fails
        assert (view.before, view.after) == (edit.old_content or "", edit.new_content)
        assert view.fields["path"] == "/workspace/a"
        assert is_view or view.fields["prev_exist"] is edit.prev_exist


def test_a_view_is_written_as_v0_has_it() -> None:
    arguments = {"command": "view", "path": "/workspace/a.py"}
    members = json.loads(call(Dialect.V0, arguments)["payload"])
    assert (members["action"], members["message"]) == ("read", "Reading file: /workspace/a.py")
    assert members["args"] == {
        "path": "/workspace/a.py",
        "start": 0,
        "end": -1,
        "thought": "Hm.",
        "security_risk": -1,
        "impl_source": "oh_aci",
        "view_range": None,
    }
    seen = json.loads(result(Dialect.V0, arguments)["payload"])
    assert (seen["observation"], seen["message"]) == ("read", "I read the file /workspace/a.py.")
    assert seen["extras"] == {"path": "/workspace/a.py", "impl_source": "oh_aci"}


def test_an_edit_is_written_as_v0_has_it() -> None:
    arguments = {"command": "str_replace", "path": "/workspace/a.py", "old_str": "1", "new_str": "2"}
    members = json.loads(call(Dialect.V0, arguments)["payload"])
    assert members["action"] == "edit"
    assert members["args"] == {
        "path": "/workspace/a.py",
        "command": "str_replace",
        "file_text": None,
        "old_str": "1",
        "new_str": "2",
        "insert_line": None,
        "content": "",
        "start": 1,
        "end": -1,
        "thought": "Hm.",
        "security_risk": -1,
        "impl_source": "oh_aci",
    }
    edit = file_tool.edit_of("/workspace/a.py", "x = 1\n", "x = 2\n")
    seen = json.loads(result(Dialect.V0, arguments, edit=edit)["payload"])
    assert (seen["observation"], seen["content"]) == ("edit", "Done.")
    assert seen["extras"] == {
        "path": "/workspace/a.py",
        "prev_exist": True,
        "old_content": "x = 1\n",
        "new_content": "x = 2\n",
        "impl_source": "oh_aci",
        "diff": "--- /workspace/a.py\n+++ /workspace/a.py\n@@ -1,1 +1,1 @@\n-x = 1\n+x = 2",
        "_diff_cache": None,
    }


def test_a_v0_edit_that_waits_for_approval_says_so_and_keeps_its_arguments() -> None:
    arguments = {"command": "create", "path": "/a", "file_text": ""}
    authored = v0.AUTHOR.tool_call(name=FILE_TOOL, arguments=arguments, awaiting_confirmation=True, **IDS)
    view = dialects.view_of(stored(authored.payload))
    assert isinstance(view, CallView)
    assert (view.is_waiting, view.given) == (True, arguments)


def test_a_failed_edit_begins_as_clients_of_v0_know_it() -> None:
    arguments = {"command": "undo_edit", "path": "/a"}
    failed = result(Dialect.V0, arguments, exit_code=1)
    assert json.loads(failed["payload"])["content"] == "ERROR:\nDone."


def test_a_result_is_written_as_v1_has_it() -> None:
    arguments = {"command": "create", "path": "/a", "file_text": "x\n"}
    edit = file_tool.edit_of("/a", None, "x\n")
    observation = json.loads(result(Dialect.V1, arguments, edit=edit)["payload"])["observation"]
    assert observation == {
        "kind": "FileEditorObservation",
        "content": [{"type": "text", "text": "Done."}],
        "is_error": False,
        "command": "create",
        "path": "/a",
        "prev_exist": False,
        "new_content": "x\n",
    }
    unknown = json.loads(result(Dialect.V1, arguments)["payload"])["observation"]
    assert unknown["prev_exist"] is True
    assert None not in unknown.values()


def test_an_edit_of_another_agent_keeps_its_name_and_arguments() -> None:
    foreign = {"action": "edit", "args": {"path": "/a", "command": "create", "file_text": "x"}}
    foreign["tool_call_metadata"] = {"function_name": "str_replace_editor"}
    view = dialects.view_of(stored(json.dumps(foreign)))
    assert isinstance(view, CallView)
    assert (view.name, view.given["file_text"]) == ("str_replace_editor", "x")
    shown = json.loads(v1.shown(stored(json.dumps(foreign)), CONVERSATION))
    assert shown["action"]["kind"] == "MCPToolAction"


# Contents


def applied(old: str, diff: str) -> str:
    """Apply a unified diff of one file."""
    marked = [f"{line}\n" for line in old.split("\n")[:-1]] + (
        [old.split("\n")[-1]] if old.split("\n")[-1] else []
    )
    out: list[str] = []
    at = 0
    lines = diff.split("\n")[2:]
    for number, line in enumerate(lines):
        if line.startswith("@@"):
            start, _, length = line.split()[1].lstrip("-").partition(",")
            first = int(start) - (length != "0")
            out += marked[at:first]
            at = first
            continue
        if line.startswith("\\"):
            continue
        has_end = not (number + 1 < len(lines) and lines[number + 1].startswith("\\"))
        text = line[1:] + ("\n" if has_end else "")
        if line[0] != "+":
            assert marked[at] == text
            at += 1
        if line[0] != "-":
            out.append(text)
    return "".join([*out, *marked[at:]])


LONG = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=40).map("\n".join)


@given(LONG, LONG)
def test_a_diff_leads_from_one_content_to_the_other(old: str, new: str) -> None:
    diff = file_tool.unified("/a", old, new)
    assert (diff == "") == (old == new)
    assert applied(old, diff) == new


def test_a_long_file_has_the_part_around_its_change() -> None:
    lines = [str(number) for number in range(20_000)]
    old, new = "\n".join(lines), "\n".join([*lines[:9_000], "new", *lines[9_000:]])
    edit = file_tool.edit_of("/a", old, new)
    assert edit.old_content is not None
    assert edit.new_content is not None
    assert edit.new_content.startswith("[… 8,980 lines are left out here …]\n8980\n")
    assert edit.old_content.endswith("9019\n[… 10,980 lines are left out here …]")
    assert "\n8999\nnew\n9000\n" in edit.new_content
    assert "@@ -8998,6 +8998,7 @@" in edit.diff
    assert "+new" in edit.diff


@pytest.mark.parametrize("old", [None, "y" * 100_000])
def test_the_contents_and_the_diff_of_a_change_are_bounded(old: str | None) -> None:
    edit = file_tool.edit_of("/a", old, "x" * 1_000_000)
    assert edit.new_content is not None
    assert edit.new_content.endswith("[… 980,000 characters are left out here …]")
    assert len(edit.diff) < 31_000
    assert len(edit.old_content or "") < 21_000
