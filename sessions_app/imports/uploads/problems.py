"""What can be wrong with an upload, or with what is asked of an import."""

from __future__ import annotations

from conversations.exceptions import ConversationError, ConversationNotFound


class ImportNotFound(ConversationNotFound):
    """There is no such import, or it is another user's."""


class InvalidImport(ConversationError):
    """The file, or how it shall be imported, is described wrongly."""

    code = "invalid"


class FileTooLarge(ConversationError):
    """The file, or a piece of it, is larger than the limit."""

    code = "too_large"


class TooManyImports(ConversationError):
    """The user has more imports that have not ended than one user may have."""

    code = "too_many_imports"


class NoRoom(ConversationError):
    """The disk would be too full."""

    code = "no_room"


class NotTheSender(ConversationError):
    """Only the user who began the import may send its file."""

    code = "not_the_sender"


class NotWhole(ConversationError):
    """A part of the file has not arrived."""

    code = "not_whole"


class WrongOffset(ConversationError):
    """The piece does not begin where the last one ended."""

    code = "wrong_offset"

    def __init__(self, sentence: str, *, received: int) -> None:
        super().__init__(sentence)
        self.received = received
        """How many bytes are here: where the next piece has to begin."""
