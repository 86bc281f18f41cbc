"""Pages of events: what people are shown of each, and that no text is ever more than text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import CALL_INTERRUPTED, columns, file_tool
from conversations.events import Dialect, EventEnvelope
from convserver.rendering import render_page
from convserver.rendering.cards import CallOutcome
from convserver.rendering.text import addresses
from convserver.rendering.text.excerpts import excerpt
from convserver.rendering.text.markdown import markdown
from tests.support.data.hostile import COSTLY, HOSTILE, HUGE, Hostile
from tests.support.wires import event_places
from tests.support.wires.page_parts import PageParts
from tests.support.wires.v0_wire import EXAMPLES as V0_EXAMPLES
from tests.support.wires.v0_wire import RECORDINGS, stored
from tests.support.wires.v1_wire import EXAMPLES as V1_EXAMPLES
from tests.support.wires.v1_wire import RECORDINGS as V1_RECORDINGS

CONVERSATION = "3c294d959ff64d2d9c530a5849f2c4a0"

WAITING = {"observation": "agent_state_changed", "extras": {"agent_state": "awaiting_user_confirmation"}}

NO_NEWS = {"null", "TokenEvent", "LLMCompletionLogEvent", "StreamingDeltaEvent"}
"""Types that no person is shown."""


def page(*events: EventEnvelope) -> PageParts:
    """Return what a browser makes of these events, once it is sure that one would get them."""
    html = render_page(events, conversation_id=CONVERSATION).html
    html.encode()
    return PageParts(html)


def event(payload: dict[str, Any], **columns: Any) -> EventEnvelope:
    return stored(json.dumps(payload), **columns)


def said(text: str, *, source: str = "agent") -> EventEnvelope:
    return event({"action": "message", "source": source, "args": {"content": text}})


def run(command: str = "ls", *, seq: int = 1, **args: Any) -> EventEnvelope:
    return event({"action": "run", "source": "agent", "args": {"command": command, **args}}, seq=seq)


def ran(output: str, *, exit_code: int = 0, seq: int = 2, cause: int = 1) -> EventEnvelope:
    extras = {"command": "ls", "metadata": {"exit_code": exit_code}}
    return event({"observation": "run", "content": output, "extras": extras}, seq=seq, cause=cause)


def logs() -> dict[str, list[EventEnvelope]]:
    """Return each recording, and the examples of each wire, as a log has them."""
    logs = {path.stem: [json.dumps(each) for each in json.loads(path.read_text())] for path in RECORDINGS}
    logs |= {"V0 examples": V0_EXAMPLES, "V1 examples": V1_EXAMPLES, "V1 recordings": V1_RECORDINGS}
    return {
        name: [stored(text, seq=seq, cause=json.loads(text).get("cause")) for seq, text in enumerate(log)]
        for name, log in logs.items()
    }


TRICKS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e\ud800-\udfff]")
"""What overrides the order of text, or is no text at all."""


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text)


# Recordings


def test_every_event_of_a_recording_shows_its_text(subtests: pytest.Subtests) -> None:
    for name, log in logs().items():
        with subtests.test(name):
            for each in log:
                shown = set(words(page(each).spaced))
                if not shown or each["kind"] == "state":
                    continue  # bookkeeping is below; a state is said in the page's own words
                if each["kind"] == "tool_result" and '"task_list"' in each["payload"]:
                    continue  # a plan is shown as a list, not as its text
                said = words(each["text"])
                # Before what it was called with, a call of V0 has a phrase of the wire's own.
                is_there = set(said) & shown if each["kind"] == "tool_call" else set(said[:5]) <= shown
                assert is_there, each["text"][:200]


def test_a_recording_is_shown_in_order_as_articles_with_anchors(subtests: pytest.Subtests) -> None:
    for name, log in logs().items():
        with subtests.test(name):
            articles = page(*log).named("article")
            seqs = [int(each.attributes["data-seq"]) for each in articles]
            assert seqs == sorted(seqs)
            assert [each.attributes["id"] for each in articles] == [f"e{seq}" for seq in seqs]
            assert all(each.attributes["aria-label"] for each in articles)


def test_what_shows_nothing_of_a_recording_is_bookkeeping(subtests: pytest.Subtests) -> None:
    for name, log in logs().items():
        with subtests.test(name):
            unseen = {(each["type"], each["kind"]) for each in log if not page(each).elements}
            news = {(type_, kind) for type_, kind in unseen if type_ not in NO_NEWS and kind != "state"}
            # The call has said it.
            assert news <= {("think", "tool_result"), ("ObservationEvent", "tool_result")}


# Calls and results


def test_a_result_stands_inside_the_call_that_it_answers() -> None:
    parts = page(run(), ran("a.txt"))
    assert len(parts.named("article")) == 1
    (result,) = parts.of_class("result")
    assert (result.attributes["data-seq"], result.attributes["data-cause"]) == ("2", "1")
    assert "a.txt" in parts.text


def test_a_result_without_its_call_stands_alone_and_names_it() -> None:
    (article,) = page(ran("a.txt")).named("article")
    assert article.attributes["class"] == "event tool_result"
    assert article.attributes["data-cause"] == "1"


def test_a_result_that_follows_the_page_stands_inside_its_call_and_nothing_else_does() -> None:
    html = render_page([run()], conversation_id=CONVERSATION, beyond=[ran("a.txt"), said("Done.")]).html
    parts = PageParts(html)
    assert len(parts.named("article")) == 1
    assert "a.txt" in parts.text
    assert "Done." not in parts.text


def test_an_error_that_names_its_call_by_the_calls_id_alone_stands_inside_it() -> None:
    call = json.loads(next(each for each in V1_EXAMPLES if '"nope"' in each and "ActionEvent" in each))
    error = json.loads(next(each for each in V1_EXAMPLES if "AgentErrorEvent" in each))
    parts = page(event(call, seq=1), event(error, seq=2))
    assert len(parts.named("article")) == 1
    assert parts.of_class("result")[0].attributes["data-outcome"] == "failed"


FAILED_V0 = {"observation": "agent_state_changed", "extras": {"agent_state": "error", "reason": "It broke."}}
FAILED_V1 = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "error"}
ERROR_V0 = {"observation": "error", "content": "It broke.", "extras": {"error_id": "AgentError"}}
ERROR_V1 = {
    "kind": "ConversationErrorEvent",
    "source": "environment",
    "code": "AgentError",
    "detail": "It broke.",
}


@pytest.mark.parametrize("payloads", [(ERROR_V0, FAILED_V0), (FAILED_V1, ERROR_V1)])
def test_a_failure_is_told_once_by_the_error_that_says_why(payloads: tuple[dict[str, Any], ...]) -> None:
    parts = page(*(event(payload, seq=seq) for seq, payload in enumerate(payloads)))
    (article,) = parts.named("article")
    assert "error" in article.attributes["class"].split()
    assert "It broke." in parts.text


@pytest.mark.parametrize("payload", [FAILED_V0, FAILED_V1])
def test_a_failure_that_no_error_explains_is_told_by_the_state(payload: dict[str, Any]) -> None:
    (article,) = page(event(payload)).named("article")
    assert article.attributes["aria-label"] == "The agent stopped with an error"


def test_a_call_without_a_result_is_running() -> None:
    assert page(run()).of_class("state")[0].attributes["class"] == "state running"


def test_a_call_that_the_conversation_left_behind_is_not_running() -> None:
    parts = page(run(), said("Never mind"))
    assert parts.of_class("state")[0].attributes["class"] == "state unknown"


def test_a_call_is_only_what_the_agent_still_does() -> None:
    waiting = run(confirmation_state="awaiting_confirmation", seq=2)
    html = render_page([run(), waiting], conversation_id=CONVERSATION, still={CallOutcome.WAITING}).html
    states = [each.attributes["class"] for each in PageParts(html).of_class("state")]
    assert states == ["state unknown", "state waiting"]


@pytest.mark.parametrize(("source", "state"), [("user", "state waiting"), ("agent", "state unknown")])
def test_a_call_that_waits_is_left_behind_by_the_agent_and_not_by_its_user(source: str, state: str) -> None:
    parts = page(run(confirmation_state="awaiting_confirmation"), said("Go on", source=source))
    assert parts.of_class("state")[0].attributes["class"] == state


def test_a_call_waits_also_where_the_state_that_says_so_follows_the_page() -> None:
    html = render_page([run()], conversation_id=CONVERSATION, beyond=[event(WAITING, seq=2)]).html
    assert "Needs your approval" in PageParts(html).text


def test_a_call_before_the_agent_waits_for_approval_waits() -> None:
    parts = page(run(), event(WAITING, seq=2))
    assert "Needs your approval" in parts.text
    assert "The agent asked for your approval" in parts.text


def test_an_exit_code_is_shown_when_it_is_not_0() -> None:
    assert "exit code 2" in page(run(), ran("", exit_code=2)).text
    assert "exit code" not in page(run(), ran("")).text


def test_a_rejected_call_says_so() -> None:
    rejected = event({"observation": "user_rejected", "content": "No"}, seq=2, cause=1)
    assert "Rejected" in page(run(), rejected).text


def test_a_call_that_was_cut_off_by_a_crash_reads_as_failed() -> None:
    cut = event({"observation": "error", "content": CALL_INTERRUPTED}, seq=2, cause=1)
    assert "Failed" in page(run(), cut).text


def test_the_colours_of_a_terminal_are_left_out() -> None:
    assert "red\n" in page(ran("\x1b[1;31mred\x1b[0m\nx")).text


def test_what_a_terminal_has_overwritten_is_left_out() -> None:
    text = page(ran("10%\r50%\r100%\ndone\r\n")).text
    assert "100%\ndone" in text
    assert "50%" not in text


def test_long_output_is_folded_with_its_size_and_a_download() -> None:
    parts = page(ran("a line\n" * 1204))
    assert "1,204 lines, 8.4 kB" in parts.text
    (link,) = parts.of_class("download")
    assert link.attributes["href"] == f"/c/{CONVERSATION}/events/2/output"


def test_short_output_is_not_folded() -> None:
    parts = page(ran("a line\n" * 20))
    assert parts.of_class("long") == []


def test_an_edit_is_shown_as_lines_that_went_and_came() -> None:
    edit = {"action": "edit", "args": {"path": "a.py", "old_str": "one\ntwo\n", "new_str": "one\n2\n"}}
    parts = page(event(edit))
    assert len(parts.of_class("removed")) == 2  # the line, and how many there are
    assert "\u2212two" in parts.text
    assert "+2" in parts.text


@pytest.mark.parametrize(
    "extras",
    [
        {"old_content": "a\nb\nc\n", "new_content": "a\nx\nc\n"},
        {"diff": "--- a\n+++ b\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
    ],
)
def test_a_change_of_a_file_has_the_numbers_of_its_lines(extras: dict[str, str]) -> None:
    edited = {"observation": "edit", "content": "Done", "extras": {"path": "a", **extras}}
    assert "11 a2\u2212b2+x33 c" in page(event(edited)).text


@pytest.mark.parametrize("dialect", Dialect)
def test_what_the_servers_own_agent_edits_is_shown_as_a_change(dialect: Dialect) -> None:
    edit = file_tool.edit_of("/workspace/a", "a\nb\nc\n", "a\nx\nc\n")
    authored = dialects.author(dialect).tool_result(
        name=file_tool.FILE_TOOL,
        arguments={"command": "str_replace", "path": "/workspace/a", "old_str": "b", "new_str": "x"},
        content="The file /workspace/a has been edited.",
        edit=edit,
        tool_call_id="c1",
        event_id="e1",
        call_event_id="e0",
    )
    text = page(event(json.loads(authored.payload))).text
    assert "11 a2\u2212b2+x33 c" in text
    assert "Edit file" in text


def test_tasks_say_how_far_they_are() -> None:
    tasks = [{"title": "Read", "status": "done"}, {"title": "Write", "status": "in_progress"}]
    text = page(event({"action": "task_tracking", "args": {"command": "plan", "task_list": tasks}})).text
    assert "Done Read" in text
    assert "In progress Write" in text


# Messages


def test_a_users_line_breaks_are_kept() -> None:
    assert len(page(said("one\ntwo", source="user")).named("br")) == 1
    assert page(said("one\ntwo")).named("br") == []


def test_code_has_its_language_and_a_button() -> None:
    parts = page(said("```python\nx = 1  # yes\n```"))
    assert "python" in parts.text
    assert parts.of_class("copy")[0].attributes["type"] == "button"
    assert parts.of_class("c1")


def test_a_language_that_nobody_knows_is_named() -> None:
    assert "nosuch" in page(said("```nosuch\nx\n```")).text


def test_a_table_can_be_scrolled_by_keys() -> None:
    (table,) = page(said("|a|b|\n|-|-:|\n|1|2|")).of_class("table")
    assert table.attributes["tabindex"] == "0"


def test_tasks_of_a_list_are_ticked() -> None:
    assert [each.attributes["class"] for each in page(said("- [x] a\n- [ ] b")).of_class("task")] == [
        "task done",
        "task todo",
    ]


def test_a_file_name_is_no_address() -> None:
    assert [
        each for each in page(said("See main.py and README.md")).named("a") if "target" in each.attributes
    ] == []


def test_an_image_elsewhere_is_a_link_and_one_in_the_text_is_shown() -> None:
    here = "data:image/png;base64,AAAA"
    parts = page(said(f"![far](https://elsewhere.example/a.png) ![near]({here})"))
    assert [each.attributes["src"] for each in parts.named("img")] == [here]
    assert parts.of_class("image")[0].attributes["href"] == "https://elsewhere.example/a.png"
    assert "far" in parts.text


def test_images_of_a_message_are_shown_where_they_bring_themselves() -> None:
    urls = ["data:image/png;base64,AAAA", "https://elsewhere.example/a.png", "data:image/svg+xml;base64,AAAA"]
    parts = page(event({"action": "message", "args": {"content": "x", "image_urls": urls}}))
    assert [each.attributes["src"] for each in parts.named("img")] == urls[:1]
    assert urls[1] in parts.text


def test_files_of_a_result_can_be_seen_heard_or_downloaded_and_never_opened() -> None:
    urls = [
        "data:image/png;base64,AAAA",
        "data:audio/wav;base64,AAAA",
        "data:text/html;base64,AAAA",
        "data:text/html,<script>",
        "javascript:alert()",
    ]
    call = {"action": "call_tool_mcp", "args": {"name": "look", "arguments": {}}}
    parts = page(event(call), event({"observation": "mcp", "content": "x", "image_urls": urls}, cause=0))
    assert [each.attributes["src"] for each in parts.named("img")] == urls[:1]
    assert [each.attributes["src"] for each in parts.named("audio")] == urls[1:2]
    [link] = [each for each in parts.of_class("image") if each.tag == "a"]
    assert link.attributes["href"] == "data:application/octet-stream;base64,AAAA"
    assert "download" in link.attributes


def test_an_image_whose_address_nobody_can_send_is_named_and_no_link() -> None:
    address = "https://elsewhere.example/\ud800"
    parts = page(event({"action": "message", "args": {"content": "x", "image_urls": [address]}}))
    (image,) = parts.of_class("image")
    assert (image.tag, "https://elsewhere.example/\ufffd" in parts.text) == ("span", True)


def test_a_message_too_long_for_markdown_is_shown_folded_with_a_download() -> None:
    parts = page(said("*word*\n" * 20_000))
    assert "140 kB" in parts.text
    assert parts.of_class("download")


def test_a_long_message_is_rendered_to_its_end() -> None:
    parts = page(said("Some **bold** words among others, and not much `code`.\n\n" * 2_000 + "1. The *end*."))
    assert len(parts.named("strong")) == 2_000
    assert len(parts.named("em")) == 1
    assert parts.of_class("output") == []


def test_what_is_too_long_even_in_pieces_has_its_rest_folded_with_a_download() -> None:
    parts = page(said("# word\n" * 40_000))
    assert len(parts.named("h3")) > 1_000
    assert parts.of_class("more")
    assert parts.of_class("download")


def test_a_long_part_of_a_message_that_is_no_prose_leaves_the_rest_rendered() -> None:
    parts = page(said("**Before**\n\n" + "*word*\n" * 6_000 + "\n**After**"))
    assert len(parts.named("strong")) == 2
    assert "42 kB" in parts.text


TASKS = [{"title": "Read it", "status": "done"}, {"title": "Write it", "status": "todo"}]
PLANS = {
    "v0": [
        {"action": "task_tracking", "args": {"command": "plan", "task_list": TASKS}},
        {"observation": "task_tracking", "content": "# Task List raw", "extras": {"task_list": TASKS}},
    ],
    "v1": [
        {
            "kind": "ActionEvent",
            "source": "agent",
            "tool_name": "task_tracker",
            "tool_call_id": "c",
            "action": {"kind": "TaskTrackerAction", "command": "plan", "task_list": TASKS},
        },
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "tool_name": "task_tracker",
            "tool_call_id": "c",
            "observation": {
                "kind": "TaskTrackerObservation",
                "content": [{"type": "text", "text": "# Task List raw"}],
                "command": "plan",
                "task_list": TASKS,
            },
        },
    ],
}


@pytest.mark.parametrize("wire", PLANS)
def test_a_plan_is_shown_once_and_without_raw_text(wire: str) -> None:
    call, result = PLANS[wire]
    parts = page(event(call, seq=1), event(result, seq=2, cause=1))
    assert parts.text.count("Write it") == 1
    assert "raw" not in parts.text
    assert "1 of 2 tasks done" in parts.text


@pytest.mark.parametrize("wire", PLANS)
def test_a_plan_whose_call_is_elsewhere_is_shown_by_its_result(wire: str) -> None:
    parts = page(event(PLANS[wire][1], seq=2, cause=1))
    assert parts.text.count("Write it") == 1
    assert "raw" not in parts.text


def planned(*ways: str, seq: int, **beside: Any) -> EventEnvelope:
    """Return a call that writes a plan with tasks in these states."""
    tasks = [{"title": f"Task {number}", "status": way} for number, way in enumerate(ways)]
    args = {"command": "plan", "task_list": tasks, **beside}
    return event({"action": "task_tracking", "source": "agent", "args": args}, seq=seq)


def test_changes_of_a_plan_are_one_card_where_it_was_made_with_the_newest_state_first() -> None:
    parts = page(planned("todo", "todo", seq=1), planned("done", "todo", seq=3), said("Done."))
    [plan] = parts.of_class("plan")
    assert (plan.attributes["data-seq"], len(parts.named("article"))) == ("1", 2)
    assert parts.text.index("1 of 2 tasks done") < parts.text.index("1 earlier state")
    assert parts.text.index("1 earlier state") < parts.text.index("0 of 2 tasks done")
    assert [each.attributes.get("id") for each in parts.of_class("plan-state")] == ["e3", None]


def test_a_message_of_the_user_begins_another_plan_and_only_the_newest_is_open() -> None:
    parts = page(planned("done", seq=1), said("More.", source="user"), planned("todo", seq=3), said("."))
    assert ["open" in each.attributes for each in parts.of_class("now")] == [False, True]


def test_what_was_thought_of_a_plan_stands_in_its_state() -> None:
    parts = page(planned("todo", seq=1, thought="First things first."), said("Done."))
    assert len(parts.of_class("plan")) == len(parts.of_class("thought")) == 1
    assert "First things first." in parts.text


def test_a_plan_that_was_emptied_says_so() -> None:
    assert "The plan is empty." in page(planned("todo", seq=1), planned(seq=2), said("Done.")).text


def test_a_plan_that_needs_an_approval_or_was_rejected_is_a_call_like_any_other() -> None:
    call = planned("todo", seq=1)
    rejected = event({"observation": "user_rejected", "content": "No.", "extras": {}}, seq=2, cause=1)
    assert page(call, event(WAITING, seq=2)).of_class("waiting")
    for log in ([call, event(WAITING, seq=2)], [call, rejected]):
        assert not page(*log).of_class("plan")


TODOS = [{"content": "Read it", "status": "completed"}, {"step": "Write it", "status": "pending"}]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("todo_write", {"todos": TODOS}),
        ("update_plan", {"plan": TODOS}),
        ("task_tracker", {"task_list": TODOS}),
    ],
)
def test_plans_of_mcp_tools_are_shown_as_plans(name: str, arguments: dict[str, Any]) -> None:
    call = event({"action": "call_tool_mcp", "args": {"name": name, "arguments": arguments}}, seq=1)
    result = event({"observation": "mcp", "content": "Updated.", "extras": {"name": name}}, seq=2, cause=1)
    parts = page(call, result)
    assert "1 of 2 tasks done" in parts.text
    assert [each.attributes["class"] for each in parts.named("li")] == ["done", "todo"]


def test_many_long_messages_share_what_one_page_may_cost() -> None:
    parts = page(*[said("Some words here.  " * 1_500)] * 10)
    assert 0 < len(parts.of_class("body")) < 10


def test_reasoning_is_folded() -> None:
    message = {"role": "assistant", "content": [], "reasoning_content": "Because."}
    parts = page(event({"kind": "MessageEvent", "source": "agent", "llm_message": message}))
    assert parts.of_class("reasoning")[0].tag == "details"
    assert "Because." in parts.text


def test_the_thought_of_an_agent_that_ends_its_task_is_folded_on_both_wires() -> None:
    v0 = {
        "action": "finish",
        "source": "agent",
        "args": {"final_thought": "Done.", "thought": "All is there."},
    }
    thought = [{"type": "text", "text": "All is there."}]
    v1 = {"kind": "ActionEvent", "thought": thought, "action": {"kind": "FinishAction", "message": "Done."}}
    for payload in (v0, v1):
        parts = page(event(payload))
        assert parts.of_class("reasoning")[0].tag == "details"
        assert "All is there." in parts.text


def test_an_answer_that_was_interrupted_says_so() -> None:
    cut = {"action": "message", "source": "agent", "args": {"content": "I was"}, "interrupted": True}
    assert "interrupted before it was complete" in page(event(cut)).text


# States and errors


HAPPENED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "PauseEvent"}, "Paused"),
    ({"kind": "InterruptEvent"}, "The agent was stopped"),
    (
        {"kind": "ConversationStateUpdateEvent", "key": "llm", "value": {"model": "openai/x"}},
        "Model set to openai/x",
    ),
    (
        {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "stuck"},
        "The agent is stuck: it keeps repeating itself",
    ),
    (
        {
            "kind": "ConversationStateUpdateEvent",
            "key": "confirmation_policy",
            "value": {"kind": "AlwaysConfirm"},
        },
        "The agent asks for approval before every call",
    ),
    ({"kind": "Condensation", "summary": "S"}, "Earlier events were summarised for the model"),
    ({"action": "system", "args": {"content": "P"}}, "System prompt"),
    ({"observation": "agent_state_changed", "extras": {"agent_state": "paused"}}, "Paused"),
]


def test_what_happened_is_said_in_words(subtests: pytest.Subtests) -> None:
    for payload, shown in HAPPENED:
        with subtests.test(payload=payload, shown=shown):
            parts = page(event(payload))
            assert shown in parts.text
            assert "quiet" in parts.named("article")[0].attributes["class"]


ERRORS: list[tuple[str, str]] = [
    ("STATUS$ERROR_LLM_AUTHENTICATION", "The model rejected the API key."),
    ("LLMAuthenticationError", "The model rejected the API key."),
    ("litellm.exceptions.RateLimitError", "rate limit"),
    ("MaxBudgetReached", "budget"),
    ("MaxIterationsReached", "step limit"),
    ("LoopUnavailable", "could not be started"),
    ("OfTomorrow", "Something went wrong."),
]


def test_an_error_says_what_to_do_and_keeps_its_code(subtests: pytest.Subtests) -> None:
    for code, shown in ERRORS:
        with subtests.test(code=code, shown=shown):
            parts = page(event({"kind": "ConversationErrorEvent", "code": code, "detail": "401 {…}"}))
            assert shown in parts.text
            assert code in parts.text
            assert "401 {…}" in parts.text
            assert parts.of_class("next")


@pytest.mark.parametrize("code", ["AgentError", "OfTomorrow", "RuntimeError"])
def test_an_error_whose_words_do_not_say_why_shows_the_reason_on_one_line(code: str) -> None:
    detail = "The disk is full.\n\nTraceback: line 1\nline 2"
    for failed in (
        {"kind": "ConversationErrorEvent", "source": "environment", "code": code, "detail": detail},
        {"observation": "error", "content": detail, "extras": {"error_id": code}},
    ):
        parts = page(event(failed))
        (cause,) = parts.of_class("cause")
        before, _, folded = parts.text.partition("Details")
        assert cause.tag == "p"
        assert "The disk is full." in before
        assert "Traceback" not in before
        assert "Traceback: line 1" in folded


@pytest.mark.parametrize("code", ["LLMRateLimitError", "litellm.RateLimitError"])
def test_an_error_that_is_known_shows_the_providers_own_words_as_well(code: str) -> None:
    says = "Rate limit of 3 requests a minute reached for `m-1`. Try again in 20 s."
    for detail in (
        f"{says}\n\nTraceback: line 1",
        f"Error code: 429 - {json.dumps({'error': {'message': says, 'type': 'rate_limit'}})}",
        json.dumps({"message": says}, indent=1),
        json.dumps({"error": says}),
    ):
        for failed in (
            {"kind": "ConversationErrorEvent", "source": "environment", "code": code, "detail": detail},
            {"observation": "error", "content": detail, "extras": {"error_id": code}},
        ):
            parts = page(event(failed))
            before, _, _ = parts.text.partition("Details")
            assert "rate limit" in before
            assert says in before
            assert code not in before


@pytest.mark.parametrize(
    ("wire_codes", "sentence", "next_step", "is_models"),
    [
        (
            ("LLMAuthenticationError", "STATUS$ERROR_LLM_AUTHENTICATION"),
            "The model's server rejected the key (401). It is wrong, expired or missing.",
            "Check the API key in Settings, then retry.",
            True,
        ),
        (
            ("LLMBadRequestError", "LLMBadRequestError"),
            "The server has no model `gpt-x` (404), or the base URL is wrong. Check both.",
            "Check the model's name and address in Settings.",
            True,
        ),
        (
            ("MaxIterationsReached", "MaxIterationsReached"),
            "The agent has taken 500 steps for this message, which is the limit.",
            "Send “continue” to let it carry on.",
            False,
        ),
    ],
)
def test_an_error_says_in_its_own_sentence_what_was_wrong_and_leads_to_where_it_is_mended(
    wire_codes: tuple[str, str], sentence: str, next_step: str, is_models: bool
) -> None:
    v1, v0 = wire_codes
    for failed in (
        {"kind": "ConversationErrorEvent", "source": "environment", "code": v1, "detail": sentence},
        {"observation": "error", "content": sentence, "extras": {"error_id": v0}},
    ):
        parts = page(event(failed))
        assert parts.text.index(sentence) < parts.text.index(next_step)
        assert ("/settings#model" in [each.attributes["href"] for each in parts.named("a")]) == is_models


PAUSED_V0 = {"observation": "agent_state_changed", "extras": {"agent_state": "paused", "reason": ""}}
RUNNING_V0 = {"observation": "agent_state_changed", "extras": {"agent_state": "running", "reason": ""}}
CUT = "This answer was interrupted before it was complete."


def _talk(*states: dict[str, Any], ends: bool = True) -> list[EventEnvelope]:
    """Return an agent's answer, the states after it, and the end of its turn."""
    end = event(PAUSED_V0) | {"kind": "turn", "text": "stopped"}
    return [said("Half of"), *map(event, states), *([end] if ends else [])]


