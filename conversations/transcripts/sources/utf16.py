"""Reading UTF-16 files, as some shells write a program's output, as if they were UTF-8."""

from __future__ import annotations

import codecs
import io
from functools import partial
from typing import IO

from conversations.transcripts.sources.packed import PieceStream

# The beginnings of such a file: a byte order mark, or an object.
_BEGINNINGS = {
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    '{"'.encode("utf-16-le"): "utf-16-le",
    '{"'.encode("utf-16-be"): "utf-16-be",
}


def as_utf8(file: IO[bytes]) -> IO[bytes]:
    """Return a UTF-8 file unchanged, or a file that reads UTF-16 as UTF-8 and cannot seek."""
    head = file.read(4)
    file.seek(0)
    for beginning, encoding in _BEGINNINGS.items():
        if head.startswith(beginning):
            chunks = iter(partial(file.read, io.DEFAULT_BUFFER_SIZE), b"")
            texts = codecs.iterdecode(chunks, encoding, "replace")
            return io.BufferedReader(PieceStream(text.encode("utf-8", "replace") for text in texts))
    return file
