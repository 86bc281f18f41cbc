"""Feedback as JSON of the native wire."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from sessions_app.models import Polarity


class NativeRating(BaseModel):
    """What the user thinks of one answer."""

    seq: int = Field(ge=0, description="Of the answer.")
    polarity: Polarity
    reason: str
    created_at: datetime


class NativeRatings(BaseModel):
    """The feedback on the answers of a conversation."""

    feedback: list[NativeRating]
