"""Files that a user has attached to a message, as both wires carry them: a text for models, one for each.

Each wire has a field beside the user's words, `extended_content`, that models read and clients do not show.
What pages show of a file is in the first line of its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from conversations.dialects import columns

_HEADER = re.compile(
    r'The user attached ("(?:[^"\\\n]|\\.)*") '
    r"\((\d{1,18}) bytes?(?:, (\d{1,9}) pages?)?(; in the workspace under this name)?\)\."
    r"(?: ([^\n]*))?(?:\n\n(.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachedFile:
    """One file of a message, with the text that models get of it."""

    name: str
    size: int
    """Bytes."""
    text: str = ""
    pages: int | None = None
    note: str = ""
    """What is to be said of the text, such as why there is none: sentences."""
    is_kept: bool = False
    """Whether the file is in the workspace, under this name."""


def written(file: AttachedFile) -> str:
    """Return what a model reads of a file."""
    pages = "" if file.pages is None else f", {file.pages} page{'' if file.pages == 1 else 's'}"
    place = "; in the workspace under this name" if file.is_kept else ""
    plural = "" if file.size == 1 else "s"
    header = f"The user attached {json.dumps(file.name)} ({file.size} byte{plural}{pages}{place})."
    note = " ".join(file.note.split())
    return f"{header}{' ' if note else ''}{note}" + (f"\n\n{file.text}" if file.text else "")


def files_in(content: object) -> tuple[AttachedFile, ...]:
    """Return the files in the `extended_content` of a message; other texts there are none."""
    texts = (columns.first_text(part.get("text")) for part in columns.objects(content))
    return tuple(file for text in texts if (file := _read(text)) is not None)


def parts_of(files: Iterable[AttachedFile]) -> list[dict[str, object]]:
    """Return files as an `extended_content`."""
    return [{"type": "text", "text": written(file)} for file in files]


def _read(text: str) -> AttachedFile | None:
    found = _HEADER.fullmatch(text)
    if found is None:
        return None
    name, size, pages, place, note, given = found.groups()
    try:
        named = json.loads(name)
    except ValueError:  # an escape that JSON does not know, in a text of somebody else
        return None
    return AttachedFile(
        name=columns.clean(named),
        size=int(size),
        text=given or "",
        pages=None if pages is None else int(pages),
        note=note or "",
        is_kept=place is not None,
    )
