"""The skills in the files of a workspace: instructions for agents, skills of OpenHands, and `SKILL.md`.

Nothing of them is run, and links that lead out of the workspace are not followed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from conversations.dialects import columns
from conversations.exceptions import StoreUnavailable
from conversations.models import Conversation, ConversationRef
from sessions_app.models import AgentSetup
from sessions_app.repository_skills.parsed import INSTRUCTIONS, skill_of
from sessions_app.repository_skills.skill import Skill, usable
from sessions_app.workspaces import records
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused, closing, pieces, shown
from sessions_app.workspaces.tree import Tree

_FOLDERS = (".agents/skills", ".openhands/skills", ".openhands/microagents")
"""Of two skills with one name, that of the earlier folder counts."""


class FoundSkills(NamedTuple):
    """The skills of a workspace, and what is wrong with others."""

    skills: list[Skill]
    problems: list[str]
    """Sentences about files that are left out, for the user."""
    has_files: bool = True
    """Whether the files of the workspace can be used now."""


def of_conversation(conversation: ConversationRef, directory: str | None = None) -> FoundSkills:
    """Return the skills of a conversation's repository, and of the workspace that it is in.

    `directory` is another place to begin at, relative to the workspace. Raise StoreUnavailable.
    """
    with records.opened(conversation) as tree:
        if tree is None:
            return FoundSkills([], [])
        reading = _Reading(tree)
        for root in roots(tree, conversation, directory):
            reading.read(root)
        return reading.found()


def for_agent(conversation: ConversationRef) -> FoundSkills:
    """Return the skills of a conversation's repository; none, with the reason, while they cannot be read."""
    try:
        return of_conversation(conversation)
    except StoreUnavailable as error:  # an answer may need no files
        return FoundSkills([], [str(error)], has_files=False)


def loaded(conversation: ConversationRef) -> list[Skill]:
    """Return the skills that the agent of a conversation has now: of its repository, and of its start.

    Raise StoreUnavailable.
    """
    setups = AgentSetup.objects.filter(pk=conversation.pk).values_list("shown_agent", flat=True)
    context = columns.fields(columns.fields(setups.first()).get("agent_context"))
    return usable(of_conversation(conversation).skills, context)


def roots(tree: Tree, conversation: ConversationRef, directory: str | None = None) -> list[str]:
    """Return the directories that have a repository's files for agents, the most specific first."""
    if directory is None:
        directory = name_of_clone(conversation)
    try:
        tree.require_directory(directory)
    except PathRefused:  # not cloned, or cloned under another name
        directory = ""
    return [directory, ""] if directory else [""]


def name_of_clone(conversation: ConversationRef) -> str:
    """Return the name of the directory that the conversation's repository is cloned into; empty for none."""
    rows = Conversation.objects.filter(pk=conversation.pk)
    repository = rows.values_list("repository", flat=True).first() or ""
    name = repository.rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..") else name


