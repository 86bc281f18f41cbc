"""Which requests the direct path takes, and who sends them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

from convserver.api.direct.callers import Asked, Caller, get_callers
from convserver.api.direct.calls import DirectAnswer, NotDirect
from convserver.api.scopes import needed
from convserver.serving.clients import holder_of_share
from sessions_app.identity.authentication import credentials_of, headers_of
from sessions_app.identity.conversation_keys import PREFIX as CONVERSATION_KEY
from sessions_app.identity.key_throttle import address_of, is_secure

ID = r"(?P<conversation_id>[A-Za-z0-9_-]{1,100})"

_TAKES_JSON = re.compile(r"\*/\*|application/json(?: *, *[a-z]+/[a-z]+)*(?: *, *\*/\*)?")


class DirectRequest(NamedTuple):
    """A request that may be answered directly."""

    scope: dict[str, Any]
    """A copy, in which the view finds what was done before it was asked (`outcomes`)."""
    headers: dict[str, str]
    conversation_id: str
    """The id in the address; empty where there is none."""
    body: bytes = b""

    @classmethod
    def of(cls, scope: Any, address: re.Match[str]) -> Self:
        """Return the request at this address."""
        return cls({**scope}, headers_of(scope), address.groupdict().get("conversation_id", ""))

    @property
    def is_secure(self) -> bool:
        """Return whether the client's way to the server is encrypted."""
        return is_secure(self.scope, self.headers)

    @property
    def query(self) -> str:
        return str(self.scope["query_string"].decode("latin-1"))

    def is_of_a_program(self) -> bool:
        """Return whether keys and the address alone decide about the answer, which is to be JSON."""
        # A cookie may be a login, and an origin gets the headers of CORS.
        if not self.headers.keys().isdisjoint(("cookie", "origin")):
            return False
        return _TAKES_JSON.fullmatch(self.headers.get("accept", "*/*")) is not None

    def repeats_a_key(self) -> bool:
        """Return whether a header with a key is there twice: the view decides which of them counts."""
        names = [name.lower() for name, _ in self.scope["headers"]]
        return any(names.count(name) > 1 for name in (b"authorization", b"x-session-api-key"))


class Client(NamedTuple):
    """Who sends a request."""

    caller: Caller
    share: int
    """The key of the user whose share of the threads the request takes."""
    has_key: bool
    """Whether a key was sent; otherwise it is the local user."""


@dataclass(frozen=True, slots=True)
class DirectRoute(ABC):
    """A route whose usual requests are answered before its view."""

    name: str
    """The route's name, by which its view is found."""
    address: re.Pattern[str]
    allow: str
    """The methods that its view allows."""
    _: KW_ONLY
    forbids_caching: bool = True
    """Whether its view does; what the native views leave open `serving.caching` decides."""
    takes_conversation_keys: bool = False

    @abstractmethod
    def takes(self, request: DirectRequest) -> bool:
        """Return whether the request is like most, before its body and its client are known."""

    def changed_conversation(self, request: DirectRequest) -> str | None:
        """Return the id of the conversation that the client must be allowed to change; None for a read."""
        return None

    @abstractmethod
    async def answer(self, request: DirectRequest, client: Client) -> DirectAnswer:
        """Do what is requested. Raise NotDirect, with what the view has to know in the request's scope."""

    async def client_of(self, request: DirectRequest) -> Client:
        """Return who sends the request. Raise NotDirect, or UNAVAILABLE."""
        if request.repeats_a_key():
            raise NotDirect
        credentials = credentials_of(request.headers)
        opens_one = any(key.startswith(CONVERSATION_KEY) for key in credentials.keys)
        if opens_one and not self.takes_conversation_keys:
            raise NotDirect
        share = await holder_of_share(credentials, address_of(request.scope))
        # An unknown client has no share of the threads, and is refused in the words of its view.
        if not isinstance(share, int):
            raise NotDirect
        asked = Asked(
            credentials,
            self.changed_conversation(request),
            needed(self.name, request.scope["method"]),
            self.takes_conversation_keys,
        )
        caller = await get_callers().find(asked, share)
        if caller is None:
            raise NotDirect
        return Client(caller, share, has_key=bool(credentials.keys))
