"""A reader of a user's list that sends frames of the native wire, over any transport."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cachetools import LRUCache
from django.utils import timezone

from conversations import change_order, live
from conversations.change_order import Reach
from conversations.cursors import InvalidCursor, KeyCursor
from conversations.hints import Hint
from conversations.models import Conversation
from sessions_app import astore
from sessions_app.identity.principals import BAD_REQUEST, Principal, Refused
from sessions_app.live import drafts
from sessions_app.live.hub import POLL_S, hub
from sessions_app.live.status import ListedConversation, iso, listed
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.reader import HEARTBEAT_S

PAGE_MAX = 200

AHEAD = "The cursor in `since` is beyond the newest change, so your list has another history. Read it again."

Start = int | datetime
"""Where changes begin: a number in commit order (change_order), or a time."""


class Since(NamedTuple):
    """The parameter `since` of a client that connects again."""

    text: str
    start: Start


def since_of(text: str | None) -> Since | None:
    if text is None:
        return None
    try:
        return Since(text, KeyCursor.decode(text).key)
    except InvalidCursor:
        return Since(text, _moment(text))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refused(BAD_REQUEST, "`since` is the `cursor` of an earlier frame, or its `now`.") from error
    if moment.tzinfo is None:
        raise Refused(BAD_REQUEST, "`since` has a time zone, as in 2026-01-31T12:00:00Z.")
    # A time in `since` reaches back this far: a transaction may commit after one that began later.
    overlap = timedelta(seconds=3 * POLL_S)
    try:
        return moment.astimezone(UTC) - overlap
    except OverflowError as error:
        raise Refused(BAD_REQUEST, "`since` lies before all time.") from error


class ListReader:
    """A reader of one user's list; a subclass sends its frames."""

    def __init__(self, principal: Principal, since: Since | None, *, follow: bool = True) -> None:
        """Without `follow`, it ends after the changes since then."""
        self._principal = principal
        self._user_pk = principal.user_pk
        self._since = since
        self._follows = follow
        # The last frame about each row: an overlap of polls and hints repeats what has not changed.
        self._shown: LRUCache[object, str] = LRUCache(1_000)
        self._polled_at = timezone.now()
        self._settled = 0
        self._cursor = ""
        self._greeted = asyncio.Event()

    async def _send_text(self, text: str) -> None:
        """Send a frame; return when the client has room for the next one."""
        raise NotImplementedError

    async def _show(self) -> None:
        async with hub().subscribe(live.user_group(self._user_pk)) as hints:
            # Taken before anything is read, here or by the client, so that no later commit is missed.
            await self._greet(await astore.call(change_order.reach))
            while self._follows:
                await self._follow(await hints.next())

    async def _greet(self, reach: Reach) -> None:
        """Send `hello`, then what changed since the client's last connection."""
        since = self._since
        is_ahead = since is not None and isinstance(since.start, int) and since.start > reach.end
        self._settle(reach)
        if since is not None and not is_ahead:
            self._cursor = since.text  # until the rest has been sent
        await self._send(type="hello", now=iso(self._polled_at), cursor=self._cursor)
        self._greeted.set()
        if is_ahead:
            await self._send(type="error", code="cursor_ahead", detail=AHEAD, id=None)
        elif since is not None:
            await self._show_changed(since.start, reach.end)
            self._settle(reach)

    def _settle(self, reach: Reach) -> None:
        """Record that all settled changes have been sent."""
        self._settled, self._cursor = reach.settled, KeyCursor(reach.settled).encode()

    async def _follow(self, hint: Hint) -> None:
        match hint["kind"]:
            case "listed":
                await self._show_states(await astore.call(self._own, [hint["conversation"]]))
            case "draft":
                await self._show_draft(hint["conversation"], hint["version"])
            case _:
                await self._poll()

    async def _poll(self) -> None:
        now = timezone.now()
        reach = await astore.call(change_order.reach)
        await self._show_changed(self._settled, reach.end)
        self._settle(reach)
        self._polled_at = now

    async def _show_changed(self, start: Start, end: int) -> None:
        # A later poll sends the changes below `end` that have no number yet.
        place = start, 0
        # Page by page: all conversations of the user may have changed.
        while page := await astore.call(self._listed_from, *place, end):
            await self._show_states(await astore.call(self._own, [pk for _, pk in page]))
            place = page[-1]
        place = start, 0
        while edited := await astore.call(
            drafts.written_from, self._user_pk, *place, end=end, limit=PAGE_MAX
        ):
            for draft in edited:
                await self._show_draft(draft.conversation, draft.version)
            place = edited[-1].place, edited[-1].pk

    def _listed_from(self, start: Start, pk: int, end: int) -> list[tuple[Start, int]]:
        """Return the next places of the list, in the order of its changes, after this one."""
        rows = Conversation.objects.permanent().owned_by(self._user_pk)
        if isinstance(start, int):
            places: Any = rows.changed_from(start, pk, end=end).values_list("listed_in", "pk")
        else:
            places = rows.listed_from(start, pk).values_list("listed_at", "pk")
        return list(places[:PAGE_MAX])

    def _own(self, pks: list[int]) -> dict[int, ListedConversation]:
        """Return the user's conversations among these, in this order."""
        found = listed(Conversation.objects.permanent().owned_by(self._user_pk).with_pks(pks), self._user_pk)
        return {pk: found[pk] for pk in pks if pk in found}

    async def _show_states(self, found: dict[int, ListedConversation]) -> None:
        for pk, state in found.items():
            await self._show_new(pk, frames.frame_json(type="conversation", conversation=state))

    async def _show_draft(self, conversation: str | None, version: int) -> None:
        frame = frames.frame_json(type="draft", conversation=conversation, version=version)
        await self._show_new(("draft", conversation), frame)

    async def _show_new(self, of: object, text: str) -> None:
        """Send a frame unless it equals the last one about the same object."""
        if self._shown.get(of) != text:
            self._shown[of] = text
            await self._send_text(text)

    async def _heartbeat(self) -> None:
        await self._greeted.wait()
        while True:
            await self._principal.stay(HEARTBEAT_S)
            await self._beat()

    async def _beat(self) -> None:
        await self._send(type="heartbeat", now=iso(self._polled_at), cursor=self._cursor)

    async def _send(self, **frame: Any) -> None:
        await self._send_text(frames.frame_json(**frame))
