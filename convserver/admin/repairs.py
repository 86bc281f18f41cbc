"""Turns that a dead loop left behind, ended or played on: the banner that says so, and the list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

import psutil
from django.contrib import admin
from django.utils import timezone
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ReadOnlyAdmin
from sessions_app.models import Repair
from sessions_app.processes import this_process

LINKS_SHOWN = 5
RECENT = timedelta(hours=24)
MANY = 2


class Banner(NamedTuple):
    """What is said about the last day's repairs."""

    text: str
    links: list[SafeString]
    """To the conversations, the newest repair first."""
    more: int
    """How many repairs have no link here."""


def banner() -> Banner | None:
    """Return what to say about interrupted turns of the last day; None when there were none."""
    recent = Repair.objects.since(timezone.now() - RECENT)
    if not (count := recent.count()):
        return None
    newest = recent.select_related("conversation").order_by("-repaired_at")[:LINKS_SHOWN]
    links = [cells.link(repair.conversation) for repair in newest]
    sentence = _sentence(count, _since_start()) + _gone_on(count, recent.gone_on().count())
    return Banner(sentence, links, count - len(links))


def _sentence(count: int, since_start: int) -> str:
    turns = "1 interrupted turn was" if count == 1 else f"{count} interrupted turns were"
    return f"{turns} repaired in the last 24 hours{_part_since_start(count, since_start)}."


def _gone_on(count: int, gone_on: int) -> str:
    if not gone_on:
        return ""
    if gone_on == count:
        return " It went on." if count == 1 else " All of them went on."
    return f" {gone_on} of them went on, the others were ended."


def _part_since_start(count: int, since_start: int) -> str:
    if not since_start:
        return ""
    part = f"{since_start} of them " if since_start < count else "all of them " if count > 1 else ""
    return f", {part}since this server started"


def _since_start() -> int:
    """Return how many of them this process has repaired; a number of a process can come again."""
    process = this_process()
    since = max(_started_at(process.pid), timezone.now() - RECENT)
    return Repair.objects.since(since).filter(host=process.host, pid=process.pid).count()


@cache
def _started_at(pid: int) -> datetime:
    return datetime.fromtimestamp(psutil.Process(pid).create_time(), UTC)


@admin.register(Repair)
class RepairAdmin(ReadOnlyAdmin[Repair]):
    """Every turn that was cut off and ended, or played on, by another loop, newest first."""

    list_display = ("repaired", "in_conversation", "turn", "outcome", "by")
    list_display_links = None
    fields = ("repaired", "in_conversation", "turn", "outcome", "by")
    list_select_related = ("conversation",)

    @admin.display(description="Repaired (UTC)")
    def repaired(self, repair: Repair) -> SafeString | None:
        """When the turn was ended, or went on."""
        return cells.moment(repair.repaired_at)

    @admin.display(description="Conversation")
    def in_conversation(self, repair: Repair) -> SafeString:
        """Where."""
        return cells.link(repair.conversation)

    @admin.display(description="Turn")
    def turn(self, repair: Repair) -> SafeString:
        """Which turn."""
        return cells.code(repair.turn_id)

    @admin.display(description="Outcome")
    def outcome(self, repair: Repair) -> str:
        """What became of the turn."""
        times = "" if repair.continuations < MANY else f" {repair.continuations} times"
        if not repair.has_ended:
            return f"Went on{times}"
        return f"Went on{times or ' once'}, then ended" if repair.continuations else "Ended"

    @admin.display(description="By process")
    def by(self, repair: Repair) -> str:
        """Which process took the loop over."""
        return f"{repair.pid} on {repair.host.partition(' ')[0]}"
