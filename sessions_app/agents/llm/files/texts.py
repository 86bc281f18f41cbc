"""Files as texts: read, changed and written so that every byte stays that no edit names.

A text keeps its line ends, and its byte order mark.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace

from conversations.dialects import columns

BINARY = "File appears to be binary and this file type cannot be read or edited by this tool."
NOT_UTF_8 = "It is not UTF-8 text, so this tool cannot show or edit it."


class EditRefused(Exception):
    """The call cannot be carried out as it was written; the model reads why."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file."""

    text: str
    has_mark: bool = False
    """Whether the file begins with a byte order mark, which is not in the text."""

    @classmethod
    def of(cls, content: bytes) -> TextFile:
        """Read a file. Raise EditRefused with a sentence if it is no text."""
        if b"\0" in content:
            raise EditRefused(BINARY)
        has_mark = content.startswith(codecs.BOM_UTF8)
        try:
            return cls(content[len(codecs.BOM_UTF8) if has_mark else 0 :].decode(), has_mark)
        except UnicodeDecodeError:
            raise EditRefused(NOT_UTF_8) from None

    @property
    def content(self) -> bytes:
        """Return the file's bytes. Raise EditRefused for halves of characters, which UTF-8 does not have."""
        try:
            return (codecs.BOM_UTF8 if self.has_mark else b"") + self.text.encode()
        except UnicodeEncodeError:
            raise EditRefused("The text has halves of characters, which no file of text can hold.") from None

    @property
    def line_end(self) -> str:
        """Return what ends the lines: that of Windows only if it ends all of them."""
        ends = self.text.count("\n")
        return "\r\n" if ends and self.text.count("\r\n") == ends else "\n"

    @property
    def plain(self) -> str:
        """Return the text as a model sees it."""
        return self.text.replace("\r\n", "\n") if self.line_end == "\r\n" else self.text

    @property
    def line_count(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n") and self.text != "")

    def _own(self, text: str) -> str:
        """Return a text of a model with the line ends of this file."""
        # A model sees no line ends, and writes those that it knows.
        return text.replace("\r\n", "\n").replace("\n", "\r\n") if self.line_end == "\r\n" else text

    def replaced(self, path: str, old: str, new: str) -> tuple[TextFile, int]:
        """Replace the only occurrence of a text; return the number of its first line, too.

        Raise EditRefused if it does not occur, or more than once.
        """
        if old == new:
            raise EditRefused("No replacement was performed. `new_str` and `old_str` must be different.")
        wanted = self._own(old)
        at = self.text.find(wanted)
        if at < 0:
            raise EditRefused(
                f"No replacement was performed, old_str `{_named(old)}` did not appear verbatim in {path}."
            )
        if self.text.find(wanted, at + 1) >= 0:
            raise EditRefused(
                f"No replacement was performed. Multiple occurrences of old_str `{_named(old)}` in lines "
                f"{self.lines_of(wanted)}. Please ensure it is unique."
            )
        text = self.text[:at] + self._own(new) + self.text[at + len(wanted) :]
        return replace(self, text=text), self.text.count("\n", 0, at) + 1

    def lines_of(self, wanted: str) -> list[int]:
        """Return the lines of the first occurrences of a text."""
        lines_most = 20
        lines: list[int] = []
        at, line, seen = self.text.find(wanted), 1, 0
        while at >= 0 and len(lines) < lines_most:
            line, seen = line + self.text.count("\n", seen, at), at
            if line not in lines[-1:]:
                lines.append(line)
            at = self.text.find(wanted, at + 1)
        return lines

    def inserted(self, after_line: int, new: str) -> TextFile:
        """Insert lines after one, 0 for the beginning. Raise EditRefused if there is no such line."""
        if not 0 <= after_line <= self.line_count:
            raise EditRefused(
                f"Invalid `insert_line` parameter: {after_line}. It should be within the range of allowed "
                f"values: {[0, self.line_count]}"
            )
        at = 0
        for _ in range(after_line):
            at = self.text.find("\n", at) + 1 or len(self.text)
        before = self.text[:at]
        if before and not before.endswith("\n"):  # the last line of the file has no end
            before += self.line_end
        return replace(self, text=f"{before}{self._own(new)}{self.line_end}{self.text[at:]}")

    def snippet(self, line: int, lines_added: int) -> tuple[str, int]:
        """Return the lines around a change, and the number of the first."""
        around = 4
        first, after = max(0, line - around), line + around + lines_added
        return "\n".join(self.plain.split("\n", after)[first:after]), first + 1


def numbered(text: str, first: int, *, most: int = 30_000) -> str:
    """Return the lines with their numbers; a long text is clipped, and a sentence says where to go on."""
    count = text.count("\n") + (not text.endswith("\n"))
    told: list[str] = []
    room = most
    # Each line shown takes at least eight characters.
    for number, line in enumerate(text.split("\n", most // 8)[:count], first):
        told.append(f"{number:6}\t{line}")
        room -= len(told[-1]) + 1
        if room < 0:
            break
    if room >= 0:
        return "\n".join(told) + "\n"
    if len(told) > 1:
        told.pop()
        what = f"the part from line {first} to {first + len(told) - 1}"
    else:
        told = [told[0][:most]]
        what = f"the beginning of line {first}"
    note = f"Due to the max output limit, only {what} of {first + count - 1} lines"
    return "\n".join(
        [*told, f"<response clipped><NOTE>{note} is shown. Use `view_range` or search to see more.</NOTE>\n"]
    )


def _named(text: str) -> str:
    most = 2_000
    cleaned = columns.clean(text)
    return cleaned if len(cleaned) <= most else f"{cleaned[:most]}…"
