"""The failure of a tool server, for the user and the model."""

from __future__ import annotations


class ToolFault(Exception):
    """A tool server is unusable, or a call has no result; the text has no key."""

    last_lines = ""
    """The end of a program's standard error, without its secrets."""

    def told(self, sentence: str) -> str:
        """Return a sentence with the program's last lines, if there are any."""
        if not self.last_lines:
            return sentence
        return f"{sentence}\n\nThe last lines of its standard error:\n\n{self.last_lines}"


class CallLate(ToolFault):
    """A call had no result in time; the server may answer the next one."""
