"""Decoding JSON in steps, so that other threads can run and an import can be cancelled meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from json import decoder, scanner
from typing import Any

from conversations.confined.processes import check

Scan = Callable[[str, int], tuple[Any, int]]

# The decoder in Python, which the library has beside that in C; the checker does not know of it.
_decoder: Any = decoder
_scanner: Any = scanner


class StepwiseDecoder(json.JSONDecoder):
    """Decodes as the library does, but slower, and calls the check of `checked_by` at each value.

    For texts of a bounded depth: each level takes four frames of the stack.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parse_array = _array
        self.parse_object = _object
        self.scan_once = _scanner.py_make_scanner(self)


def _array(text_and_end: tuple[str, int], scan: Scan) -> tuple[list[Any], int]:
    found: tuple[list[Any], int] = _decoder.JSONArray(text_and_end, _checking(scan))
    return found


def _object(
    text_and_end: tuple[str, int], strict: bool, scan: Scan, *hooks: Any
) -> tuple[dict[str, Any], int]:
    found: tuple[dict[str, Any], int] = _decoder.JSONObject(text_and_end, strict, _checking(scan), *hooks)
    return found


def _checking(scan: Scan) -> Scan:
    def step(text: str, at: int) -> tuple[Any, int]:
        check()
        return scan(text, at)

    return step
