"""The native wire: envelopes out, frames in, for its socket and REST (docs/protocol.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, cast
from uuid import UUID, uuid4, uuid5

from django.conf import settings

from conversations import dialects
from conversations.dialects import EventAuthor
from conversations.engines import failures
from conversations.engines.lost_commits import LostCommit
from conversations.events import ConversationRef, EventEnvelope, NewEvent
from conversations.exceptions import ConversationError, OutcomeUnknown, StoreUnavailable
from conversations.payloads import bounds, jsontext
from conversations.payloads.jsontext import Member
from sessions_app.capacity.parsing import in_turn
from sessions_app.models import AllowedFor, UnknownAnswer
from sessions_app.sockets.native.attached_files import files_of

FRAME_ID_MAX_LENGTH = 200
SESSION_MAX_LENGTH = 100
IMAGES_MAX = 100
EVENTS_MAX = 500
FRAME_MAX_BYTES: int = settings.MESSAGE_MAX_BYTES
"""The maximum size of a frame, or of a REST body."""

# Namespaces of ids: none that is sent with an event equals one of a message, and none of a message one of a
# decision.
_MESSAGE_IDS = UUID("5b1f29a4-4c3d-4f0e-9d53-0f6f2c1d7a10")
_DECISION_IDS = UUID("0f0c0f5e-6a86-4b0b-9f0f-2a7b6c1e4d52")


class BadFrame(ConversationError):
    """The frame is not part of the protocol."""

    code = "bad_frame"


class FrameTooLarge(BadFrame):
    """The frame is longer than the limit, or has more values."""

    code = "too_large"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame from a client: its type, its id as it was sent, and its members."""

    type: str
    id: Any
    """A string, a number, or None if the client wants no answer."""
    members: Mapping[str, Member]
    is_light: bool = True
    """Whether it can be parsed on the event loop."""

    def text(self, name: str, *, default: str | None = None) -> str:
        """Return a string member. Raise BadFrame if it is missing or not a string."""
        return cast(str, _typed(self, name, str, "a string", default))

    def flag(self, name: str) -> bool:
        """Return a boolean member. Raise BadFrame if it is missing or not a boolean."""
        return cast(bool, _typed(self, name, bool, "true or false", None))

    def number(self, name: str) -> int:
        """Return a whole number, -1 or more. Raise BadFrame if it is missing or another value."""
        value = cast(int, _typed(self, name, int, "a whole number", None))
        if isinstance(value, bool) or not -1 <= value < 2**63:
            raise BadFrame(f"`{name}` of the frame `{self.type}` must be a whole number, -1 or more.")
        return value


def _typed(frame: Frame, name: str, kind: type, description: str, default: Any) -> Any:
    member = frame.members.get(name)
    value = default if member is None else member.value
    if not isinstance(value, kind):
        raise BadFrame(f"`{name}` of the frame `{frame.type}` must be {description}.")
    return value


async def taken(user_pk: int, text: str | None) -> Frame:
    """Parse what a client sent, a large text off the event loop; None is a binary frame. Raise BadFrame."""
    if text is None:
        raise BadFrame("Frames are text, not binary.")
    return await in_turn(user_pk, bounds.is_light(text), parse, text)


def parse(text: str) -> Frame:
    """Parse a client's frame. Raise BadFrame, and FrameTooLarge before anything is decoded."""
    # At most this many members of a frame; their values have bounds of their own.
    members_max = 1_000
    try:
        bounds.require_bounded(text)
        members = jsontext.members(text, at_most=members_max)
    except bounds.TooManyValues as error:
        raise FrameTooLarge(f"The frame is too large: {error}.") from error
    except jsontext.InvalidJson as error:
        raise BadFrame(f"A frame is one JSON object: {error}.") from error
    return frame_of(members, is_light=bounds.is_light(text))


def frame_of(members: Mapping[str, Member], *, is_light: bool = True) -> Frame:
    """Read a frame from its members. Raise BadFrame."""
    kind = members["type"].value if "type" in members else None
    if not isinstance(kind, str):
        raise BadFrame("`type` is missing or not a string; it is, for example, `message`.")
    frame_id = members["id"].value if "id" in members else None
    if frame_id is not None and not is_id(frame_id):
        raise BadFrame(
            f"A frame's `id` is a string of 1 to {FRAME_ID_MAX_LENGTH} characters, or a whole number "
            "of 64 bits."
        )
    return Frame(kind, frame_id, members, is_light)


def is_id(value: object) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= FRAME_ID_MAX_LENGTH and jsontext.is_sendable(value)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def recorded_event(frame: Frame, *, sender_id: int) -> NewEvent:
    """Return the event of an `event` frame, as it was sent.

    A V1 event keeps its own id if it has one; any other event gets the frame's. Raise BadFrame or
    InvalidEvent.
    """
    member = frame.members.get("event")
    if member is None or not isinstance(member.value, dict):
        raise BadFrame("`event` of the frame `event` must be an object.")
    reading = dialects.read(member.value)
    event_id = reading.event_id or (str(frame.id) if frame.id is not None else str(uuid4()))
    return NewEvent(event_id=event_id, payload=member.text, reading=reading, sender_id=sender_id)


