"""The files of branches: those of the moment at which the branch leaves its source, copied after it began.

A row says what is to be copied, so that a process that dies leaves the rest to another one, or to the first
use of the files. A copy that was begun twice comes out the same.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from conversations import live
from conversations.exceptions import ConversationBusy
from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.checkpoints import kept, program
from sessions_app.checkpoints.errors import CheckpointGone
from sessions_app.checkpoints.kept import NewCheckpoint
from sessions_app.models import AgentLoop, CheckpointCause, FilesCheckpoint, FilesCopy
from sessions_app.settings import agent_setups

BEGUN = "files_copy"
"""The kind of the hint that files wait to be copied."""


def fork(user: Any, source: ConversationRef, **options: Any) -> ConversationRef:
    """Fork a conversation with its agent's setup and options; its files follow. Raise as `forks.fork`."""
    with transaction.atomic():
        made = agent_setups.fork(user, source, **options)
        # With the branch, so that no branch is ever without what says which files it gets.
        begin(source, made)
    return made


def begin(source: ConversationRef, branch: ConversationRef) -> None:
    """Note that a branch gets the files of its first event that is its own, in the running transaction."""
    through = Conversation.objects.values_list("forked_at", flat=True).get(pk=branch.pk)
    rows = FilesCheckpoint.objects.of(source).through(-1 if through is None else through)
    # As of a restore: what was there only before a restore are later changes.
    rows = rows.exclude(cause=CheckpointCause.BEFORE_RESTORE)
    found = rows.order_by("-seq", "-pk").values_list("conversation_id", "commit", "seq").first()
    if found is None:
        # The source is a branch whose own files are not there yet: both get the same ones.
        waiting = FilesCopy.objects.filter(pk=source.pk).values_list("source_id", "commit", "seq")
        found = waiting.first()
    if found is not None:
        source_pk, commit, seq = found
        FilesCopy.objects.create(conversation_id=branch.pk, source_id=source_pk, commit=commit, seq=seq)
        transaction.on_commit(lambda: live.tell_listeners({"kind": BEGUN}), robust=True)


async def finish(branch: ConversationRef) -> None:
    """Copy the files of a branch now, if they are not there. Raise as `program.run`."""
    copy = await astore.call(_waiting, branch)
    if copy is None or not await asyncio.to_thread(program.are_kept):
        return
    try:
        await _copied(branch, copy)
    except Exception:
        # As often as in the background; then the branch goes on with what is there.
        await astore.change(_count_try, copy)
        raise


async def require(branch: ConversationRef) -> None:
    """Do the same for what a client is about to change. Raise ConversationBusy if it cannot be done now."""
    if await astore.call(AgentLoop.objects.of(branch).restoring().exists):
        raise ConversationBusy("The files of this conversation are being restored. Try again in a minute.")
    try:
        await finish(branch)
    except Exception as error:
        # What the client would write now, the copy could replace.
        raise ConversationBusy(
            "The files of this branch are still being copied. Try again in a minute."
        ) from error


async def finish_some() -> None:
    """Copy the files of the branches that wait, one after the other. Raise as `program.run`."""
    while (found := await astore.change(_next)) is not None:
        await _copied(*found)


async def _copied(branch: ConversationRef, copy: FilesCopy) -> None:
    timeout_s = 120.0
    source = await astore.call(_source_of, copy)
    try:
        await program.run(branch, "copy", copy.commit, timeout_s=timeout_s, source=source)
    except CheckpointGone:
        # It was pruned, or its conversation purged: the branch begins without files.
        await astore.change(FilesCopy.objects.filter(pk=copy.pk).delete)
        return
    await astore.change(_note_copied, branch, copy)


def _note_copied(branch: ConversationRef, copy: FilesCopy) -> None:
    # Two processes may have copied at once, and one of them notes it.
    if FilesCopy.objects.filter(pk=copy.pk).delete()[0]:
        kept.note(branch, NewCheckpoint(copy.seq, CheckpointCause.BRANCH), copy.commit)


def _waiting(branch: ConversationRef) -> FilesCopy | None:
    # The last try may still be at work.
    is_wanted = Q(tries__lt=_most_tries()) | ~_is_free()
    return FilesCopy.objects.filter(is_wanted, pk=branch.pk).first()


def _is_free() -> Q:
    """Return the condition for a copy that no process has tried lately."""
    pause = timedelta(minutes=3)
    return Q(tried_at=None) | Q(tried_at__lt=timezone.now() - pause)


def _count_try(copy: FilesCopy) -> bool:
    """Count a try, unless one was counted lately: who repeats a request uses up none."""
    mine = FilesCopy.objects.filter(_is_free(), pk=copy.pk)
    return bool(mine.update(tried_at=timezone.now(), tries=F("tries") + 1))


def _most_tries() -> int:
    """Return how often a copy is tried; then the branch goes on with what is there."""
    return 8


def _source_of(copy: FilesCopy) -> ConversationRef:
    return Conversation.objects.get(pk=copy.source_id).ref


def _next() -> tuple[ConversationRef, FilesCopy] | None:
    """Take a copy that no process has tried lately; each try comes later than the one before."""
    rows = FilesCopy.objects.filter(_is_free(), tries__lt=_most_tries(), conversation__deleted_at=None)
    for copy in rows.select_related("conversation").order_by("pk")[:10]:
        if _count_try(copy):
            return copy.conversation.ref, copy
    return None
