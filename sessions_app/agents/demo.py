"""The demo agent: shows on command what agents can do, without a key or a network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from django.conf import settings

from conversations.events import Dialect
from sessions_app.agents.base import Answer, Decision, ProposedCall, Turn

DEFAULT_WORD_S = 0.03
SLOW_FACTOR = 4

CUES = {
    "/tool": "calls a pretend tool",
    "/approve": "asks for your approval before a pretend deletion",
    "/slow": "takes ten seconds, so you can try Pause and Stop",
    "/finish": "reports that the task is done",
    "/fail": "fails on purpose",
}
"""Each command, which is a whole message in any case, and what it does."""
COMMANDS = "\n".join(f"- `{cue}` {what}" for cue, what in CUES.items())
INTRODUCTION = (
    "This is the built-in demo agent: it repeats what you say and needs no model. Enter a model in Settings, "
    "under Model, and it answers instead, unless this server was started with `CONVSERVER_AGENT=demo`.\n\n"
    f"Send one of these commands to see more:\n\n{COMMANDS}"
)
SLOW_ANSWER = (
    "This answer takes about ten seconds, a word at a time, so that you can try the buttons at the top. "
    "Pause suspends the turn, and Resume picks it up again. Stop ends the turn, and keeps what has "
    "arrived so far. You can also send another message now: it waits in line, and is answered as soon as "
    "this one is done. That was all there is to see here, so thank you for your patience."
)
NOTHING_NEW = "There is nothing new to answer."
_CLOCK = {"command": "date"}
_CLOCK_THOUGHT = "I'll check the time."
_CLOCK_ANSWER = "It is noon on Friday, according to the pretend tool."
_CLEANING = {"command": "rm -r build"}
_CLEANING_THOUGHT = "This deletes files, so I need your approval."
_RESULTS = {"date": "Fri Nov 20 12:00:00 UTC 2026 (pretended)"}
"""By the command; all others pretend to remove files."""
_COMMAND = re.compile(r"/[a-z]+")


class DemoAgent:
    """Repeats messages; on command it calls a tool, asks for approval, types slowly, finishes or fails."""

    title = "Demo"
    description = "Repeats what you say and shows what agents can do. Needs no model."
    cues = CUES

    async def play(self, turn: Turn) -> None:
        said = [event["text"].strip() for event in turn.inputs]
        cues = {text.lower() for text in said}
        if "/fail" in cues:
            raise RuntimeError("The demo agent failed because you asked it to.")
        if turn.decision is not None:
            await self._carry_out(turn, turn.decision)
        elif not turn.done and "/approve" in cues:
            await turn.ask_approval("run", _CLEANING, thought=_CLEANING_THOUGHT)
        elif not turn.done and "/tool" in cues:
            if turn.confirms("LOW", name="run", source="demo"):
                asked = ProposedCall(name="run", arguments=_CLOCK, source="demo")
                await turn.ask_approvals([asked], thought=_CLOCK_THOUGHT)
            call = await turn.call_tool("run", _CLOCK, thought=_CLOCK_THOUGHT)
            await turn.start_tool(call)
            await turn.tool_result(call, _RESULTS["date"])
        elif "/finish" in cues:
            await turn.finish("The task is done.")
            return
        await self._answer(turn, said)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the beginning of the last message, in the tags that the first message asks for."""
        if not messages:
            return ""
        if "<update_prompt>" in messages[0]["content"]:
            return f"<update_prompt>{_remembered(messages[0]['content'])}</update_prompt>"
        return messages[-1]["content"].strip()[:50]

    async def _carry_out(self, turn: Turn, decision: Decision) -> None:
        if decision.accepted:
            await turn.start_tool(decision.call)
            command = str(decision.call.arguments.get("command"))
            await turn.tool_result(decision.call, _RESULTS.get(command, "removed (pretended)"))
        else:
            await turn.tool_rejected(decision.call, decision.reason or "The user said no.")

    async def _answer(self, turn: Turn, said: Sequence[str]) -> None:
        word_s: float = getattr(settings, "DEMO_AGENT_WORD_S", DEFAULT_WORD_S)
        if turn.decision is not None:
            replies = ["Done." if turn.decision.accepted else "OK, I won't."]
        else:
            replies = list(dict.fromkeys(map(_reply, said))) or [NOTHING_NEW]
        if _is_first(turn) and INTRODUCTION not in replies:
            replies.append(INTRODUCTION)
        # What the turn has stored before it was paused is not said again.
        stored = [event["text"] for event in turn.done if event["kind"] == "message"]
        words = _words(replies, word_s)[sum(len(text.split()) for text in stored) :]
        while words:
            async with turn.answer() as answer:  # a pause takes effect here
                await _type(answer, words, turn)


def _reply(text: str) -> str:
    match text.lower():
        case "" | "help" | "/help":
            return INTRODUCTION
        case "/tool":
            return _CLOCK_ANSWER
        case "/slow":
            return SLOW_ANSWER
        case command if _COMMAND.fullmatch(command):
            return f"There is no command `{command}`. The commands are:\n\n{COMMANDS}"
        case _:
            return f"You said: {text}"


def _is_first(turn: Turn) -> bool:
    """Return whether this turn answers the first message."""
    # A V1 conversation begins with a prompt, if a door has created it.
    first = 1 if turn.conversation.dialect is Dialect.V1 else 0
    return bool(turn.inputs) and turn.inputs[0]["seq"] <= first


def _words(replies: Sequence[str], word_s: float) -> list[tuple[str, float]]:
    """Return each word with the white space before it, and how long it takes in seconds."""
    words: list[tuple[str, float]] = []
    for number, reply in enumerate(replies):
        pace_s = word_s * (SLOW_FACTOR if reply == SLOW_ANSWER else 1)
        text = f"\n\n{reply}" if number else reply
        words += [(word, pace_s) for word in re.findall(r"\s*\S+", text)]
    return words


async def _type(answer: Answer, words: list[tuple[str, float]], turn: Turn) -> None:
    """Write the words one by one until a pause; at least one."""
    is_first = True
    while words and (is_first or turn.decision is not None or not turn.is_pausing):
        word, pace_s = words.pop(0)
        await answer.write(word.lstrip() if is_first else word)
        is_first = False
        await asyncio.sleep(pace_s)


def _remembered(request: str) -> str:
    """Return the first words of the user in the events that a request quotes."""
    said = re.search(r"\] user, \w+: (.*)", request)
    if said is None:
        return "There is nothing to remember."
    return f"Remember what the user asked for: {said[1].strip()[:200]}"
