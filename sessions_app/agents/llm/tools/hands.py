"""The tools on a conversation's workspace: files, search, and a terminal where there is a sandbox.

What they keep, such as the edits that can be undone, lives as long as the agent's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from django.conf import settings

from conversations.dialects import file_tool
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.file_tool import FILE_TOOL
from conversations.events import ConversationRef
from sessions_app.agents.base import ProgressReport
from sessions_app.agents.llm.files import search
from sessions_app.agents.llm.files.editor import FileEditor
from sessions_app.agents.llm.files.search import SearchLimits
from sessions_app.agents.llm.tools import pull_request_tool, terminal_tool
from sessions_app.agents.llm.tools.arguments import problems_of
from sessions_app.agents.llm.tools.calls import NOT_VALID, Outcome
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.checkpoints import turns
from sessions_app.repositories import pushing
from sessions_app.sandbox import choice
from sessions_app.settings import client_tools
from sessions_app.terminals.kept import LoopTerminal
from sessions_app.workspaces import paths

SEARCH = "search"


class HandsOffer(NamedTuple):
    """Which tools on its workspace a conversation is offered."""

    names: frozenset[str] = frozenset()
    home: str = ""
    """The absolute path of the workspace."""
    only_reads: bool = False

    def tools(self) -> dict[str, Tool]:
        """Return the tools by their names."""
        editor = _VIEWER if self.only_reads else _EDITOR
        place = f" The workspace is the directory {self.home}; begin paths with it."
        return {
            each.name: replace(each, description=each.description + place)
            for each in (editor, _SEARCH, terminal_tool.TOOL, pull_request_tool.TOOL)
            if each.name in self.names
        }


def offer_of(conversation: ConversationRef, *, only_reads: bool = False) -> HandsOffer:
    """Return which tools a conversation is offered now; none where the server's operator wants none."""
    if settings.CONFIGURATION.sandbox == "off":
        return HandsOffer()
    wanted = client_tools.hands_of(conversation)
    names = {FILE_TOOL: wanted.has_editor, SEARCH: wanted.has_search}
    if wanted.has_terminal and not only_reads:
        names[terminal_tool.NAME] = choice.state().works
        names[pull_request_tool.NAME] = pushing.is_possible(conversation)
    offered = frozenset(name for name, is_wanted in names.items() if is_wanted)
    return HandsOffer(offered, paths.home_of(conversation), only_reads)


def asks_first(logged_name: str, arguments: Mapping[str, Any]) -> bool | None:
    """Return whether a call needs an approval; None leaves that to the policy and the risk."""
    if logged_name == pull_request_tool.NAME:
        return pull_request_tool.asks_first()
    if logged_name == COMMAND_TOOL:
        return False if terminal_tool.never_asks(arguments) else terminal_tool.asks_first() or None
    return None


class Hands:
    """The workspace of one conversation in the hands of one loop's agent."""

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._editor = FileEditor(conversation)
        self._terminal = LoopTerminal(conversation)

    async def run(self, tool: Tool, arguments: Mapping[str, Any], *, report: ProgressReport) -> Outcome:
        """Run a tool, and return its outcome."""
        # A call that was approved may be another agent's, of another tool with this name.
        if problems := problems_of(tool.schema, arguments):
            return Outcome(NOT_VALID.format(problems="; ".join(problems)), is_error=True)
        only_looks = tool.name == SEARCH or arguments.get("command") == file_tool.VIEW
        changes = tool.name == terminal_tool.NAME or not only_looks
        if problem := await turns.before_use(self._conversation, changes=changes):
            return Outcome(problem, is_error=True)
        if tool.name == FILE_TOOL:
            return await self._editor.run(arguments)
        if tool.name == terminal_tool.NAME:
            return await terminal_tool.run(self._terminal.opened, arguments, report)
        if tool.name == pull_request_tool.NAME:
            return await pull_request_tool.run(self._conversation, arguments)
        return await search.run(self._conversation, arguments, SearchLimits())

    async def close(self) -> None:
        """End the programs of the terminal; a cancellation takes effect after that."""
        turns.forget_turn(self._conversation)
        await self._terminal.close()


def _text(meaning: str) -> dict[str, object]:
    return {"type": "string", "description": meaning}


_PATH = _text("The absolute path of a file or directory.")
_RANGE = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "For `view` of a file: the first and the last line to show, counted from 1; -1 as the "
    "last means to the end.",
}
_EDITOR = Tool(
    name=FILE_TOOL,
    description=(
        "View, create and edit files of text. `view` shows a file with line numbers, or a directory two "
        "levels deep without hidden files. `create` makes a new file, and refuses one that exists. "
        "`str_replace` replaces `old_str`, which must occur in the file exactly once, with all its spaces "
        "and line ends: give enough lines around it. `insert` puts lines after a line. `undo_edit` takes "
        "back the last edit of a file. View a file before you edit it. A long file is shown in part: ask for "
        "the rest by `view_range`. Files of more than 5 MB, and files that are no UTF-8 text, are neither "
        "shown nor edited."
    ),
    schema={
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(file_tool.COMMANDS), "description": "What to do."},
            "path": _PATH,
            "file_text": _text("For `create`: the content of the new file."),
            "old_str": _text("For `str_replace`: the text to replace."),
            "new_str": _text(
                "For `str_replace`: the new text; to delete, leave it out. For `insert`: the lines."
            ),
            "insert_line": {
                "type": "integer",
                "description": "For `insert`: the line after which to insert; 0 for the beginning.",
            },
            "view_range": _RANGE,
        },
        "required": ["command", "path"],
    },
    server=NoServer.WORKSPACE,
    own_name=FILE_TOOL,
    risk="MEDIUM",
    risks={file_tool.VIEW: "LOW"},
)
_VIEWER = replace(
    _EDITOR,
    description="View a file with line numbers, or a directory two levels deep without hidden files.",
    schema={
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": [file_tool.VIEW], "description": "What to do."},
            "path": _PATH,
            "view_range": _RANGE,
        },
        "required": ["command", "path"],
    },
    risk="LOW",
)
_SEARCH = Tool(
    name=SEARCH,
    description=(
        "Search the files of the workspace: lines that match a regular expression (Python's, line by line), "
        "or files by a pattern of names, or lines in such files alone. Binary files, files of more than 5 "
        "MB, and directories such as .git and node_modules are left out."
    ),
    schema={
        "type": "object",
        "properties": {
            "pattern": _text("A regular expression that a line must match somewhere."),
            "include": _text("A pattern of file names, such as `*.py`, or of paths, such as `src/**/*.ts`."),
            "path": _text("The absolute path of the directory or file to search; without it, the workspace."),
            "ignore_case": {"type": "boolean", "description": "Whether upper and lower case are the same."},
        },
    },
    server=NoServer.WORKSPACE,
    own_name=SEARCH,
    risk="LOW",
)
