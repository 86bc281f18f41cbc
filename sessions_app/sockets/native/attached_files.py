"""The files of a `message` and of a draft: each a name, a size and the text that models get."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from conversations.confined.documents import TEXT_MAX_CHARS
from conversations.dialects import columns
from conversations.dialects.attached import AttachedFile
from conversations.exceptions import ConversationError
from sessions_app.models import ATTACHMENT_NAME_MAX_LENGTH

# No database takes some characters.
Stored = AfterValidator(columns.clean)


class BadFiles(ConversationError):
    """They are not what a message can have."""

    code = "bad_frame"


class FileOfMessage(BaseModel):
    """A file of a message: what an upload answers, or a text that the client has itself."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: Annotated[str, Stored] = Field(min_length=1, max_length=ATTACHMENT_NAME_MAX_LENGTH)
    size: int = Field(ge=0, lt=10**18, description="Bytes.")
    text: Annotated[str, Stored] = Field(
        default="", max_length=TEXT_MAX_CHARS, description="What models get of it."
    )
    pages: int | None = Field(
        default=None, ge=0, lt=10**9, description="Pages, sheets or slides, if it has any."
    )
    note: Annotated[str, Stored] = Field(
        default="", max_length=1_000, description="Such as why there is no text."
    )
    is_kept: bool = Field(
        default=False, description="Whether the workspace of the conversation has it under this name."
    )

    @classmethod
    def of(cls, file: AttachedFile) -> Self:
        """Return a file as clients see it."""
        return cls(**asdict(file))


FilesOfMessage = Annotated[list[FileOfMessage], Field(max_length=20)]

_FILES = TypeAdapter(FilesOfMessage)


def files_of(value: object) -> list[AttachedFile]:
    """Return the files that a client names. Raise BadFiles."""
    try:
        found = _FILES.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, ("files", *first["loc"])))
        raise BadFiles(f"`{place}` of a message is wrong: {first['msg']}.") from error
    return [AttachedFile(**file.model_dump()) for file in found]
