"""An agent that takes up what is said while it works, step by step, as a test lets it go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessions_app.agents.base import Turn
from tests.support.people.scripted_agent import Stage


class ListeningAgent:
    """Answers every message; it holds before those that begin with `hold`, and looks for more after each."""

    async def play(self, turn: Turn) -> None:
        stage = Stage.current
        stage.enter(turn)
        before = {event["text"] for event in turn.done}
        count = 0
        while count < len(turn.inputs):
            said = turn.inputs[count]["text"]
            count += 1
            answer = f"answer to {said}"
            if answer not in before:
                if said.startswith("hold"):
                    await stage.hold(turn)
                if said.startswith("fail"):
                    raise ValueError("No luck.")
                if said.startswith("approve") and turn.decision is None:
                    await turn.ask_approval("paint", {"colour": "green"})
                await turn.say(answer)
            if count == len(turn.inputs):
                await turn.new_inputs()

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return ""
