"""What happens, in the same transaction, when an input that asks for an answer is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Takes the keys of conversations; runs statements of the caller's transaction, whose results it must not
# read: they may be part of a pipeline.
Defer = Callable[[Sequence[int]], None]

_defer: Defer | None = None


def defer_by(defer: Defer) -> None:
    """Call `defer` from now on with the conversations that are asked for an answer."""
    global _defer
    _defer = defer


def asked(pks: Sequence[int]) -> None:
    """Note, in the running transaction, that something asks for an answer in these conversations."""
    if _defer is not None and pks:
        _defer(pks)
