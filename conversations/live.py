"""Hints: announcements of commits to all followers; any hint may be lost."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from channels.layers import InMemoryChannelLayer, get_channel_layer

from conversations import counts
from conversations.counts import Counted
from conversations.events import ConversationRef, EventEnvelope
from conversations.hint_channels.base import HintsAway
from conversations.hints import EVENTS_MAX_CHARACTERS, Hint, size_of
from conversations.outages import Outage

# At most this many groups wait for a slow hint channel; hints of further groups are dropped.
UNSENT_MAX = 10_000

UNSENT_IN_GROUP_MAX = 1_000  # at most this many hints of one group wait; then the oldest are dropped


# The counted outcomes of hints to and from other processes.
SENT, RECEIVED, DROPPED = "sent", "received", "dropped"

_lost = Outage(__name__, "A hint was lost", "Hints are sent again")
_unsent: set[asyncio.Task[None]] = set()
_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, deque[Hint]]] = WeakKeyDictionary()
_carrier: asyncio.AbstractEventLoop | None = None


def conversation_group(pk: int) -> str:
    return f"conversation.{pk}"


def user_group(pk: int) -> str:
    """Return the group of all readers of a user's list of conversations."""
    return f"user.{pk}"


def carry_by(loop: asyncio.AbstractEventLoop) -> None:
    """Send the announcements of this process's threads from `loop` while it runs."""
    global _carrier
    _carrier = loop


def appended(events: Sequence[EventEnvelope]) -> Hint:
    """Return the hint for events that were appended together, in order."""
    return {
        "kind": "appended",
        "last_seq": events[-1]["seq"],
        "events": list(events) if size_of(events) <= EVENTS_MAX_CHARACTERS else [],
    }


def announce_appended(conversation: ConversationRef, events: Sequence[EventEnvelope]) -> None:
    """Announce an append to the conversation's readers, and a new last message to lists."""
    counts.add(Counted.APPENDED, number=len(events))
    announce(conversation_group(conversation.pk), appended(events))
    if any(event["kind"] == "message" for event in events):
        announce_listed(conversation)


def announce_listed(conversation: ConversationRef) -> None:
    """Announce to the owner's lists that they show this conversation differently now."""
    announce_listed_to(conversation.owner_id, conversation)


def announce_listed_to(user_pk: int, conversation: ConversationRef) -> None:
    """Announce to one user's lists that they show this conversation differently now."""
    announce(user_group(user_pk), {"kind": "listed", "conversation": conversation.pk})


def announce_draft(user_pk: int, conversation: ConversationRef | None, *, version: int) -> None:
    """Announce to one user's lists that a draft changed: of this conversation, or of a new one."""
    name = None if conversation is None else conversation.public_id
    announce(user_group(user_pk), {"kind": "draft", "conversation": name, "version": version})


def announce_changed(conversation: ConversationRef) -> None:
    """Announce a change beside the log; readers read it then, so none is stale."""
    announce(conversation_group(conversation.pk), {"kind": "changed"})
    announce_listed(conversation)


def announce_seen(conversation: ConversationRef, seqs: Sequence[int], *, seen_seq: int, turn_id: str) -> None:
    """Announce to the conversation's readers that the agent has seen these messages."""
    group = conversation_group(conversation.pk)
    announce(group, {"kind": "receipt", "seqs": list(seqs), "seen_seq": seen_seq, "turn": turn_id})


_listeners: tuple[Callable[[Hint], None], ...] = ()


def add_listener(listen: Callable[[Hint], None]) -> Callable[[], None]:
    """Call `listen` with every hint of this process, in any thread; return a function that ends this.

    `listen` must be quick and must not fail.
    """
    global _listeners
    _listeners = (*_listeners, listen)

    def end() -> None:
        global _listeners
        _listeners = tuple(each for each in _listeners if each is not listen)

    return end


def tell_listeners(hint: Hint) -> None:
    """Pass a hint to the listeners of this process, like one of this process."""
    for listen in _listeners:
        listen(hint)


