"""Calls of the tool for files on the V0 wire: a view is `read`, everything else is `edit` (spec V0 §3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.file_tool import VIEW, FileEdit

# The key of a result for the command of its call: readers ignore unknown keys of an event, and some refuse
# them in `extras`.
COMMAND = "edit_command"
TYPES = ("read", "edit")
FAILED = "ERROR:"
"""The beginning of a result by which clients of this wire know that a call failed."""
_IMPLEMENTATION = "oh_aci"
_ARGUMENTS = ("path", "file_text", "old_str", "new_str", "insert_line", "view_range")


class WrittenResult(NamedTuple):
    """A result in the form of this wire."""

    type: str
    content: str
    extras: Mapping[str, object]
    beside: Mapping[str, object]


def action(given: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return type and args of a call with these arguments (`file_tool.arguments_in`)."""
    args = {**given, "impl_source": _IMPLEMENTATION}
    if given["command"] != VIEW:
        return "edit", args
    del args["command"]  # the action already says it
    return "read", args


def arguments_of(type_: str, args: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments that a call was written from."""
    command = VIEW if type_ == "read" else columns.first_text(args.get("command"))
    given = {name: args[name] for name in _ARGUMENTS if args.get(name) is not None}
    return {"command": command, **given}


def result(command: str, edit: FileEdit, content: str, *, is_error: bool) -> WrittenResult:
    """Return the result of a call."""
    if is_error and not content.startswith(FAILED):
        content = f"{FAILED}\n{content}"
    extras: dict[str, object] = {"path": edit.path, "impl_source": _IMPLEMENTATION}
    if command == VIEW:
        return WrittenResult("read", content, extras, {})
    contents = {"old_content": edit.old_content, "new_content": edit.new_content}
    extras |= {"prev_exist": edit.prev_exist, **contents, "diff": edit.diff or None}
    return WrittenResult("edit", content, extras, {COMMAND: command})


def command_in(type_: str, members: Mapping[str, object]) -> str:
    """Return the command of the call whose result an event is."""
    return VIEW if type_ == "read" else columns.first_text(members.get(COMMAND), "str_replace")
