"""Which conversations a path holds, and in which directories each of them is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from conversations.dialects import columns
from conversations.transcripts.sources.nodes import Unreadable
from conversations.transcripts.sources.openhands_v0.files import Told, names

NAME = "openhands-v0"
METADATA = "metadata.json"
EVENTS = "events"
SETTINGS = "exp_config.json"
CACHE = "event_cache"
LAYOUTS = ("sessions/*", "users/*/conversations/*", "conversations/*", "*/conversations/*", "*")
"""Where conversations are in a store, and in a part of one."""
NO_EVENT_FILE = "its name is not the name of an event file"
PICKLE = "a pickle is never opened: it may run anything"
REPEATS = "it repeats events, and is not read"
NOT_READ = "it is not read"

_EVENT_FILE = re.compile(r"(0|[1-9][0-9]{0,17})\.json")


class EventFile(NamedTuple):
    """One entry of a directory of events."""

    number: int | None
    """The id of the event; None if the name is another one."""
    directory: int
    """Which of the conversation's directories has it."""
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """One conversation, whose files may be in several directories of the store."""

    sid: str
    """Its id."""
    directories: tuple[Path, ...]
    """In the order of the layouts."""

    @property
    def user_id(self) -> str:
        """Return the user whose directory has it; an empty text if it is in nobody's."""
        found = [each.parent.parent.name for each in self.directories if each.parent.name == "conversations"]
        return columns.clean(found[0]) if found else ""


def is_source(path: Path) -> bool:
    """Say whether there is an event of a conversation. Raise Unreadable."""
    stored = found(path) if path.is_dir() else []
    return any(file.number is not None for each in stored for file in event_files(each))


def found(path: Path) -> list[Stored]:
    """Return the conversations of a store, of a part of it, or of one directory, by id. Raise Unreadable."""
    if not path.is_dir():
        raise Unreadable(f"{path} is not a directory")
    if _is_conversation(path):
        return [Stored(sid=columns.clean(path.resolve().name), directories=(path,))]
    directories: dict[str, dict[Path, None]] = {}
    for each in _directories(path):
        directories.setdefault(columns.clean(each.name), {})[each] = None
    return [Stored(sid=sid, directories=tuple(each)) for sid, each in sorted(directories.items())]


def event_files(stored: Stored) -> list[EventFile]:
    """Return what is in the directories of events, by number, and then the rest. Raise Unreadable."""
    files = [
        EventFile(_number(name), place, directory / EVENTS / name)
        for place, directory in enumerate(stored.directories)
        for name in names(directory / EVENTS)
    ]
    return sorted(files, key=lambda file: (file.number is None, file.number or 0, file.directory, file.path))


def tell_of_others(stored: Stored, told: Told) -> None:
    """Say what else is in the directories, and why it is left out. Raise Unreadable."""
    for directory in stored.directories:
        for name in names(directory):
            if name not in (METADATA, EVENTS):
                told(columns.clean(name), _why_left_out(name))


def _why_left_out(name: str) -> str:
    if name.endswith(".pkl"):
        return PICKLE
    return REPEATS if name == CACHE else NOT_READ


def _directories(path: Path) -> Iterator[Path]:
    for layout in LAYOUTS:
        for each in sorted(path.glob(layout)):
            if not each.name.startswith(".") and not each.is_symlink() and _is_conversation(each):
                yield each


def _is_conversation(directory: Path) -> bool:
    """Say whether a directory has metadata or events; one that cannot be read may have them."""
    try:
        if (directory / METADATA).is_file():
            return True
        return any(_number(name) is not None for name in names(directory / EVENTS))
    except (OSError, Unreadable):
        return directory.is_dir()


def _number(name: str) -> int | None:
    found = _EVENT_FILE.fullmatch(name)
    return int(found[1]) if found else None
