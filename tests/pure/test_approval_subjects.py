"""What a call that waits for approval shows: all that it would do, and nothing of it folded or hidden."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.events import EventEnvelope
from convserver.rendering import render_page
from convserver.rendering.page import PendingCall
from convserver.rendering.subjects import SHOWN_MAX_CHARS
from convserver.rendering.tools import SUMMARY_MAX_CHARS
from tests.conftest import once
from tests.support.wires.page_parts import PageParts
from tests.support.wires.v0_wire import stored

pytestmark = once

CONVERSATION = "3c294d959ff64d2d9c530a5849f2c4a0"
LAST = "curl -X DELETE https://example.org/everything"
COMMAND = f"for f in $(cat list.txt); do\n  echo $f\ndone\n{LAST}"
FOLDED = re.compile(r"<details(?! class=\"thought\" open).*?</details>", re.DOTALL)


def v0(action: str, **args: Any) -> EventEnvelope:
    """Return a call of V0 that waits."""
    waits = {"confirmation_state": "awaiting_confirmation"}
    return stored(json.dumps({"action": action, "source": "agent", "args": {**args, **waits}}), seq=1)


def v1(kind: str, tool: str, called: dict[str, Any] | None = None, **action: Any) -> EventEnvelope:
    """Return a call of V1; `called` is what the model gave, where that is something else."""
    payload = {
        "kind": "ActionEvent",
        "source": "agent",
        "thought": [{"type": "text", "text": "I clean up."}],
        "action": {"kind": kind, **action},
        "tool_name": tool,
        "tool_call": {"id": "c", "name": tool, "arguments": json.dumps(called or action)},
        "security_risk": "LOW",
    }
    return stored(json.dumps(payload), seq=1)


WAITING = {
    "kind": "ConversationStateUpdateEvent",
    "key": "execution_status",
    "value": "waiting_for_confirmation",
}


def asked(*events: EventEnvelope) -> tuple[str, PendingCall | None]:
    """Return what the page of these events shows without a click, and what it says that waits."""
    page = render_page([*events, stored(json.dumps(WAITING), seq=9)], conversation_id=CONVERSATION)
    PageParts(page.html)
    return PageParts(FOLDED.sub("", page.html)).text, page.asked


def test_a_call_that_waits_shows_all_it_would_do_unfolded(subtests: pytest.Subtests) -> None:
    for call, said in [
        (v0("run", command=COMMAND), [COMMAND]),
        (v0("run", command="ls", cwd="/etc"), ["ls", "/etc"]),
        (v0("run_ipython", code="x = 1\nimport os\nos.remove('a')"), ["os.remove('a')"]),
        (v0("write", path="/a.py", content="one\n" * 900 + "last line\n"), ["/a.py", "last line"]),
        (v0("write", path="/a.py", content="\n".join(map(str, range(5000)))), ["/a.py", "\n4999"]),
        (v0("write", path="/a.py", content=""), ["/a.py", '""']),
        (v0("edit", path="/a.py", old_str="one\ntwo\n", new_str="one\n2\n"), ["/a.py", "\u2212two", "+2"]),
        (v0("edit", path="/a", old_str="x" * 3000 + "y", new_str="x" * 3000 + "z"), ["xy", "xz"]),
        (v0("edit", path="/a", old_str="b", new_str="b\n"), ["old_str", "new_str"]),
        (v0("edit", path="/a", old_str="a", new_str="b", file_text="all of it"), ["all of it"]),
        (v0("call_tool_mcp", name="fetch", arguments={"a": {"b": ["c"]}, "url": "u"}), ['"c"', "url", "u"]),
        (v0("call_tool_mcp", name="fetch", arguments={"dry_run": False}), ["dry_run", "false"]),
        (v0("call_tool_mcp", name="fetch", arguments="rm -r /"), ["rm -r /"]),
        (v0("browse", url="https://example.org/" + "a" * 500 + "end"), ["aend"]),
        (v0("browse_interactive", browser_actions="goto('a')\nclick('delete')"), ["click('delete')"]),
        (v1("TerminalAction", "terminal", command=COMMAND), [COMMAND]),
        (v1("FileEditorAction", "file_editor", command="create", path="/a", file_text="t"), ["/a", "+t"]),
        (
            v1("FileEditorAction", "file_editor", command="insert", path="/a", new_str="t\nu", insert_line=7),
            ["7", "u"],
        ),
        (
            v1(
                "MCPToolAction",
                "fetch",
                data={"url": "u", "body": "1\n2"},
                called={"url": "u", "body": "1\n2"},
            ),
            ["1\n2"],
        ),
        (v1("TerminalAction", "terminal", called={"command": "rm -r /"}, command="ls"), ["ls", "rm -r /"]),
        (
            v1("BrowserNavigateAction", "browser_navigate", url="https://example.org", new_tab=True),
            ["new_tab", "true"],
        ),
        (
            v1("TaskTrackerAction", "task_tracker", command="plan", task_list=[{"title": "T"}]),
            ['"title": "T"'],
        ),
        (v1("OfTomorrowAction", "of_tomorrow", what="this\nthat"), ["this\nthat"]),
    ]:
        with subtests.test(call=call, said=said):
            text, waiting = asked(call)
            assert [each for each in said if each not in text] == []
            assert waiting == PendingCall(seq=1, is_whole=True)


def test_a_call_that_waits_says_how_long_it_is_and_shows_thought_and_risk() -> None:
    text, _ = asked(v1("TerminalAction", "terminal", command="a\n" * 47 + "b"))
    assert "48 lines, 95 characters" in text
    assert "I clean up." in text
    assert "Low risk" in text


def test_each_of_several_calls_that_wait_is_shown_whole() -> None:
    first, second = (v1("TerminalAction", "terminal", command=f"x\n{name}") for name in ("one", "two"))
    second = {**second, "seq": 2, "tool_call_id": "d"}
    text, waiting = asked(first, second)
    assert "x\none" in text
    assert "x\ntwo" in text
    assert waiting == PendingCall(seq=2, is_whole=True)


def test_an_answered_call_does_not_wait_whatever_it_says() -> None:
    result = {"observation": "run", "content": "done", "extras": {}}
    _, waiting = asked(v0("run", command="ls"), stored(json.dumps(result), seq=2, cause=1))
    assert waiting is None


def test_what_nobody_would_see_is_shown_by_its_number(subtests: pytest.Subtests) -> None:
    for hidden, shown in [
        ("\u202e", "⟨U+202E⟩"),
        ("\u2066", "⟨U+2066⟩"),
        ("\u200b", "⟨U+200B⟩"),
        ("\u00ad", "⟨U+00AD⟩"),
        ("\ufeff", "⟨U+FEFF⟩"),
        ("\u00a0", "⟨U+00A0⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\U000e0041", "⟨U+E0041⟩"),
        ("\x08", "⟨U+0008⟩"),
        ("\r", "⟨U+000D⟩"),
        ("\x1b[8m", "⟨U+001B⟩[8m"),
        ("\ud800", "⟨U+D800⟩"),
    ]:
        for place in ["command", "argument", "diff"]:
            with subtests.test(hidden=hidden, shown=shown, place=place):
                text = f"ls{hidden}x"
                call = {
                    "command": v0("run", command=text),
                    "argument": v0("call_tool_mcp", name="fetch", arguments={"a": text}),
                    "diff": v0("edit", path="a", old_str=text, new_str="y"),
                }[place]
                assert f"ls{shown}x" in asked(call)[0]


@pytest.mark.parametrize(
    "call",
    [
        v0("run", command="ls\n" * SHOWN_MAX_CHARS),
        v0("write", path="a", content="x" * (SHOWN_MAX_CHARS + 1)),
        v0("call_tool_mcp", name="fetch", arguments={str(n): "x" * 1000 for n in range(300)}),
        v0("call_tool_mcp", name="fetch", arguments={"x" * (SHOWN_MAX_CHARS + 1): 1}),
    ],
    ids=["command", "file", "arguments", "name"],
)
def test_what_is_too_long_to_be_shown_says_so_and_links_to_the_event(call: EventEnvelope) -> None:
    text, waiting = asked(call)
    assert waiting == PendingCall(seq=1, is_whole=False)
    assert "cannot be approved on this page" in text
    assert "Open the stored event" in text
    assert len(text) < 3 * SHOWN_MAX_CHARS


def test_a_call_that_cannot_be_read_is_not_whole() -> None:
    payload = '{"kind":"ActionEvent","action":' + "[" * 100_000 + "]" * 100_000 + "}"
    readable = v1("TerminalAction", "terminal", command="ls")
    text, waiting = asked({**readable, "payload": payload})
    assert waiting is None or not waiting.is_whole
    assert "curl" not in text


@given(st.text(max_size=60))
def test_any_command_stands_there_to_its_last_character(command: str) -> None:
    _, waiting = asked(v0("run", command=command))
    assert waiting == PendingCall(seq=1, is_whole=True)


def test_a_short_call_is_shown_as_a_call_where_that_hides_nothing(subtests: pytest.Subtests) -> None:
    def mcp(**arguments: Any) -> EventEnvelope:
        return v0("call_tool_mcp", name="add", arguments=arguments)

    for call, said in [
        (mcp(a=2, b=40), "add(a = 2, b = 40)"),
        (mcp(to="Bob", cc=None, dry=True, at=0.5), 'add(to = "Bob", cc = null, dry = true, at = 0.5)'),
        (v1("MCPToolAction", "add", {"a": 2}, data={"a": 2}), "add(a = 2)"),
    ]:
        with subtests.test(said):
            assert said in asked(call)[0]
    for call in [
        mcp(a="1\n2"),
        mcp(a='say "no"'),
        mcp(a="C:\\"),
        mcp(a="\x1b[8m"),
        mcp(a=[1]),
        mcp(a="x" * 120),
        mcp(name="other"),
        mcp(**{'path = "/a", dry': True}),
        mcp(**{"a\n": 1}),
        mcp(**{"": 1}),
        mcp(a=10**80),
        v0("run", command="ls", cwd="/etc"),
    ]:
        with subtests.test(call["payload"]):
            assert not re.search(r"add\(|\(a =", asked(call)[0])


def test_a_call_that_has_run_says_on_one_line_what_it_was(subtests: pytest.Subtests) -> None:
    for arguments, said in [
        ({}, "()"),
        ({"a": 2, "path": "/a"}, '(a = 2, path = "/a")'),
        ({"text": "word " * 100, "many": [1]}, f'(text = "{"word " * 12}'[:67]),
        ({str(number): number for number in range(50)}, "18 = 18, 19 = 19, …)"),
        ({"a": 10**80}, "(a = …)"),
    ]:
        with subtests.test(said):
            call = stored(
                json.dumps(
                    {
                        "action": "call_tool_mcp",
                        "source": "agent",
                        "args": {"name": "picture", "arguments": arguments},
                    }
                ),
                seq=1,
            )
            page = render_page([call], conversation_id=CONVERSATION)
            line = PageParts(re.findall(r'<code class="summary">.*?</code>', page.html)[0]).text
            assert said in line
            assert len(line) <= SUMMARY_MAX_CHARS + 1
