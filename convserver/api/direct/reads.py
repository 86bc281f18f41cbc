"""The reads that polls make, which are answered before their views: in one switch to a thread of the store.

The views keep the definition: their own functions make what is shown, and they answer whatever is not like
most, every refusal included.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import partial

from django.conf import settings

from conversations.payloads.limits import limits_of
from convserver.api.direct.calls import DirectAnswer, NotDirect, Read, ReadDirectly
from convserver.api.direct.recent_failure import recent_failure
from convserver.api.direct.requests import ID, Client, DirectRequest, DirectRoute
from convserver.api.errors import UNAVAILABLE
from convserver.api.native import reads as native
from convserver.api.v0 import reads as v0
from convserver.api.v1.agent import reads as agent
from convserver.api.v1.app import reads as app
from convserver.configuration import BUILT_IN_MANAGERS, BUILT_IN_STORES, BUILT_IN_VALIDATORS, STANDALONE
from convserver.serving import admission
from sessions_app import astore

_BUILT_IN = (BUILT_IN_STORES[STANDALONE], BUILT_IN_VALIDATORS[STANDALONE])


def has_built_in_parts() -> bool:
    """Return whether store, validator and manager are the built-in ones; the views ask any other."""
    is_manager_built_in = settings.CONVERSATION_MANAGER in BUILT_IN_MANAGERS.values()
    parts = (settings.CONVERSATION_STORE, settings.CONVERSATION_VALIDATOR)
    return is_manager_built_in and parts == _BUILT_IN


@dataclass(frozen=True, slots=True)
class ReadRoute(DirectRoute):
    """A route by which a client reads."""

    read: ReadDirectly

    def takes(self, request: DirectRequest) -> bool:
        # At an address of two wires, the content type may tell which of them is meant.
        has_no_body = request.headers.get("content-length", "0") == "0"
        return has_no_body and "content-type" not in request.headers and has_built_in_parts()

    async def answer(self, request: DirectRequest, client: Client) -> DirectAnswer:
        user, opened = client.caller
        scheme = "https" if request.is_secure else "http"
        read = Read(
            user,
            limits_of(user).only if opened is None else opened.pk,
            request.conversation_id,
            request.query,
            f"{scheme}://{request.headers['host']}",
        )
        look = partial(recent_failure().run, partial(self.read, read))
        try:
            async with asyncio.timeout(admission.WAIT_S):  # a client's own reads may have all of its threads
                return await astore.database().read(client.share, look)
        except UNAVAILABLE:
            raise
        except Exception as error:  # the view meets it again, and words it
            raise NotDirect from error


_NATIVE, _V0, _APP, _AGENT = (
    "/api/native/conversations",
    "/api/conversations",
    "/api/v1/app-conversations",
    "/agent/api/conversations",
)
# Of two that fit, the first counts: "search" could also be the id of a conversation.
ROUTES = (
    ReadRoute(
        "native-conversation-detail",
        re.compile(f"{_NATIVE}/{ID}"),
        "GET, PATCH, DELETE, HEAD, OPTIONS",
        native.conversation,
        forbids_caching=False,
    ),
    ReadRoute(
        "native-conversation-list",
        re.compile(_NATIVE),
        "GET, POST, HEAD, OPTIONS",
        native.first_page,
        forbids_caching=False,
    ),
    ReadRoute("v0-conversation", re.compile(f"{_V0}/{ID}"), "GET, PATCH, DELETE, HEAD", v0.conversation),
    ReadRoute("v0-conversations", re.compile(_V0), "GET, POST, HEAD", v0.first_page),
    ReadRoute("app-conversations", re.compile(_APP), "GET, POST, HEAD", app.conversations),
    ReadRoute("app-search", re.compile(f"{_APP}/search"), "GET, HEAD", app.first_page),
    ReadRoute("app-event-search", re.compile("/api/v1/events/search"), "GET, HEAD", app.events),
    ReadRoute(
        "agent-conversations-search",
        re.compile(f"{_AGENT}/search"),
        "GET, HEAD",
        agent.first_page,
        takes_conversation_keys=True,
    ),
    ReadRoute(
        "agent-events-search",
        re.compile(f"{_AGENT}/{ID}/events/search"),
        "GET, HEAD",
        agent.events,
        takes_conversation_keys=True,
    ),
    ReadRoute(
        "agent-conversation",
        re.compile(f"{_AGENT}/{ID}"),
        "GET, PATCH, DELETE, HEAD",
        agent.conversation,
        takes_conversation_keys=True,
    ),
)
