"""The durable tables, their constraints, and the queries on them."""

from __future__ import annotations

from conversations.events import ConversationRef
from conversations.models.conversations import (
    CHILDREN_MAX,
    LAST_MESSAGE_MAX_LENGTH,
    OWNED_BY_APPEND,
    SOURCE_TAG,
    ChangeNumber,
    Conversation,
    ConversationManager,
    ConversationQuerySet,
    CreationParameters,
    Moment,
    Version,
    WholeRowSaveRefused,
    children_in,
)
from conversations.models.events import (
    ENVELOPE_COLUMNS,
    Event,
    EventQuerySet,
    envelope,
)
from conversations.models.forks import UnfinishedFork
from conversations.models.guards import (
    GuardRepair,
    Purge,
    PurgeQuerySet,
    WriteProbe,
)
from conversations.models.ids import (
    CHOSEN_ID_SHOWN,
    PUBLIC_ID_MAX_LENGTH,
    RESERVED_IDS,
    new_public_id,
    normal_id,
    shown_title,
)
from conversations.models.index import (
    SearchProgress,
    TitleChange,
)
from conversations.models.labels import Label, LabelQuerySet
from conversations.models.list_orders import ListOrder
from conversations.models.storage import (
    StorageProgress,
    StoredBytes,
)
from conversations.models.verification import (
    SHOWN_TO_READERS,
    DamageKind,
    Occasion,
    Outcome,
    VerificationFinding,
    VerificationRun,
)

__all__ = [
    "CHILDREN_MAX",
    "CHOSEN_ID_SHOWN",
    "ENVELOPE_COLUMNS",
    "LAST_MESSAGE_MAX_LENGTH",
    "OWNED_BY_APPEND",
    "PUBLIC_ID_MAX_LENGTH",
    "RESERVED_IDS",
    "SHOWN_TO_READERS",
    "SOURCE_TAG",
    "ChangeNumber",
    "Conversation",
    "ConversationManager",
    "ConversationQuerySet",
    "ConversationRef",
    "CreationParameters",
    "DamageKind",
    "Event",
    "EventQuerySet",
    "GuardRepair",
    "Label",
    "LabelQuerySet",
    "ListOrder",
    "Moment",
    "Occasion",
    "Outcome",
    "Purge",
    "PurgeQuerySet",
    "SearchProgress",
    "StorageProgress",
    "StoredBytes",
    "TitleChange",
    "UnfinishedFork",
    "VerificationFinding",
    "VerificationRun",
    "Version",
    "WholeRowSaveRefused",
    "WriteProbe",
    "children_in",
    "envelope",
    "new_public_id",
    "normal_id",
    "shown_title",
]
