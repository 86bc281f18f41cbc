"""What a WebSocket's client sends before it is known: bounded, and read frame by frame."""

from __future__ import annotations

from convserver.configuration import UNKNOWN_BODY_MAX_BYTES


class TooLarge(Exception):
    """A message has more than UNKNOWN_BODY_MAX_BYTES."""


class UnknownFrames:
    """The bytes of one client that were not read yet, in the order in which they came."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._message_bytes = 0
        """How much was taken of a message that comes in several frames, with their heads."""

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data

    def take_all(self) -> bytes:
        """Return all bytes, which are not kept any longer."""
        return self._take(len(self._bytes))

    def take_frame(self) -> bytes:
        """Return the first frame; nothing where it has not come completely. Raise TooLarge."""
        frame_bytes = _frame_bytes(self._bytes)
        if frame_bytes is None:
            return b""
        # Control frames may come between the frames of a message, and are no part of it (RFC 6455 §5.4).
        is_control = bool(self._bytes[0] & 0x08)
        message_bytes = self._message_bytes + (0 if is_control else frame_bytes)
        # By the length in its head: a frame that is too long is not waited for.
        if max(message_bytes, frame_bytes) > UNKNOWN_BODY_MAX_BYTES:
            raise TooLarge
        if frame_bytes > len(self._bytes):
            return b""
        is_last = bool(self._bytes[0] & 0x80)
        if not is_control:
            self._message_bytes = 0 if is_last else message_bytes
        return self._take(frame_bytes)

    def _take(self, count: int) -> bytes:
        taken = bytes(self._bytes[:count])
        del self._bytes[:count]
        return taken


def _frame_bytes(data: bytearray) -> int | None:
    """Return the length of the frame that begins here, with its head (RFC 6455 §5.2); None if unknown."""
    if len(data) < 2:
        return None
    length = data[1] & 0x7F
    head_bytes = 2 + {126: 2, 127: 8}.get(length, 0)
    if len(data) < head_bytes:
        return None
    if head_bytes > 2:
        length = int.from_bytes(data[2:head_bytes])
    is_masked = bool(data[1] & 0x80)
    mask_bytes = 4
    return head_bytes + (mask_bytes if is_masked else 0) + length