def test_an_answer_that_was_paused_and_then_stopped_is_marked_as_cut() -> None:
    assert CUT in page(*_talk(PAUSED_V0)).text
    assert CUT not in page(*_talk(PAUSED_V0, ends=False)).text
    assert CUT not in page(*_talk(PAUSED_V0, RUNNING_V0)).text
    assert CUT not in page(*_talk()).text


@pytest.mark.parametrize(
    ("kind", "words"), [("PauseEvent", "Paused"), ("InterruptEvent", "The agent was stopped")]
)
def test_a_pause_and_a_stop_of_a_v1_agent_are_told_in_one_line(kind: str, words: str) -> None:
    state = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "paused"}
    asked = {"kind": kind, "source": "user"}
    resumed = {**state, "value": "running"}
    for first, second in ((state, asked), (asked, state)):
        shown = page(event(first, seq=1), event(second, seq=2), event(resumed, seq=3))
        assert [article.attributes["aria-label"] for article in shown.named("article")] == [words]


def test_an_answer_is_marked_as_cut_where_its_turn_ends_behind_the_page() -> None:
    answer, *rest = _talk(PAUSED_V0)
    html = render_page([answer, rest[0]], conversation_id=CONVERSATION, beyond=rest[1:]).html
    assert CUT in PageParts(html).text


