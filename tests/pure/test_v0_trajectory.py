"""What of a V0 event goes into a trajectory or a prompt: not the hidden, not the whole pages of a browser."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.dialects import v0
from conversations.events import ConversationRef
from conversations.log.reads import PAGE_MAX_EVENTS
from sessions_app import astore
from tests.support.data.events import event
from tests.support.people.scripted_agent import Hooked, hooked
from tests.support.wires.v0 import CONVERSATIONS
from tests.support.wires.v0_wire import EXAMPLES, TEXTS, stored

__all__ = ["hooked"]

BROWSER_FIELDS = (
    *("dom_object", "axtree_object", "active_page_index", "last_browser_action", "last_browser_action_error"),
    *("focused_element_bid", "extra_element_properties", "screenshot", "set_of_marks"),
)


def without(value: Any) -> Any:
    """Return decoded JSON without the browser fields."""
    if isinstance(value, dict):
        return {name: without(inner) for name, inner in value.items() if name not in BROWSER_FIELDS}
    return [without(inner) for inner in value] if isinstance(value, list) else value


@given(
    st.recursive(
        st.none()
        | st.integers()
        | TEXTS
        | st.sampled_from([*BROWSER_FIELDS, '"screenshot":', '\\"screenshot": 1,', "}{][", "\\", ","]),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(BROWSER_FIELDS) | TEXTS, inner, max_size=5)
        ),
        max_leaves=20,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_browser_fields_leave_the_extras_at_any_depth_and_nothing_else_changes(
    value: object, is_ascii: bool, indent: int | None
) -> None:
    fields = {"screenshot": value, "content": "screenshot", "args": {"screenshot": value}}
    event = {"id": 1, **fields, "extras": {"a": value, "screenshot": value, "b": [{"set_of_marks": value}]}}
    text = json.dumps(event, ensure_ascii=is_ascii, indent=indent)
    left = v0.without_browser_fields(text)
    assert json.loads(left) == event | {"extras": without(event["extras"])}
    assert list(json.loads(left)["extras"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("extras", "left"),
    [
        ('{"screenshot":"x"}', "{}"),
        ('{"screenshot":"x","set_of_marks":"y"}', "{}"),
        ('{"screenshot":"x","a":1.10,"set_of_marks":"y"}', '{"a":1.10}'),
        ('{"a":1E5,"dom_object":{"screenshot":[{}]},"screenshot":-1.5e3}', '{"a":1E5}'),
        ('{ "a" : 1 , "screenshot" : null , "b" : 2 }', '{ "a" : 1  , "b" : 2 }'),
        ('{"a":[{"screenshot":true},{"b":"\\"screenshot\\":1"}]}', '{"a":[{},{"b":"\\"screenshot\\":1"}]}'),
        ('{"my_screenshot":1,"screenshot_path":"p"}', '{"my_screenshot":1,"screenshot_path":"p"}'),
    ],
)
def test_what_stays_of_the_extras_keeps_its_bytes(extras: str, left: str) -> None:
    event = f'{{"id":1,"args":{{"screenshot":1}},"extras":{extras}}}'
    assert v0.without_browser_fields(event) == f'{{"id":1,"args":{{"screenshot":1}},"extras":{left}}}'


def test_the_whole_page_of_a_browser_leaves_the_recorded_example() -> None:
    example = next(line for line in EXAMPLES if '"observation":"browse"' in line)
    extras = json.loads(v0.without_browser_fields(v0.shown(stored(example))))["extras"]
    assert list(extras) == [
        *("url", "trigger_by_action", "screenshot_path", "error"),
        *("goal_image_urls", "open_pages_urls", "filter_visible_only"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":1,"content":"screenshot","extras":{}} no JSON',
        '{"id":1,"action":"x","args":{"screenshot":1}}',
        '{"id":1,"action":"x","args":{"extras":{"screenshot":1}}}',
    ],
    ids=["no-name", "no-extras", "not-the-events-own"],
)
def test_an_event_without_such_extras_stays_the_same_text(text: str) -> None:
    assert v0.without_browser_fields(text) == text


def test_an_event_too_deep_to_be_decoded_loses_its_browser_fields_all_the_same() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    text = f'{{"a":{deep},"e\\u0078tras":{{"screenshot":{deep},"b":1}},"extras":{{"dom_object":{deep}}}}}'
    left = f'{{"a":{deep},"e\\u0078tras":{{"b":1}},"extras":{{}}}}'
    assert v0.without_browser_fields(text) == left


def test_the_time_for_removing_a_page_grows_with_its_length_alone() -> None:
    page = '{"a":"' + '\\"' * 100_000 + '","b":[' + ",".join(["[[]]"] * 100_000) + "]}"
    many = ",".join(f'{{"screenshot":{n}}}' for n in range(20_000))
    text = f'{{"extras":{{"dom_object":{page},"pages":[{many}]}}}}'
    begun = time.process_time()
    assert v0.without_browser_fields(text) == f'{{"extras":{{"pages":[{",".join(["{}"] * 20_000)}]}}}}'
    assert time.process_time() - begun < 10


async def test_what_browsers_have_shown_is_taken_out_beside_the_event_loop(
    conversation: ConversationRef, rest: httpx.AsyncClient, hooked: Hooked
) -> None:
    page = json.dumps({"observation": "browse", "content": "", "extras": {"url": "x", "screenshot": "data:"}})
    count = PAGE_MAX_EVENTS + 1  # so that the list begins with one page and goes on with another
    await astore.append(conversation, [event(raw=page) for _ in range(count)])
    threads: list[int] = []
    taking = hooked(v0, "without_browser_fields")
    for _ in range(count):
        taking.before(lambda: threads.append(threading.get_ident()))
    events = (await rest.get(f"{CONVERSATIONS}/talk/trajectory")).json()["trajectory"]
    assert [(each["id"], each["extras"]) for each in events] == [(n, {"url": "x"}) for n in range(count)]
    assert len(threads) == count
    assert threading.get_ident() not in threads


def test_a_hidden_event_appears_in_no_trajectory() -> None:
    hidden, open_to_all = (
        stored(v0.received({"action": "run", "args": {"command": "env", "hidden": is_hidden}}).payload)
        for is_hidden in (True, False)
    )
    assert not v0.appears_in_trajectory(hidden)
    assert v0.appears_in_trajectory(open_to_all)


def test_states_and_empty_events_are_not_for_prompts() -> None:
    for name in ("null", "change_agent_state", "agent_state_changed"):
        assert name in v0.NOT_FOR_PROMPTS
