"""Reading UTF-16 files, as some shells write a program's output, as if they were UTF-8."""

from __future__ import annotations

import codecs
import io
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
            return io.BufferedReader(_Recoded(file, encoding))
    return file


class _Recoded(io.RawIOBase):
    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read the available bytes, at least one unless the file has ended."""
        view = memoryview(buffer)
        while not self._waiting:
            chunk = self._file.read(io.DEFAULT_BUFFER_SIZE)
            self._waiting = self._decoder.decode(chunk, final=not chunk).encode("utf-8", "replace")
            if not chunk:
                break
        taken = self._waiting[: len(view)]
        view[: len(taken)] = taken
        self._waiting = self._waiting[len(taken) :]
        return len(taken)
