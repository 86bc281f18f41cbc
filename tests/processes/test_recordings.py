"""Recorded conversations sent through a server that is killed again and again: nothing is lost or doubled."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.models import Event
from conversations.payloads import jsontext
from tests.support.people.clients import WAIT_S, Server, SocketClosed
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.no_second_try

RECORDINGS = sorted(Path(__file__).parents[1].glob("data/openhands-v0-*.json"))
KILLS = 3
FULL_KILLS = 5
BURST_MAX = 6
"""So many frames are sent before their acks are read."""
PATIENCE_S = 3 * WAIT_S
"""So long a follower waits: a start may take it, and what is not recorded yet has only slow heartbeats."""


class Recording:
    """One recorded conversation: what is sent, under which keys."""

    def __init__(self, path: Path) -> None:
        self.conversation_id = path.stem
        self.texts = [item.text for item in jsontext.items(path.read_text())]
        self.keys = [f"{path.stem}/{number}" for number in range(len(self.texts))]

    def frame(self, number: int) -> str:
        """Return the frame of one event, with the event's text as it was recorded."""
        return f'{{"type":"event","id":"{self.keys[number]}","event":{self.texts[number]}}}'

    def is_committed(self, number: int) -> bool:
        """Say whether the database holds this event."""
        return Event.objects.filter(
            conversation__public_id=self.conversation_id, event_id=self.keys[number]
        ).exists()

    def stored(self) -> list[tuple[int, str, str]]:
        """Return seq, key and payload of what the database holds."""
        rows = Event.objects.filter(conversation__public_id=self.conversation_id).oldest_first()
        return list(rows.values_list("seq", "event_id", "payload"))

    def expected(self) -> list[tuple[int, str, str]]:
        """Return what it should hold: each event once, in order, byte for byte."""
        return list(zip(range(len(self.texts)), self.keys, self.texts, strict=True))


class Recorder:
    """Sends one recording: what has no ack when the server dies is sent again."""

    def __init__(self, server: Server, recording: Recording) -> None:
        self.recording = recording
        self.acked: dict[str, int] = {}
        self.resent = 0
        self._server = server
        self._sent: set[int] = set()
        self._cursor = -1
        self._client = NetworkClient(server, recording.conversation_id)

    @property
    def unacked(self) -> list[int]:
        """The events that still have to be sent, in order."""
        return [number for number, key in enumerate(self.recording.keys) if key not in self.acked]

    def send(self, burst: list[int]) -> None:
        """Send frames without reading anything."""
        for number in burst:
            self.resent += number in self._sent
            self._sent.add(number)
            self._client.send(self.recording.frame(number))

    def read_acks(self, burst: list[int]) -> None:
        while not {self.recording.keys[number] for number in burst} <= self.acked.keys():
            frame = self._client.receive()
            assert frame["type"] != "error", frame
            if frame["type"] == "ack":
                self.acked[frame["id"]] = frame["seq"]
            elif frame["type"] == "event":
                assert frame["seq"] == self._cursor + 1
                self._cursor = frame["seq"]

    def reconnect(self) -> None:
        """Come back with the cursor."""
        self.leave()
        self._client = NetworkClient(self._server, self.recording.conversation_id, after=self._cursor)

    def leave(self) -> None:
        self._client.leave()


class Follower:
    """Reads one conversation all along, in a thread of its own, reconnecting with its own cursor."""

    def __init__(self, server: Server, is_up: threading.Event, recording: Recording) -> None:
        self.reconnects = 0
        self._server = server
        self._is_up = is_up
        self._recording = recording
        self._received: list[tuple[int, str]] = []

    def follow(self) -> list[tuple[int, str]]:
        """Return seq and frame of all events that were received, once there are enough."""
        while len(self._received) < len(self._recording.texts) and self._is_up.wait(PATIENCE_S):
            after = self._received[-1][0] if self._received else -1
            try:
                with NetworkClient(self._server, self._recording.conversation_id, after=after) as client:
                    self._read(client)
            except SocketClosed:
                self.reconnects += 1
        return self._received

    def _read(self, client: NetworkClient) -> None:
        while len(self._received) < len(self._recording.texts):
            text = client.receive_text(within_s=PATIENCE_S)
            frame = json.loads(text)
            if frame["type"] == "event":
                self._received.append((frame["seq"], text))


class Killer:
    """Kills the server with -9 at moments drawn beforehand, and starts it again."""

    def __init__(
        self, server: Server, is_up: threading.Event, chance: random.Random, moments: Sequence[int]
    ) -> None:
        self.moments = sorted(moments)
        self.kills_before_ack = 0
        self._server = server
        self._is_up = is_up
        self._chance = chance

    def is_due(self, events: int) -> bool:
        """Say whether the server is to die before so many events are acked."""
        return bool(self.moments) and self.moments[0] < events

    def strike(self, recording: Recording, burst: list[int]) -> None:
        """Kill while a burst is on its way: at any moment, or once one of it is committed and not acked."""
        self.moments.pop(0)
        if not self.kills_before_ack or self._chance.random() < 0.5:
            number = self._chance.choice(burst)
            wait_until(lambda: recording.is_committed(number))
            self.kills_before_ack += 1
        self._is_up.clear()
        self._server.kill()
        self._server.start()
        self._is_up.set()


def record(
    server: Server, recording: Recording, killer: Killer, chance: random.Random, done: int
) -> Recorder:
    """Send a recording to its end, whatever happens to the server; `done` events came before it."""
    recorder = Recorder(server, recording)
    while recorder.unacked:
        burst = recorder.unacked[: chance.randint(1, BURST_MAX)]
        recorder.send(burst)
        if killer.is_due(done + burst[-1] + 1):
            killer.strike(recording, burst)
            recorder.reconnect()
        else:
            recorder.read_acks(burst)
    recorder.leave()
    return recorder


@pytest.mark.timeout(180)
@pytest.mark.slow(on="postgresql")
def test_recordings_arrive_whole_through_a_server_that_is_killed_again_and_again(
    server: Server, alice: User, chance: random.Random, is_full: bool
) -> None:
    recordings = [Recording(path) for path in RECORDINGS]
    is_up = threading.Event()
    events = sum(len(recording.texts) for recording in recordings)
    moments = chance.sample(range(events), FULL_KILLS if is_full else KILLS)
    killer = Killer(server, is_up, chance, moments)
    followers = [Follower(server, is_up, recording) for recording in recordings]
    recorders: list[Recorder] = []

    server.start()
    is_up.set()
    with ThreadPoolExecutor(len(followers)) as pool:
        following = [pool.submit(follower.follow) for follower in followers]
        try:
            for recording in recordings:
                done = sum(len(recorder.recording.texts) for recorder in recorders)
                recorders.append(record(server, recording, killer, chance, done))
            received = [each.result(WAIT_S) for each in following]
        finally:
            is_up.clear()
            server.kill()

    assert killer.moments == []
    assert killer.kills_before_ack > 0
    assert sum(recorder.resent for recorder in recorders) > 0
    assert sum(follower.reconnects for follower in followers) > 0
    for recording, recorder, frames in zip(recordings, recorders, received, strict=True):
        assert recording.stored() == recording.expected()
        assert recorder.acked == {key: seq for seq, key, _ in recording.expected()}
        assert [seq for seq, _ in frames] == list(range(len(recording.texts)))
        for (_, frame), text in zip(frames, recording.texts, strict=True):
            assert frame.endswith(f'"event":{text}}}')
