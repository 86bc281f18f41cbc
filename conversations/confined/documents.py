"""Untrusted documents: their text, read by a confined process."""

from __future__ import annotations

import json
import re
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore
from typing import IO

from conversations.confined import processes
from conversations.confined.processes import NotRead, ProcessLimits

READER = Path(__file__).with_name("document_reader.py")
TEXT_MAX_CHARS = 200_000

_DOCUMENTS = ("pdf", "docx", "xlsx", "pptx")
# Each may take the whole memory of a confined process.
_AT_ONCE = BoundedSemaphore(2)
_LIMITS = ProcessLimits(
    memory_bytes=768 * 1024 * 1024,
    cpu_s=60,
    wall_s=120.0,
    output_bytes=12 * TEXT_MAX_CHARS + 1_000,  # JSON has twelve bytes for some characters
)
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentText:
    """The text of a document, at most TEXT_MAX_CHARS of it."""

    text: str
    pages: int | None
    """Pages of a PDF, sheets of a workbook, slides of a presentation; None for others."""
    is_cut: bool


def read(name: str, content: bytes) -> DocumentText:
    """Return the text of a document. Raise NotRead."""
    waited_most_s = 60.0
    if not _AT_ONCE.acquire(timeout=waited_most_s):
        raise NotRead("the server is reading too many files; attach it again in a minute")
    try:
        with tempfile.TemporaryFile() as source:
            source.write(content)
            source.seek(0)
            return _read(kind_of(name, content), source)
    finally:
        _AT_ONCE.release()


def kind_of(name: str, content: bytes) -> str:
    """Return the kind of a document, as the reader names it; `text` for all but those of a format."""
    ending = name.rpartition(".")[2].lower()
    if ending in _DOCUMENTS:
        return ending
    return "pdf" if content.startswith(b"%PDF-") else "text"


def _read(kind: str, source: IO[bytes]) -> DocumentText:
    most_s = 30.0  # what was read by then is returned
    # Codecs and parts of libraries are loaded when they are needed first.
    places = {sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    with processes.run(
        READER,
        [kind, TEXT_MAX_CHARS, most_s],
        limits=_LIMITS,
        source=source,
        libraries=[Path(place) for place in sorted(places)],
    ) as output:
        found = json.loads(output.read())
    return DocumentText(
        text=_UNSTORABLE.sub("\ufffd", found["text"]), pages=found["pages"], is_cut=found["is_cut"]
    )
