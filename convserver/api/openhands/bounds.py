"""Limits for bodies, whose check costs little however large a body is."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticKnownError

IMAGES_MAX = 100
PROVIDERS_MAX = 100
UNKNOWN_MAX = 20
"""At most this many unknown members are checked."""


class KnownMembers(BaseModel):
    """A model that refuses unknown members."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _with_few_others(cls, value: Any) -> Any:
        # Each unknown member would be a problem of its own in the answer, and one refuses them all.
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields) + UNKNOWN_MAX:
            return value
        known = [name for name in cls.model_fields if name in value]
        others = islice((name for name in value if name not in cls.model_fields), UNKNOWN_MAX)
        return {name: value[name] for name in (*known, *others)}


def members_at_most(maximum: int) -> BeforeValidator:
    """Return a check that refuses a larger dict before its members are validated."""

    def checked(value: Any) -> Any:
        # As pydantic does for lists; it validates all members of a dict before it counts them.
        if isinstance(value, dict) and len(value) > maximum:
            bounds = {"field_type": "Dictionary", "max_length": maximum, "actual_length": len(value)}
            raise PydanticKnownError("too_long", bounds)
        return value

    return BeforeValidator(checked)
