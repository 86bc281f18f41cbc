"""The recording of a conversation: a parameter of its creation, or a file that was added to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.db import transaction

from conversations.dialects import columns
from conversations.exceptions import InvalidEvent
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, CreationParameters
from conversations.payloads import bounds, jsontext
from conversations.payloads.jsontext import InvalidJson
from sessions_app.agents.replay import recording
from sessions_app.agents.replay.recording import RecordedMessage, Step
from sessions_app.models import AgentLoop
from sessions_app.storage.attachments import attachments_of, content_of

PARAMETER = "replay"
"""The creation parameter that holds the events after the first message, as JSON text."""
PACE_PARAMETER = "replay_pace"
POSITION_PARAMETER = "replay_turn"
ENDINGS = (".json", ".jsonl")
UNREADABLE = (
    "The file `{name}` is no recording: it must be a list of events as JSON, or one event on each line."
)


class Recording(NamedTuple):
    """The steps to play, and the pace of their pauses."""

    steps: Sequence[Step]
    pace: float = 0.0
    """A multiple of the original pauses; 0 for none."""
    problem: str = ""
    """Why there are no steps."""


class Played(NamedTuple):
    """The numbers of steps that have been played."""

    before: int
    """By earlier turns."""
    in_turn: int


def recording_of(conversation: ConversationRef) -> Recording | None:
    """Return the recording of a conversation; None if it has none."""
    parameters = _parameters(conversation)
    pace = parameters.get(PACE_PARAMETER)
    recorded = parameters.get(PARAMETER)
    factor = float(pace) if isinstance(pace, int | float) else 0.0
    if isinstance(recorded, str):
        return Recording(recording.steps_of(json.loads(recorded)), factor)
    return _attached(conversation, factor)


def _attached(conversation: ConversationRef, pace: float) -> Recording | None:
    """Return the newest file that can be a recording."""
    names = [each.name for each in attachments_of(conversation) if each.name.endswith(ENDINGS)]
    if not names:
        return None
    try:
        steps = recording.steps_of(_events_in((content_of(conversation, names[-1]) or b"").decode()))
    except (InvalidJson, InvalidEvent, ValueError, RecursionError):
        return Recording((), problem=UNREADABLE.format(name=names[-1]))
    # The user has sent a message of their own to begin, in the place of the recorded one.
    is_first = bool(steps) and isinstance(steps[0], RecordedMessage) and steps[0].is_users
    return Recording(steps[1:] if is_first else steps, pace)


def _events_in(text: str) -> Iterator[dict[str, object]]:
    """Yield the events of a list, or of lines. Raise InvalidJson or ValueError."""
    bounds.require_bounded(text, values_max=bounds.LARGE_VALUES_MAX)
    if jsontext.is_array(text):
        found = [item.text for item in jsontext.items(text)]
    else:
        found = [line for line in text.splitlines() if line.strip()]
    for each in found:
        value = jsontext.loads(each)
        if not isinstance(value, dict):
            raise ValueError("no event")
        yield value


def is_playing(conversation: ConversationRef) -> bool:
    """Return whether the last turn of this agent has played a part of the recording."""
    recording = recording_of(conversation)
    before = columns.fields(_parameters(conversation).get(POSITION_PARAMETER)).get("before")
    return recording is not None and isinstance(before, int) and before < len(recording.steps)


def begin(conversation: ConversationRef, turn_id: str) -> Played:
    """Return how much has been played, and record that this turn continues from there."""
    with transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        row, _ = CreationParameters.objects.get_or_create(conversation_id=conversation.pk)
        noted = columns.fields(row.parameters.get(POSITION_PARAMETER))
        last, noted_before = noted.get("turn"), noted.get("before")
        before = noted_before if isinstance(noted_before, int) else 0
        # By its stored events, so nothing is played twice after a crash.
        of_last = reads.count_steps(conversation, last) if isinstance(last, str) else 0
        if last == turn_id:
            return Played(before, of_last)
        if AgentLoop.objects.of(conversation).filter(turn_id=turn_id).exists():  # or it has ended
            row.parameters[POSITION_PARAMETER] = {"turn": turn_id, "before": before + of_last}
            row.save(update_fields=["parameters"])
    return Played(before + of_last, 0)


def _parameters(conversation: ConversationRef) -> dict[str, object]:
    rows = CreationParameters.objects.filter(pk=conversation.pk)
    return dict(columns.fields(rows.values_list("parameters", flat=True).first()))
