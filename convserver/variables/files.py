"""Variables that name directories."""

from __future__ import annotations

import sys
from pathlib import Path

from convserver.variables import ConfigurationError, Given, words


def frontend(name: str, text: str, _: Given) -> Path | None:
    """Read the directory of a built frontend. Raise ConfigurationError."""
    if not text:
        return None
    try:
        path = Path(text).expanduser().resolve()
        index = (path / "index.html").resolve()
        with index.open("rb"):
            is_complete = index.is_relative_to(path)  # no file that a link puts elsewhere is served
    except (OSError, RuntimeError, ValueError):  # RuntimeError: no home directory, links in a circle
        is_complete = False
    if not is_complete:
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be a directory with an index.html that can be "
            "read: the output of a frontend's build."
        )
    return path


def workspaces(_: str, text: str, given: Given) -> Path:
    """Read the directory of the files of conversations."""
    default: Path = given.known["data_dir"] / "workspaces"
    return Path(text).expanduser().absolute() if text else default


def workspace_roots(name: str, text: str, given: Given) -> tuple[Path, ...]:
    """Read the directories of the user's own in which conversations may work. Raise ConfigurationError."""
    named = words(name, text, given)
    if named and not given.is_local:
        raise ConfigurationError(
            f"{name} is {text!r}, with which every user could change these files. It is for local mode only: "
            "remove it, or set CONVSERVER_AUTH=local."
        )
    found = tuple(dict.fromkeys(_existing(name, each) for each in named))
    kept = (given.known["data_dir"].resolve(), given.known["workspaces"].resolve())
    for own in (*kept, *_program_directories()):
        if any(each.is_relative_to(own) or own.is_relative_to(each) for each in found):
            raise ConfigurationError(
                f"{name} is {text!r}, and the server's own files or programs are there, or below ({own}): "
                "a command of an agent could change them. Name another directory, or move those "
                "(CONVSERVER_DATA_DIR, CONVSERVER_WORKSPACES, the directory of the installation)."
            )
    return found


def _program_directories() -> list[Path]:
    """Return where the server's programs are: a command that writes them would leave its sandbox."""
    code = Path(__file__).parents[2]
    # As they are named, and what they lead to: either could be replaced.
    named = (Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).parent, code)
    return [*dict.fromkeys([*named, *(each.resolve() for each in named)])]


def _existing(name: str, text: str) -> Path:
    try:
        path = Path(text).expanduser().resolve(strict=True)
        is_usable = path.is_dir() and path != Path(path.anchor)
    except (OSError, RuntimeError, ValueError):
        is_usable = False
    if not is_usable:
        raise ConfigurationError(
            f"{name} names {text!r}, but it must be a directory that exists, and not `/`."
        )
    return path