def test_hidden_events_and_ends_of_turns_show_nothing() -> None:
    assert page(event({"action": "run", "args": {"command": "ls", "hidden": True}})).elements == []
    assert page(said("x") | {"kind": "turn"}).elements == []


def test_states_that_the_status_line_tells_show_nothing() -> None:
    running = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": "running"}
    assert page(event(running)).elements == []


def test_a_state_that_is_no_word_is_shown_as_it_is() -> None:
    odd = {"kind": "ConversationStateUpdateEvent", "key": "execution_status", "value": ["paused"]}
    assert '["paused"]' in page(event(odd)).text


def test_an_event_of_tomorrow_shows_its_text() -> None:
    assert "Hello" in page(event({"kind": "EventOfTomorrow", "text": "Hello"})).text
    assert "Hello" in page(event({"observation": "of_tomorrow", "content": "Hello"})).text


# Hostile text


def test_hostile_text_shows_itself_and_does_nothing(subtests: pytest.Subtests) -> None:
    for hostile in HOSTILE:
        with subtests.test(hostile.name):
            for place, each in event_places.blocks(hostile.block).items():
                parts = page(each)
                assert hostile.mark in parts.text, place
                assert not TRICKS.search(parts.spaced), place


def test_a_hostile_name_shows_itself_and_does_nothing(subtests: pytest.Subtests) -> None:
    for hostile in HOSTILE:
        with subtests.test(hostile.name):
            for place, each in event_places.lines(hostile.line).items():
                parts = page(each)
                shown = parts.text + " ".join(
                    element.attributes.get("title", "") for element in parts.elements
                )
                assert hostile.mark in shown or "mage of the" in str(parts.elements), place


