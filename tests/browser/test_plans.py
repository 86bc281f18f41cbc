"""The agent's plan is one card, which changes where it stands."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.site import message
from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

TITLES = ("Read the code", "Write the tests", "Run them")


def tasks(done: int) -> list[dict[str, str]]:
    """Return the tasks, the first ones done and the next one in progress."""
    ways = ["done"] * done + ["in_progress"] + ["todo"] * len(TITLES)
    return [{"title": title, "status": way} for title, way in zip(TITLES, ways, strict=False)]


def planned(wire: str, number: int, done: int) -> list[dict[str, Any]]:
    """Return a call that writes the plan, and its result."""
    plan = {"command": "plan", "task_list": tasks(done)}
    if wire == "V0":
        return [
            {"action": "task_tracking", "source": "agent", "args": plan},
            {"observation": "task_tracking", "source": "agent", "content": "Updated.", "extras": plan},
        ]
    called = {"tool_name": "task_tracker", "tool_call_id": f"call-{number}"}
    action = {"kind": "TaskTrackerAction", **plan}
    observation = {"kind": "TaskTrackerObservation", "content": [], **plan}
    return [
        {"kind": "ActionEvent", "source": "agent", "id": f"action-{number}", **called, "action": action},
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "id": f"result-{number}",
            **called,
            "action_id": f"action-{number}",
            "observation": observation,
        },
    ]


@pytest.mark.parametrize("wire", ["V0", "V1"])
@pytest.mark.sampled(1)
def test_a_plan_that_changes_stays_one_card_with_its_earlier_states_folded(talk: Talk, wire: str) -> None:
    plans = talk.page.locator("#events article.plan:visible")
    for number in range(3):
        talk.site.record(talk.id, planned(wire, number, done=number), key=f"plan-{number}")
        expect(plans).to_have_count(1)
        expect(plans.locator(".now > summary")).to_have_text(f"{number} of 3 tasks done")
        talk.site.record(talk.id, [message(f"Step {number}", source="agent")], key=f"step-{number}")
        expect(talk.messages("agent")).to_have_count(number + 1)
    expect(talk.page.locator("#events article:visible")).to_have_count(4)
    expect(plans.locator(".now .tasks li").nth(1)).to_contain_text("Done Write the tests")
    expect(talk.page.locator("#heard")).to_have_text("Agent: Step 2")
    plans.locator(".earlier > summary").press("Enter")
    expect(plans.locator(".earlier li .as-of .words")).to_have_text(
        ["0 of 3 tasks done", "1 of 3 tasks done"]
    )
    before = plans.inner_text()
    talk.page.reload()
    plans.locator(".earlier > summary").click()
    assert plans.inner_text() == before


@pytest.mark.slow
def test_the_plan_of_a_new_message_is_a_card_of_its_own_and_folds_the_one_before(talk: Talk) -> None:
    plans = talk.page.locator("#events article.plan:visible")
    talk.site.record(talk.id, [*planned("V0", 0, done=1), message("And now?")], key="first")
    expect(plans.locator(".now[open]")).to_have_count(1)
    talk.site.record(talk.id, planned("V0", 1, done=2), key="second")
    expect(plans).to_have_count(2)
    expect(plans.nth(0).locator(".now[open]")).to_have_count(0)
    expect(plans.nth(1).locator(".now[open]")).to_have_count(1)


@pytest.mark.slow
def test_a_link_to_an_earlier_state_opens_it(talk: Talk) -> None:
    for number in range(3):
        talk.site.record(talk.id, planned("V0", number, done=number), key=f"plan-{number}")
    expect(talk.page.locator("article.plan:visible .earlier > ol > li")).to_have_count(2)
    talk.page.evaluate("location.hash = '#e2'")
    expect(talk.page.locator(".plan-state.marked")).to_be_in_viewport()
    expect(talk.page.locator(".plan-state.marked .words")).to_have_text("1 of 3 tasks done")
