"""A drive of the newest release of the SDK, request by request: all kinds of calls of its conversations."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import httpx
import pytest

from sessions_app.agents.llm import library
from sessions_app.agents.llm.models import Wire
from sessions_app.agents.sources import BUILT_IN_AGENTS
from tests.doors.v1.test_v1_sdk_traffic import RECORDED, Script
from tests.support.people.model_talks import text_of
from tests.support.servers.model_server import Answer, Asked, calling, completion, model_server
from tests.support.wires.v1 import AGENT

pytestmark = pytest.mark.one_engine

NEWEST = [json.loads(line) for line in (RECORDED / "sdk-1.58.2.jsonl").read_text("utf-8").splitlines()]


class DrivenModel:
    """A model that does what the drive asks for; two answers never end, one to be paused, one interrupted."""

    def __init__(self) -> None:
        self._slow = 0

    def __call__(self, asked: Asked) -> Answer:
        last = asked.body["messages"][-1]
        wanted = text_of(last["content"]) if last["role"] == "user" else ""
        self._slow += "slow" in wanted
        if "slow" in wanted and self._slow in (1, 3):  # the second one is the answer after the pause
            return completion(["Well", threading.Event()])
        if "think" in wanted:
            return calling(("think", {"thought": "Let me see."}))
        if "finish" in wanted:
            return calling(("finish", {"message": "All is done."}))
        return calling(("beep", {"times": 2})) if "beep" in wanted else completion(["Done."])


async def test_a_drive_of_the_newest_release_by_all_kinds_of_its_calls_is_answered_as_recorded(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    await library.client_of(Wire.OPENAI)  # importing the library takes seconds
    scripts: list[Script] = []
    with model_server(DrivenModel()) as (model, _):
        for each, following in zip(NEWEST, [*NEWEST[1:], None], strict=True):
            number, _, call = each["path"].removeprefix("/").partition("/")
            sent = json.dumps(each["body"]).replace("MODEL", model)
            if "FIRST-MESSAGE" in sent:
                await scripts[0].read_history()
                first = next(event for event in scripts[0].events if event["kind"] == "MessageEvent")
                sent = sent.replace("FIRST-MESSAGE", first["id"])
            at = f"{scripts[int(number)].at}/{call}".rstrip("/") if number else AGENT
            answer = await rest.request(each["method"], at, json=json.loads(sent))
            assert answer.status_code == each["status"], (each, answer.text)
            if answer.status_code == 201:
                scripts.append(Script(rest, answer.json()["id"]))
            steers = following is not None and following["path"].endswith(("/pause", "/interrupt"))
            if call in ("run", "pause", "interrupt") and not steers:
                await scripts[int(number)].ended()
    for script in scripts:
        await script.read_history()
    actions = [each["action"]["kind"] for each in scripts[0].events if each["kind"] == "ActionEvent"]
    assert actions == ["ThinkAction", "FinishAction"]
    kinds = scripts[2].kinds()
    assert (kinds.count("ActionEvent"), kinds.count("UserRejectObservation")) == (3, 1)
    assert "PauseEvent" in scripts[3].kinds()
    assert "InterruptEvent" in scripts[4].kinds()
