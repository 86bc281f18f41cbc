"""Commands between processes: sent for loops elsewhere, received for loops here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from conversations.events import ConversationRef
from conversations.hints import Hint
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.live.hub import hub
from sessions_app.loops import commands
from sessions_app.loops.commands import CommandPending, ReceivedCommand, Settled
from sessions_app.models import CommandOutcome, Verb
from sessions_app.processes import Process

_deaf = Outage(__name__, "Hints about commands cannot be received", "Hints about commands are received again")

LOOK_S = 4.0
"""A command whose hint was lost is obeyed after this long at the latest."""
# So that the caller of such a command learns its outcome, too.
WAIT_S = 2 * LOOK_S
OUTCOME_POLL_S = 1.0
"""An outcome whose hint was lost is noticed after this long."""


class CommandChannel:
    """One process's end of the channel: sends commands, and passes on those for its own loops."""

    def __init__(
        self,
        process: Process,
        *,
        held: Callable[[], Mapping[int, int]],
        obey: Callable[[ReceivedCommand], None],
        wake: Callable[[int], None],
    ) -> None:
        """`held` returns the loops of this process (conversation → epoch); none of the three may block."""
        self._process = process
        self._held = held
        self._obey = obey
        self._wake = wake
        # A command stays pending while it is obeyed, and each look finds it again.
        self._taken: set[int] = set()
        self._awaited: dict[int, asyncio.Event] = {}

    async def send(self, conversation: ConversationRef, verb: Verb, *, until: float) -> Settled | None:
        """Send a command to the process that holds the loop, and return its outcome.

        Return None if no living process holds it. Raise CommandPending if there is no outcome by `until`,
        a moment of `time.monotonic`; the command stays, and is obeyed later. Raise ConversationBusy if
        the conversation stays locked until then; the command is not stored.
        """
        command_id = await astore.change(commands.give, conversation, verb, self._process, until=until)
        if command_id is None:
            return None
        hinted = self._awaited[command_id] = asyncio.Event()
        pause_s = 0.25  # the first look comes soon: the hint may have come before the event was there
        try:
            while (left_s := until - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(pause_s, left_s)):
                        await hinted.wait()
                hinted.clear()
                pause_s = OUTCOME_POLL_S
                if (settled := await astore.call(commands.settled, command_id)) is not None:
                    return settled
        finally:
            del self._awaited[command_id]
        raise CommandPending(verb)

    async def settle(self, command: ReceivedCommand, outcome: CommandOutcome, detail: str = "") -> None:
        await astore.change(commands.settle, command.id, outcome, detail)

    def let_go(self, command: ReceivedCommand) -> None:
        """Release a failed command, so that it is taken again."""
        self._taken.discard(command.id)

    async def listen(self) -> None:
        """Process the hints for this process until cancelled."""
        while True:
            with _deaf.counted():  # without hints, `look` still finds every command
                async with hub().subscribe(commands.group_of(self._process)) as hints:
                    while True:
                        await self._receive(await hints.next())
                        _deaf.worked()
            await asyncio.sleep(1.0)

    async def _receive(self, hint: Hint) -> None:
        match hint.get("kind"):
            case "command" | "polled":  # polled: hints may have been missed
                await self.look()
            case "wake":
                self._wake(hint["conversation"])
            case "settled" if hint["command"] in self._awaited:
                self._awaited[hint["command"]].set()

    async def look(self) -> None:
        """Take every command for a loop of this process, by one query for all."""
        held = self._held()
        if not held:
            return
        # Forget taken commands that are settled, but none that was taken during the query.
        taken_before = set(self._taken)
        found = await astore.call(commands.pending, held)
        self._taken -= taken_before - {command.id for command in found}
        for command in found:
            if command.id not in self._taken:
                self._taken.add(command.id)
                self._obey(command)
