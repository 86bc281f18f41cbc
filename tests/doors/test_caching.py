"""What caches on the way may keep: nothing of what is somebody's, files that are everybody's."""

from __future__ import annotations

import re

import httpx
import pytest

from conversations.events import ConversationRef

pytestmark = pytest.mark.one_engine

NATIVE = "/api/native/conversations"
PRIVATE = {
    "a list": NATIVE,
    "a conversation": f"{NATIVE}/talk",
    "its events": f"{NATIVE}/talk/events",
    "an export": f"{NATIVE}/talk/export?format=md",
    "a search": "/api/native/search?q=hello",
    "what is not there": f"{NATIVE}/none",
    "a V0 list": "/api/conversations",
    "V0 events": "/api/conversations/talk/events",
    "V0 settings": "/api/settings",
    "a V1 list": "/api/v1/app-conversations/search",
    "V1 events": "/agent/api/conversations/talk/events/search",
    "Socket.IO by polling": "/socket.io/?EIO=4&transport=polling&conversation_id=talk&latest_event_id=-1",
    "the start page": "/",
    "a page": "/c/talk",
    "settings": "/settings",
    "the login": "/ui/login",
    "the admin": "/admin/",
}


async def test_no_answer_about_somebody_may_be_kept_or_given_to_somebody_else(
    rest: httpx.AsyncClient, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    for name, address in PRIVATE.items():
        with subtests.test(name):
            answer = await rest.get(address)
            assert "no-store" in answer.headers["cache-control"]
            vary = {name.strip().lower() for name in answer.headers["vary"].split(",")}
            assert {"authorization", "cookie", "x-session-api-key"} <= vary
            assert len(answer.headers.get_list("vary")) == 1


async def test_who_may_not_come_in_leaves_nothing_either(accounts: None, rest: httpx.AsyncClient) -> None:
    for address in (NATIVE, "/", "/api/conversations"):
        assert "no-store" in (await rest.get(address)).headers["cache-control"]
    refused = await rest.get(NATIVE, headers={"host": "evil.example"})
    assert (refused.status_code, refused.headers["cache-control"]) == (403, "no-store")


async def test_files_that_are_everybodys_may_be_kept(rest: httpx.AsyncClient) -> None:
    page = await rest.get("/")
    (address, *_) = re.findall(r'"(/static/[^"]+\.css)"', page.text)
    answer = await rest.get(address)
    assert answer.status_code == 200
    assert "no-store" not in answer.headers["cache-control"]
    assert "cookie" not in answer.headers.get("vary", "").lower()
