"""Why files were neither kept nor restored."""

from __future__ import annotations

from conversations.exceptions import ConversationBusy, LoopUnavailable
from sessions_app.checkpoints.script import CheckpointExit

GONE = "The files of that moment are no longer kept."


# Doors refuse these as they do what an agent cannot do now.
class CheckpointFailed(LoopUnavailable):
    """The files were neither kept nor restored; the text says why."""

    code = "checkpoint_failed"


class AgentAtWork(CheckpointFailed):
    """The agent works on the files."""

    code = "agent_at_work"


class CheckpointGone(CheckpointFailed):
    """The shadow repository does not have the commit any more."""

    code = "checkpoint_gone"


def raise_for(exit_code: int, said: str) -> None:
    """Raise what an exit code of the script means; `said` is what it has written beside its output."""
    match exit_code:
        case 0:
            return
        case CheckpointExit.BUSY:
            raise ConversationBusy("Checkpoints of these files are being made. Try again.")
        case CheckpointExit.UNKNOWN:
            raise CheckpointGone(GONE)
        case CheckpointExit.IN_THE_WAY:
            raise CheckpointFailed(
                f"Nothing was restored: {said[:200]!r} was a file, and is now a directory with a git "
                "repository in it. Move it away first."
            )
        case CheckpointExit.CHANGING:
            raise ConversationBusy(
                "Nothing was restored: a program is changing the files. Stop what runs in the terminal, and "
                "try again."
            )
        case CheckpointExit.TOO_MANY:
            raise CheckpointFailed("The workspace has more files than it may have, so they are not kept.")
        case _:
            raise CheckpointFailed(f"Git failed: {said or f'exit code {exit_code}'}")
