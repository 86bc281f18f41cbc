"""Commands that a client runs in a workspace, beside the agent, and their events (spec V1 §2.5, c)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field, RootModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands.errors import Detail, InvalidRequest, Refused, ValidationProblems
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.view import Done, body_in, body_of, optional_body_of, query_of
from convserver.api.scopes import WRITES
from convserver.api.v1.agent import meant
from convserver.api.v1.agent.pages import batch, missing, queried
from convserver.api.v1.agent.view import AgentViewSet, described, done
from convserver.event_loop import in_loop
from convserver.pagination import PAGE_MAX
from convserver.serving.admission import Lane, in_lane
from sessions_app.checkpoints import copies
from sessions_app.identity.authentication import credentials_of
from sessions_app.identity.principals import KeyHolder, Principal
from sessions_app.live import grounds
from sessions_app.shell_commands import kept
from sessions_app.shell_commands.events import CommandOutput
from sessions_app.shell_commands.kept import EventsWanted, HistoryKey, KeptCommands
from sessions_app.shell_commands.requests import CommandRequest
from sessions_app.shell_commands.running import RunningCommand
from sessions_app.workspaces.beneath import PathRefused

T = TypeVar("T")

_OF_ONE: dict[Any, Any] = {404: Detail, 422: ValidationProblems}
_STARTED: dict[Any, Any] = {
    400: Detail,
    404: Detail,
    422: ValidationProblems | Detail,
    429: Detail,
    503: Detail,
}


class ShellCommand(BaseModel):
    """A command that was started. Its id and its outputs' `command_id` are the same."""

    kind: Literal["BashCommand"]
    id: str
    timestamp: datetime
    command: str
    cwd: str | None
    timeout: int


class ShellOutput(BaseModel):
    """A part of a command's output; the last one has the exit code."""

    kind: Literal["BashOutput"]
    id: str
    timestamp: datetime
    command_id: str
    order: int
    exit_code: int | None
    stdout: str | None
    stderr: str | None


class ShellEventPage(BaseModel):
    """A page of events; `next_page_id` is null on the last one."""

    items: list[ShellCommand | ShellOutput]
    next_page_id: str | None


class ShellEventIds(RootModel[list[str]]):
    """Ids, as the body of a GET."""


class Cleared(BaseModel):
    """How many events were forgotten."""

    cleared_count: int


class ShellEventOrder(StrEnum):
    """The end from which pages start."""

    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_DESC = "TIMESTAMP_DESC"


class ShellEventQuery(BaseModel):
    """Which page of the events to return; a time without an offset is UTC."""

    kind__eq: Literal["BashCommand", "BashOutput"] | None = None
    command_id__eq: UUID | None = Field(default=None, description="Its outputs alone.")
    timestamp__gte: Instant | None = None
    timestamp__lt: Instant | None = None
    order__gt: int | None = Field(default=None, description="Outputs after this one.")
    sort_order: ShellEventOrder = ShellEventOrder.TIMESTAMP
    page_id: str | None = None
    limit: int = Field(default=PAGE_MAX, ge=1, le=PAGE_MAX)

    def wanted(self) -> EventsWanted:
        """Return the filter."""
        command_id = None if self.command_id__eq is None else self.command_id__eq.hex
        return EventsWanted(
            self.kind__eq, command_id, self.timestamp__gte, self.timestamp__lt, self.order__gt
        )


class CommandId(BaseModel):
    """The id of a command, in any spelling."""

    command_id: UUID


