"""A loop whose lease is valid keeps its conversation, whatever the clocks of the hosts say."""

from __future__ import annotations

import random

from faults.suite import stored
from faults.suite.drill import Drill, found_wrong
from faults.suite.installations import OnPostgreSQL
from faults.suite.lone_loops import LoneLoop, asked, end_all, epoch, has_said, until
from faults.suite.rounds import IN_STORE, Result

HOUR_S = 3600.0
REPLACED = "replaced while its lease was valid"
CLOCKS = ((0.0, 0.0), (0.0, HOUR_S), (-HOUR_S, 0.0))
"""By how much those of the two hosts are off: not at all, the later one ahead, the holder behind."""


async def run(installation: OnPostgreSQL, rng: random.Random) -> Result:
    """Let another loop ask for the conversation of one that plays, on hosts with different clocks."""
    result = Result()
    for holder_s, other_s in CLOCKS:
        result.add(await _asked_for(installation, holder_s, other_s))
    return result


async def _asked_for(installation: OnPostgreSQL, holder_s: float, other_s: float) -> Result:
    talk, still = await asked(installation, "lease"), "still here"
    result = Result(injected=1, acknowledged=1)
    loops = [holder := LoneLoop(installation, talk, off_by_s=holder_s)]
    try:
        await holder.begun()
        loops.append(other := LoneLoop(installation, talk, off_by_s=other_s))
        await until(lambda: other.has_ended or epoch(installation, talk) > 1)
        if epoch(installation, talk) > 1:
            sentence = f"{talk}: with clocks that are {holder_s:g} and {other_s:g} s off"
            found_wrong(result, REPLACED, [sentence])
        else:
            holder.say(still)
            await until(lambda: holder.has_ended or has_said(installation, talk, still))
            if not has_said(installation, talk, still):
                found_wrong(result, REPLACED, [f"{talk}: what its loop said was refused"])
    finally:
        end_all(loops)
    found_wrong(result, IN_STORE, stored.faults_in(installation.store(talk, talk)))
    return result


LEASES: Drill[OnPostgreSQL] = Drill(
    name="loop that plays, asked for by hosts whose clocks are an hour off", rows=("FI-07", "FI-30"), run=run
)
