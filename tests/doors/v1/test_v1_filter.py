"""A database asked for what V1 readers are shown under a kind finds that, and counts as many."""

from __future__ import annotations

import json

import pytest

from conversations.dialects import v1
from conversations.dialects.v1.kinds import KINDS
from conversations.events import EventFilter
from conversations.log import reads, writes
from conversations.models import ConversationRef, Event
from tests.support.data.events import event
from tests.support.wires.v0_wire import recorded
from tests.support.wires.v1_wire import EXAMPLES


@pytest.fixture
def mixed(conversation: ConversationRef) -> ConversationRef:
    """Return a conversation that holds events of both wires."""
    texts = [*recorded(), *EXAMPLES]
    writes.append(conversation, [event(raw=text) for text in texts])
    return conversation


def test_each_kind_and_source_finds_in_the_database_what_is_shown_as_such(mixed: ConversationRef) -> None:
    log = [json.loads(v1.shown(each, mixed.public_id)) for each in reads.read_after(mixed, -1)]
    for kind in (None, *KINDS):
        for source in (None, "agent", "user", "environment", "hook"):
            wanted = EventFilter(any_of=v1.shown_as(kind=kind, source=source))
            found = Event.objects.of(mixed).matching(wanted).oldest_first().envelopes()
            assert [json.loads(v1.shown(each, mixed.public_id)) for each in found] == [
                each for each in log if kind in (None, each["kind"]) and source in (None, each["source"])
            ]
