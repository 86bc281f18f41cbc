"""The tool `file_editor`: it views, creates and edits the files of a conversation's workspace."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NoReturn

from conversations.dialects import columns, file_tool
from conversations.dialects.file_tool import FileEdit
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from sessions_app import astore
from sessions_app.agents.llm.files.listing import listed
from sessions_app.agents.llm.files.texts import EditRefused, TextFile, numbered
from sessions_app.agents.llm.files.undo import UndoHistory
from sessions_app.agents.llm.tools import results
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.workspaces import beneath, paths, records
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused
from sessions_app.workspaces.records import Change
from sessions_app.workspaces.tree import Tree

_EXISTS = "File already exists at: {path}. Cannot overwrite files using command `create`."
_REVIEW = "Review the changes and make sure they are as expected{more}. Edit the file again if necessary."


class FileEditor:
    """The files of one conversation, with the undo history of one loop."""

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._undo = UndoHistory()

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Run a call whose arguments match the tool's schema; the outcome has the error, if any."""
        is_view = arguments.get("command") == file_tool.VIEW
        run = astore.call if is_view else astore.change
        try:
            return await run(self._outcome, self._conversation, arguments)
        except (EditRefused, ConversationError) as refusal:
            return Outcome(columns.clean(str(refusal)), is_error=True)

    def _outcome(self, conversation: ConversationRef, arguments: Mapping[str, Any]) -> Outcome:
        given = str(arguments["path"])
        file = EditedFile(paths.relative(conversation, given), paths.absolute(conversation, given))
        if arguments["command"] == file_tool.VIEW:
            with records.opened(conversation) as tree:
                return _viewed(tree, file, arguments.get("view_range"))
        with records.changing(conversation) as change:
            return self._edited(change, file, arguments)

    def _edited(self, change: Change, file: EditedFile, arguments: Mapping[str, Any]) -> Outcome:
        command = arguments["command"]
        before = file.read(change.tree, is_new=command == "create")
        if command == "create":
            after = TextFile(_required(arguments, "file_text")).content
            told = f"File created successfully at: {file.shown}"
        elif command == "undo_edit":
            after, told = self._undone(file, before)
        else:
            after, told = _changed(file, file.text(before), arguments)
        if len(after) > file.MAX_BYTES:
            raise EditRefused(_invalid(file.shown, f"The edit makes the file longer than {_most()}."))
        try:
            draft = change.drafted(file.path, after)
        except NoSuchFile:  # directories that are missing are made
            raise EditRefused(f"A directory above {file.shown} can't be made: a file has its name.") from None
        change.charge(max(draft.added.bytes, 0))
        draft.keep()
        is_undo = command == "undo_edit"
        if is_undo and (last := self._undo.last(file.path)) is not None:
            self._undo.remove(last)
        elif before is not None:
            self._undo.add(file.path, before, after)
        old = None if before is None else before.decode(errors="replace")
        edit = file_tool.edit_of(file.shown, old, after.decode(errors="replace"))
        return Outcome(columns.clean(told), edit=edit)

    def _undone(self, file: EditedFile, content: bytes | None) -> tuple[bytes, str]:
        last = self._undo.last(file.path)
        if last is None:
            raise EditRefused(f"No edit history found for {file.shown}.")
        if not last.is_undone_from(content or b""):
            raise EditRefused(
                f"The file {file.shown} was changed by something else since its last edit, so nothing was "
                "undone."
            )
        shown = numbered(file.text(last.before).plain, 1)
        ran = f"Here's the result of running `cat -n` on {file.shown}:\n{shown}"
        return last.before, f"Last edit to {file.shown} undone successfully. {ran}"


