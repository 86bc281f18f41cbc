"""The bodies about checkpoints of files."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from sessions_app.models import CheckpointCause


class NativeCheckpoint(BaseModel):
    """The files of a conversation at an event."""

    id: str
    seq: int = Field(ge=-1, description="The last event when the files were so; -1 if there was none.")
    cause: CheckpointCause
    changed: int = Field(ge=0, description="How many files differ from the checkpoint before.")
    created_at: datetime


class NativeCheckpoints(BaseModel):
    """The checkpoints that are kept, the newest first."""

    checkpoints: list[NativeCheckpoint]


class NativeFilesRestored(BaseModel):
    """Files were restored."""

    restored: NativeCheckpoint
    before: NativeCheckpoint = Field(description="The files as they were; to restore it undoes this.")
