"""Tools for people: a name, an icon, and one line about a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from conversations.dialects import columns

SUMMARY_MAX_CHARS = 200
ARGUMENTS_MAX = 5
_TELLING = (
    *("path", "file_path", "command", "url", "query", "pattern", "code", "browser_actions"),
    *("title", "name", "agent", "task", "text", "prompt", "message"),
)
"""The arguments that describe a call best, in this order."""


class ShownTool(NamedTuple):
    """A tool: `icon` is one of a closed set, `label` is for people, `name` is the sender's own."""

    icon: str
    label: str
    name: str


_KNOWN = {
    "terminal": ("run", "terminal", "execute_bash", "bash", "shell", "execute", "execute_command"),
    "python": ("run_ipython", "execute_ipython_cell", "python", "ipython", "jupyter"),
    "edit": (
        *("edit", "write", "file_editor", "str_replace_editor", "planning_file_editor", "apply_patch"),
        *("edit_file", "write_file", "str_replace_based_edit_tool", "create_file"),
    ),
    "read": ("read", "read_file", "view", "glob", "grep", "list_directory", "download", "search"),
    "browser": ("browse", "browse_interactive", "browser", "browser_tool_set", "web_read", "fetch"),
    "think": ("think",),
    "tasks": (
        *("task_tracking", "task_tracker", "todo_write", "TodoWrite", "write_todos", "update_plan"),
        *("update_todos", "todo_list", "manage_todo_list"),
    ),
    "mcp": ("call_tool_mcp", "mcp"),
    "delegate": ("delegate", "task", "task_tool_set"),
    "memory": ("recall",),
    "finish": ("finish",),
}
_ICONS = {name: icon for icon, names in _KNOWN.items() for name in names}
_LABELS = {
    "terminal": "Terminal",
    "python": "Python",
    "edit": "Edit file",
    "read": "Read",
    "browser": "Browser",
    "think": "Think",
    "tasks": "Tasks",
    "delegate": "Delegate",
    "memory": "Recall",
    "finish": "Finish",
}


def tool(name: str, *, action: str = "") -> ShownTool:
    """Return the tool with this name; `action` is the wire's name of the call, if known."""
    known = _ICONS.get(name)
    # A plan has its own icon, also if the wire calls it something else.
    icon = known if known == "tasks" else _ICONS.get(action) or known
    if icon is None:
        icon = "browser" if name.startswith("browser_") else "tool"
    return ShownTool(icon, _LABELS.get(icon) or name or "Tool", name)


def summary(arguments: Mapping[str, object], *, otherwise: object = "") -> str:
    """Return the first line of the most telling argument, otherwise `otherwise`, otherwise all short ones."""
    told = columns.first_text(*(arguments.get(name) for name in _TELLING), otherwise)
    return first_line(told or ", ".join(_short(arguments)))


def _short(arguments: Mapping[str, object]) -> Iterator[str]:
    for name, value in list(arguments.items())[:ARGUMENTS_MAX]:
        if isinstance(value, str | int | float) and value != "":
            yield f"{name}: {columns.as_text(value)}"


def first_line(text: str) -> str:
    """Return the first line that is not blank, cut where it is long."""
    # A text of many megabytes is not split for its first line.
    line = next((each.strip() for each in text[:10_000].splitlines() if each.strip()), "")
    return line if len(line) <= SUMMARY_MAX_CHARS else f"{line[:SUMMARY_MAX_CHARS]}…"
