"""A purge whose process is killed is finished by the next one, and counts everything once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Purge
from conversations.store import deletion
from tests.support.data.events import event
from tests.support.people.clients import program_environment
from tests.support.runner import forks
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

EVENTS = 6_000
SETTLED_S = 60.0


@pytest.mark.slow(on="postgresql")
def test_a_purge_that_is_killed_goes_on_where_it_was(conversation: ConversationRef, tmp_path: Path) -> None:
    for _ in range(EVENTS // 1_000):
        writes.append(conversation, [event() for _ in range(1_000)])
    deletion.soft_delete(conversation)
    command = ["convserver", "purge", "--conversation", conversation.public_id, "--yes"]
    environment = program_environment(tmp_path)
    with (tmp_path / "purge.log").open("ab") as log:
        running = forks.start(command, environment, stdout=log, stderr=log)
        wait_until(lambda: Purge.objects.filter(events__gt=0).exists(), within_s=SETTLED_S)
        running.send_signal(signal.SIGKILL)
        running.wait(SETTLED_S)
    left = Event.objects.count()
    assert Purge.objects.get().events + left == EVENTS
    assert left > 0
    assert forks.run(["convserver", "purge", "--yes"], environment).returncode == 0
    record = Purge.objects.get()
    assert (record.events, Event.objects.count()) == (EVENTS, 0)
    assert record.erased_at is not None
    assert Conversation.objects.purged().count() == 1
