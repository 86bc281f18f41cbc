"""The bodies of the native door for its OpenAPI document; docs/protocol.md explains them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from conversations.events import Dialect, Kind
from conversations.models import DamageKind, Version
from convserver.api.schema import Door, NativeRefusal
from sessions_app.models import (
    TOKEN_NAME_MAX_LENGTH,
    ExecutionStatus,
    LoopEnd,
    LoopStatus,
    ReasoningEffort,
    UnknownOutcome,
    WhileWorking,
)
from sessions_app.sockets.native.attached_files import FilesOfMessage
from sessions_app.sockets.native.frames import EVENTS_MAX, FRAME_ID_MAX_LENGTH, IMAGES_MAX

NATIVE = Door(
    tag="native",
    refusals={406: NativeRefusal, 429: NativeRefusal},
    key_refusals={401: NativeRefusal},
    body_refusals={400: NativeRefusal, 415: NativeRefusal},
)

FrameId = (
    Annotated[str, Field(min_length=1, max_length=FRAME_ID_MAX_LENGTH)]
    | Annotated[int, Field(ge=-(2**63), lt=2**63)]
)
Seq = Annotated[int, Field(ge=0)]


def refusals(*statuses: int) -> dict[int, type[NativeRefusal]]:
    """Return the bodies for these statuses, for `extend_schema(responses=…)`."""
    return dict.fromkeys(statuses, NativeRefusal)


class NativeServerSentEvent(BaseModel):
    """One event of a stream."""

    data: str = Field(description="A frame of the socket, as JSON.")
    id: str = Field(default="", description="Where to resume: of a frame that is stored, its cursor.")


# Conversations


class NativeLoop(BaseModel):
    """The agent loop of a conversation."""

    status: LoopStatus
    execution_status: ExecutionStatus
    agent: str
    error: str
    ended_by: LoopEnd | Literal[""]


class NativeDamagedPlace(BaseModel):
    """One place of a log that is not as it was stored."""

    seq: int | None = Field(description="The first event that is damaged; null for the whole log.")
    problem: DamageKind
    detail: str


class NativeBranch(BaseModel):
    """A conversation with which another one has its beginning in common."""

    id: str
    title: str
    last_message: str
    seq: int = Field(ge=-1, description="The seq of the last event that both have; -1 if they have none.")


class NativeFork(BaseModel):
    """How far a fork is copied."""

    id: str
    copied: int
    """How many events are copied."""
    events: int
    """How many it has once it is whole."""
    is_whole: bool
    """Until then the conversation is not listed, and every other request about it is answered with 503."""


class NativeBranches(BaseModel):
    """What a conversation is a fork of, and its own forks."""

    forked_from: NativeBranch | None
    branches: list[NativeBranch]
    has_more: bool


class NativeConversation(BaseModel):
    """A conversation in its present state."""

    id: str
    title: str
    version: Version
    repository: str | None
    branch: str | None
    trigger: str | None
    pr_number: list[int] = Field(description="The pull requests its agent opened, in order.")
    tags: dict[str, str]
    last_seq: int = Field(ge=-1, description="The seq of its newest event; -1 for none.")
    last_message: str
    last_message_at: datetime | None
    created_at: datetime
    updated_at: datetime
    loop: NativeLoop
    deleted: bool
    expires_at: datetime | None = Field(
        description="When the server purges it, unless a page opens it before; null if it is not temporary."
    )
    damage: list[NativeDamagedPlace] | None = Field(
        description="What a verification found damaged in the log; null if nothing was."
    )
    parent: str | None = Field(description="The parent conversation.")
    children: int = Field(ge=0, description="The number of sub-conversations.")
    pinned: bool = Field(description="Pinned by this user.")
    archived: bool = Field(description="Archived by this user.")
    unread: bool = Field(description="There is something new for this user.")
    seen_through: int = Field(ge=-1, description="The last event that this user has seen; -1 for none.")


class NativeConversationChanged(NativeRefusal):
    """The conversation was not changed, because it has changed since it was read."""

    conversation: NativeConversation


class NativeSteeredConversation(NativeConversation):
    """A conversation whose agent has not carried out a request yet; it will."""

    status: Literal["stopping", "pausing", "starting"]


class NativePendingCall(BaseModel):
    """A call that waits for the user."""

    seq: int = Field(description="Of its event.")
    id: str = Field(description="Of its event.")
    tool: str
    asks: Literal["approval", "outcome"] = Field(
        description="`outcome` if it is unknown whether the call has taken effect."
    )


class NativePendingCalls(BaseModel):
    """The calls that wait for the user's next decision, oldest first."""

    calls: list[NativePendingCall]


class NativeConversationPage(BaseModel):
    """A page of a list; `next_page_id` is null on the last one."""

    conversations: list[NativeConversation]
    next_page_id: str | None


