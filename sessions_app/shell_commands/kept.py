"""The commands of clients in this process and their events: bounded, found by id, pages, and followed live.

Each process knows its own: an event of another one is unknown here, and answers say so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError, QuotaExceeded
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import NoSandbox, Sandbox
from sessions_app.sandbox_network.allowed import has_network
from sessions_app.shell_commands.events import CommandEvent, CommandOutput, CommandStarted
from sessions_app.shell_commands.running import CommandPlace, RunningCommand
from sessions_app.workspaces import paths, records
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused, shown


class UnknownCommand(ConversationError):
    """No such command or event is kept here; the text says why that may be."""

    code = "unknown_command"


class TooManyFollowers(ConversationError):
    """As many sockets follow these commands as may."""

    code = "too_many_followers"


class CommandBounds(NamedTuple):
    """How much a process keeps and runs."""

    running: int = 12
    """Fewer than the threads for requests that take long."""
    running_of_one: int = 4
    """Of one user."""
    output: int = 8 * 1024 * 1024
    """Bytes of one output of one command."""
    bytes: int = 256 * 1024 * 1024
    bytes_of_one: int = 64 * 1024 * 1024
    commands_of_one: int = 500
    followers: int = 50
    """Of one history."""
    followed: int = 256
    """Events that a follower may not have taken."""


class HistoryKey(NamedTuple):
    """Whose commands a request means: those of a conversation, or a user's that name no conversation."""

    user_pk: int
    conversation_pk: int | None


class NewCommand(NamedTuple):
    """What a client wants to run."""

    command: str
    cwd: str | None
    timeout: int


class EventsWanted(NamedTuple):
    """Which events of a history."""

    kind: str | None = None
    command_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    """Before this time."""
    after_order: int | None = None

    def has(self, event: CommandEvent) -> bool:
        """Return whether this is one of them."""
        is_meant = (
            self.kind in (None, event.kind)
            and (self.since is None or event.timestamp >= self.since)
            and (self.until is None or event.timestamp < self.until)
        )
        if not isinstance(event, CommandOutput):
            return is_meant and self.command_id is None
        is_later = self.after_order is None or event.order > self.after_order
        return is_meant and is_later and self.command_id in (None, event.command_id)


@dataclass(eq=False, slots=True)
class CommandFollower:
    """Who is sent the events of a history as they come."""

    most: int
    waiting: deque[CommandEvent] = field(default_factory=deque)
    has_some: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: CommandEvent) -> None:
        """Add an event; a follower that has too many is found out by `taken`."""
        if len(self.waiting) <= self.most:
            self.waiting.append(event)
        self.has_some.set()

    async def taken(self) -> list[CommandEvent]:
        """Wait for events and return them. Raise TimeoutError if the follower has missed some."""
        await self.has_some.wait()
        self.has_some.clear()
        found = list(self.waiting)
        self.waiting.clear()
        if len(found) > self.most:
            raise TimeoutError
        return found


@dataclass(eq=False, slots=True)
class CommandHistory:
    """The commands that one key names, in the order of their starts, and all their events in order."""

    commands: dict[str, RunningCommand] = field(default_factory=dict)
    events: dict[str, CommandEvent] = field(default_factory=dict)
    followers: set[CommandFollower] = field(default_factory=set)

    def publish(self, event: CommandEvent) -> None:
        """Keep an event, and send it to all who follow."""
        self.events[event.id] = event
        for each in self.followers:
            each.put(event)

    def forget(self, command: RunningCommand) -> int:
        """Remove a command with its events; return how many these were."""
        gone = [command.started.id, *(each.id for each in command.outputs)]
        del self.commands[command.started.id]
        return sum(self.events.pop(each, None) is not None for each in gone)


