"""Two loops for one conversation: whoever lost the lease cannot write, and a dead owner holds nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import psutil
import pytest

from conversations.log import writes
from conversations.models import ConversationRef, Event
from conversations.store import changes
from sessions_app.loops import leases
from sessions_app.models import AgentLoop
from sessions_app.processes import this_process
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S, program_environment
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.no_second_try

LoopProcess = subprocess.Popen[str]
StartLoop = Callable[[float], LoopProcess]


@pytest.fixture
def start_loop(conversation: ConversationRef, tmp_path: Path) -> Iterator[StartLoop]:
    """Start a loop in another process, with a lease of so many seconds, and return once it plays a turn."""
    processes: list[LoopProcess] = []

    # Chosen, so that no title is made beside the turn: a process stopped in that transaction holds its lock.
    changes.retitle(conversation, "A title")

    def start(lease_s: float) -> LoopProcess:
        writes.append(conversation, [event("say something", is_input=True)])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.servers.lone_loop", conversation.public_id, str(lease_s)],
            env=program_environment(tmp_path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "playing\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def texts(conversation: ConversationRef) -> list[str]:
    return list(Event.objects.of(conversation).oldest_first().values_list("text", flat=True))


def loop_of(conversation: ConversationRef) -> AgentLoop:
    return AgentLoop.objects.of(conversation).get()


def test_a_loop_stopped_past_its_lease_and_replaced_writes_nothing_when_it_wakes_up(
    start_loop: StartLoop, conversation: ConversationRef
) -> None:
    old = start_loop(0.5)
    old.send_signal(SIGSTOP)
    wait_until(lambda: not loop_of(conversation).is_held())
    epoch = leases.claim(conversation, this_process(), agent="new")
    before = texts(conversation)
    old.send_signal(SIGCONT)
    old.communicate("too late\n", timeout=WAIT_S)
    loop = loop_of(conversation)
    assert texts(conversation) == before
    assert (epoch, loop.epoch, loop.owner, loop.refused_writes) == (2, 2, this_process(), 1)


def test_a_loop_that_was_not_replaced_goes_on_after_its_lease(
    start_loop: StartLoop, conversation: ConversationRef
) -> None:
    loop = start_loop(0.5)
    loop.send_signal(SIGSTOP)
    wait_until(lambda: not loop_of(conversation).is_held())
    loop.send_signal(SIGCONT)
    assert loop.stdin is not None
    loop.stdin.write("still here\n")
    loop.stdin.flush()
    wait_until(lambda: "still here" in texts(conversation))
    assert loop_of(conversation).refused_writes == 0


def test_the_lease_of_a_process_that_is_only_stopped_stands_until_it_expires(
    start_loop: StartLoop, conversation: ConversationRef
) -> None:
    start_loop(leases.LEASE_S).send_signal(SIGSTOP)
    with pytest.raises(leases.LoopHeld):
        leases.claim(conversation, this_process(), agent="new")
    assert loop_of(conversation).epoch == 1


def test_the_lease_of_a_process_that_is_gone_is_void_at_once(
    start_loop: StartLoop, conversation: ConversationRef
) -> None:
    dead = start_loop(leases.LEASE_S)
    dead.kill()
    dead.wait(WAIT_S)
    assert leases.claim(conversation, this_process(), agent="new") == 2


def test_a_process_that_is_dead_and_not_yet_buried_holds_nothing(
    start_loop: StartLoop, conversation: ConversationRef
) -> None:
    start_loop(leases.LEASE_S).kill()
    wait_until(lambda: not loop_of(conversation).is_held())
    assert leases.claim(conversation, this_process(), agent="new") == 2


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="Linux alone counts ticks")
def test_a_step_of_the_clock_makes_no_process_gone(
    start_loop: StartLoop, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_loop(leases.LEASE_S)
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: create_time(process) + 3600)
    assert loop_of(conversation).is_held()