class NativeLabel(BaseModel):
    """A label, and how many conversations have it."""

    label: str = Field(description="What `label` of a list takes: `name`, or `name:value`.")
    count: int = Field(ge=1)


class NativeLabels(BaseModel):
    """A page of labels, in their order; `next_after` is null on the last one."""

    labels: list[NativeLabel]
    next_after: str | None


# Many at once


class NativeNotChanged(BaseModel):
    """A conversation that an action could not change."""

    id: str
    detail: str


class NativeBatch(BaseModel):
    """What an action on many conversations has done."""

    changed: int = Field(ge=0, description="How many are different now.")
    unchanged: int = Field(ge=0, description="How many were so before.")
    not_found: list[str] = Field(description="The ids that the user has no conversation for.")
    refused: list[NativeNotChanged]
    undo: str | None = Field(
        description="What the action `undo` takes, for an hour; null if nothing changed."
    )


# Agents


class NativeAgent(BaseModel):
    """An agent that a conversation can choose."""

    name: str = Field(description="What the option `agent` takes.")
    title: str
    description: str
    uses_model: bool = Field(description="Whether it asks the model of the conversation.")
    default: bool = Field(description="Whether it answers in conversations that choose none.")
    problem: str = Field(description="Why it cannot be used; empty if it can.")
    connected: bool | None = Field(
        description="Whether the program of a remote agent is connected; null for the agents of this server."
    )


class NativeAgents(BaseModel):
    """The agents that a conversation can choose: the default first, remote ones that are connected last."""

    agents: list[NativeAgent]


# Options


class NativeRunOptions(BaseModel):
    """How the agent of a conversation runs; an empty text and null leave the default."""

    agent: str = Field(description="The name of an agent of this server.")
    model: str = Field(description="The name of a model, as in the settings.")
    reasoning_effort: ReasoningEffort | Literal[""] = Field(
        description="How long the model thinks before it answers."
    )
    temperature: float | None = Field(description="How freely the model chooses its words, from 0 to 2.")
    while_working: WhileWorking | Literal[""] = Field(
        description="What becomes of a message that arrives while the agent works."
    )
    unknown_outcome: UnknownOutcome | Literal[""] = Field(
        description="What is done about a tool call that had started when the server stopped."
    )
    max_turn_iterations: int | None = Field(description="How often a model is asked in one turn.")
    max_iterations: int | None = Field(description="How often a model is asked in the conversation.")
    max_turn_tokens: int | None = Field(description="Tokens that the models of one turn use.")
    max_tokens: int | None = Field(description="Tokens that the models of the conversation use.")
    max_turn_cost: float | None = Field(description="US dollars that the models of one turn cost.")
    max_cost: float | None = Field(description="US dollars that the models of the conversation cost.")
    max_turn_seconds: int | None = Field(description="Seconds for which the agent works in one turn.")
    max_seconds: int | None = Field(description="Seconds for which the agent works in the conversation.")
    network: bool | None = Field(
        description="Whether programs in the sandbox that start from now on reach public web servers."
    )
    instructions: str = Field(description="For the model, after the user's own.")


# Receipts


class NativeReceipt(BaseModel):
    """That a turn of the agent has seen a message."""

    seq: int = Field(ge=0, description="The seq of the message.")
    seen_seq: int = Field(ge=0, description="The newest event in the log when the agent saw it.")
    turn: str
    seen_at: datetime


class NativeReceiptPage(BaseModel):
    """A page of receipts, in the order of the messages."""

    receipts: list[NativeReceipt]


# Events


class NativeEvent(BaseModel):
    """An event of any wire in its envelope, which has the columns that all readers need."""

    type: Literal["event"]
    seq: Seq = Field(description="Its place in the log.")
    cursor: str = Field(description="What to go on after: its place, and which history it is of.")
    id: str = Field(description="Its own id, unique in the conversation.")
    dialect: Dialect = Field(description="The wire of `event`.")
    event_type: str = Field(description="Its name in that protocol, such as `run` or `MessageEvent`.")
    kind: Kind
    source: str = Field(description="Who it is from, such as `user`, `agent` or `environment`.")
    timestamp: datetime
    cause: Seq | None = Field(description="The seq that it answers.")
    text: str = Field(description="Its text, as people read it.")
    event: dict[str, Any] = Field(description="The event itself, byte for byte as it was sent.")


class NativeEventPage(BaseModel):
    """A page of the log, the oldest first; there is more while its last seq is not `last_seq`."""

    events: list[NativeEvent]
    last_seq: int = Field(ge=-1)
    damage: list[NativeDamagedPlace] | None = Field(
        default=None, description="Only of a damaged log: what a verification found damaged in it."
    )


# Search


