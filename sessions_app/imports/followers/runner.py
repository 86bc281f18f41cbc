"""Follows the programs that are switched on, each in a thread; of several processes, one follows each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils import timezone

from conversations.outages import Outage
from conversations.transcripts.sources.formats import FORMATS, Format
from sessions_app import astore
from sessions_app.imports.follow import FileFollower, FollowedAlready, only_one
from sessions_app.imports.followers import programs
from sessions_app.imports.importer import Importer
from sessions_app.imports.looking import look_again
from sessions_app.models import FollowedProgram

POLL_S = 5.0
"""How often the state of what is followed is stored, and the switches are read."""
IDLE_POLL_S = 60.0  # while none is followed here: another process may have switched one on
ELSEWHERE = "Another process follows it already, perhaps `convserver import --follow`."

_failing = Outage(__name__, "Followed programs could not be looked after", "They are looked after again")


@dataclass(kw_only=True, slots=True)
class Following:
    """One program that this process follows, or tries to; its thread writes, and the event loop reads."""

    row: FollowedProgram
    stop: threading.Event = field(default_factory=threading.Event)
    has_ended: bool = False
    problem: str = ""
    files: int = 0
    looked_at: datetime | None = None
    stored_at: datetime | None = None
    _told: tuple[Any, ...] = ()

    def begin(self) -> None:
        # A daemon, since what it has stored is whole at any moment.
        threading.Thread(target=self._run, name=f"follow-{self.row.format}", daemon=True).start()

    def news(self) -> dict[str, Any]:
        """Return the columns of its row that say how it is, if that has changed."""
        told = (self.problem, self.files, self.stored_at)
        if told == self._told:
            return {}
        self._told = told
        # The other process stores the rest.
        if self.problem == ELSEWHERE:
            return {"problem": ELSEWHERE}
        known = {"files": self.files, "looked_at": self.looked_at, "stored_at": self.stored_at}
        return {"problem": self.problem} | {name: value for name, value in known.items() if value is not None}

    def _run(self) -> None:
        try:
            self._follow()
        except FollowedAlready:
            self.problem = ELSEWHERE
        except Exception as error:  # of any reader of files: the next look begins another thread
            _failing.failed(error, format=self.row.format)
            self.problem = f"It failed, and is tried again: {error}"
        finally:
            self.has_ended = True
            connections.close_all()

    def _follow(self) -> None:
        format = FORMATS[self.row.format]
        path = Path(format.default_path or "").expanduser()
        importer = Importer(user=self.row.user, format=format.name)
        what = f"{importer.format} {importer.owner_id} {path.resolve()}"  # as the command says it
        with only_one(settings.CONFIGURATION.data_dir, what):

            def files(path: Path) -> Iterator[Path]:
                return self._counted(format, path)

            FileFollower(importer=importer, format=format, files=files, path=path, said=self._say).run(
                self.stop
            )

    def _counted(self, format: Format, path: Path) -> Iterator[Path]:
        found = list(format.files(path)) if format.files is not None else []
        self.files, self.looked_at = len(found), timezone.now()
        return iter(found)

    def _say(self, sentence: str) -> None:
        if sentence.endswith("new events"):
            self.stored_at, self.problem = timezone.now(), ""
        else:
            self.problem = sentence if sentence.endswith(".") else f"{sentence}."


class FollowerRunner:
    """What one process follows."""

    def __init__(self) -> None:
        self._followed: dict[int, Following] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow what is switched on until cancelled."""
        try:
            await look_again(
                self._look,
                news=self._news,
                kind=programs.SWITCHED,
                pause_s=lambda: POLL_S if self._followed else IDLE_POLL_S,
                failing=_failing,
            )
        finally:
            for each in self._followed.values():
                each.stop.set()

    async def _look(self) -> None:
        wanted = {row.pk: row for row in await astore.change(_switched_on)}
        for pk, following in list(self._followed.items()):
            if news := following.news():
                await astore.change(_store, pk, news)
            if pk not in wanted:
                following.stop.set()
            if pk not in wanted or following.has_ended:
                del self._followed[pk]
        for pk, row in wanted.items():
            if pk not in self._followed:
                self._followed[pk] = Following(row=row)
                self._followed[pk].begin()


def _switched_on() -> list[FollowedProgram]:
    known = [way.name for way in programs.ways()]
    return list(FollowedProgram.objects.filter(is_on=True, format__in=known).select_related("user"))


def _store(pk: int, columns: dict[str, Any]) -> None:
    rows = FollowedProgram.objects.filter(pk=pk)
    if columns["problem"] == ELSEWHERE:  # the process that follows it knows better
        rows = rows.filter(looked_at=None)
    rows.update(**columns)
