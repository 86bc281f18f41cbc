"""Reading files that are packed with Zstandard (RFC 8878), piece by piece."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import zstandard

from conversations.transcripts.sources.nodes import Unreadable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ENDING = ".zst"
BOMB_MIN_BYTES = 100 * 1024 * 1024  # a file that unpacks to less may have any ratio
BOMB_RATIO = 200  # a file that unpacks to more than this many times its size is refused
PIECE_BYTES = 1024  # unpacked at a time: the tightest packing makes some tens of megabytes of it


def is_packed(path: Path) -> bool:
    """Return whether the name is that of a packed file."""
    return path.suffix == ENDING


def unpacked(file: IO[bytes], name: str, size: int) -> io.BufferedReader:
    """Return the content of a packed file of `size` bytes, to be read once from its beginning.

    Reading raises Unreadable, which calls the file `name`, at a broken place, at a missing end, and if the
    file unpacks to far more than its size allows.
    """
    return io.BufferedReader(PieceStream(_pieces(file, name, max(BOMB_MIN_BYTES, size * BOMB_RATIO))))


class PieceStream(io.RawIOBase):
    """A file of the pieces that an iterator yields, to be read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(target), len(self._rest))
        target[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _pieces(file: IO[bytes], name: str, most: int) -> Iterator[bytes]:
    """Yield the content of each piece of the file: frames, one after the other. Raise Unreadable."""
    frame, total = None, 0
    try:
        while piece := file.read(PIECE_BYTES):
            while piece:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                found = frame.decompress(piece)
                total += len(found)
                if total > most:
                    raise Unreadable(f"{name} would unpack to far more than it holds")
                yield found
                piece = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise Unreadable(f"{name} is damaged, or not packed with Zstandard") from error
    if frame is not None:
        raise Unreadable(f"{name} is packed, and its end is missing")
