"""What is done, in the transaction that stores it, about an input that asks for an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Defer = Callable[[Sequence[int]], None]
"""Takes the keys of conversations; runs statements of the caller's transaction, whose results it must not
read: they may be part of a pipeline."""

_defer: Defer | None = None


def defer_by(defer: Defer) -> None:
    """Let `defer` see from now on which conversations are asked for an answer."""
    global _defer
    _defer = defer


def asked(pks: Sequence[int]) -> None:
    """Note, in the running transaction, that something asks for an answer in these conversations."""
    if _defer is not None and pks:
        _defer(pks)
