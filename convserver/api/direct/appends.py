"""The appends that are made on the event loop, before their views are asked."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass

from conversations.engines.lost_commits import LostCommit
from conversations.exceptions import OutcomeUnknown
from conversations.payloads import bounds
from convserver.api.direct.calls import Append, AppendDirectly, DirectAnswer, NotDirect
from convserver.api.direct.outcomes import OUTCOME, Outcome
from convserver.api.direct.requests import ID, Client, DirectRequest, DirectRoute
from convserver.api.native import events as native
from convserver.api.v0 import events as v0
from convserver.api.v1.agent import events as v1

_JSON = re.compile(r"application/json *(?:; *charset=utf-8)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AppendRoute(DirectRoute):
    """A route by which a client appends."""

    append: AppendDirectly
    _: KW_ONLY
    requires_json: bool = False
    """Whether the content type must say that it is JSON."""

    def takes(self, request: DirectRequest) -> bool:
        length = request.headers.get("content-length", "")
        # A longer body is parsed in a thread, which its view has already.
        if not length.isdigit() or not 0 < int(length) <= bounds.LIGHT_MAX_CHARACTERS:
            return False
        return not self.requires_json or bool(_JSON.fullmatch(request.headers.get("content-type", "")))

    def changed_conversation(self, request: DirectRequest) -> str | None:
        return request.conversation_id

    async def answer(self, request: DirectRequest, client: Client) -> DirectAnswer:
        user, conversation = client.caller
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            raise NotDirect from error
        if conversation is None or not bounds.is_light(text):
            raise NotDirect
        try:
            reply = await self.append(Append(user, conversation, text, request.query, request.headers))
        except NotDirect:
            raise
        except Exception as error:  # the view words it, and must not append once more
            is_unknown = isinstance(error, OutcomeUnknown | LostCommit)
            request.scope[OUTCOME] = Outcome(error=error, is_unknown=is_unknown)
            raise NotDirect from error
        if not reply.is_success:
            request.scope[OUTCOME] = Outcome(value=reply.value, is_unknown=reply.is_unknown)
            raise NotDirect
        return DirectAnswer(reply.body.encode())


_NATIVE, _V0, _AGENT = (rf"{base}/conversations/{ID}" for base in ("/api/native", "/api", "/agent/api"))
ROUTES = (
    AppendRoute(
        "native-events",
        re.compile(f"{_NATIVE}/events"),
        "GET, POST, HEAD, OPTIONS",
        native.append,
        requires_json=True,
        forbids_caching=False,
    ),
    AppendRoute("v0-events", re.compile(f"{_V0}/events"), "GET, POST, HEAD", v0.append_event),
    AppendRoute("v0-message", re.compile(f"{_V0}/message"), "POST", v0.append_message),
    AppendRoute(
        "agent-events",
        re.compile(f"{_AGENT}/events"),
        "GET, POST, HEAD",
        v1.append,
        takes_conversation_keys=True,
    ),
)