def test_a_hostile_id_stays_inside_its_attribute(subtests: pytest.Subtests) -> None:
    for hostile in HOSTILE:
        with subtests.test(hostile.name):
            for place, each in event_places.hidden_places(hostile.line).items():
                (article,) = page(each).named("article")
                assert hostile.mark in str(article.attributes), place


def test_output_shows_hostile_text_to_the_letter(subtests: pytest.Subtests) -> None:
    for hostile in HOSTILE:
        with subtests.test(hostile.name):
            letters = re.sub(
                r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", "", hostile.text
            )
            if hostile.name.startswith(("ansi", "returns")):
                continue  # a terminal shows no more of it
            shown = re.sub("⟨U\\+[0-9A-F]{4}⟩|\ufffd", "", page(ran(hostile.text)).text)
            assert letters.strip() in shown


@pytest.mark.parametrize("place", ["v0 path", "v0 tool", "v1 sender", "v1 title"])
def test_a_name_shows_what_would_turn_its_direction(place: str) -> None:
    parts = page(event_places.lines("invoice_\u202egnp.exe")[place])
    assert "invoice_⟨U+202E⟩gnp.exe" in parts.text


@pytest.mark.parametrize(
    "text",
    ["invoice_&#x202e;gnp.exe", "https://e.example/%E2%80%AEgnp.exe", "[x](https://e.example '&#8238;gnp')"],
)
def test_markdown_shows_what_it_would_make_of_an_override(text: str) -> None:
    assert "⟨U+202E⟩gnp" in page(said(text)).spaced


