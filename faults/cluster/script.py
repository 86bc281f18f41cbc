"""What the drill's agent does, for the code that counts it afterwards and has no Django."""

from __future__ import annotations

ONCE, OFTEN = "once", "often"
"""A tool that must not run twice, and one that may (CONVSERVER_REPEATABLE_TOOLS)."""
RUNS_FILE = "FAULTS_RUNS_FILE"
"""The variable that names the file in which each run of a tool leaves a line: its name and its key."""
ANSWER = "Answer to"
END = "Done."


def beginning(told: list[str]) -> str:
    """Return how an answer to these messages begins."""
    return f"{ANSWER} {', '.join(told)}:"


def told_in(answer: str) -> list[str]:
    """Return the messages that an answer is to."""
    return answer.removeprefix(ANSWER).partition(":")[0].strip().split(", ")


def is_whole(text: str) -> bool:
    """Say whether this is a whole answer, not one that was cut off."""
    return text.startswith(ANSWER) and text.endswith(END)
