"""A checkpoint of SQLite takes a turn among the threads that write.

Libraries before 3.51.3 lose a commit that meets a checkpoint. Servers have a later one, with which nothing
would be lost: so the turn itself is tried.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from uuid import uuid4

from faults.checkpoints import Checkpoint
from faults.programs import ROOT
from faults.suite.drill import Drill, found_wrong
from faults.suite.installations import OnSQLite
from faults.suite.rounds import Result

BESIDE_A_COMMIT = "a checkpoint beside a commit"


async def run(installation: OnSQLite, rng: random.Random) -> Result:
    """Try it in a process and a file of its own, with the bug of the servers if they have one."""
    return await asyncio.to_thread(_tried, installation)


def _tried(installation: OnSQLite) -> Result:
    file = installation.data / f"turns-{uuid4().hex[:8]}.sqlite3"
    command = [sys.executable, "-m", "faults.entry", *installation.options, "--", "faults.checkpoints"]
    environment = {**installation.variables(), "DATABASE_URL": f"sqlite:///{file}"}
    ended = subprocess.run(
        [*command, str(file)], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    for each in installation.data.glob(f"{file.name}*"):
        each.unlink()
    result = Result(injected=1)
    if (found := ended.stdout.strip()) != Checkpoint.WAITED:
        found_wrong(result, BESIDE_A_COMMIT, [f"the checkpoint {found}"])
    return result


CHECKPOINT_TURN: Drill[OnSQLite] = Drill(name="checkpoint while a thread commits", rows=(), run=run)
