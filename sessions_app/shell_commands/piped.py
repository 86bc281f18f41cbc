"""A program in a sandbox whose output is read by pipes, bounded in time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sessions_app.sandbox import choice, roots
from sessions_app.sandbox.base import NO_DIRECTORIES, SandboxedProgram
from sessions_app.sandbox.measuring import HeldOnDisk

Take = Callable[[bytes], bool]
"""Takes a piece of output; returns whether more is wanted soon."""


class ProgramEnd(NamedTuple):
    """How a program has ended."""

    exit_code: int
    has_timed_out: bool


class PipedProgram:
    """A program that runs. Every one that was started must be waited for by `ended`."""

    def __init__(self, program: SandboxedProgram, stdout: int | None, stderr: int) -> None:
        """`stdout` is None if the program writes it elsewhere."""
        self._program = program
        self._pipes = (stdout, stderr)

    @classmethod
    async def started(
        cls,
        argv: Sequence[str],
        directory: Path,
        *,
        home: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        stdin: int | None = None,
        further: Mapping[str, Path] = NO_DIRECTORIES,
        stdout: int | None = None,
        has_network: bool = False,
    ) -> PipedProgram:
        """Start a program on a workspace, which it sees at `home`. Raise NoSandbox or StoreUnavailable.

        It sees `further` directories, too, by these paths. It reads from the descriptor `stdin`, and
        otherwise nothing; what it writes goes to the descriptor `stdout`, and otherwise to what `ended` is
        given. Both stay the caller's. The caller must not be cancelled meanwhile: a thread would start the
        program all the same.
        """
        out_end, out = (None, os.dup(stdout)) if stdout is not None else os.pipe()
        err_end, err = os.pipe()
        try:
            streams = (stdin, out, err)
            start = partial(_start, environment=environment, further=further, has_network=has_network)
            program = await asyncio.to_thread(start, argv, directory, home, streams)
        except BaseException:
            if out_end is not None:
                os.close(out_end)
            os.close(err_end)
            raise
        finally:
            os.close(out)
            os.close(err)
        return cls(program, out_end, err_end)

    @property
    def reason(self) -> str:
        """Return why the sandbox has ended the program; empty if it has not."""
        return self._program.reason

    def held(self) -> HeldOnDisk | None:
        """Return what the workspace holds, as far as it is known; it may take a second."""
        return self._program.held()

    def kill(self) -> None:
        """End the program and everything that it has started."""
        self._program.kill()

    async def ended(self, *, timeout_s: float, stdout: Take, stderr: Take) -> ProgramEnd:
        """Wait for the program's end, and hand over its output meanwhile. It is killed after `timeout_s`."""
        rest_s = 5.0  # for what is left in the pipes, which nothing fills any more
        reading = [
            asyncio.ensure_future(_read(pipe, take))
            for pipe, take in zip(self._pipes, (stdout, stderr), strict=True)
            if pipe is not None
        ]
        waiting = asyncio.ensure_future(self._program.wait())
        try:
            done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
            # The sandbox ends programs in the background as well, which would keep the pipes open.
            self.kill()
            exit_code = await waiting
            await asyncio.wait(reading, timeout=rest_s)
        finally:
            for each in (waiting, *reading):
                each.cancel()
            await asyncio.gather(waiting, *reading, return_exceptions=True)
        return ProgramEnd(exit_code, not done)


def _start(
    argv: Sequence[str],
    directory: Path,
    home: str,
    streams: tuple[int | None, int, int],
    *,
    environment: Mapping[str, str],
    further: Mapping[str, Path],
    has_network: bool,
) -> SandboxedProgram:
    with Path(os.devnull).open("rb") as nothing:
        return roots.started(
            choice.chosen(),
            argv,
            directory,
            home=home,
            stdin=nothing.fileno() if streams[0] is None else streams[0],
            stdout=streams[1],
            stderr=streams[2],
            environment=environment,
            further=further,
            has_network=has_network,
        )


async def _read(pipe: int, take: Take) -> None:
    """Hand over what comes by a pipe until its end, and close it."""
    at_once, unwanted_rest_s = 65536, 0.01
    reader = asyncio.StreamReader()
    file = os.fdopen(pipe, "rb", 0)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        try:
            while piece := await reader.read(at_once):
                if not take(piece):
                    # Output that is not kept must not occupy the event loop.
                    await asyncio.sleep(unwanted_rest_s)
        finally:
            transport.close()
    finally:
        file.close()