class EditedFile:
    """A path in a workspace, and the same as clients name it."""

    MAX_BYTES = 5_000_000
    """A longer file is neither shown nor edited."""

    def __init__(self, path: str, shown: str) -> None:
        self.path, self.shown = path, columns.clean(shown)

    def read(self, tree: Tree | None, *, is_new: bool = False) -> bytes | None:
        """Return the file's bytes; None for one that is to be made. Raise EditRefused or PathRefused."""
        is_directory = self.is_directory(tree)
        try:
            found = None if tree is None or is_directory else tree.file(self.path)
        except NoSuchFile:
            found = None
        if is_directory and not is_new:
            self._refuse(
                "The path {path} is a directory and only the `view` command can be used on directories."
            )
        if found is None:
            if is_directory:
                self._refuse(_EXISTS)
            if not is_new:
                self._refuse("The path {path} does not exist. Please provide a valid path.")
            return None
        with beneath.closing(found[0]) as descriptor:
            if is_new:
                self._refuse(_EXISTS)
            size = found[1].st_size
            if size > self.MAX_BYTES:
                said = f"File is too large ({size / 1_000_000:.1f}MB). Maximum allowed size is {_most()}."
                raise EditRefused(_invalid(self.shown, said))
            return b"".join(beneath.pieces(descriptor, size))

    def _refuse(self, hint: str) -> NoReturn:
        raise EditRefused(f"Invalid `path` parameter: {self.shown}. {hint.format(path=self.shown)}")

    def is_directory(self, tree: Tree | None) -> bool:
        if not self.path:
            return True
        if tree is None:
            return False
        try:
            tree.require_directory(self.path)
        except PathRefused:  # also for a missing file, or a path outside; the read reports it
            return False
        return True

    def text(self, content: bytes | None) -> TextFile:
        """Return a text. Raise EditRefused if it is none."""
        try:
            return TextFile.of(content or b"")
        except EditRefused as refusal:
            raise EditRefused(_invalid(self.shown, str(refusal))) from None


def _viewed(tree: Tree | None, file: EditedFile, view_range: Any) -> Outcome:
    if file.is_directory(tree):
        if view_range:
            said = "The `view_range` parameter is not allowed when `path` points to a directory."
            raise EditRefused(f"Invalid `view_range` parameter: {view_range}. {said}")
        return Outcome(columns.clean(listed(tree, file.path, file.shown)), edit=FileEdit(file.shown))
    content = file.read(tree) or b""
    if (kind := results.image_kind(content)) is not None and len(content) <= results.FILES_MAX_BYTES:
        url = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        told = f"Image file {file.shown} read successfully. Displaying image content."
        return Outcome(columns.clean(told), files=(url,), edit=FileEdit(file.shown))
    text = file.text(content)
    first, last, note = shown_range(view_range, text.line_count)
    lines = text.plain.split("\n", last)[first - 1 : last] if view_range else [text.plain]
    shown = numbered("\n".join(lines), first)
    told = f"{note}Here's the result of running `cat -n` on {file.shown}:\n{shown}"
    return Outcome(columns.clean(told), edit=FileEdit(file.shown))


def shown_range(given: Any, count: int) -> tuple[int, int, str]:
    """Return the first and last line to show, and a note before them. Raise EditRefused."""
    if not given:
        return 1, count, ""
    first, last = map(int, given) if len(given) == 2 else (0, 0)
    note = f"NOTE: We only show up to {count} since there're only {count} lines in this file.\n"
    problem = ""
    if len(given) != 2:
        problem = "It should be a list of two integers."
    elif not 1 <= first <= count:
        said = "should be within the range of lines of the file"
        problem = f"Its first element `{first}` {said}: {[1, count]}."
    elif last != -1 and last < first:
        said = "should be greater than or equal to the first element"
        problem = f"Its second element `{last}` {said} `{first}`."
    if problem:
        raise EditRefused(f"Invalid `view_range` parameter: {given}. {problem}")
    return first, count if last == -1 else min(last, count), note if last > count else ""


def _changed(file: EditedFile, text: TextFile, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the content after a replacement or an insertion, and the text for the model."""
    if arguments["command"] == "str_replace":
        new = arguments.get("new_str") or ""
        after, line = text.replaced(file.shown, _required(arguments, "old_str"), new)
        added, what, more = new.count("\n"), f"a snippet of {file.shown}", ""
    else:
        line, new = int(_required(arguments, "insert_line")), _required(arguments, "new_str")
        after, added = text.inserted(line, new), new.count("\n") + 1
        what, more = "a snippet of the edited file", " (correct indentation, no duplicate lines, etc)"
    snippet, first = after.snippet(line, added)
    shown = f"Here's the result of running `cat -n` on {what}:\n{numbered(snippet, first)}"
    return after.content, f"The file {file.shown} has been edited. {shown}{_REVIEW.format(more=more)}"


def _required(arguments: Mapping[str, Any], name: str) -> Any:
    if (value := arguments.get(name)) is None:
        raise EditRefused(f"Parameter `{name}` is required for command: {arguments['command']}.")
    return value


def _invalid(path: str, reason: str) -> str:
    return f"File validation failed for {path}: {reason}"


def _most() -> str:
    return f"{EditedFile.MAX_BYTES // 1_000_000}MB"
