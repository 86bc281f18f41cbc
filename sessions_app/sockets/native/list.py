"""The native socket of a user's list of conversations: every change that a list shows, without polling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from asgiref.typing import WebSocketScope
from cachetools import LRUCache
from django.utils import timezone

from conversations import change_order, live
from conversations.access import pk_of
from conversations.change_order import Reach
from conversations.cursors import InvalidCursor, KeyCursor
from conversations.exceptions import ConversationError
from conversations.hints import Hint
from conversations.models import Conversation
from conversations.payloads.bounds import is_light
from sessions_app import astore
from sessions_app.capacity import parsing
from sessions_app.identity.principals import BAD_REQUEST, TOO_SLOW, Principal, Refused
from sessions_app.live import drafts
from sessions_app.live.hub import POLL_S, hub
from sessions_app.live.status import ListedConversation, iso, listed
from sessions_app.loops.manager import get_manager
from sessions_app.sockets.ending import ended
from sessions_app.sockets.handshake import authenticated, query_of, within_quotas
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.conversation import HEARTBEAT_S
from sessions_app.sockets.native.frames import BadFrame
from sessions_app.sockets.socket import Socket, SocketConsumer, SocketEnding

REMEMBERED_MAX = 1_000
PAGE_MAX = 200
OVERLAP = timedelta(seconds=3 * POLL_S)
"""A time in `since` reaches back this far: a transaction may commit after one that began later."""

AHEAD = "The cursor in `since` is beyond the newest change, so your list has another history. Read it again."

Start = int | datetime
"""Where the changes to send begin: a number in commit order (change_order), or a time."""


class Since(NamedTuple):
    """The parameter `since` of a client that connects again."""

    text: str
    start: Start


class ListConsumer(SocketConsumer):
    """The native door of a user's list."""

    async def serve(self, socket: Socket) -> None:
        """Serve one client from its handshake to its close."""
        await socket.accept()
        async with ended(SocketEnding(socket)):
            since = _since(socket.scope)
            principal = await authenticated(socket)
            principal.require_reading(all_conversations=True)
            async with within_quotas(socket, principal):
                await get_manager().ensure_started()
                await ListSocket(socket, principal, since).serve()


def _since(scope: WebSocketScope) -> Since | None:
    text = query_of(scope).get("since")
    if text is None:
        return None
    try:
        return Since(text, KeyCursor.decode(text).key)
    except InvalidCursor:
        return Since(text, _moment(text))


def _moment(text: str) -> datetime:
    """Return the time from which to send changes. Raise Refused for a text that is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Refused(BAD_REQUEST, "`since` is the `cursor` of an earlier frame, or its `now`.") from error
    if moment.tzinfo is None:
        raise Refused(BAD_REQUEST, "`since` has a time zone, as in 2026-01-31T12:00:00Z.")
    try:
        return moment.astimezone(UTC) - OVERLAP
    except OverflowError as error:
        raise Refused(BAD_REQUEST, "`since` lies before all time.") from error


class ListSocket(SocketEnding):
    """One client on one user's list."""

    def __init__(self, socket: Socket, principal: Principal, since: Since | None) -> None:
        super().__init__(socket)
        self._principal = principal
        self._user_pk = pk_of(principal.user)
        self._since = since
        self._shown: LRUCache[object, str] = LRUCache(REMEMBERED_MAX)
        self._polled_at = timezone.now()
        self._settled = 0
        self._cursor = ""
        self._greeted = asyncio.Event()

    async def serve(self) -> None:
        """Send changes until either side ends it."""
        async with ended(self), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._show())
            tasks.create_task(self._heartbeat())
            tasks.create_task(self._take())

    async def end_slow(self, error: Exception) -> None:
        """Close, and say what to read anew."""
        await self._socket.close(TOO_SLOW, "You did not read; connect again and read the list.")

    async def _show(self) -> None:
        async with hub().subscribe(live.user_group(self._user_pk)) as hints:
            # Taken before anything is read, here or by the client, so that no later commit is missed.
            await self._greet(await astore.call(change_order.reach))
            while True:
                await self._follow(await hints.next())

    async def _greet(self, reach: Reach) -> None:
        """Send `hello`, then what changed since the client was connected last."""
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
        """Send all changes from `start` on; a later poll sends those that have no number below `end` yet."""
        await self._show_listed(start, end)
        await self._show_drafts(start, end)

    async def _show_listed(self, start: Start, end: int) -> None:
        """Send the conversations that changed, page by page: it may be all of the user's conversations."""
        place = start, 0
        while page := await astore.call(self._listed_from, *place, end):
            await self._show_states(await astore.call(self._own, [pk for _, pk in page]))
            place = page[-1]

    def _listed_from(self, start: Start, pk: int, end: int) -> list[tuple[Start, int]]:
        """Return the next places of the list in the order of its changes, beginning after this one."""
        rows = Conversation.objects.owned_by(self._user_pk)
        if isinstance(start, int):
            places: Any = rows.changed_from(start, pk, end=end).values_list("listed_in", "pk")
        else:
            places = rows.listed_from(start, pk).values_list("listed_at", "pk")
        return list(places[:PAGE_MAX])

    def _own(self, pks: list[int]) -> dict[int, ListedConversation]:
        """Return those of these that belong to the user, whoever named them, in this order."""
        found = listed(Conversation.objects.owned_by(self._user_pk).with_pks(pks), self._user_pk)
        return {pk: found[pk] for pk in pks if pk in found}

    async def _show_states(self, found: dict[int, ListedConversation]) -> None:
        for pk, state in found.items():
            await self._show_new(pk, frames.frame_json(type="conversation", conversation=state))

    async def _show_drafts(self, start: Start, end: int) -> None:
        place = start, 0
        while page := await astore.call(drafts.written_from, self._user_pk, *place, end=end, limit=PAGE_MAX):
            for draft in page:
                await self._show_draft(draft.conversation, draft.version)
            place = page[-1].place, page[-1].pk

    async def _show_draft(self, conversation: str | None, version: int) -> None:
        frame = frames.frame_json(type="draft", conversation=conversation, version=version)
        await self._show_new(("draft", conversation), frame)

    async def _show_new(self, of: object, text: str) -> None:
        """Send a frame unless it equals the last one about the same thing."""
        if self._shown.get(of) != text:
            self._shown[of] = text
            await self._socket.send_text(text)

    async def _heartbeat(self) -> None:
        await self._greeted.wait()
        while True:
            await self._principal.stay(HEARTBEAT_S)
            await self._send(type="heartbeat", now=iso(self._polled_at), cursor=self._cursor)

    async def _take(self) -> None:
        """Answer frames: this socket only sends, but a client may authenticate twice."""
        await self._greeted.wait()
        while True:
            text = await self._socket.receive_text()
            frame_id = None
            try:
                if text is None:
                    raise BadFrame("Frames are text, not binary.")
                frame = await parsing.in_turn(self._user_pk, is_light(text), frames.parse, text)
                frame_id = frame.id
                if frame.type != "auth":
                    raise BadFrame(f"There is no frame {frame.type!r} here; there is auth.")
                if frame_id is not None:
                    await self._send(type="ack", id=frame_id)
            except ConversationError as error:
                await self._send(**frames.error_frame(error, frame_id))

    async def _send(self, **frame: Any) -> None:
        await self._socket.send_text(frames.frame_json(**frame))
