"""Values in the metadata of a conversation."""

from __future__ import annotations

from enum import StrEnum


class ConversationTrigger(StrEnum):
    """The trigger of a conversation (spec V0 §3.5)."""

    RESOLVER = "resolver"
    GUI = "gui"
    SUGGESTED_TASK = "suggested_task"
    OPENHANDS_API = "openhands_api"
    SLACK = "slack"
    MICROAGENT_MANAGEMENT = "microagent_management"
    JIRA = "jira"
    JIRA_DC = "jira_dc"
    LINEAR = "linear"
    BITBUCKET = "bitbucket"


def whole_numbers(value: object) -> list[int]:
    """Return the whole numbers in the value of an old row."""
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
