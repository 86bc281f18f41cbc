"""An unfinished answer as HTML, block by block; each finished block is rendered once."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any

from cachetools import LRUCache
from django.utils.html import format_html
from django.utils.safestring import SafeString

from convserver.rendering.text import visible
from convserver.rendering.text.blocks import blocks
from convserver.rendering.text.markdown import HIGHEST, markdown
from convserver.rendering.text.unfinished import closed

SHOWN_MAX_CHARS = 200_000  # the rest of a longer answer is shown once it is stored
GROWTH = 16  # a longer one is rendered when it has grown by one part in this many
KEPT = 64  # the answers that a process remembers
WAIT_S = 0.2  # the interval at which a page asks again


class Preview:
    """One unfinished answer, rendered at a cost in proportion to its length."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.through = -1  # the index of the last piece of the answer that is shown
        self.version = 0  # changes when a finished part changes
        self.finished: list[SafeString] = []
        self.open = SafeString("")  # the last block, which grows
        self.reasoning = ""
        self.rendered_chars = 0  # the characters rendered for this answer so far
        self._text = ""
        self._env: dict[str, Any] = {}
        self._open_text = ""
        self._next_slot = 0.0

    def grow(self, text: str, through: int, *, reasoning: str = "") -> None:
        """Set the answer's text up to the piece `through`."""
        text, reasoning = text[:SHOWN_MAX_CHARS], reasoning[:SHOWN_MAX_CHARS]
        # A text that does not continue the old one was masked, since a secret was found in it.
        if not (text.startswith(self._text) and reasoning.startswith(self.reasoning)):
            self._begin_again()
        self.reasoning = reasoning
        self.through = through
        rest = text[len(self._text) :]
        goes_on = bool(self._open_text) and rest.startswith(self._open_text)
        grown = len(rest) - len(self._open_text)
        # A long open block is rendered anew only when it has grown by a part of itself: else the cost of an
        # answer would grow with the square of its length.
        # An open block up to this length is rendered whenever it has grown
        small_chars = 4_000
        if goes_on and len(rest) > small_chars and grown * GROWTH < len(rest):
            return
        *done, last = blocks(rest, is_all=False) or [""]
        for block in done:
            self._finish(block)
        self._open_text = last
        # A copy: what the open block defines may still change, and must not count for the finished ones.
        env = {**self._env, "references": {**self._env.get("references", {})}}
        self.open = self._rendered(closed(last), env) if last.strip() else SafeString("")

    def wait_s(self, clock: Callable[[], float] = time.monotonic) -> float:
        """Return the seconds after which a reader who asks now may ask again."""
        now = clock()
        # Each reader takes the next slot: a thousand of them wait longer instead of asking at once.
        # The rate at which all readers of one answer together ask a process
        asked_max_per_s = 250
        self._next_slot = max(now, self._next_slot) + 1 / asked_max_per_s
        return max(WAIT_S, self._next_slot - now)

    def _begin_again(self) -> None:
        self.version += 1
        self._text, self._env, self._open_text = "", {}, ""
        self.finished, self.open = [], SafeString("")

    def _finish(self, block: str) -> None:
        highest = self._env.get(HIGHEST)
        self.finished.append(self._rendered(block, self._env))
        self._text += block
        if highest is not None and self._env[HIGHEST] < highest:
            self._lower_finished()

    def _lower_finished(self) -> None:
        """Render all parts again below a higher heading, which can happen five times."""
        text, env = self._text, {HIGHEST: self._env[HIGHEST]}
        self._begin_again()
        self._env = env
        for block in blocks(text):
            self.finished.append(self._rendered(block, env))
        self._text = text

    def _rendered(self, block: str, env: dict[str, Any]) -> SafeString:
        self.rendered_chars += len(block)
        html = markdown(block, env=env)
        if html is None:
            return format_html('<pre class="output" dir="auto">{}</pre>', visible.prose(block.rstrip("\n")))
        return html


class Previews:
    """The previews of one process, the newest KEPT of them."""

    def __init__(self) -> None:
        self._kept: LRUCache[str, Preview] = LRUCache(KEPT)
        self._lock = Lock()

    def of(self, answer: str) -> Preview:
        """Return the preview of an answer; a new one is empty."""
        with self._lock:
            return self._kept.setdefault(answer, Preview())