def test_a_line_of_a_list_shows_what_its_markdown_would_make_of_an_override() -> None:
    assert excerpt("**invoice**_&#x202e;gnp.exe &#8;") == "invoice_⟨U+202E⟩gnp.exe \ufffd"


@pytest.mark.parametrize("hostile", [*HUGE, *COSTLY], ids=lambda each: each.name)
@pytest.mark.sampled(16)
def test_huge_and_costly_text_is_shown_and_bounded(hostile: Hostile, is_full: bool) -> None:
    places = list(event_places.blocks(hostile.text).items())
    if not is_full:  # a third of the places, others for each text
        places = places[[*HUGE, *COSTLY].index(hostile) % 3 :: 3]
    for place, each in places:
        assert len(render_page([each], conversation_id=CONVERSATION).html) < 600_000, place


@pytest.mark.parametrize("name", ["quotes", "image-beginnings", "wide-and-long", "perl"])
def test_costly_markdown_is_balanced(name: str) -> None:
    (hostile,) = (each for each in COSTLY if each.name == name)
    assert page(said(hostile.text)).elements


def test_events_nested_too_deeply_to_be_read_show_what_their_columns_say() -> None:
    payload = '{"kind":"EventOfTomorrow","a":' + "[" * 100_000 + "]" * 100_000 + "}"
    reading = dialects.read({"kind": "EventOfTomorrow", "text": "Hello"})
    assert "Hello" in page(stored(payload, reading=reading)).text


