"""The failure of a tool server, in words for the user and the model."""

from __future__ import annotations


class ToolFault(Exception):
    """A tool server cannot be used, or a call of it has no result; the text holds no key."""

    last_lines = ""
    """What the server, a program, has written to its standard error last, without its secrets."""

    def told(self, sentence: str) -> str:
        """Return a sentence about the fault with the program's last lines, if there are any."""
        if not self.last_lines:
            return sentence
        return f"{sentence}\n\nThe last lines of its standard error:\n\n{self.last_lines}"


class CallLate(ToolFault):
    """A call had no result in time; the server may serve the next one."""
