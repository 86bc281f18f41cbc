"""The arguments of a tool call as text for people."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns
from convserver.rendering.cards import Task
from convserver.rendering.tools import ShownTool, first_line

CODE = {
    "terminal": ("command", "bash"),
    "python": ("code", "python"),
    "browser": ("browser_actions", "python"),
}
"""By a tool's icon: the argument that is code, and its language."""
_TASK_LISTS = ("task_list", "todos", "plan", "tasks")
_TASK_TITLES = ("title", "content", "step", "name", "text")
_STATUSES = {"pending": "todo", "completed": "done", "complete": "done", "in-progress": "in_progress"}
"""Other tools' names of the states of a task."""
# Arguments of an edit that its diff and its card's first line show.
_EDITED = frozenset({"old_str", "new_str", "file_text", "content", "path", "command", "start", "end"})


def code_of(tool: ShownTool, arguments: Mapping[str, object]) -> tuple[str, str]:
    """Return the arguments as text, and in which language: a command as itself, others as JSON."""
    name, language = CODE.get(tool.icon, ("", ""))
    if code := columns.first_text(arguments.get(name)):
        return code, language
    if tool.icon == "think":
        return columns.first_text(arguments.get("thought")), "text"
    shown = {key: value for key, value in arguments.items() if value not in (None, "", [], {})}
    if is_edit(tool):
        shown = {key: value for key, value in shown.items() if key not in _EDITED}
    match list(shown.values()):
        # The first line of the card shows all of it.
        case []:
            return "", "json"
        case [str() as only] if first_line(only) == only:
            return "", "json"
    return written(shown), "json"


def is_edit(tool: ShownTool) -> bool:
    """Return whether calls of the tool change a file, so that they are shown as a diff."""
    return tool.icon == "edit"


def written(value: object) -> str:
    """Return a JSON value as indented text, a string as itself; empty when it cannot be written."""
    if value is None or isinstance(value, str):
        return value or ""
    return columns.as_json(value, indent=2)


def tasks_of(fields: Mapping[str, object], called: ShownTool | None = None) -> tuple[Task, ...]:
    """Return the agent's list of tasks, where the fields bring one; tools for plans name it differently."""
    # Another tool's `plan` or `tasks` can be anything: only a tool for plans may use these names.
    names = _TASK_LISTS if called is not None and called.icon == "tasks" else _TASK_LISTS[:1]
    given = next((fields[name] for name in names if isinstance(fields.get(name), list)), [])
    # A longer list would fill the page
    tasks_max = 200
    return tuple(_task(columns.fields(each)) for each in columns.items(given)[:tasks_max])


def _task(each: Mapping[str, object]) -> Task:
    status = columns.first_text(each.get("status"), "todo")
    return Task(
        title=columns.first_text(*(each.get(name) for name in _TASK_TITLES)),
        status=_STATUSES.get(status, status),
        notes=columns.first_text(each.get("notes")),
    )


def plan(tasks: tuple[Task, ...]) -> str:
    """Return the progress of a list of tasks in a few words; empty for an empty list."""
    done = sum(task.status == "done" for task in tasks)
    return f"{done} of {len(tasks)} {'task' if len(tasks) == 1 else 'tasks'} done" if tasks else ""
