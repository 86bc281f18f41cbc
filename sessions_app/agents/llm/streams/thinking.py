"""Reasoning between tags in the text of an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Said(NamedTuple):
    """A piece of an answer's text or reasoning."""

    text: str
    is_reasoning: bool = False


class ThinkTags:
    """Splits a text in pieces at its tags; in quoted code, a tag is text."""

    def __init__(self) -> None:
        self._is_thinking = False
        self._has_thought = False
        self._has_text = False
        self._begun_tag = ""
        """The end of the text, if it may begin a tag."""
        self._ticks = 0

    def feed(self, text: str) -> Iterator[Said]:
        """Yield the parts of the next piece, in their order."""
        text, self._begun_tag = self._begun_tag + text, ""
        while text:
            tag = CLOSE if self._is_thinking else OPEN
            before, found, after = text.partition(tag)
            if not found:
                kept = len(text) - _begun(text, tag)
                self._begun_tag = text[kept:]
                yield from self._said(text[:kept])
                return
            if not self._is_thinking and (self._ticks + before.count("`")) % 2:
                yield from self._said(before + found)  # quoted: a name, not a tag
            else:
                yield from self._said(before)
                self._is_thinking = not self._is_thinking
                self._has_thought = True
            text = after

    def close(self) -> Iterator[Said]:
        """Yield the rest of a complete answer; of a cut one, the model writes it again."""
        rest, self._begun_tag = self._begun_tag, ""
        if not self._is_thinking:
            yield from self._said(rest)

    def _said(self, text: str) -> Iterator[Said]:
        if self._is_thinking:
            if text:
                yield Said(text, is_reasoning=True)
            return
        if self._has_thought and not self._has_text:
            text = text.lstrip()  # empty lines after the reasoning belong to neither
        self._ticks += text.count("`")
        self._has_text = self._has_text or bool(text.strip())
        if text:
            yield Said(text)


def _begun(text: str, tag: str) -> int:
    """Return how many characters at the end of a text are the beginning of a tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