class KeptCommands:
    """The histories of one event loop."""

    def __init__(self, bounds: CommandBounds) -> None:
        self.bounds = bounds
        self._histories: dict[HistoryKey, CommandHistory] = {}
        self._watching: set[asyncio.Future[None]] = set()

    async def start(
        self,
        key: HistoryKey,
        conversation: ConversationRef,
        lost: Callable[[], Awaitable[str]],
        new: NewCommand,
    ) -> RunningCommand:
        """Start a command in the workspace of a conversation.

        It is stopped once `lost` returns, with the reason that this gives. One whose directory is not there
        ends at once. Raise NoSandbox, PathRefused for a directory outside, QuotaExceeded if too many run, and
        what the making of a workspace raises.
        """
        sandbox = await asyncio.to_thread(choice.chosen)
        if sandbox.asks_first:
            raise NoSandbox(
                "Clients cannot run commands without a sandbox, because no user would approve them first. "
                "Set CONVSERVER_SANDBOX to auto."
            )
        place = await astore.call(_place, sandbox, conversation, new.cwd)
        # Nothing is awaited from here on, so that no other command comes between the look and the start.
        self._require_room(key.user_pk)
        history = self._histories.setdefault(key, CommandHistory())
        started = CommandStarted(command=new.command, cwd=place.cwd, timeout=new.timeout)
        history.publish(started)
        command = history.commands[started.id] = RunningCommand(
            started, place, most=self.bounds.output, publish=history.publish
        )
        watching = asyncio.ensure_future(command.stop_at(lost()))
        self._watching.add(watching)
        watching.add_done_callback(self._watching.discard)
        self._forget_oldest(key.user_pk)
        return command

    def command(self, key: HistoryKey, command_id: str) -> RunningCommand:
        """Return a command by id. Raise UnknownCommand."""
        history = self._histories.get(key)
        if history is None or command_id not in history.commands:
            raise _unknown("command")
        return history.commands[command_id]

    def event(self, key: HistoryKey, event_id: str) -> CommandEvent:
        """Return an event by id. Raise UnknownCommand."""
        found = self.events(key, [event_id])[0]
        if found is None:
            raise _unknown("event")
        return found

    def events(self, key: HistoryKey, ids: list[str]) -> list[CommandEvent | None]:
        """Return the events with these ids; None for an unknown one."""
        history = self._histories.get(key, CommandHistory())
        return [history.events.get(each) for each in ids]

    def search(self, key: HistoryKey, wanted: EventsWanted, *, newest_first: bool) -> list[CommandEvent]:
        """Return the matching events in order. Raise UnknownCommand for the outputs of an unknown command."""
        # An empty page would say that the command has no output, which another process may know better.
        if wanted.command_id is not None:
            self.command(key, wanted.command_id)
        found = [
            each for each in self._histories.get(key, CommandHistory()).events.values() if wanted.has(each)
        ]
        return found[::-1] if newest_first else found

    def clear(self, key: HistoryKey) -> int:
        """Forget the events of all commands that have ended; return how many these were."""
        history = self._histories.get(key, CommandHistory())
        ended = [each for each in history.commands.values() if each.has_ended]
        return sum(history.forget(each) for each in ended)

    @contextmanager
    def following(self, key: HistoryKey) -> Iterator[CommandFollower]:
        """Give a follower of a history, for as long as the block lasts. Raise TooManyFollowers."""
        history = self._histories.setdefault(key, CommandHistory())
        if len(history.followers) >= self.bounds.followers:
            raise TooManyFollowers("Too many bash event connections")
        follower = CommandFollower(self.bounds.followed)
        history.followers.add(follower)
        try:
            yield follower
        finally:
            history.followers.discard(follower)

    async def close(self) -> None:
        """End every command with all that it has started."""
        running = [each for _, each in self._all() if not each.has_ended]
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.gather(*(each.stop() for each in running), *self._watching)

    def _all(self, user_pk: int | None = None) -> list[tuple[CommandHistory, RunningCommand]]:
        """Return all commands, or those of a user, by the time of their start."""
        found = [
            (history, each)
            for key, history in self._histories.items()
            if user_pk in (None, key.user_pk)
            for each in history.commands.values()
        ]
        return sorted(found, key=lambda each: each[1].started.timestamp)

    def _require_room(self, user_pk: int) -> None:
        """Raise QuotaExceeded if as many commands run as may."""
        for of_whom, most in ((user_pk, self.bounds.running_of_one), (None, self.bounds.running)):
            if sum(not each.has_ended for _, each in self._all(of_whom)) >= most:
                whose = "of yours " if of_whom is not None else ""
                raise QuotaExceeded(
                    f"{most} commands {whose}are running. Wait for the end of one, or stop it.",
                    retry_after_s=10,
                )

    def _forget_oldest(self, user_pk: int) -> None:
        """Forget commands that have ended, the oldest first, until what is kept is within the bounds."""
        bounds = self.bounds
        for of_whom, most in ((user_pk, bounds.bytes_of_one), (None, bounds.bytes)):
            found = self._all(of_whom)
            size = sum(each.size for _, each in found)
            count = len(found)
            for history, each in found:
                is_too_many = of_whom is not None and count > bounds.commands_of_one
                if size <= most and not is_too_many:
                    break
                # One that runs is left out: there are few, and each has its bound.
                if each.has_ended:
                    size, count = size - each.size, count - 1
                    history.forget(each)
        empty = [key for key, each in self._histories.items() if not each.commands and not each.followers]
        for key in empty:
            del self._histories[key]


def _place(sandbox: Sandbox, conversation: ConversationRef, cwd: str | None) -> CommandPlace:
    """Return where a command runs. Raise PathRefused for a directory outside."""
    target = paths.relative(conversation, cwd or "")
    directory = records.directory_of(conversation)
    home = sandbox.seen_at(paths.home_of(conversation), directory)
    problem = ""
    try:
        with records.opened(conversation) as tree:
            if tree is not None:
                tree.require_directory(target)
            elif target:
                raise NoSuchFile(f"There is no {shown(target)}.")
    except PathRefused as error:
        problem = str(error)
    cwd = f"{home}/{target}".rstrip("/")
    return CommandPlace(directory, home, cwd, problem, has_network(conversation))


def _unknown(what: str) -> UnknownCommand:
    return UnknownCommand(
        f"This process knows no {what} with this id. Old ones are forgotten; where several processes serve, "
        f"each knows those that were started there, so send all requests about a command by one connection."
    )


def commands() -> KeptCommands:
    """Return the commands of the running event loop."""
    return _kept.get()


async def close() -> None:
    """End every command of the running event loop."""
    if (kept := _kept.pop()) is not None:
        await kept.close()


_kept = PerEventLoop(lambda: KeptCommands(CommandBounds()))
