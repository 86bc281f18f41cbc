"""How much a body may hold: bounds that cost little however far beyond them a body goes."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator
from pydantic_core import PydanticKnownError

IMAGES_MAX = 100
PROVIDERS_MAX = 100
UNKNOWN_MAX = 20
"""So many members that nobody knows are looked at."""


class KnownMembers(BaseModel):
    """A model that refuses members which it does not know."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _with_few_others(cls, value: Any) -> Any:
        """Leave out most of many unknown members: each would be a problem, and one refuses them all."""
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields) + UNKNOWN_MAX:
            return value
        known = [name for name in cls.model_fields if name in value]
        others = islice((name for name in value if name not in cls.model_fields), UNKNOWN_MAX)
        return {name: value[name] for name in (*known, *others)}


def members_at_most(maximum: int) -> BeforeValidator:
    """Return what refuses a larger dict before its members are looked at, as pydantic does with lists."""

    def checked(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > maximum:
            bounds = {"field_type": "Dictionary", "max_length": maximum, "actual_length": len(value)}
            raise PydanticKnownError("too_long", bounds)
        return value

    return BeforeValidator(checked)