def test_a_number_too_long_to_be_read_hides_no_message() -> None:
    payload = '{"action":"message","args":{"content":"Hello"},"n":' + "1" * 10_000 + "}"
    reading = dialects.read({"action": "message", "args": {"content": "Hello"}})
    assert "Hello" in page(stored(payload, reading=reading)).text


ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=80)
MARKDOWN = st.lists(
    st.one_of(
        ANY_TEXT,
        st.sampled_from(["*", "_", "`", "```", "[", "](", "![", "<", "\n", "\n\n", "- ", "|", "> ", "~~"]),
    ),
    max_size=30,
).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(MARKDOWN)
def test_any_text_is_shown_balanced_wherever_it_stands(text: str) -> None:
    in_columns = event_places.hidden_places(columns.clean(text))
    for each in (*event_places.blocks(text).values(), *in_columns.values()):
        page(each)


@pytest.mark.parametrize("scheme", addresses.LINK_SCHEMES)
def test_an_address_of_each_scheme_of_links_is_one(scheme: str) -> None:
    address = f"{scheme}example.org"
    assert addresses.is_link(address)
    (link,) = PageParts(markdown(f"[here]({address})") or "").named("a")
    assert link.attributes["href"] == address


@pytest.mark.parametrize(
    "address", ["ftp://example.org", "javascript:alert()", "http:example", "//example.org"]
)
def test_an_address_of_another_scheme_is_no_link(address: str) -> None:
    assert not addresses.is_link(address)
    assert PageParts(markdown(f"[here]({address})") or "").named("a") == []


