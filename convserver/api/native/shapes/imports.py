"""The bodies of imports for the OpenAPI document of the native door."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from convserver.api.schema import NativeRefusal
from sessions_app.imports.importer import LABELS_MAX
from sessions_app.models import ImportState


class NewNativeImport(BaseModel):
    """A file to be uploaded, and how it is to be imported."""

    file_name: str = Field(min_length=1, max_length=1000)
    size: int = Field(ge=1, description="Of the whole file, in bytes.")
    format: str = Field(default="", description="A format's name; empty to have it guessed.")
    labels: list[str] = Field(default=[], max_length=LABELS_MAX, description="For each conversation.")
    timezone: str = Field(default="UTC", description="Of times without one, such as Europe/Berlin.")
    owner: str | None = Field(
        default=None, description="For staff who may add imports: the user whose conversations they become."
    )


class NativeImportChoice(BaseModel):
    """How a file is to be imported; what is left out stays as it was."""

    format: str = Field(default="", description="A format's name; empty to have it guessed.")
    labels: list[str] = Field(default=[], max_length=LABELS_MAX, description="For each conversation.")
    timezone: str = Field(default="UTC", description="Of times without one, such as Europe/Berlin.")


class NativeImportedRecords(BaseModel):
    """What became of the records of the file, as its format counts them."""

    found: int = Field(ge=0, description="`stored`, `skipped` and `refused` add up to it.")
    stored: int = Field(ge=0)
    shared: int = Field(ge=0, description="Of branches: records that count where the branch leaves.")
    skipped: dict[str, int] = Field(description="By the reason.")
    refused: dict[str, int] = Field(description="By the reason.")


class NativeImportedEvents(BaseModel):
    """Events that the records became."""

    added: int = Field(ge=0)
    already_here: int = Field(ge=0)
    masked: int = Field(ge=0, description="Of those added: with registered secrets in them.")


class NativeImportTotals(BaseModel):
    """The sums of a report."""

    records: NativeImportedRecords
    events: NativeImportedEvents
    kept_as_they_were: dict[str, int] = Field(description="Records of unknown kinds, and damaged ones.")
    noted: dict[str, int] = Field(description="What had to be assumed or left out.")


class NativeImport(BaseModel):
    """An uploaded file, and how far its import is."""

    id: str
    owner: str = Field(description="The user whose conversations they become.")
    file_name: str
    size: int = Field(ge=1)
    received: int = Field(ge=0, description="Bytes that are here: where the next piece begins.")
    format: str = Field(description="Empty while it is to be guessed.")
    labels: list[str]
    timezone: str
    state: ImportState
    cancelling: bool = Field(description="It ends after the present conversation.")
    records: int = Field(ge=0, description="Read so far.")
    conversations: int = Field(ge=0, description="Looked at so far, with those that failed.")
    failed: int = Field(ge=0, description="Conversations that failed.")
    problem: str = Field(description="Why it has failed; empty if it has not.")
    totals: NativeImportTotals | None = Field(description="Null before the first conversation.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class NativeImports(BaseModel):
    """The imports of a user, the newest first."""

    imports: list[NativeImport]


class NativeReceived(BaseModel):
    """A piece is stored."""

    received: int = Field(ge=0, description="Bytes that are here: where the next piece begins.")


class NativeWrongOffset(NativeRefusal):
    """The piece leaves a gap, or the file takes no more."""

    received: int = Field(ge=0, description="Where the next piece begins.")


class NativeImportedConversation(BaseModel):
    """What became of one conversation of the file."""

    number: int = Field(ge=1, description="Its place in the file.")
    source_id: str
    conversation: str | None = Field(description="The id that it has here; null if nothing was stored.")
    title: str
    problem: str = Field(description="Why it has failed; empty if it has not.")
    totals: NativeImportTotals | None = Field(description="Null if it has failed.")


class NativeImportedPage(BaseModel):
    """A page of a report, in the order of the file; `next` is null on the last one."""

    conversations: list[NativeImportedConversation]
    next: int | None = Field(description="What the next page is `after`.")
