"""Following a V1 agent server: what is half written, missing, or has changed when the follower looks."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from conversations.models import Conversation
from sessions_app.models import AgentLoop, AgentSetup
from sessions_app.openhands_v1.following import DirectoryFollower
from tests.support.wires.v1_directories import RUNNING, Kept, event_id

pytestmark = pytest.mark.one_engine

LONG_AGO_S = 600.0


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A conversation that another server holds and works on."""
    found = Kept(tmp_path / "conversations", UUID(int=1))
    found.state()
    found.write("owner_lease.json", {"expires_at": time.time() + 3600})
    return found


class Follower:
    """A follower that looks when it is told to, and what it says."""

    def __init__(self, user: User, path: Path) -> None:
        self.said: list[str] = []
        self._follower = DirectoryFollower(user=user, path=path, zone=ZoneInfo("UTC"), said=self.said.append)

    def look(self) -> None:
        self._follower.look(threading.Event())


@pytest.fixture
def follower(alice: User, kept: Kept) -> Follower:
    return Follower(alice, kept.path.parent)


def ids(*numbers: int) -> list[str]:
    return [event_id(number) for number in numbers]


def talk() -> Conversation:
    return Conversation.objects.get()


def age(kept: Kept) -> None:
    """Let the event files have been written long ago."""
    for file in (kept.path / "events").iterdir():
        os.utime(file, (time.time() - LONG_AGO_S,) * 2)


@pytest.mark.no_second_try
@pytest.mark.parametrize("part", [0.0, 0.5])
def test_nothing_overtakes_an_event_that_is_half_written(follower: Follower, kept: Kept, part: float) -> None:
    kept.event(0)
    kept.event(1, part=part)
    kept.event(2)
    follower.look()
    follower.look()
    assert kept.stored() == ids(0)
    kept.event(1)
    follower.look()
    assert kept.stored() == ids(0, 1, 2)
    assert not [sentence for sentence in follower.said if "new events" not in sentence]


@pytest.mark.no_second_try
def test_nothing_overtakes_an_event_that_is_missing(follower: Follower, kept: Kept, alice: User) -> None:
    kept.event(0)
    kept.event(2)
    follower.look()
    Follower(alice, kept.path.parent).look()  # neither does it for one that was started again
    assert kept.stored() == ids(0)
    kept.event(1)
    follower.look()
    assert kept.stored() == ids(0, 1, 2)


def test_a_conversation_does_not_begin_before_its_first_event(follower: Follower, kept: Kept) -> None:
    follower.look()
    kept.event(0, part=0.5)
    kept.event(1)
    follower.look()
    assert not Conversation.objects.exists()
    kept.event(0)
    follower.look()
    assert kept.stored() == ids(0, 1)


def test_what_is_missing_for_long_is_no_longer_waited_for(follower: Follower, kept: Kept) -> None:
    kept.event(0)
    kept.event(1, part=0.5)
    kept.event(3)
    follower.look()
    age(kept)
    follower.look()
    assert kept.stored() == ids(0, 3)
    assert [sentence for sentence in follower.said if "skipped event-00001-" in sentence]
    kept.event(2)
    follower.look()
    assert kept.stored() == ids(0, 3, 2), "it is here, if not at its place"


def test_a_file_that_is_no_event_holds_nothing_up(follower: Follower, kept: Kept) -> None:
    kept.event(0)
    kept.write(f"events/event-00001-{event_id(1)}.json", {"id": event_id(1)})
    kept.event(2)
    follower.look()
    assert kept.stored() == ids(0, 2)


def test_a_run_that_goes_on_is_not_ended(follower: Follower, kept: Kept) -> None:
    kept.call(0)
    follower.look()
    assert kept.stored() == ids(0)
    assert AgentLoop.objects.get().execution_status == "idle"
    call_command("import_openhands_v1", str(kept.path), "--force", verbosity=0)
    assert len(kept.stored()) == 3, "an import ends it: with a result, and a state"


@pytest.mark.parametrize("name", ["base_state.json", "both"])
def test_a_conversation_waits_for_the_setup_of_its_agent(follower: Follower, kept: Kept, name: str) -> None:
    kept.write("base_state.json", '{"id": ')
    if name == "both":
        (kept.path / "base_state.json").unlink()
    kept.event(0)
    follower.look()
    assert not Conversation.objects.exists()
    kept.state()
    follower.look()
    assert AgentSetup.objects.get().shown_agent == RUNNING["agent"]


def test_a_setup_that_never_comes_is_not_waited_for(follower: Follower, kept: Kept) -> None:
    (kept.path / "base_state.json").unlink()
    kept.event(0)
    age(kept)
    kept.event(1)
    follower.look()
    assert kept.stored() == ids(0, 1)


def test_the_facts_keep_up_with_the_source(follower: Follower, kept: Kept) -> None:
    kept.event(0)
    follower.look()
    kept.write("base_state.json", "{")
    kept.event(1)
    follower.look()
    assert kept.stored() == ids(0, 1)
    used = {"accumulated_cost": 2.0, "accumulated_token_usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    kept.state(execution_status="finished", title="A talk", stats={"usage_to_metrics": {"agent": used}})
    follower.look()
    assert (talk().title, talk().accumulated_cost, talk().total_tokens) == ("A talk", 2.0, 8)
    assert AgentLoop.objects.get().execution_status == "finished"
    kept.state(title="A long talk")
    follower.look()
    assert talk().title == "A long talk"


def test_lists_are_told_of_a_state_that_comes_without_an_event_and_of_no_look_that_finds_none(
    follower: Follower, kept: Kept
) -> None:
    kept.event(0)
    follower.look()
    before = talk().listed_at
    kept.state(execution_status="finished")
    follower.look()
    told = talk().listed_at
    assert told > before
    os.utime(kept.path / "base_state.json")
    follower.look()
    assert talk().listed_at == told


def test_a_title_that_was_given_here_stays(follower: Follower, kept: Kept) -> None:
    kept.state(title="A talk")
    kept.event(0)
    follower.look()
    Conversation.objects.update(title="Mine")
    kept.state(title="Another name")
    follower.look()
    assert talk().title == "Mine"


def test_the_state_of_a_loop_that_has_run_here_stays(follower: Follower, kept: Kept) -> None:
    kept.event(0)
    follower.look()
    AgentLoop.objects.update(epoch=1, execution_status="paused")
    kept.state(execution_status="finished")
    follower.look()
    assert AgentLoop.objects.get().execution_status == "paused"


def test_a_source_that_is_moved_or_deleted_takes_nothing_away(follower: Follower, kept: Kept) -> None:
    kept.event(0)
    follower.look()
    kept.path = kept.path.rename(kept.path.with_name("elsewhere"))
    kept.event(1)
    follower.look()
    assert kept.stored() == ids(0, 1)
    shutil.rmtree(kept.path.parent)
    follower.look()
    assert kept.stored() == ids(0, 1)


@pytest.mark.needs_engine
def test_one_conversation_that_cannot_be_stored_costs_no_other(
    follower: Follower, kept: Kept, bob: User
) -> None:
    kept.event(0)
    Follower(bob, kept.path.parent).look()
    other = Kept(kept.path.parent, UUID(int=2))
    other.state()
    other.event(0)
    follower.look()
    assert other.stored() == ids(0)
    assert [sentence for sentence in follower.said if "belongs to another user" in sentence]


@pytest.mark.needs_engine
def test_what_is_followed_is_stored(kept: Kept, alice: User) -> None:
    with pytest.raises(CommandError, match="leave out --dry-run or --follow"):
        call_command("import_openhands_v1", str(kept.path), "--follow", "--dry-run")