class NativeFoundIn(BaseModel):
    """The conversation of a hit."""

    id: str
    title: str
    version: Version
    repository: str | None
    trigger: str | None


class NativeSnippetPart(BaseModel):
    """A part of a snippet, as plain text."""

    text: str
    match: bool = Field(description="Whether this part matches the search.")


class NativeHit(BaseModel):
    """A matching event."""

    conversation: NativeFoundIn
    seq: Seq = Field(description="Its place in the log of the conversation.")
    id: str
    event_type: str
    kind: Kind
    source: str
    timestamp: datetime
    snippet: list[NativeSnippetPart] = Field(description="An excerpt of its text: its parts, joined.")


class NativeSearchPage(BaseModel):
    """The results: titles on the first page only, and events, the last stored first."""

    conversations: list[NativeConversation]
    hits: list[NativeHit]
    next_page_id: str | None = Field(description="Null on the last page; earlier pages may be short.")
    notice: str | None = Field(description="What of `q` was not searched for as it is written; else null.")


# Frames of a client


class MessageFrame(BaseModel):
    """Says something to the agent."""

    type: Literal["message"]
    id: FrameId | None = None
    text: str
    images: list[str] = Field(default=[], max_length=IMAGES_MAX, description="Their addresses.")
    files: FilesOfMessage = []


class RecordedEvent(BaseModel):
    """An event to record: a V1 event with a string `kind`, or a V0 event with an `action` or an
    `observation`."""

    id: FrameId | None = None
    event: dict[str, Any]


class EventFrame(RecordedEvent):
    """Records an event unchanged; the agent does not answer it."""

    type: Literal["event"]


class EventsFrame(BaseModel):
    """Records events together: all of them or none."""

    type: Literal["events"]
    id: FrameId | None = None
    events: list[RecordedEvent] = Field(min_length=1, max_length=EVENTS_MAX)


ClientFrame = Annotated[MessageFrame | EventFrame | EventsFrame, Field(discriminator="type")]
ClientFrames = ClientFrame | Annotated[list[ClientFrame], Field(max_length=EVENTS_MAX)]

FRAME_EXAMPLES: dict[str, Any] = {
    "a message": {"type": "message", "text": "Good morning"},
    "an event": {
        "type": "event",
        "id": "event-1",
        "event": {"action": "message", "args": {"content": "Noted"}},
    },
    "events, all or none": {
        "type": "events",
        "events": [
            {"id": "event-2", "event": {"observation": "run", "content": "ok", "extras": {}}},
            {"id": "event-3", "event": {"kind": "PauseEvent", "source": "user"}},
        ],
    },
    "a list of frames": [
        {"type": "event", "id": "event-4", "event": {"action": "note"}},
        {"type": "message", "text": "And now?"},
    ],
}


# Answers to frames


class Ack(BaseModel):
    """A `message` or an `event` is committed."""

    type: Literal["ack"]
    id: FrameId | None
    seq: Seq


class BatchAck(BaseModel):
    """An `events` frame is committed; the seqs are in the order of its items."""

    type: Literal["ack"]
    id: FrameId | None
    seqs: list[Seq]


class ErrorFrame(NativeRefusal):
    """A frame was not carried out; nothing of it was stored."""

    type: Literal["error"]
    id: FrameId | None = Field(description="Null if the frame had none or could not be parsed.")


Answers = Ack | BatchAck | list[Ack | BatchAck | ErrorFrame]


# Drafts


class NativeDraft(BaseModel):
    """A message that the user is writing; empty and of version 0 if there is none."""

    text: str
    images: list[str] = Field(description="Their data URLs.")
    files: FilesOfMessage
    version: int = Field(ge=0)
    updated_at: datetime | None


class NativeDraftConflict(NativeRefusal):
    """Another device has changed the draft since; nothing was replaced."""

    draft: NativeDraft = Field(description="The one that is stored.")


# Tokens


class TokenRequest(BaseModel):
    """A new token."""

    name: str = Field(min_length=1, max_length=TOKEN_NAME_MAX_LENGTH)
    scopes: list[Literal["read", "write", "run", "admin"]] = Field(
        default=["read", "write", "run", "admin"], min_length=1, max_length=4
    )
    conversation: str | None = Field(default=None, description="The only conversation that it opens.")
    expires_at: datetime | None = Field(default=None, description="When it stops working; null for never.")


class NativeToken(BaseModel):
    """A token as its user sees it."""

    id: str
    name: str
    prefix: str = Field(description="The beginning of its text.")
    scopes: list[Literal["read", "write", "run", "admin"]]
    conversation: str | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None


class NewNativeToken(NativeToken):
    """A new token."""

    token: str = Field(description="Its text; shown only here.")


class NativeTokens(BaseModel):
    """All tokens of a user, including revoked ones."""

    tokens: list[NativeToken]
