"""Parts of the server that do not do what they should, for a test's settings to name or to put in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from django.db import OperationalError

from conversations.exceptions import ConversationBusy
from conversations.store import DatabaseConversationStore
from sessions_app.agents.base import Turn
from sessions_app.agents.demo import DemoAgent
from sessions_app.loops.manager import StandaloneConversationManager


def fail(*args: Any, **kwargs: Any) -> NoReturn:
    """Fail, in place of any function that asks the database."""
    raise RuntimeError("The database is gone.")


def lose_connection(*args: Any, **kwargs: Any) -> NoReturn:
    """Fail as the database's driver does, in place of any function that asks the database."""
    raise OperationalError("server closed the connection to 10.0.0.5")


def find_locked(requests: Sequence[Any], *, wait: bool = False) -> list[Any]:
    """Refuse all appends, in place of `writes.append_many`, as if somebody else had locked every log."""
    words = "The conversation is locked by another process. Try again."
    return [ConversationBusy(words) for _ in requests]


class FailingStore(DatabaseConversationStore):
    """A store that cannot delete."""

    def delete_metadata(self, conversation_id: str) -> NoReturn:
        raise RuntimeError("The database is gone.")


class BusyStore(DatabaseConversationStore):
    """A store in which somebody else keeps the conversation `b` locked."""

    def delete_metadata(self, conversation_id: str) -> None:
        if conversation_id == "b":
            raise ConversationBusy("The conversation is locked by another process. Try again.")
        super().delete_metadata(conversation_id)


class HoldingManager(StandaloneConversationManager):
    """A manager that cannot stop the loop of the conversation `c`."""

    async def close_session(self, conversation_id: str) -> None:
        if conversation_id == "c":
            raise RuntimeError("The loop does not let go.")


class UnstoppableManager(StandaloneConversationManager):
    """A manager that cannot stop a loop."""

    async def close_session(self, conversation_id: str) -> None:
        raise RuntimeError("The loop does not let go.")


class UnstartableManager(StandaloneConversationManager):
    """A manager that starts no loop, as the database fails on what it does together."""

    async def _start(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [OperationalError("no room")])


class ModelAgent(DemoAgent):
    """An agent that asks a model, so that its user needs a key."""

    needs_model = True


class UnstoredAgent(DemoAgent):
    """An agent of which something could not be stored."""

    async def play(self, turn: Turn) -> NoReturn:
        raise RuntimeError("It failed.") from OperationalError("canceling statement on host 10.0.0.5")


class BrokenAgent(DemoAgent):
    """An agent that cannot even be made."""

    def __init__(self) -> None:
        raise RuntimeError("sk-secret is not installed")


class BlankAgent(DemoAgent):
    """An agent that answers questions beside the point."""

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return "I have nothing to say."


class SilentAgent(DemoAgent):
    """An agent that cannot answer questions."""

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        raise RuntimeError("The model is gone.")
