"""The background: a server's tasks beside its sockets and loops."""

from __future__ import annotations

import asyncio

from django.conf import settings

from conversations.outages import Outage
from sessions_app import news
from sessions_app.capacity import heap
from sessions_app.event_loops import PerEventLoop
from sessions_app.fork_runner import ForkRunner, copy_files
from sessions_app.imports.followers import programs
from sessions_app.imports.followers.runner import FollowerRunner
from sessions_app.imports.uploads.runner import ImportRunner
from sessions_app.loops.manager import manager_class
from sessions_app.models import ProcessRole
from sessions_app.operation import watch
from sessions_app.processes import this_process
from sessions_app.retention.rounds import Retention
from sessions_app.search_indexer import Indexer
from sessions_app.storage import checkpoints, meter
from sessions_app.verification import rounds
from sessions_app.webhooks.dispatcher import Dispatcher

STOP_WAIT_S = 5.0

_failing = Outage(__name__, "A task in the background failed")


def start() -> None:
    """Start the background's tasks, once for the running event loop.

    Servers of a cluster leave webhooks, the search index, imports, forks, purges and the nightly
    verification to workers. Sockets call it too, since not every server supports lifespans.
    """
    _tasks.get()


async def close() -> None:
    """Cancel the tasks, and wait at most STOP_WAIT_S until all have ended."""
    tasks = _tasks.pop() or set()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_WAIT_S)


def _finished(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _failing.failed(error)


def _started() -> set[asyncio.Task[None]]:
    is_housekeeper = manager_class().is_housekeeper
    is_clustered = settings.CONFIGURATION.is_clustered
    role = ProcessRole.WORKER if is_housekeeper and is_clustered else ProcessRole.SERVER
    works = [meter.run(), heap.keep_low(), checkpoints.run(), rounds.verify(is_housekeeper=is_housekeeper)]
    works.append(watch.run(role))
    if is_housekeeper:
        works += [Dispatcher(this_process()).run(), Indexer().run(), ImportRunner().run(), Retention().run()]
        works += [ForkRunner().run(), copy_files()]
        if programs.are_offered():
            works.append(FollowerRunner().run())
    if is_clustered:
        works.append(news.listen() if is_housekeeper else news.tell())
    tasks = {asyncio.get_running_loop().create_task(work) for work in works}
    for task in tasks:
        task.add_done_callback(_finished)
    return tasks


_tasks = PerEventLoop(_started)
