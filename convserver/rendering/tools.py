"""Tools for people: a name, an icon, and one line about a call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from conversations.dialects import columns

SUMMARY_MAX_CHARS = 200
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

    @property
    def is_known(self) -> bool:
        """Return whether people know it by another name than the sender's own."""
        return self.label != self.name


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


def summary(called: ShownTool, arguments: Mapping[str, object], *, otherwise: object = "") -> str:
    """Return one line about a call: for a known tool the first line of the argument that tells most.

    Otherwise the line is `otherwise`, or the arguments as a call has them.
    """
    telling = (arguments.get(name) for name in _TELLING if called.is_known)
    told = columns.first_text(*telling, otherwise)
    return first_line(told or (as_call(arguments) if arguments or not called.is_known else ""))


def as_call(arguments: Mapping[str, object], *, name: str = "", each_max: int = 60) -> str:
    """Return arguments as a call has them, on one line: `add(a = 2, b = 40)`. Longer values are cut."""
    most = 20  # more would not be seen, and writing them takes time
    written = []
    for argument, value in list(arguments.items())[:most]:
        text = value[: each_max + 1] if isinstance(value, str) else value
        word = json.dumps(text, ensure_ascii=False) if is_simple(text) else "…"
        written.append(f"{argument} = {word if len(word) <= each_max + 2 else f'{word[:each_max]}…'}")
    return f"{name}({', '.join([*written, *(['…'] if len(arguments) > most else [])])})"


def is_simple(value: object) -> bool:
    """Return whether an argument is written beside others on one line."""
    # Writing a number of thousands of digits is refused.
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 10**60)


def first_line(text: str) -> str:
    """Return the first line that is not blank, cut where it is long."""
    # A text of many megabytes is not split for its first line.
    line = next((each.strip() for each in text[:10_000].splitlines() if each.strip()), "")
    return line if len(line) <= SUMMARY_MAX_CHARS else f"{line[:SUMMARY_MAX_CHARS]}…"
