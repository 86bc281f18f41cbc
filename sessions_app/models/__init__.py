"""The tables of what is live: loops, connections, access, settings, webhooks."""

from __future__ import annotations

from sessions_app.models.access import (
    ACCESS_GROUP,
    TOKEN_NAME_MAX_LENGTH,
    TOKEN_PREFIX,
    AccessRemoval,
    ApiToken,
    ApiTokenQuerySet,
    ConversationKey,
    Grant,
    Scope,
)
from sessions_app.models.files import (
    ATTACHMENT_NAME_MAX_LENGTH,
    Attachment,
    AttachmentQuerySet,
    Feedback,
    Permissions,
    Polarity,
)
from sessions_app.models.idempotency import (
    RecordedAnswer,
)
from sessions_app.models.live import (
    PRESENCE_S,
    Connection,
    ConnectionQuerySet,
    Draft,
    DraftQuerySet,
    Mark,
    MarkQuerySet,
    new_connection_id,
    size_of_draft,
)
from sessions_app.models.loops import (
    LATELY,
    STALLED_S,
    AgentLoop,
    AgentLoopQuerySet,
    CommandOutcome,
    ExecutionStatus,
    LoopCommand,
    LoopCommandQuerySet,
    LoopEnd,
    LoopStatus,
    Repair,
    RepairQuerySet,
    UnfinishedAnswer,
    Verb,
)
from sessions_app.models.settings import (
    CONDENSER_SIZE_MIN,
    SECRET_NAME_MAX_LENGTH,
    Secret,
    SecretKind,
    SecretQuerySet,
    UserSettings,
)
from sessions_app.models.usage import (
    Usage,
)
from sessions_app.models.v1 import (
    AgentSetup,
    StartTask,
)
from sessions_app.models.webhooks import (
    Delivery,
    NotedFact,
    Receiver,
    ReceiverKind,
)

__all__ = [
    "ACCESS_GROUP",
    "ATTACHMENT_NAME_MAX_LENGTH",
    "CONDENSER_SIZE_MIN",
    "LATELY",
    "PRESENCE_S",
    "SECRET_NAME_MAX_LENGTH",
    "STALLED_S",
    "TOKEN_NAME_MAX_LENGTH",
    "TOKEN_PREFIX",
    "AccessRemoval",
    "AgentLoop",
    "AgentLoopQuerySet",
    "AgentSetup",
    "ApiToken",
    "ApiTokenQuerySet",
    "Attachment",
    "AttachmentQuerySet",
    "CommandOutcome",
    "Connection",
    "ConnectionQuerySet",
    "ConversationKey",
    "Delivery",
    "Draft",
    "DraftQuerySet",
    "ExecutionStatus",
    "Feedback",
    "Grant",
    "LoopCommand",
    "LoopCommandQuerySet",
    "LoopEnd",
    "LoopStatus",
    "Mark",
    "MarkQuerySet",
    "NotedFact",
    "Permissions",
    "Polarity",
    "Receiver",
    "ReceiverKind",
    "RecordedAnswer",
    "Repair",
    "RepairQuerySet",
    "Scope",
    "Secret",
    "SecretKind",
    "SecretQuerySet",
    "StartTask",
    "UnfinishedAnswer",
    "Usage",
    "UserSettings",
    "Verb",
    "new_connection_id",
    "size_of_draft",
]
