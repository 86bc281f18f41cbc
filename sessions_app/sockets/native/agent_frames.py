"""The frames of a program that plays an agent's turns, read as steps (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypedDict

from sessions_app.agents.base import CallUsage
from sessions_app.agents.remote.steps import (
    AnyStep,
    Call,
    Count,
    Done,
    Fail,
    Finish,
    Look,
    Pause,
    Piece,
    Reserve,
    Result,
    Say,
    Start,
)
from sessions_app.sockets.native.frames import FRAME_ID_MAX_LENGTH, BadFrame, Frame, is_id

TOKENS_MAX = 10**12
NAME_MAX_LENGTH = 200


class _Common(TypedDict):
    id: Any
    turn: str
    epoch: int


def read(frame: Frame) -> AnyStep:
    """Return the step that a frame is. Raise BadFrame."""
    reader = _READERS.get(frame.type)
    if reader is None:
        raise BadFrame(f"There is no frame {frame.type!r} here; there are {', '.join((*_READERS, 'auth'))}.")
    if frame.id is None and frame.type in _ANSWERED:
        raise BadFrame(f"The frame `{frame.type}` needs an `id`.")
    return reader(frame, {"id": frame.id, "turn": frame.text("turn"), "epoch": frame.number("epoch")})


def _say(frame: Frame, common: _Common) -> Say:
    text = frame.text("text") if "text" in frame.members else None
    if text is not None and not text.strip():
        raise BadFrame("`text` of the frame `say` must not be blank.")
    return Say(**common, text=text)


def _piece(frame: Frame, common: _Common, *, is_reasoning: bool) -> Piece:
    return Piece(
        **common,
        answer=_named(frame, "answer"),
        index=_count(frame, "index"),
        text=frame.text("text"),
        is_reasoning=is_reasoning,
    )


def _call(frame: Frame, common: _Common) -> Call:
    member = frame.members.get("arguments")
    arguments = {} if member is None else member.value
    if not isinstance(arguments, dict):
        raise BadFrame("`arguments` of the frame `call` must be an object.")
    return Call(
        **common,
        name=_short(frame, "name", NAME_MAX_LENGTH),
        arguments=arguments,
        thought=frame.text("thought", default=""),
        asks=frame.flag("ask") if "ask" in frame.members else False,
    )


def _start(frame: Frame, common: _Common) -> Start:
    return Start(**common, call=_named(frame, "call"))


def _look(frame: Frame, common: _Common) -> Look:
    return Look(**common)


def _result(frame: Frame, common: _Common) -> Result:
    exit_code = frame.number("exit_code") if "exit_code" in frame.members else 0
    return Result(**common, call=_named(frame, "call"), content=frame.text("content"), exit_code=exit_code)


def _pause(frame: Frame, common: _Common) -> Pause:
    return Pause(**common, text=frame.text("text"))


def _finish(frame: Frame, common: _Common) -> Finish:
    return Finish(**common, text=frame.text("text"), thought=frame.text("thought", default=""))


def _usage(frame: Frame, common: _Common) -> Count:
    return Count(**common, usage=_used(frame))


def _reserve(frame: Frame, common: _Common) -> Reserve:
    return Reserve(**common, expected=_used(frame))


def _used(frame: Frame) -> CallUsage:
    return CallUsage(
        model=_short(frame, "model", 200),
        prompt_tokens=_count(frame, "prompt_tokens"),
        completion_tokens=_count(frame, "completion_tokens"),
        cost=_cost(frame),
    )


def _fail(frame: Frame, common: _Common) -> Fail:
    code = _short(frame, "code", 100) if "code" in frame.members else "AgentError"
    return Fail(**common, text=frame.text("text"), code=code)


def _done(frame: Frame, common: _Common) -> Done:
    return Done(**common)


def _named(frame: Frame, name: str) -> str:
    member = frame.members.get(name)
    if member is None or not is_id(member.value):
        raise BadFrame(
            f"`{name}` of the frame `{frame.type}` is the `id` of a frame: 1 to {FRAME_ID_MAX_LENGTH} "
            "characters, or a whole number of 64 bits."
        )
    return str(member.value)


def _count(frame: Frame, name: str) -> int:
    value = frame.number(name)
    if not 0 <= value <= TOKENS_MAX:
        raise BadFrame(f"`{name}` of the frame `{frame.type}` is a whole number from 0 to {TOKENS_MAX}.")
    return value


def _short(frame: Frame, name: str, most: int) -> str:
    text = frame.text(name)
    if not 0 < len(text) <= most:
        raise BadFrame(f"`{name}` of the frame `{frame.type}` has 1 to {most} characters.")
    return text


def _cost(frame: Frame) -> float | None:
    member = frame.members.get("cost")
    value = None if member is None else member.value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1_000_000.0:
        raise BadFrame(f"`cost` of the frame `{frame.type}` is US dollars, or null where it is not known.")
    return float(value)


_READERS: Mapping[str, Callable[[Frame, _Common], AnyStep]] = {
    "say": _say,
    "delta": partial(_piece, is_reasoning=False),
    "think": partial(_piece, is_reasoning=True),
    "call": _call,
    "start": _start,
    "result": _result,
    "look": _look,
    "pause": _pause,
    "reserve": _reserve,
    "usage": _usage,
    "finish": _finish,
    "fail": _fail,
    "done": _done,
}
_ANSWERED = frozenset({"say", "call", "start", "result", "look", "pause", "reserve", "finish"})