def recorded_events(frame: Frame, *, sender_id: int) -> list[NewEvent]:
    """Return the events of an `events` frame, a list of {id, event}, all or none.

    Raise BadFrame or InvalidEvent.
    """
    member = frame.members.get("events")
    if member is None or not isinstance(member.value, list):
        raise BadFrame("`events` of the frame `events` must be a list of {id, event}.")
    if not 0 < len(member.value) <= EVENTS_MAX or not all(isinstance(item, dict) for item in member.value):
        raise BadFrame(f"`events` of the frame `events` must hold 1 to {EVENTS_MAX} objects {{id, event}}.")
    event_type = Member("event", '"event"')  # an item has none
    return [
        recorded_event(frame_of({**members, "type": event_type}), sender_id=sender_id)
        for members in jsontext.objects(member.text, at_most=EVENTS_MAX)
    ]


def message_event(frame: Frame, conversation: ConversationRef, *, user_id: int, session: str) -> NewEvent:
    """Return the user's message of a `message` frame, which asks the agent for an answer. Raise BadFrame.

    Repeating the frame stores nothing twice: its id is derived from the frame's.
    """
    images = frame.members["images"].value if "images" in frame.members else []
    if (
        not isinstance(images, list)
        or len(images) > IMAGES_MAX
        or not all(isinstance(url, str) for url in images)
    ):
        raise BadFrame(f"`images` of the frame `message` must be a list of at most {IMAGES_MAX} addresses.")
    files = files_of(frame.members["files"].value if "files" in frame.members else [])
    text = frame.text("text")
    if not text.strip() and not images and not files:
        raise BadFrame("A `message` needs a text that is not blank, images or files.")
    event_id = _event_id(_MESSAGE_IDS, frame.id, user_id=user_id, session=session)
    author: EventAuthor = dialects.author(conversation.dialect)
    authored = author.user_message(text=text, image_urls=images, files=files, event_id=event_id)
    return authored.event(event_id, sender_id=user_id, is_input=True)


def decided_call(frame: Frame) -> int | None:
    """Return the seq of the call that a `confirm` frame names; None without one. Raise BadFrame."""
    return frame.number("seq") if "seq" in frame.members else None


def told_outcome(frame: Frame) -> UnknownAnswer | None:
    """Return what a `confirm` frame says about a call of unknown outcome, None without. Raise BadFrame."""
    if "outcome" not in frame.members:
        return None
    text = frame.text("outcome")
    if text not in UnknownAnswer.values:
        raise BadFrame(f"`outcome` of the frame `confirm` must be one of: {', '.join(UnknownAnswer.values)}.")
    return UnknownAnswer(text)


def allowed_for(frame: Frame) -> AllowedFor | None:
    """Return where a `confirm` frame allows the tool, None if it does not. Raise BadFrame."""
    if "always" not in frame.members:
        return None
    text = frame.text("always")
    if text not in AllowedFor.values or "outcome" in frame.members or not frame.flag("accept"):
        wanted = " or ".join(f"`{each}`" for each in AllowedFor.values)
        raise BadFrame(f"`always` of the frame `confirm` must be {wanted}, and needs `accept` to be true.")
    return AllowedFor(text)


def decision_id(frame: Frame, *, user_id: int, session: str) -> str:
    """Return the event id of a `confirm` frame's decision, so that a repeat decides nothing twice.

    The frame's id counts like that of a message, and separately for each named call. Raise BadFrame.
    """
    return _event_id(_DECISION_IDS, frame.id, user_id=user_id, session=session, also=[decided_call(frame)])


def _event_id(namespace: UUID, frame_id: Any, *, user_id: int, session: str, also: Sequence[Any] = ()) -> str:
    if frame_id is None:
        return str(uuid4())
    # A UUID is unique by itself; of other ids, two tabs may both number their messages from 1.
    scope = "" if _is_uuid(frame_id) else session
    return str(uuid5(namespace, json.dumps([user_id, scope, frame_id, *also])))


def _is_uuid(frame_id: Any) -> bool:
    try:
        return isinstance(frame_id, str) and bool(UUID(frame_id))
    except ValueError:
        return False


def envelope_json(event: EventEnvelope) -> str:
    """Return an `event` frame: the columns, and the payload as it was received."""
    # Spliced, since decoding and encoding the payload could change its text, and takes time for each event.
    return f'{_columns_json(event)},"event":{event["payload"]}}}'


def envelope_json_without_payload(event: EventEnvelope) -> str:
    return f"{_columns_json(event)}}}"


def _columns_json(event: EventEnvelope) -> str:
    cause = "null" if event["cause"] is None else event["cause"]
    return (
        f'{{"type":"event","seq":{event["seq"]},"cursor":"{event["seq"]}.{event["fingerprint"]}",'
        f'"id":{encode_basestring(event["id"])},'
        f'"dialect":"{event["dialect"]}","event_type":{encode_basestring(event["type"])},'
        f'"kind":"{event["kind"]}","source":{encode_basestring(event["source"])},'
        f'"timestamp":"{event["timestamp"]}","cause":{cause},"text":{encode_basestring(event["text"])}'
    )


def frame_json(**members: Any) -> str:
    """Return a frame other than an `event` as ASCII, which can hold half a surrogate pair."""
    return json.dumps(members, separators=(",", ":"))


def error_frame(error: ConversationError, frame_id: Any = None) -> dict[str, Any]:
    return {"type": "error", "code": error.code, "detail": str(error), "id": frame_id}


def unavailable_frame(error: Exception, frame_id: Any) -> dict[str, Any]:
    """Return the `error` frame for a failure of the server itself: repeating the frame is safe.

    It names a commit that may be stored.
    """
    code = OutcomeUnknown.code if isinstance(error, LostCommit) else StoreUnavailable.code
    detail = failures.known(error) or failures.SEND_AGAIN
    return {"type": "error", "code": code, "detail": detail, "id": frame_id}
