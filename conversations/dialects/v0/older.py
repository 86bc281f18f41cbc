"""Converting older names of V0 fields into today's (end of spec V0 §3.4)."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from conversations.dialects import columns
from conversations.dialects.v0.actions import RISKS

_FILE_EDITOR_CALL = ("print(file_editor(**", "))")


def todays_args(args: Mapping[str, object]) -> dict[str, object]:
    """Return an action's `args` with today's names, without abandoned ones."""
    today = dict(args)
    for name in ("timestamp", "keep_prompt", "task_completed"):
        today.pop(name, None)
    if "images_urls" in today:
        today["image_urls"] = today.pop("images_urls")
    if (state := today.pop("is_confirmed", None)) is not None:
        today["confirmation_state"] = state
    if columns.whole_number(today.get("security_risk")) not in RISKS:
        today.pop("security_risk", None)
    if "translated_ipython_code" in today:
        today |= _file_editor_args(today.pop("translated_ipython_code"))
        if today.get("command") == "view":  # the action already says that a file is read
            del today["command"]
    return today


def todays_extras(extras: Mapping[str, object]) -> dict[str, object]:
    """Return an observation's `extras` with today's names, without abandoned ones."""
    today = dict(extras)
    today.pop("formatted_output_and_error", None)
    moved = {
        name: today.pop(older)
        for older, name in (("exit_code", "exit_code"), ("command_id", "pid"))
        if older in today
    }
    metadata = today.get("metadata")
    if moved and (metadata is None or isinstance(metadata, Mapping)):
        today["metadata"] = {**(metadata or {}), **moved}
    return today


def _file_editor_args(code: object) -> dict[str, Any]:
    """Return the arguments of a file editor's call; none for anything else."""
    before, after = _FILE_EDITOR_CALL
    # A longer literal is not parsed: Python's syntax tree would take a thousand times its size.
    literal_max_chars = 200_000
    if not isinstance(code, str) or len(code) > literal_max_chars:
        return {}
    if not code.startswith(before) or not code.endswith(after):
        return {}
    try:
        args = ast.literal_eval(code[len(before) : -len(after)])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    return args if isinstance(args, dict) and all(isinstance(name, str) for name in args) else {}
