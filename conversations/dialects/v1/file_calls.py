"""Calls of the tool for files on the V1 wire (spec V1 §4.5), without nulls that may be left out."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns
from conversations.dialects.file_tool import COMMANDS, FileEdit, unified
from conversations.dialects.v1.payload import Part

ACTION_KIND = "FileEditorAction"
OBSERVATION_KIND = "FileEditorObservation"


def action(given: Mapping[str, object]) -> dict[str, object]:
    """Return the action of a call with these arguments (`file_tool.arguments_in`)."""
    return {"kind": ACTION_KIND, **given}


def observation(command: str, edit: FileEdit, shared: Part) -> dict[str, object]:
    """Return the observation of a call; `shared` are the content and whether it is an error."""
    contents = {"old_content": edit.old_content, "new_content": edit.new_content}
    known = {name: text for name, text in contents.items() if text is not None}
    facts = {"command": command, "path": edit.path, "prev_exist": edit.prev_exist}
    return {"kind": OBSERVATION_KIND, **shared, **facts, **known}


def seen(observation: Mapping[str, object]) -> tuple[str, FileEdit] | None:
    """Return command and effect in an observation; None if it names no known command."""
    command, path = (columns.first_text(observation.get(name)) for name in ("command", "path"))
    if command not in COMMANDS:
        return None
    old, new = (
        text if isinstance(text := observation.get(name), str) else None
        for name in ("old_content", "new_content")
    )
    # Other agents store files of any length.
    diff_most = 200_000
    is_short = new is not None and max(len(old or ""), len(new)) <= diff_most
    diff = unified(path, old or "", new or "") if is_short else ""
    return command, FileEdit(path, observation.get("prev_exist") is not False, old, new, diff)
