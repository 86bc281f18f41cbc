"""A loop that is stopped past its lease, replaced by another one, and wakes up: it must write nothing."""

from __future__ import annotations

import asyncio
import random

from faults.suite import stored
from faults.suite.drill import Drill, found_wrong
from faults.suite.installations import OnPostgreSQL
from faults.suite.lone_loops import LoneLoop, asked, end_all, epoch, has_said, until
from faults.suite.rounds import IN_STORE, Result

SHORT_S = 0.5
"""The lease of the loop that is stopped: it is not renewed, for it would be stopped with a lock."""
TOO_LATE = "too late"


async def run(installation: OnPostgreSQL, rng: random.Random) -> Result:
    """Let a zombie try to write once; the installation's servers run no loops themselves."""
    talk = await asked(installation, "zombie")
    result = Result(injected=1, acknowledged=1)
    loops = [old := LoneLoop(installation, talk, SHORT_S)]
    try:
        await old.begun()
        old.freeze()
        await asyncio.sleep(2 * SHORT_S)
        loops.append(LoneLoop(installation, talk))
        await until(lambda: epoch(installation, talk) > 1)
        # What the first one left is ended.
        await until(lambda: len(installation.store(talk, talk).events) > 1)
        old.thaw()
        old.say(TOO_LATE)
        await until(lambda: old.has_ended or has_said(installation, talk, TOO_LATE))
    finally:
        end_all(loops)
    found = list(stored.faults_in(installation.store(talk, talk)))
    if has_said(installation, talk, TOO_LATE):
        found.append(f"{talk}: a loop that was replaced has written")
    found_wrong(result, IN_STORE, found)
    return result


ZOMBIES: Drill[OnPostgreSQL] = Drill(
    name="loop stopped past its lease, replaced, and continued", rows=("FI-09",), run=run
)
