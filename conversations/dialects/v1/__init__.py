"""The V1 wire for views and sockets: received events, shown events, events of the server."""

from __future__ import annotations

from conversations.dialects.shown.v1 import id_of, shown, shown_id
from conversations.dialects.translation.v0_as_v1 import seqs_of
from conversations.dialects.v1.author import AUTHOR
from conversations.dialects.v1.client_actions import action_of as client_action
from conversations.dialects.v1.client_actions import is_writable as is_client_schema
from conversations.dialects.v1.filter import shown_as, shown_kind
from conversations.dialects.v1.payload import (
    Call,
    V1Event,
    action,
    agent_error,
    agent_message,
    answer_piece,
    authored,
    condensation,
    condensation_request,
    conversation_error,
    finish,
    finished,
    image_part,
    interrupt,
    observation,
    pause,
    rejection,
    server_error,
    stamp,
    state_update,
    system_prompt,
    text_part,
    user_message,
    written,
)
from conversations.dialects.v1.reading import read
from conversations.dialects.v1.received import received
from conversations.dialects.v1.state import execution_status, full_state, snapshot, stats

__all__ = [
    "AUTHOR",
    "Call",
    "V1Event",
    "action",
    "agent_error",
    "agent_message",
    "answer_piece",
    "authored",
    "client_action",
    "condensation",
    "condensation_request",
    "conversation_error",
    "execution_status",
    "finish",
    "finished",
    "full_state",
    "id_of",
    "image_part",
    "interrupt",
    "is_client_schema",
    "observation",
    "pause",
    "read",
    "received",
    "rejection",
    "seqs_of",
    "server_error",
    "shown",
    "shown_as",
    "shown_id",
    "shown_kind",
    "snapshot",
    "stamp",
    "state_update",
    "stats",
    "system_prompt",
    "text_part",
    "user_message",
    "written",
]