class CommandViewSet(AgentViewSet):
    """The commands of one conversation's workspace, or those that a user has started without naming one."""

    needs = WRITES
    is_named_by_method = False
    not_found = "Conversation not found: {conversation_id}"

    @extend_schema(request=CommandRequest, responses={200: ShellCommand, **_STARTED})
    def start(self, request: Request, conversation_id: str = "") -> Response:
        """Start a command in a sandbox, and return at once."""
        command = in_loop(self._started, *self._asked(request, conversation_id))
        return Response(command.started.shown())

    @in_lane(Lane.ABROAD)  # it takes as long as the command
    @extend_schema(request=CommandRequest, responses={200: ShellOutput, **_STARTED})
    def execute(self, request: Request, conversation_id: str = "") -> Response:
        """Run a command in a sandbox to its end, and return all of its output that is kept."""
        return Response(in_loop(self._executed, *self._asked(request, conversation_id)).shown())

    @extend_schema(parameters=described(ShellEventQuery), responses={200: ShellEventPage, **_OF_ONE})
    def search(self, request: Request, conversation_id: str = "") -> Response:
        """Return one page of the matching events."""
        query = query_of(request, ShellEventQuery)
        is_newest_first = query.sort_order is ShellEventOrder.TIMESTAMP_DESC
        key = self._key(request, conversation_id)
        wanted = query.wanted()
        found = _looked(lambda commands: commands.search(key, wanted, newest_first=is_newest_first))
        ids = [each.id for each in found]
        if query.page_id and query.page_id not in ids:
            problem = {"type": "value_error", "loc": ["query", "page_id"], "msg": "There is no such page."}
            raise InvalidRequest([{**problem, "input": query.page_id[:100]}])
        start = ids.index(query.page_id) if query.page_id else 0
        # The id of a page is that of its first event, as on agent servers.
        items: list[dict[str, Any]] = []
        room = 4_000_000  # characters: as JSON, some take six bytes
        for each in found[start : start + query.limit]:
            shown = each.shown()
            room -= sum(len(value) for value in shown.values() if isinstance(value, str))
            if items and room < 0:
                break
            items.append(shown)
        end = start + len(items)
        return Response({"items": items, "next_page_id": ids[end] if end < len(ids) else None})

    @extend_schema(responses={200: ShellCommand | ShellOutput, **_OF_ONE})
    def retrieve(self, request: Request, event_id: str, conversation_id: str = "") -> Response:
        """Return the event with this id."""
        key = self._key(request, conversation_id)
        found = _looked(lambda commands: commands.event(key, _plain(event_id)))
        return Response(found.shown())

    @extend_schema(responses={200: list[ShellCommand | ShellOutput | None], 400: Detail, **_OF_ONE})
    def batch(self, request: Request, conversation_id: str = "") -> Response:
        """Return the events with these ids, in this order; null for an unknown one.

        The ids are in the query, or a list in the body.
        """
        key = self._key(request, conversation_id)
        ids = queried(request, "event_ids", "id")
        if ids is None:
            body = optional_body_of(request, ShellEventIds)
            if body is None:
                raise missing("body")
            ids = body.root
        plain = [_plain(each) for each in batch(ids)]
        found = _looked(lambda commands: commands.events(key, plain))
        return Response([None if each is None else each.shown() for each in found])

    @extend_schema(responses={200: Cleared, **_OF_ONE})
    def clear(self, request: Request, conversation_id: str = "") -> Response:
        """Forget the events of all commands that have ended."""
        key = self._key(request, conversation_id)
        return Response({"cleared_count": _looked(lambda commands: commands.clear(key))})

    @extend_schema(request=None, responses={200: Done, **_OF_ONE})
    def stop(self, request: Request, command_id: str, conversation_id: str = "") -> Response:
        """End a command with all that it has started; one that has ended stays as it is."""
        key = self._key(request, conversation_id)
        found = body_in({"command_id": command_id}, CommandId, "path").command_id
        in_loop(_stopped, key, found.hex)
        return done()

    def _asked(
        self, request: Request, conversation_id: str
    ) -> tuple[HistoryKey, ConversationRef, Callable[[], Principal], CommandRequest]:
        """Return what is to be run, and where. Raise Refused if no conversation is meant."""
        body = body_of(request, CommandRequest)
        named = meant.named_by(request, conversation_id)
        conversation = named or meant.by_directory(request, body.cwd)
        if conversation is None:
            raise Refused(404, {"detail": meant.NONE_MEANT})
        return self._key_of(named), conversation, partial(_principal_of, request), body

    def _key(self, request: Request, conversation_id: str) -> HistoryKey:
        """Return whose commands a request is about."""
        return self._key_of(meant.named_by(request, conversation_id))

    def _key_of(self, named: ConversationRef | None) -> HistoryKey:
        return HistoryKey(self.user_id, None if named is None else named.pk)

    async def _started(
        self,
        key: HistoryKey,
        conversation: ConversationRef,
        client: Callable[[], Principal],
        body: CommandRequest,
    ) -> RunningCommand:
        lost = partial(grounds.lost, conversation.pk, client())
        await copies.require(conversation)
        try:
            return await kept.commands().start(key, conversation, lost, body.new())
        except PathRefused as error:
            # A 422 with a text, as on the wire.
            words = f"cwd must be inside the conversation workspace: {error}"
            raise Refused(422, {"detail": words}) from error

    async def _executed(
        self,
        key: HistoryKey,
        conversation: ConversationRef,
        client: Callable[[], Principal],
        body: CommandRequest,
    ) -> CommandOutput:
        return await (await self._started(key, conversation, client, body)).end()


def _principal_of(request: Request) -> Principal:
    """Return who sent a request, for work that is to end with their access; call it on the event loop."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if isinstance(request.auth, ConversationRef):
        return KeyHolder(request.user, headers["x-session-api-key"])
    return Principal(request.user, credentials_of(headers))


def _plain(event_id: str) -> str:
    """Return an id as it is kept, of any spelling."""
    return event_id.replace("-", "").lower()


def _looked(look: Callable[[KeptCommands], T]) -> T:
    """Return what is found in the commands of this process, which belong to its event loop."""

    async def looked() -> T:
        return look(kept.commands())

    return in_loop(looked)


async def _stopped(key: HistoryKey, command_id: str) -> None:
    await kept.commands().command(key, command_id).stop()
