"""Hosts whose clocks are off: none keeps or takes a right for longer than it lasts by the common clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db.models import F

from conversations.events import ConversationRef
from conversations.log import writes
from faults.clock import Clock
from sessions_app.agents.remote import attachments
from sessions_app.loops import leases
from sessions_app.loops.leases import LoopHeld
from sessions_app.models import AgentLoop, Connection, Delivery, Endpoint
from sessions_app.models.live import PRESENCE_S
from sessions_app.processes import this_process
from sessions_app.shared_clock import STEP_S
from sessions_app.webhooks import deliveries, gathering, transport
from tests.support.data.events import event
from tests.support.people.clients import program_environment

pytestmark = pytest.mark.no_second_try

HOUR_S = 3600.0

ClaimElsewhere = Callable[[float], str]


@pytest.fixture
def claim_elsewhere(conversation: ConversationRef, tmp_path: Path) -> Iterator[ClaimElsewhere]:
    """Claim what is of the conversation from a host whose clock is off; return for each what came of it."""
    clock = Clock(tmp_path / "clock")
    command = [sys.executable, "-m", "faults.entry", "--clock", str(clock.path)]
    process = subprocess.Popen(
        [*command, "--", "tests.support.servers.lone_claims", conversation.public_id],
        env=program_environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def claim(offset_s: float) -> str:
        clock.offset_s = offset_s
        stdin.write("now\n")
        stdin.flush()
        outcome: str = stdout.readline().strip()
        return outcome

    yield claim
    process.kill()
    process.communicate()


@pytest.fixture
def due(conversation: ConversationRef) -> Endpoint:
    """An endpoint that is to be notified of an event."""
    endpoint = transport.create("http://localhost:1", flush_delay_s=0.0)
    writes.append(conversation, [event("one")])
    return endpoint


def gather(endpoint: Endpoint) -> None:
    watermark = gathering.Watermark()
    watermark.look()
    gathering.gather(endpoint, watermark)


def pass_time(seconds: float) -> None:
    """Let all moments of the rows be so much longer ago, as if this time had passed."""
    passed = timedelta(seconds=seconds)
    AgentLoop.objects.update(lease_expires_at=F("lease_expires_at") - passed)
    Delivery.objects.update(held_until=F("held_until") - passed)
    Connection.objects.update(last_seen_at=F("last_seen_at") - passed)


def test_what_a_dead_host_held_whose_clock_was_off_is_free_when_its_lease_is_over(
    claim_elsewhere: ClaimElsewhere,
    conversation: ConversationRef,
    due: Endpoint,
    subtests: pytest.Subtests,
) -> None:
    for offset_s in (HOUR_S, 0.0, -HOUR_S):
        with subtests.test(offset_s=offset_s):
            assert claim_elsewhere(offset_s) == "claimed claimed"
            pass_time(PRESENCE_S + STEP_S)
            gather(due)
            assert len(deliveries.claim(due.pk, this_process(), limit=1)) == 1
            epoch = leases.claim(conversation, this_process(), agent="")
            assert not Connection.objects.present().exists()
            leases.release(conversation, epoch)
            Delivery.objects.update(claim="", held_until=None)


def test_what_a_living_host_holds_whose_clock_is_off_is_not_taken_from_it(
    claim_elsewhere: ClaimElsewhere,
    conversation: ConversationRef,
    due: Endpoint,
    alice: User,
    subtests: pytest.Subtests,
) -> None:
    for offset_s in (HOUR_S, -HOUR_S):
        with subtests.test(offset_s=offset_s):
            assert claim_elsewhere(offset_s) == "claimed claimed"
            gather(due)
            assert deliveries.claim(due.pk, this_process(), limit=1) == []
            with pytest.raises(LoopHeld):
                leases.claim(conversation, this_process(), agent="")
            assert Connection.objects.present().exists()
            assert attachments.connected_names(alice.pk, None) == {"helper"}
            pass_time(PRESENCE_S + STEP_S)


def test_a_host_whose_clock_is_off_takes_nothing_that_another_holds(
    claim_elsewhere: ClaimElsewhere,
    conversation: ConversationRef,
    due: Endpoint,
    subtests: pytest.Subtests,
) -> None:
    leases.claim(conversation, this_process(), agent="")
    gather(due)
    deliveries.claim(due.pk, this_process(), limit=1)
    for offset_s in (HOUR_S, -HOUR_S):
        with subtests.test(offset_s=offset_s):
            assert claim_elsewhere(offset_s) == "held held"


def test_a_lease_that_ends_later_than_any_can_is_over(conversation: ConversationRef, due: Endpoint) -> None:
    """The common clock was put back since."""
    leases.claim(conversation, this_process()._replace(host="elsewhere"), agent="")
    gather(due)
    deliveries.claim(due.pk, this_process()._replace(host="elsewhere"), limit=1)
    pass_time(-HOUR_S)
    assert leases.claim(conversation, this_process(), agent="") == 2
    assert len(deliveries.claim(due.pk, this_process(), limit=1)) == 1