class _Reading:
    """One look at the files of a workspace, within bounds of number, size and time."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._skills: dict[str, Skill] = {}
        self._problems: list[str] = []
        self._files: set[tuple[int, int]] = set()
        self._files_left = 200
        self._bytes_left = 2_000_000
        # Front matter that is made to be slow takes about a second, however short it is.
        self._late = time.thread_time() + 2.0

    def found(self) -> FoundSkills:
        return FoundSkills(list(self._skills.values()), self._problems)

    def read(self, root: str) -> None:
        """Read all files of a directory that has the repository's files for agents."""
        for path in _instruction_files(root):
            # Whole: other programs know no front matter in these files.
            self._take(path, path.rpartition("/")[2])
        for folder in _FOLDERS:
            place = f"{root}/{folder}".strip("/")
            try:
                for path in self._files_in(place):
                    if not self._has_room(place):
                        return
                    self._take(path, path[len(place) + 1 :])
            except NoSuchFile:
                continue
            except (PathRefused, OSError) as error:
                self._problems.append(f"{shown(place)} can't be read: {error}")

    def _files_in(self, folder: str) -> Iterator[str]:
        """Yield the files of skills in a folder: those of `SKILL.md` after the others.

        Raise PathRefused, or OSError if the disk fails.
        """
        with_skill: list[str] = []
        own: set[str] = set()
        for each in self._tree.names(folder, 1_000):
            path = f"{folder}/{each}".rstrip("/")
            if each.endswith("/") and (file := self._skill_file(path)):
                with_skill.append(file)
                own.add(each.rstrip("/"))
        # What is beside a `SKILL.md` is material of that skill.
        walked = self._tree.walk(folder, lambda path, _: path in own or path.count("/") > 3)
        looked_at_most = 5_000
        for number, found in enumerate(walked):
            if number > looked_at_most:
                self._problems.append(f"{shown(folder)} has more files than are looked at.")
                break
            name = found.path.rpartition("/")[2]
            is_one = name.endswith(".md") and name.lower() not in ("readme.md", "skill.md")
            if is_one and not (found.is_directory or found.is_left_out):
                yield f"{folder}/{found.path}"
        yield from with_skill

    def _skill_file(self, directory: str) -> str | None:
        for name in ("SKILL.md", "Skill.md", "skill.md"):
            try:
                descriptor, _ = self._tree.file(f"{directory}/{name}")
            except NoSuchFile:
                continue
            except PathRefused:  # `_take` says why
                return f"{directory}/{name}"
            with closing(descriptor):
                return f"{directory}/{name}"
        return None

    def _has_room(self, folder: str) -> bool:
        if self._files_left > 0 and time.thread_time() < self._late:
            return True
        self._problems.append(
            f"{shown(folder)} has more skills than are read, or some that take long: the others are left out."
        )
        return False

    def _take(self, path: str, name: str) -> None:
        """Read a file, and keep its skill; note what is wrong with it."""
        try:
            if not path.isprintable():  # it would end the line of a prompt, or is no UTF-8
                raise ValueError("its name has characters that cannot be shown")
            if (text := self._text(path)) is None:
                return
            skill = skill_of(path, name, text)
        except NoSuchFile:
            return
        except PathRefused as error:
            self._problems.append(f"{shown(path)} is left out: {error}")
            return
        except ValueError as error:
            self._problems.append(f"{shown(path)} is left out: {error}.")
            return
        # The first of two with one name counts: what is more specific, or newer, is read before.
        if skill is not None:
            self._skills.setdefault(skill.name, skill)

    def _text(self, path: str) -> str | None:
        """Return a file's text; None if it was read under another name.

        Raise PathRefused, or ValueError with the reason if it is no text that can be used.
        """
        descriptor, about = self._tree.file(path)
        with closing(descriptor):
            if (about.st_dev, about.st_ino) in self._files:  # `CLAUDE.md` is often a link to `AGENTS.md`
                return None
            self._files.add((about.st_dev, about.st_ino))
            self._files_left -= 1
            bytes_most = 200_000
            if about.st_size > bytes_most:
                raise ValueError(f"it has {about.st_size:,} bytes, and at most {bytes_most:,} are read")
            if about.st_size > self._bytes_left:
                raise ValueError("the skills of the repository are too long together")
            self._bytes_left -= about.st_size
            content = b"".join(pieces(descriptor, about.st_size))
        if b"\0" in content:
            raise ValueError("it is no text")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ValueError("it is no UTF-8 text") from None


def _instruction_files(root: str) -> Iterator[str]:
    """Yield the paths under which instructions of other programs may be, in the order of their weight."""
    for name in INSTRUCTIONS:
        stem, dot, ending = name.rpartition(".")
        spelled = [f"{each}{dot}{ending}" for each in (stem.upper(), stem, stem.capitalize())]
        for each in dict.fromkeys(spelled):
            yield f"{root}/{each}".strip("/")


def told(problems: Sequence[str]) -> str:
    """Return one notice for the user about files that are left out."""
    named_most = 5
    more = [f"There are {len(problems) - named_most} more."] if len(problems) > named_most else []
    return " ".join(["Not all skills of the repository can be used.", *problems[:named_most], *more])
