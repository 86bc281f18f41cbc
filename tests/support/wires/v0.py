"""What the V0 wire's clients send and are answered, for tests that speak it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CONVERSATIONS = "/api/conversations"


class Matching:
    """Equals every text that the pattern matches as a whole."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(self._pattern, other, re.DOTALL) is not None

    def __hash__(self) -> int:
        return hash(self._pattern)

    def __repr__(self) -> str:
        return f"<text like {self._pattern}>"


NEW_ID = Matching(r"[0-9a-f]{32}")
MOMENT = Matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")
EVENT_TIME = Matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")


@dataclass(frozen=True)
class Problem:
    """Equals a validation error of this type at this place, in the list form of spec V0 §0.1."""

    type: str
    loc: Sequence[str | int] = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or set(other) != {"detail"} or not isinstance(other["detail"], list):
            return False
        return any(
            isinstance(each, dict)
            and {"type", "loc", "msg", "input"} <= set(each)
            and (each["type"], each["loc"]) == (self.type, self.loc)
            for each in other["detail"]
        )

    def __hash__(self) -> int:
        return hash(self.type)


def info(conversation_id: str, **members: Any) -> dict[str, Any]:
    """Return the ConversationInfo of a conversation that nobody has started (spec V0 §4.2)."""
    return {
        "conversation_id": conversation_id,
        "title": f"Conversation {conversation_id[:5]}",
        "last_updated_at": MOMENT,
        "status": "STOPPED",
        "runtime_status": None,
        "selected_repository": None,
        "selected_branch": None,
        "git_provider": None,
        "trigger": None,
        "num_connections": 0,
        "url": None,
        "session_api_key": None,
        "created_at": MOMENT,
        "pr_number": [],
        "conversation_version": "V0",
        "sub_conversation_ids": [],
        **members,
    }


def said(seq: int, text: str, **members: Any) -> dict[str, Any]:
    """Return a user's message as a V0 client is shown it."""
    return {
        "id": seq,
        "timestamp": EVENT_TIME,
        "source": "user",
        "message": text,
        "action": "message",
        "args": {
            "content": text,
            "file_urls": None,
            "image_urls": None,
            "wait_for_response": False,
            "security_risk": -1,
            **members,
        },
    }
