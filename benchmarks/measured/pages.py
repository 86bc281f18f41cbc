"""What it costs to show events: a page of a recording, and the costliest text that a sender may think of.

Run as `python -m benchmarks.measured.pages`, it measures in its own process, where Django is set up, and
writes JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from benchmarks import server
from benchmarks.job import ClientFailed

if TYPE_CHECKING:
    from conversations.events import EventEnvelope

EVENTS = 50
"""As many as a page of the log begins with."""
TIMES = 5
WAIT_S = 120
_CONVERSATION = "3c294d959ff64d2d9c530a5849f2c4a0"


def costs_ms() -> dict[str, float]:
    """Return the CPU time of each measurement, measured in a process of its own. Raise ClientFailed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.measured.pages"],
        capture_output=True,
        text=True,
        cwd=server.ROOT,
        check=False,
        timeout=WAIT_S,
    )
    if done.returncode:
        raise ClientFailed(f"pages: {done.stderr[-2000:]}")
    return cast(dict[str, float], json.loads(done.stdout))


def _measured() -> dict[str, float]:
    from tests.support.data.hostile import COSTLY, HUGE
    from tests.support.wires import event_places
    from tests.support.wires.v0_wire import RECORDINGS, stored

    recorded = [json.dumps(each) for each in json.loads(RECORDINGS[0].read_text())[:EVENTS]]
    page = [stored(text, seq=seq) for seq, text in enumerate(recorded)]
    costly = [[event] for each in (*HUGE, *COSTLY) for event in event_places.blocks(each.text).values()]
    page_ms = min(_cost_ms(page) for _ in range(TIMES))
    return {"page": page_ms, "costliest": max(min(_cost_ms(each), _cost_ms(each)) for each in costly)}


def _cost_ms(events: Sequence[EventEnvelope]) -> float:
    from convserver.rendering import render_page

    began = time.thread_time()
    render_page(events, conversation_id=_CONVERSATION)
    return (time.thread_time() - began) * 1000


def _main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "convserver.settings"
    import django

    django.setup()
    print(json.dumps(_measured()))


if __name__ == "__main__":
    _main()