def announce_run(conversation: ConversationRef) -> None:
    """Announce to the conversation's readers that a run was accepted, even if there was nothing to do."""
    announce(conversation_group(conversation.pk), {"kind": "run"})


def announce(group: str, hint: Hint) -> None:
    """Send a hint from any thread, without waiting for it and without failing because of it."""
    message = {**hint, "type": "hint", "group": group}
    tell_listeners(hint)
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        carrier = _carrier if _carrier is not None and _carrier.is_running() else _own_carrier()
        carrier.call_soon_threadsafe(_start, carrier, group, message)
    else:
        _start(running, group, message)


@cache
def _own_carrier() -> asyncio.AbstractEventLoop:
    """Start an event loop for the announcements of a process without one: a command, a shell."""
    carrier = asyncio.new_event_loop()
    threading.Thread(target=carrier.run_forever, name="hints", daemon=True).start()
    atexit.register(_let_go, carrier)
    return carrier


def _let_go(carrier: asyncio.AbstractEventLoop) -> None:
    """Wait briefly for the last hints of an ending process to be sent."""

    async def sent() -> None:
        if _unsent:
            await asyncio.wait(set(_unsent), timeout=1)

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(sent(), carrier).result(timeout=2)


_receivers: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[str, Hint], None]] = WeakKeyDictionary()
# The functions that receive hints in each event loop: those of `_receivers` directly, others by the channel.
_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[str, Hint], None]] = WeakKeyDictionary()


def receive_here(loop: asyncio.AbstractEventLoop, receive: Callable[[str, Hint], None]) -> None:
    """Pass `loop`'s hints directly to its readers if no other process could read them.

    The in-memory layer copies each hint deeply, creates two tasks for it and searches all groups. Hints
    that cannot be sent to other processes are passed directly too.
    """
    _readers[loop] = receive
    if isinstance(hint_channel(), InMemoryChannelLayer):
        _receivers[loop] = receive


def _start(loop: asyncio.AbstractEventLoop, group: str, message: Hint) -> None:
    if receive := _receivers.get(loop):
        receive(group, message)
        return
    groups = _waiting.setdefault(loop, {})
    if group in groups:
        if len(groups[group]) == UNSENT_IN_GROUP_MAX:
            counts.add(Counted.HINTS, DROPPED)
        groups[group].append(message)  # behind the waiting ones of its group, to keep their order
    elif len(_unsent) < UNSENT_MAX:
        groups[group] = deque([message], maxlen=UNSENT_IN_GROUP_MAX)
        task = loop.create_task(_send_in_order(groups, group))
        _unsent.add(task)
        task.add_done_callback(_unsent.discard)
    else:
        counts.add(Counted.HINTS, DROPPED)


async def _send_in_order(groups: dict[str, deque[Hint]], group: str) -> None:
    try:
        while groups[group]:
            await _send(group, groups[group].popleft())
    finally:
        del groups[group]


def hint_channel() -> Any:
    layer = get_channel_layer()
    if layer is None:
        raise RuntimeError("The settings name no channel layer.")
    return layer


def hints_away_since() -> datetime | None:
    """Return since when hints of other processes do not arrive; None if they do, or there are none."""
    since: datetime | None = getattr(hint_channel(), "away_since", None)
    return since


async def close_hint_channel() -> None:
    """Release the resources of the hint channel for the running event loop."""
    if (close := getattr(hint_channel(), "close", None)) is not None:
        await close()


async def _send(group: str, message: Hint) -> None:
    try:
        async with asyncio.timeout(5):
            await hint_channel().group_send(group, message)
    except HintsAway:
        counts.add(Counted.HINTS, DROPPED)
        _hand_over(group, message)  # the channel has logged that itself
    except Exception as error:  # any failure is acceptable: the log has the event
        _lost.failed(error)
        counts.add(Counted.HINTS, DROPPED)
        _hand_over(group, message)
    else:
        counts.add(Counted.HINTS, SENT)
        _lost.worked()


def _hand_over(group: str, message: Hint) -> None:
    """Pass a hint that cannot be sent at least to the readers of this process."""
    if receive := _readers.get(asyncio.get_running_loop()):
        receive(group, message)
