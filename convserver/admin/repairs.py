"""Turns that a dead loop left and another loop ended or continued: the banner, and the list."""

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
from convserver.admin.cells import column
from sessions_app.models import Repair
from sessions_app.processes import this_process

RECENT = timedelta(hours=24)


class RepairBanner(NamedTuple):
    """The words about the last day's repairs, and links to the conversations, the newest repair first."""

    text: str
    links: list[SafeString]
    more: int  # the number of repairs without a link


def banner() -> RepairBanner | None:
    """Return the banner about interrupted turns of the last day; None without any."""
    recent = Repair.objects.since(timezone.now() - RECENT)
    if not (count := recent.count()):
        return None
    newest = recent.select_related("conversation").order_by("-repaired_at")[: cells.NAMED_MAX]
    links = [cells.link(repair.conversation) for repair in newest]
    turns = "1 interrupted turn was" if count == 1 else f"{count} interrupted turns were"
    process = this_process()
    # An earlier process can have had the same number.
    started = Repair.objects.since(max(_started_at(process.pid), timezone.now() - RECENT))
    own = started.filter(host=process.host, pid=process.pid).count()
    sentence = f"{turns} repaired in the last 24 hours{_part_since_start(count, own)}."
    return RepairBanner(sentence + _gone_on(count, recent.gone_on().count()), links, count - len(links))


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


@cache
def _started_at(pid: int) -> datetime:
    return datetime.fromtimestamp(psutil.Process(pid).create_time(), UTC)


@admin.register(Repair)
class RepairAdmin(ReadOnlyAdmin[Repair]):
    """Every turn that was cut off and ended, or played on, by another loop, newest first."""

    list_display = fields = ("repaired", "in_conversation", "turn", "outcome", "by")
    list_display_links = None
    list_select_related = ("conversation",)

    repaired = column("Repaired (UTC)", "repaired_at", cells.moment)
    in_conversation = column("Conversation", "conversation", cells.link)
    turn = column("Turn", "turn_id", cells.code)
    by = column("By process", lambda repair: cells.process(repair.pid, repair.host))

    @admin.display(description="Outcome")
    def outcome(self, repair: Repair) -> str:
        times = "" if repair.continuations < 2 else f" {repair.continuations} times"
        if not repair.has_ended:
            return f"Went on{times}"
        return f"Went on{times or ' once'}, then ended" if repair.continuations else "Ended"
