"""The conversations of a path, and the directories of each."""

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
# Where conversations are in a store, and in a part of one.
LAYOUTS = ("sessions/*", "users/*/conversations/*", "conversations/*", "*/conversations/*", "*")
NO_EVENT_FILE = "its name is not the name of an event file"
PICKLE = "a pickle is never opened: it may run anything"
REPEATS = "it repeats events, and is not read"
NOT_READ = "it is not read"

_EVENT_FILE = re.compile(r"(0|[1-9][0-9]{0,17})\.json")


class EventFile(NamedTuple):
    number: int | None  # the id of the event; None if the name is another one
    directory: int  # the number of the conversation's directory that has it
    path: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """One conversation, whose files may be in several directories of the store."""

    sid: str  # its id
    directories: tuple[Path, ...]  # in the order of the layouts

    @property
    def user_id(self) -> str:
        """Return the user in the path of its directory; an empty text if there is none."""
        found = [each.parent.parent.name for each in self.directories if each.parent.name == "conversations"]
        return columns.clean(found[0]) if found else ""


def is_source(path: Path) -> bool:
    """Return whether there is an event of a conversation. Raise Unreadable."""
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
    """Return the files in the directories of events, by number, and then the rest. Raise Unreadable."""
    files = [
        EventFile(_number(name), place, directory / EVENTS / name)
        for place, directory in enumerate(stored.directories)
        for name in names(directory / EVENTS)
    ]
    return sorted(files, key=lambda file: (file.number is None, file.number or 0, file.directory, file.path))


def tell_of_others(stored: Stored, told: Told) -> None:
    """Report the other entries of the directories, and why they are left out. Raise Unreadable."""
    for directory in stored.directories:
        for name in names(directory):
            if name not in (METADATA, EVENTS):
                why = REPEATS if name == CACHE else NOT_READ
                told(columns.clean(name), PICKLE if name.endswith(".pkl") else why)


def _directories(path: Path) -> Iterator[Path]:
    for layout in LAYOUTS:
        for each in sorted(path.glob(layout)):
            if not each.name.startswith(".") and not each.is_symlink() and _is_conversation(each):
                yield each


def _is_conversation(directory: Path) -> bool:
    """Return whether a directory has metadata or events; an unreadable one may have them."""
    try:
        if (directory / METADATA).is_file():
            return True
        return any(_number(name) is not None for name in names(directory / EVENTS))
    except (OSError, Unreadable):
        return directory.is_dir()


def _number(name: str) -> int | None:
    found = _EVENT_FILE.fullmatch(name)
    return int(found[1]) if found else None
