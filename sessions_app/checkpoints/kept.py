"""Checkpoints of one conversation: made, found, restored, and forgotten, with their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from uuid import uuid4

from django.conf import settings
from django.db import transaction

from conversations import dialects
from conversations.exceptions import ConversationBusy, ConversationNotFound
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.checkpoints import program
from sessions_app.checkpoints.errors import AgentAtWork, CheckpointFailed
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.models import AgentLoop, CheckpointCause, ExecutionStatus, FilesCheckpoint, FilesCopy
from sessions_app.shared_clock import ahead

_WORDS = (
    "The user has restored the files of the workspace to those of an earlier moment of this conversation: "
    "{when}. Files that were changed since are different now, and files that were made since are gone, "
    "except in directories such as .git and node_modules. Look at a file again before you rely on it."
)

_unpruned = Outage(__name__, "Old checkpoints of files could not be removed")

_pruning: PerEventLoop[dict[int, asyncio.Task[None]]] = PerEventLoop(dict)
"""The tasks that remove old checkpoints, by the conversation."""


class NewCheckpoint(NamedTuple):
    """What a checkpoint is to be noted for."""

    seq: int
    cause: CheckpointCause


async def are_made() -> bool:
    """Return whether this server keeps the files of turns."""
    # The first look at the sandbox starts a program.
    return await asyncio.to_thread(program.are_kept)


async def take(
    conversation: ConversationRef, new: NewCheckpoint, *, timeout_s: float, prunes: bool = True
) -> FilesCheckpoint:
    """Keep the files of a conversation as they are now, and then fewer old ones. Raise as `program.run`."""
    last = await astore.call(_last, conversation)
    wait_s = 10
    said = await program.run(
        conversation, "take", *program.most(), last, str(wait_s), timeout_s=timeout_s + wait_s
    )
    commit, changed, size_kb = said.split()
    row = await astore.change(note, conversation, new, commit, int(changed))
    if prunes:
        await _prune_soon(conversation, int(size_kb))
    return row


def note(conversation: ConversationRef, new: NewCheckpoint, commit: str, changed: int = 0) -> FilesCheckpoint:
    """Store that a commit has the files of an event. Raise ConversationNotFound."""
    with transaction.atomic():
        # A purge comes before, or finds the row.
        if lock(Conversation.objects.active(), conversation) is None:
            raise ConversationNotFound("Conversation not found.")
        return FilesCheckpoint.objects.create(
            conversation_id=conversation.pk, seq=new.seq, cause=new.cause, commit=commit, changed=changed
        )


def _last(conversation: ConversationRef) -> str:
    rows = FilesCheckpoint.objects.of(conversation).newest_first()
    return rows.values_list("commit", flat=True).first() or ""


async def _prune_soon(conversation: ConversationRef, size_kb: int) -> None:
    """Begin to remove the oldest checkpoints if there are too many, or they are too large."""
    # A part at once, so that not every turn packs the repository anew.
    # One fifth: packing costs about as much as keeping the files anew.
    spare = max(1, settings.CONFIGURATION.sandbox_settings.checkpoints // 5)
    most_kb = settings.CONFIGURATION.workspace_max_mb * 1_000_000 // 1024
    is_large = size_kb > most_kb
    count = await astore.call(FilesCheckpoint.objects.of(conversation).count)
    tasks = _pruning.get()
    if conversation.pk not in tasks and (
        is_large or count > settings.CONFIGURATION.sandbox_settings.checkpoints + spare
    ):
        task = asyncio.get_running_loop().create_task(_pruned(conversation, most_kb if is_large else None))
        tasks[conversation.pk] = task
        task.add_done_callback(lambda _: tasks.pop(conversation.pk, None))


async def _pruned(conversation: ConversationRef, most_kb: int | None) -> None:
    try:
        await prune(conversation, most_kb)
    except Exception as error:  # the next checkpoint tries again
        _unpruned.failed(error)
    else:
        _unpruned.worked()


async def prune(conversation: ConversationRef, most_kb: int | None = None) -> None:
    """Remove the oldest checkpoints beyond the limit, and more while these are larger than `most_kb`.

    The newest stays. Raise as `program.run`.
    """
    timeout_s = 300.0
    keep = settings.CONFIGURATION.sandbox_settings.checkpoints
    while True:
        gone, kept, rows = await astore.call(_beyond, conversation, max(keep, 1))
        said = await program.run(conversation, "prune", str(len(gone)), *gone, *kept, timeout_s=timeout_s)
        # After the commits: where a server dies between, the rows are the oldest again.
        await astore.change(FilesCheckpoint.objects.filter(pk__in=rows).delete)
        left = len(kept)
        if most_kb is None or int(said) <= most_kb or left <= 1:
            return
        # How much an old checkpoint alone needs is unknown, since they share most of it.
        keep = min(keep, left) // 2


def _beyond(conversation: ConversationRef, keep: int) -> tuple[list[str], list[str], list[int]]:
    """Return the commits to forget, those to keep, and the rows to remove."""
    found = list(FilesCheckpoint.objects.of(conversation).newest_first().values_list("pk", "commit"))
    # A branch that is to get the files of an old one still needs it.
    waiting = FilesCopy.objects.filter(source_id=conversation.pk).values_list("commit", flat=True)
    kept = list(dict.fromkeys([*(commit for _, commit in found[:keep]), *waiting]))
    gone = dict.fromkeys(commit for _, commit in found[keep:] if commit not in kept)
    return list(gone), kept, [pk for pk, _ in found[keep:]]


async def changed_in(conversation: ConversationRef, seq: int) -> list[tuple[str, str]] | None:
    """Return the files that the turn with this last event has changed, each after how; None without any.

    Of very many, only the first are returned. Raise as `program.run`.
    """
    pair = await astore.call(_around, conversation, seq)
    if pair is None:
        return None
    fields = (await program.run(conversation, "changes", *pair, timeout_s=20.0)).split("\0")
    return list(zip(fields[::2], fields[1::2], strict=False))


def _around(conversation: ConversationRef, seq: int) -> tuple[str, str] | None:
    rows = FilesCheckpoint.objects.of(conversation).newest_first()
    turn = rows.filter(seq=seq, cause=CheckpointCause.TURN).first()
    before = None if turn is None else rows.filter(pk__lt=turn.pk).first()
    return None if turn is None or before is None else (before.commit, turn.commit)


def all_of(conversation: ConversationRef) -> list[FilesCheckpoint]:
    """Return what is kept, the newest first."""
    return list(FilesCheckpoint.objects.of(conversation).newest_first())


def meant(
    conversation: ConversationRef, checkpoint_id: str | None, seq: int | None
) -> FilesCheckpoint | None:
    """Return the checkpoint with an id, or the one that has the files of an event: the last one up to it."""
    rows = FilesCheckpoint.objects.of(conversation)
    if checkpoint_id is not None:
        return rows.filter(checkpoint_id=checkpoint_id).first()
    if seq is None:
        return None
    # What was kept before a restore is of the moment of the restore, which comes later.
    return rows.through(seq).exclude(cause=CheckpointCause.BEFORE_RESTORE).order_by("-seq", "-pk").first()


def shown(conversation: ConversationRef, first: int, last: int) -> tuple[int | None, Mapping[int, int]]:
    """Return from which event on files can be restored, and how many each turn from `first` on has changed.

    A turn is named by its last event. Without a checkpoint or a sandbox, the event is None.
    """
    rows = FilesCheckpoint.objects.of(conversation)
    oldest = rows.order_by("seq").values_list("seq", flat=True).first()
    # The second look takes as long as the first start of a program, so it is left to conversations with some.
    if oldest is None or not program.are_kept():
        return None, {}
    turns = rows.filter(cause=CheckpointCause.TURN, changed__gt=0, seq__gte=first, seq__lte=last)
    return oldest, dict(turns.values_list("seq", "changed"))


async def restore(conversation: ConversationRef, checkpoint: FilesCheckpoint) -> FilesCheckpoint:
    """Make the files those of a checkpoint; return the one that undoes this.

    A turn that begins meanwhile waits before it uses the files. Raise AgentAtWork, also while the agent waits
    for an approval, ConversationBusy during another restore, CheckpointGone, and as `program.run`.
    """
    await asyncio.to_thread(program.require_sandbox)
    last = await astore.change(_hold, conversation)
    spare_s = 20.0  # before turns wait no longer
    try:
        async with asyncio.timeout(AgentLoop.FILES_HELD_S - spare_s):
            before = await _restored(conversation, checkpoint, last)
        # A server that is killed here has restored the files without saying so in the log.
        event_id = str(uuid4())
        when = f"after event {checkpoint.seq}" if checkpoint.seq >= 0 else "its beginning"
        said = dialects.author(conversation.dialect).notice(text=_WORDS.format(when=when), event_id=event_id)
        (stored,) = await astore.append(conversation, [said.event(event_id)])
        new = NewCheckpoint(stored.seq, CheckpointCause.RESTORED)
        await astore.change(note, conversation, new, checkpoint.commit)
    except TimeoutError as error:
        raise CheckpointFailed("The files were not restored in time. Try again later.") from error
    finally:
        let_go = AgentLoop.objects.of(conversation).update
        await uncancelled(astore.change(let_go, files_held_until=None))
    return before


async def _restored(conversation: ConversationRef, checkpoint: FilesCheckpoint, last: int) -> FilesCheckpoint:
    """Keep the files as they are, and make them those of a checkpoint; return the former."""
    timeout_s = 120.0
    # Nothing is pruned: the checkpoint to restore may be the oldest.
    new = NewCheckpoint(last, CheckpointCause.BEFORE_RESTORE)
    before = await take(conversation, new, timeout_s=timeout_s, prunes=False)
    # As long as nothing has changed, a turn that has begun meanwhile need not wait.
    await astore.call(_last_seq_at_rest, conversation)
    await program.run(
        conversation, "restore", *program.most(), before.commit, checkpoint.commit, timeout_s=timeout_s
    )
    return before


async def wait_for_restore(conversation: ConversationRef) -> None:
    """Wait until no restore is at work on the files, in whatever process."""
    often_s = 0.2
    while await astore.call(AgentLoop.objects.of(conversation).restoring().exists):  # noqa: ASYNC110 - in any process
        await asyncio.sleep(often_s)


def _hold(conversation: ConversationRef) -> int:
    """Hold off new turns, and return the last event. Raise AgentAtWork or ConversationBusy."""
    with transaction.atomic():
        # The beginning of a turn needs this lock, too: so it is seen here, or sees what is stored here.
        if lock(Conversation.objects.active(), conversation) is None:
            raise ConversationNotFound("Conversation not found.")
        last = _last_seq_at_rest(conversation)
        AgentLoop.objects.get_or_create(conversation_id=conversation.pk)
        loop = AgentLoop.objects.of(conversation)
        if loop.restoring().exists():
            raise ConversationBusy("The files of this conversation are being restored. Try again.")
        loop.update(files_held_until=ahead(AgentLoop.FILES_HELD_S))
    return last


def _last_seq_at_rest(conversation: ConversationRef) -> int:
    """Return the last event. Raise AgentAtWork."""
    loop = AgentLoop.objects.of(conversation).filter(turn_id__isnull=False).first()
    if loop is not None and loop.execution_status != ExecutionStatus.PAUSED:
        raise AgentAtWork("The agent is working. Stop it first, or wait for its end.")
    return Conversation.objects.values_list("next_seq", flat=True).get(pk=conversation.pk) - 1
