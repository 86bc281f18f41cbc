"""The metadata of a conversation, all except its events, as one value (spec V0 §4.1)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from conversations.models import Conversation, normal_id


@dataclass(kw_only=True, slots=True)
class ConversationMetadata:
    """The metadata of one conversation; costs in US dollars, times aware and UTC."""

    conversation_id: str
    user_id: str | None = None
    selected_repository: str | None = None
    selected_branch: str | None = None
    git_provider: str | None = None
    title: str | None = None
    trigger: str | None = None
    pr_number: list[int] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    llm_model: str | None = None
    accumulated_cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    conversation_version: str | None = None
    created_at: datetime | None = None
    last_updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversationMetadataResultSet:
    """One page of a search; `next_page_id` is None on the last one."""

    results: list[ConversationMetadata]
    next_page_id: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataFilter:
    """The conditions of a search; a condition that is not set allows all."""

    repository: str | None = None
    trigger: str | None = None
    changed_since: datetime | None = None
    is_top_level: bool = False  # only those that no other conversation has started
    only: int | None = None  # the key of the one conversation that the visitor may reach

    def covers(self, metadata: ConversationMetadata) -> bool:
        """Return whether metadata match; they do not say which conversation started another one."""
        changed_at = metadata.last_updated_at or metadata.created_at
        is_met = (
            self.repository in (None, metadata.selected_repository)
            and self.trigger in (None, metadata.trigger)
            and (self.changed_since is None or (changed_at is not None and changed_at >= self.changed_since))
        )
        if self.only is None or not is_met:
            return is_met
        public_id = normal_id(metadata.conversation_id)
        return Conversation.objects.with_pks([self.only]).with_public_ids([public_id]).exists()


ALL = MetadataFilter()

# The columns that hold what a metadata save may change; identity and times are not among them.
COLUMN_OF = {
    "selected_repository": "repository",
    "selected_branch": "branch",
    "git_provider": "provider",
    "title": "title",
    "trigger": "trigger",
    "pr_number": "pr_number",
    "tags": "tags",
    "llm_model": "llm_model",
    "accumulated_cost": "accumulated_cost",
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
}

NEVER_FALLING = frozenset({"accumulated_cost", "prompt_tokens", "completion_tokens", "total_tokens"})


def metadata_of(row: Conversation) -> ConversationMetadata:
    values = {name: getattr(row, column) for name, column in COLUMN_OF.items()}
    return ConversationMetadata(
        conversation_id=row.public_id,
        user_id=str(row.owner_id),
        conversation_version=row.version,
        created_at=row.created_at,
        last_updated_at=row.updated_at,
        **values,
    )


def changed_columns(
    row: Conversation, metadata: ConversationMetadata, fields: Collection[str] | None
) -> dict[str, Any]:
    """Return the columns of a row that saving the metadata changes, with their new values.

    The named `fields` overwrite. Without any, only empty columns are filled. Totals only increase.
    """
    given = {COLUMN_OF[name]: getattr(metadata, name) for name in (COLUMN_OF if fields is None else fields)}
    return {
        column: value
        for column, value in given.items()
        if _replaces(column, getattr(row, column), value, is_named=fields is not None)
    }


def _replaces(column: str, stored: Any, value: Any, *, is_named: bool) -> bool:
    if column in NEVER_FALLING:
        return bool(value > stored)
    return bool(value != stored) if is_named else bool(value and not stored)
