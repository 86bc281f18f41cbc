"""The round that keeps the totals of stored bytes close behind the log, while there is a quota on them."""

from __future__ import annotations

import asyncio

from conversations.outages import Outage
from conversations.storage import quotas
from sessions_app import astore

# Several processes are to know soon of each other's users.
ROUND_S = 2.0

_failing = Outage(__name__, "Stored bytes could not be counted", "Stored bytes are counted again")


async def run() -> None:
    """Count until cancelled; without a quota, or while nobody adds anything, the database is left alone."""
    is_complete = False
    while True:
        if quotas.limit_of("stored_mb") and (quotas.meter.has_news or not is_complete):
            try:
                is_complete = await astore.change(quotas.meter.refresh)
            except Exception as error:  # the next round tries again
                _failing.failed(error)
            else:
                _failing.worked()
        await asyncio.sleep(ROUND_S)
