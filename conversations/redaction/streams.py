"""A text that is shown without its secrets while it grows."""

from __future__ import annotations

from conversations.redaction.masking import MASK, Masks


class MaskedStream:
    """The shown part of a text that arrives in pieces.

    A secret value may span pieces, so an end in which one may have begun waits for the next piece.
    """

    def __init__(self) -> None:
        self.shown = ""
        self._waiting = ""

    def add(self, text: str) -> None:
        self._waiting += text

    def take(self, masks: Masks) -> str:
        """Return what can be shown now and was not returned before."""
        settled = self._waiting[: masks.settled(self._waiting)]
        self._waiting = self._waiting[len(settled) :]
        return self._show(masks.hide(settled))

    def take_rest(self, masks: Masks) -> str:
        """Return the rest: nothing follows.

        An end that was held back may be a secret without its last character, so only a short one is shown.
        """
        settled = self.take(masks)
        held_back, self._waiting = self._waiting, ""
        return settled + self._show(held_back if len(held_back) <= 4 else MASK)

    def _show(self, text: str) -> str:
        self.shown += text
        return text
