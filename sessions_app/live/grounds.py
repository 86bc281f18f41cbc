"""What a client's command needs while it runs: its conversation, and the access of that client."""

from __future__ import annotations

import asyncio

from conversations import live
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.identity.principals import CHECK_S, Principal, Refused
from sessions_app.live.hub import Subscription, hub
from sessions_app.live.status import states_of

DELETED = "The command was ended, because its conversation was deleted."
ENDED = "The command was ended, because the access of the client that had started it ended."
_unwatched = Outage(__name__, "It could not be watched whether commands may go on")


async def lost(conversation_pk: int, client: Principal) -> str:
    """Wait until the conversation is deleted or the access ends; return the sentence that says so."""
    retry_s = 1.0
    while True:
        try:
            async with hub().subscribe(live.conversation_group(conversation_pk)) as hints:
                return await _first_of(conversation_pk, client, hints)
        except Exception as error:
            # The command goes on: an outage is no reason to end what its owner still may do.
            _unwatched.failed(error)
            await asyncio.sleep(retry_s)


async def _first_of(conversation_pk: int, client: Principal, hints: Subscription) -> str:
    waiting = [
        asyncio.ensure_future(_until_deleted(conversation_pk, hints)),
        asyncio.ensure_future(_until_refused(client)),
    ]
    try:
        # Both may be true at once; either sentence is right then.
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _until_deleted(conversation_pk: int, hints: Subscription) -> str:
    # It may have been deleted before the hints were subscribed to.
    states = await astore.call(states_of, [conversation_pk])
    is_deleted = any(each["deleted"] for each in states.values()) or not states
    while not is_deleted:
        hint = await hints.next()
        is_deleted = hint["kind"] == "state" and hint["state"]["deleted"]
    return DELETED


async def _until_refused(client: Principal) -> str:
    try:
        while True:
            await client.stay(CHECK_S)
    except Refused:
        return ENDED
