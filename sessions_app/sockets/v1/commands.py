"""The socket of commands of the V1 wire: their events as they come, and new commands (spec V1 §2.5, c)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial

from pydantic import ValidationError

from conversations.engines import failures
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError, ConversationNotFound, InvalidEvent, QuotaExceeded
from conversations.outages import Outage
from conversations.payloads import bounds
from sessions_app import astore
from sessions_app.capacity.parsing import in_turn
from sessions_app.checkpoints import copies
from sessions_app.identity import known_sockets, open_sockets
from sessions_app.identity.principals import CHECK_S, NOT_FOUND, TOO_MUCH, KeyHolder, Principal, Refused
from sessions_app.live import grounds
from sessions_app.live.text_frames import frame_of
from sessions_app.loops.manager import get_manager
from sessions_app.models import Scope
from sessions_app.shell_commands import events, kept
from sessions_app.shell_commands.events import CommandEvent
from sessions_app.shell_commands.kept import CommandFollower, EventsWanted, HistoryKey, TooManyFollowers
from sessions_app.shell_commands.requests import CommandRequest
from sessions_app.sockets.handshake import query_of
from sessions_app.sockets.socket import TRY_AGAIN_LATER, Socket, SocketConsumer, ended
from sessions_app.sockets.v1.handshake import GONE, is_auth, principal_by_address, principal_by_frame
from sessions_app.sockets.v1.socket import SLOW, V1Ending, parsed
from sessions_app.workspaces import named

_failing = Outage(__name__, "A frame of the socket of commands failed")
_TRUE = frozenset({"true", "1", "yes", "on", "y", "t"})


class CommandsSocket(V1Ending):
    """A client that follows commands: those of the conversation whose key it has, else the user's own."""

    def __init__(self, socket: Socket, principal: Principal, conversation: ConversationRef | None) -> None:
        super().__init__(socket)
        self._principal = principal
        self._conversation = conversation
        self._key = HistoryKey(principal.user_pk, None if conversation is None else conversation.pk)

    async def end_slow(self, error: Exception) -> None:
        await self._socket.close(TRY_AGAIN_LATER, SLOW)

    async def serve(self, *, with_history: bool) -> None:
        await get_manager().ensure_started()
        async with ended(self):
            try:
                with kept.commands().following(self._key) as follower:
                    await self._run_tasks(follower, with_history)
            except TooManyFollowers as error:
                await self._socket.close(TRY_AGAIN_LATER, str(error))

    async def _run_tasks(self, follower: CommandFollower, with_history: bool) -> None:
        # What comes from here on is live, so nothing is missing and nothing comes twice.
        past = kept.commands().search(self._key, EventsWanted(), newest_first=False) if with_history else []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell(past, follower))
            tasks.create_task(self._take())
            tasks.create_task(self._check())

    async def _tell(self, past: list[CommandEvent], follower: CommandFollower) -> None:
        some = past
        while True:
            for event in some:
                await self._socket.send_frames([frame_of(json.dumps(event.shown()))])
            some = await follower.taken()

    async def _take(self) -> None:
        while True:
            text = await self._socket.receive_text()
            try:
                await self._take_frame(text)
            except (InvalidEvent, ValidationError) as error:
                await self._tell_refused("ValidationError", _words(error))
            except ConversationError as error:
                await self._tell_refused(type(error).__name__, str(error))
            except Refused:  # the access has ended
                raise
            except Exception as error:
                _failing.failed(error)
                await self._tell_refused("InternalServerError", failures.to_sender(error))

    async def _take_frame(self, text: str | None) -> None:
        if text is None:
            raise InvalidEvent("Frames are text, not binary.")
        frame = await in_turn(self._principal.user_pk, bounds.is_light(text), parsed, text)
        await self._principal.require_access()
        if is_auth(frame):
            return
        self._principal.require(Scope.WRITE)  # as for each change of a workspace
        wanted = CommandRequest.model_validate(frame)
        conversation = self._conversation or await astore.call(
            named.newest_of, self._principal.user, wanted.cwd
        )
        if conversation is None:
            raise InvalidEvent(
                "No conversation of yours is meant. Connect with the key of one, or name in `cwd` a "
                "directory in the working directory of one."
            )
        lost = partial(grounds.lost, conversation.pk, self._principal)
        await copies.require(conversation)
        await kept.commands().start(self._key, conversation, lost, wanted.new())

    async def _tell_refused(self, code: str, detail: str) -> None:
        await self._socket.send_text(json.dumps(events.failure(code, detail)))

    async def _check(self) -> None:
        while True:
            await self._principal.stay(CHECK_S)


class CommandsConsumer(SocketConsumer):
    """The door of this socket."""

    async def serve(self, socket: Socket) -> None:
        query = query_of(socket.scope)
        try:
            principal = await principal_by_address(socket.scope, query, None)
        except Refused:
            await socket.refuse()
            return
        except Exception as error:
            await socket.accept()
            async with ended(V1Ending(socket)):
                raise error
            return
        await socket.accept()
        async with ended(V1Ending(socket)):
            await self._serve_accepted(socket, principal, query)

    async def _serve_accepted(
        self, socket: Socket, principal: Principal | None, query: Mapping[str, str]
    ) -> None:
        principal = principal or await principal_by_frame(socket, None)
        opened = await _opened(principal)
        principal.require_reading(all_conversations=opened is None)
        is_asked = query.get("resend_mode") == "all" or query.get("resend_all", "").lower() in _TRUE
        try:
            with open_sockets.counted(principal.user_pk):
                known_sockets.let_in(socket.scope)
                await CommandsSocket(socket, principal, opened).serve(with_history=is_asked)
        except QuotaExceeded as error:
            raise Refused(TOO_MUCH, str(error)) from error


async def _opened(principal: Principal) -> ConversationRef | None:
    """Return the conversation whose key the client has; None for other credentials. Raise Refused."""
    try:
        return await astore.call(principal.opened) if isinstance(principal, KeyHolder) else None
    except ConversationNotFound as error:
        raise Refused(NOT_FOUND, GONE) from error


def _words(error: InvalidEvent | ValidationError) -> str:
    """Return what is wrong with a frame, without repeating it."""
    if isinstance(error, InvalidEvent):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)[:20]
    return " ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}." for each in found)
