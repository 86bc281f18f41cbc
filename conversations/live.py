"""Hints: what was committed, told to whoever follows; any of them may be lost."""

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

from conversations.events import EventEnvelope
from conversations.hints import EVENTS_MAX_CHARACTERS, Hint, size_of
from conversations.models import ConversationRef
from conversations.outages import Outage
from conversations.redis_hints import RedisAway

UNSENT_MAX = 10_000
"""So many groups may wait for a slow hint channel; hints of more are dropped, as hints may be."""

UNSENT_IN_GROUP_MAX = 1_000
"""So many hints of one group may wait; then the oldest are dropped."""

SEND_WAIT_S = 5

_lost = Outage(__name__, "A hint was lost", "Hints are sent again")
_unsent: set[asyncio.Task[None]] = set()
_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, deque[Hint]]] = WeakKeyDictionary()
_carrier: asyncio.AbstractEventLoop | None = None


def conversation_group(pk: int) -> str:
    """Return the group of all who follow one conversation."""
    return f"conversation.{pk}"


def user_group(pk: int) -> str:
    """Return the group of all who follow a user's list of conversations."""
    return f"user.{pk}"


def carry_by(loop: asyncio.AbstractEventLoop) -> None:
    """Send the announcements of this process's threads from `loop` as long as it runs."""
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
    """Tell the conversation's readers what was appended, and list readers of a new last message."""
    announce(conversation_group(conversation.pk), appended(events))
    if any(event["kind"] == "message" for event in events):
        announce_listed(conversation)


def announce_listed(conversation: ConversationRef) -> None:
    """Tell the owner's lists that something which they show of this conversation changed."""
    announce_listed_to(conversation.owner_id, conversation)


def announce_listed_to(user_pk: int, conversation: ConversationRef) -> None:
    """Tell one user's lists that something which they show of this conversation changed for that user."""
    announce(user_group(user_pk), {"kind": "listed", "conversation": conversation.pk})


def announce_draft(user_pk: int, conversation: ConversationRef | None, *, version: int) -> None:
    """Tell one user's lists that a draft was written: of this conversation, or of one to be."""
    name = None if conversation is None else conversation.public_id
    announce(user_group(user_pk), {"kind": "draft", "conversation": name, "version": version})


def announce_changed(conversation: ConversationRef) -> None:
    """Tell readers and lists that something beside the log changed; they read what, so none is stale."""
    announce(conversation_group(conversation.pk), {"kind": "changed"})
    announce_listed(conversation)


_overhearing: tuple[Callable[[Hint], None], ...] = ()


def overhear(listen: Callable[[Hint], None]) -> Callable[[], None]:
    """Call `listen` with every hint that this process gives, in any thread; return how to end that.

    It must be quick and must not fail.
    """
    global _overhearing
    _overhearing = (*_overhearing, listen)

    def end() -> None:
        global _overhearing
        _overhearing = tuple(each for each in _overhearing if each is not listen)

    return end


def announce_run(conversation: ConversationRef) -> None:
    """Tell the conversation's readers that a run was accepted, also where there was nothing to do."""
    announce(conversation_group(conversation.pk), {"kind": "run"})


def announce(group: str, hint: Hint) -> None:
    """Send a hint, from any thread; never wait for it to arrive, and never fail because of it."""
    message = {**hint, "type": "hint", "group": group}
    for overhear in _overhearing:
        overhear(hint)
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        _announce_from_thread(group, message)
    else:
        _start(running, group, message)


def _announce_from_thread(group: str, message: Hint) -> None:
    carrier = _carrier if _carrier is not None and _carrier.is_running() else _own_carrier()
    carrier.call_soon_threadsafe(_start, carrier, group, message)


@cache
def _own_carrier() -> asyncio.AbstractEventLoop:
    """Start a loop that carries the announcements of a process without one: a command, a shell."""
    carrier = asyncio.new_event_loop()
    threading.Thread(target=carrier.run_forever, name="hints", daemon=True).start()
    atexit.register(_let_go, carrier)
    return carrier


def _let_go(carrier: asyncio.AbstractEventLoop) -> None:
    """Give the last hints of an ending process a moment to leave."""

    async def sent() -> None:
        if _unsent:
            await asyncio.wait(set(_unsent), timeout=1)

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(sent(), carrier).result(timeout=2)


_receivers: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[str, Hint], None]] = WeakKeyDictionary()
_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, Callable[[str, Hint], None]] = WeakKeyDictionary()
"""Who takes hints in each event loop; those of `_receivers` take them at once, the others by the channel."""


def receive_here(loop: asyncio.AbstractEventLoop, receive: Callable[[str, Hint], None]) -> None:
    """Hand `loop`'s hints over at once when no other process could read them.

    The in-memory layer copies each hint deeply, makes two tasks of it and looks through all groups.
    What cannot be sent to other processes is handed over as well.
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
        groups[group].append(message)  # behind those of its group, so that they arrive in order
    elif len(_unsent) < UNSENT_MAX:
        groups[group] = deque([message], maxlen=UNSENT_IN_GROUP_MAX)
        task = loop.create_task(_send_in_order(groups, group))
        _unsent.add(task)
        task.add_done_callback(_unsent.discard)


async def _send_in_order(groups: dict[str, deque[Hint]], group: str) -> None:
    try:
        while groups[group]:
            await _send(group, groups[group].popleft())
    finally:
        del groups[group]


def hint_channel() -> Any:
    """Return the channel layer that hints travel by."""
    layer = get_channel_layer()
    if layer is None:
        raise RuntimeError("The settings name no channel layer.")
    return layer


def hints_away_since() -> datetime | None:
    """Return since when other processes' hints do not arrive; None if they do, or if there is one process."""
    since: datetime | None = getattr(hint_channel(), "away_since", None)
    return since


async def close_hint_channel() -> None:
    """Give back what the hint channel holds for the running event loop."""
    if (close := getattr(hint_channel(), "close", None)) is not None:
        await close()


async def _send(group: str, message: Hint) -> None:
    try:
        async with asyncio.timeout(SEND_WAIT_S):
            await hint_channel().group_send(group, message)
    except RedisAway:
        _hand_over(group, message)  # the channel has said so itself
    except Exception as error:  # whatever the hint channel raises, the log has the event
        _lost.failed(error)
        _hand_over(group, message)
    else:
        _lost.worked()


def _hand_over(group: str, message: Hint) -> None:
    """Let at least this process's readers have a hint that cannot be sent."""
    if receive := _readers.get(asyncio.get_running_loop()):
        receive(group, message)