@given(MARKDOWN)
def test_any_markdown_is_balanced(text: str) -> None:
    PageParts(markdown(text) or "")
    PageParts(markdown(text, breaks=True) or "")


FIELDS = st.dictionaries(
    st.sampled_from(
        [
            *(
                "thought",
                "command",
                "path",
                "content",
                "old_str",
                "new_str",
                "image_urls",
                "task_list",
                "arguments",
            ),
            *(
                "name",
                "metadata",
                "diff",
                "old_content",
                "new_content",
                "screenshot",
                "agent_state",
                "reason",
            ),
            *("security_risk", "exit_code", "outputs", "error_id", "hidden", "confirmation_state"),
        ]
    ),
    JSON,
)


@given(FIELDS, st.sampled_from([json.loads(each).get("action") for each in V0_EXAMPLES]), JSON)
def test_v0_actions_with_any_fields_are_shown(fields: dict[str, Any], name: str | None, beside: Any) -> None:
    page(event({"action": name or "run", "args": fields, "message": beside, "tool_call_metadata": beside}))


@given(FIELDS, st.sampled_from([json.loads(each).get("observation") for each in V0_EXAMPLES]), JSON)
def test_v0_observations_with_any_fields_are_shown(
    fields: dict[str, Any], name: str | None, said: Any
) -> None:
    page(event({"observation": name or "run", "extras": fields, "content": said}))


@given(st.sampled_from(V1_EXAMPLES), st.data())
def test_v1_events_with_any_value_in_any_field_are_shown(text: str, data: st.DataObject) -> None:
    payload = json.loads(text)
    name = data.draw(st.sampled_from(sorted(payload.keys() - {"kind"})))
    inner = payload[name]
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JSON)
    else:
        payload[name] = data.draw(JSON)
    page(event(payload))
