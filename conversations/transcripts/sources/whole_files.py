"""Reading files that are each one text; never writing them."""

from __future__ import annotations

from pathlib import Path

from conversations.transcripts.sources.nodes import LINE_MAX_BYTES, Unfinished, Unreadable


def text_of(path: Path, *, padding: str) -> str:
    """Return the text of a regular file between the padding, which shells and crashes leave around it.

    Raise Unfinished if its program may still be writing it, and Unreadable.
    """
    try:
        # A link, or a device, could lead out of what the user has named.
        if path.is_symlink() or not path.is_file():
            raise Unreadable("it is not a regular file")
        with path.open("rb") as file:
            content = file.read(LINE_MAX_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise Unfinished(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unfinished("it is not UTF-8") from error
    if len(content) > LINE_MAX_BYTES:
        raise Unreadable(f"it is longer than {LINE_MAX_BYTES} bytes")
    text = text.strip(padding)
    if not text.strip():
        raise Unfinished("it is empty")
    return text
