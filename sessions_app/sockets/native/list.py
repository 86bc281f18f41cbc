"""The native socket of a user's list of conversations: every change of the list, without polling."""

from __future__ import annotations

import asyncio

from conversations.exceptions import ConversationError
from sessions_app.identity.principals import TOO_SLOW, Principal
from sessions_app.loops.manager import get_manager
from sessions_app.sockets.handshake import authenticated, query_of, within_quotas
from sessions_app.sockets.native import frames
from sessions_app.sockets.native.frames import BadFrame
from sessions_app.sockets.native.list_reader import ListReader, Since, since_of
from sessions_app.sockets.socket import Socket, SocketConsumer, SocketEnding, ended


class ListConsumer(SocketConsumer):
    async def serve(self, socket: Socket) -> None:
        await socket.accept()
        async with ended(SocketEnding(socket)):
            since = since_of(query_of(socket.scope).get("since"))
            principal = await authenticated(socket)
            principal.require_reading(all_conversations=True)
            async with within_quotas(socket, principal):
                await get_manager().ensure_started()
                await ListSocket(socket, principal, since).serve()


class ListSocket(ListReader, SocketEnding):
    def __init__(self, socket: Socket, principal: Principal, since: Since | None) -> None:
        ListReader.__init__(self, principal, since)
        SocketEnding.__init__(self, socket)

    async def serve(self) -> None:
        async with ended(self), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._show())
            tasks.create_task(self._heartbeat())
            tasks.create_task(self._take())

    async def end_slow(self, error: Exception) -> None:
        await self._socket.close(TOO_SLOW, "You did not read; connect again and read the list.")

    async def _take(self) -> None:
        # This socket only sends, but a client may authenticate twice.
        await self._greeted.wait()
        while True:
            text = await self._socket.receive_text()
            frame_id = None
            try:
                frame = await frames.taken(self._user_pk, text)
                frame_id = frame.id
                if frame.type != "auth":
                    raise BadFrame(f"There is no frame {frame.type!r} here; there is auth.")
                if frame_id is not None:
                    await self._send(type="ack", id=frame_id)
            except ConversationError as error:
                await self._send(**frames.error_frame(error, frame_id))

    async def _send_text(self, text: str) -> None:
        await self._socket.send_text(text)
