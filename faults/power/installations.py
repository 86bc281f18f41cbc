"""The suite's installations with their data on a disk that forgets, and the fault that makes it forget."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from faults.instances import Missing, PostgreSQL
from faults.programs import ROOT
from faults.suite.fault import Fault, hold
from faults.suite.installations import Installation, OnPostgreSQL, OnSQLite
from faults.waits import STOP_WAIT_S


class ForgetfulDisk:
    """A directory on a disk that forgets what was not synced, in a process of its own."""

    def __init__(self, directory: Path, *, syncs_names: bool) -> None:
        """Show an empty disk in `directory`, which is made. Raise Missing where that is not possible."""
        if problem := fuse_problem():
            raise Missing(problem)
        self._directory = directory
        directory.mkdir()
        options = ["--syncs-names"] * syncs_names
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.power.mount", str(directory), *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._await_answer()
        except RuntimeError as error:
            raise Missing("Power is not cut: no filesystem can be mounted here.") from error

    def sync(self) -> None:
        """Make everything safe."""
        self._tell("sync")

    def fail_syncs(self, seed: int) -> None:
        """Make syncs of files fail from now on."""
        self._tell(f"fail {seed}")

    def mend_syncs(self) -> None:
        """Make syncs succeed again."""
        self._tell("mend")

    def cut(self, seed: int) -> None:
        """Cut the power. No process may have a file open there."""
        self._tell(f"cut {seed}")

    def close(self) -> None:
        """Take the disk away."""
        self._process.communicate()  # the end of its input
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_WAIT_S)
        self._process.kill()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("The disk of the run has ended.")


def fuse_problem() -> str | None:
    """Say why no filesystem can be shown; None when one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or os.geteuid():
        return "Power is not cut: that needs root and /dev/fuse."
    if shutil.which("fusermount3") is None:
        return "Power is not cut: fuse3 is not installed."
    return None


class SQLiteOnForgetfulDisk(OnSQLite):
    """One server, on a file of a disk on which names are safe once their folder was synced, as POSIX says."""

    engine = "SQLite on a disk that forgets"
    disk: ForgetfulDisk | None = None

    async def _start_services(self) -> None:
        self.disk = await asyncio.to_thread(ForgetfulDisk, self.data, syncs_names=False)

    async def _close_services(self) -> None:
        if self.disk is not None:
            await asyncio.to_thread(self.disk.close)

    async def cut_power(self, seed: int) -> None:
        """Cut the power of everything, and look at the file. Raise RuntimeError if it is damaged."""
        assert self.disk is not None
        for server in self.servers:
            server.kill()
        await asyncio.to_thread(self.disk.cut, seed)
        if self.file.exists():
            with self.connected() as connection:
                (found,) = connection.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                raise RuntimeError(f"SQLite's file is damaged: {found}")


class PostgreSQLOnForgetfulDisk(OnPostgreSQL):
    """Two servers on a PostgreSQL whose data is on such a disk; a new file's name is safe with its content.

    PostgreSQL is made for filesystems on which that is so, as it is on Linux.
    """

    engine = "PostgreSQL on a disk that forgets"

    def __init__(self, place: Path, *, planted: str | None = None) -> None:
        """Raise Missing if PostgreSQL, Redis or FUSE is not installed."""
        self.disk = ForgetfulDisk(place / "disk", syncs_names=True)
        try:
            (place / "disk").chmod(0o755)
            super().__init__(place, planted=planted)
        except BaseException:
            self.disk.close()
            raise

    def new_postgresql(self) -> PostgreSQL:
        """Make one whose commits wait for its disk."""
        made = PostgreSQL(self.place / "disk" / "postgresql", is_synced=True)
        self.disk.sync()
        return made

    async def _close_services(self) -> None:
        await super()._close_services()
        await asyncio.to_thread(self.disk.close)

    async def cut_power(self, seed: int) -> None:
        """Cut the power of everything, and start PostgreSQL again."""
        for server in self.servers:
            server.kill()
        self.postgresql.kill()
        self.redis.kill()
        await asyncio.to_thread(self.disk.cut, seed)
        await asyncio.to_thread(self.postgresql.start)
        await asyncio.to_thread(self.redis.start)


Powered = SQLiteOnForgetfulDisk | PostgreSQLOnForgetfulDisk
OF_ENGINE: dict[type[Installation], type[Installation]] = {
    OnSQLite: SQLiteOnForgetfulDisk,
    OnPostgreSQL: PostgreSQLOnForgetfulDisk,
}
"""The installation on a disk that forgets, beside each other one."""


async def cut_power(installation: Powered, rng: random.Random) -> None:
    """Cut the power at any moment, and start everything again."""
    await hold(rng, 0.0, 0.3)
    await installation.cut_power(rng.getrandbits(32))
    for server in installation.servers:
        await server.start()


async def fail_syncs(installation: SQLiteOnForgetfulDisk, rng: random.Random) -> None:
    """Make syncs fail, then kill the server; do so again, and cut the power a little later.

    What was written and not synced is there after a kill: the next start finds it in the log.
    """
    assert installation.disk is not None
    (server,) = installation.servers
    for is_killed in (True, False):
        await asyncio.to_thread(installation.disk.fail_syncs, rng.getrandbits(32))
        try:
            await hold(rng, 0.3, 1.0)
            if is_killed:
                server.kill()
        finally:
            await asyncio.to_thread(installation.disk.mend_syncs)
        if is_killed:
            await server.start()
            await hold(rng, 0.3, 0.6)
    await cut_power(installation, rng)


POWER_CUT: Fault[Powered] = Fault(
    name="power cut",
    rows=("FI-05",),
    inject=cut_power,
    counts_from_begin=True,
)
SYNCS_FAIL: Fault[SQLiteOnForgetfulDisk] = Fault(
    name="syncs of the disk fail, then a kill and a power cut",
    rows=("FI-05", "FI-06"),
    inject=fail_syncs,
    counts_from_begin=True,
)
