"""The MCP door: its tools find, page and read what the user's conversations hold, and nothing of others'."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation, deletion
from convserver.configuration import AuthMode
from convserver.mcp import tools
from convserver.mcp.tools import RESULT_MAX_BYTES, TOOLS
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

ACCEPTED = {"accept": "application/json, text/event-stream"}
Result = dict[str, Any]


async def post(rest: httpx.AsyncClient, method: str, token: str = "", /, **params: Any) -> httpx.Response:
    """Send one message as a client does."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    keys = {"authorization": f"Bearer {token}"} if token else {}
    return await rest.post("/mcp", json=body, headers={**ACCEPTED, **keys})


async def called(rest: httpx.AsyncClient, name: str, token: str = "", /, **arguments: Any) -> Result:
    """Return the result of a tool that succeeds."""
    answer = await post(rest, "tools/call", token, name=name, arguments=arguments)
    result = answer.json()["result"]
    assert not result["isError"], result
    [content] = result["content"]
    assert len(content["text"].encode()) <= RESULT_MAX_BYTES
    found: Result = json.loads(content["text"])
    return found


async def refused(rest: httpx.AsyncClient, name: str, token: str = "", /, **arguments: Any) -> str:
    """Return the sentence with which a tool refuses."""
    answer = await post(rest, "tools/call", token, name=name, arguments=arguments)
    result = answer.json()["result"]
    assert result["isError"], result
    return str(result["content"][0]["text"])


async def write(conversation: ConversationRef, *texts: str) -> None:
    await astore.call(writes.append, conversation, [event(text) for text in texts])


async def test_a_client_is_told_what_there_is_to_call(rest: httpx.AsyncClient) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begun = (await post(rest, "initialize", **hello)).json()["result"]
    assert begun["serverInfo"]["name"] == "convserver"
    assert {"tools", "resources"} <= begun["capabilities"].keys()
    listed = (await post(rest, "tools/list")).json()["result"]["tools"]
    assert [each["name"] for each in listed] == [tool.name for tool in TOOLS]
    assert all(each["annotations"]["readOnlyHint"] for each in listed)
    assert (await post(rest, "ping")).json()["result"] == {}


async def test_what_was_said_is_found_and_read_around(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    await write(conversation, *(f"line {number}" for number in range(30)), "the key is under the mat", "last")
    [hit] = (await called(rest, "search", query='"under the mat"'))["events"]
    assert (hit["conversation_id"], hit["seq"]) == (conversation.public_id, 30)
    around = await called(
        rest, "read_conversation", conversation_id=hit["conversation_id"], after=hit["seq"] - 2, limit=3
    )
    assert [each["text"] for each in around["events"]] == ["line 29", "the key is under the mat", "last"]
    assert (around["next_after"], around["next_before"]) == (None, 29)


@pytest.mark.no_second_try
async def test_pages_bring_every_conversation_once(rest: httpx.AsyncClient, alice: User) -> None:
    made = [
        (await astore.call(lambda n=n: creation.create(alice, conversation_id=f"talk-{n}"))).public_id  # type: ignore[misc]
        for n in range(7)
    ]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await called(rest, "list_conversations", limit=3, **cursor)
        seen += [each["id"] for each in page["conversations"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(seen) == sorted(made)


async def test_long_titles_and_repositories_make_no_result_too_long(
    rest: httpx.AsyncClient, alice: User
) -> None:
    facts: dict[str, Any] = {"title": "👍" * 190 + " needle", "repository": "👍" * 500}
    made = [(await astore.call(lambda: creation.create(alice, **facts))).public_id for _ in range(25)]
    assert (await called(rest, "search", query="needle"))["conversations"]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await called(rest, "list_conversations", limit=50, **cursor)
        seen += [each["id"] for each in page["conversations"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert sorted(seen) == sorted(made)


@pytest.mark.no_second_try
@pytest.mark.parametrize("length", [10, 1_900, 5_000])
async def test_pages_bring_every_event_once_in_both_directions(
    rest: httpx.AsyncClient, conversation: ConversationRef, length: int
) -> None:
    await write(conversation, *(f"{number} {'é' * length}" for number in range(23)))
    for step, start, end in (("after", -1, "next_after"), ("before", 23, "next_before")):
        seen: list[int] = []
        place: int | None = start
        while place is not None:
            asked: dict[str, Any] = {"conversation_id": conversation.public_id, step: place, "limit": 10}
            page = await called(rest, "read_conversation", **asked)
            seen += [each["seq"] for each in page["events"]]
            place = page[end]
        assert sorted(seen) == list(range(23))


@pytest.mark.parametrize("sign", ["x", "é", "👍", '"', "\n", "\x01"])
async def test_a_long_text_is_cut_and_read_piece_by_piece(
    rest: httpx.AsyncClient, conversation: ConversationRef, sign: str
) -> None:
    text = f"{sign * 12_345}end"
    await write(conversation, text)
    page = await called(rest, "read_conversation", conversation_id=conversation.public_id)
    assert page["events"][0]["text_length"] == len(text)
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        asked: dict[str, Any] = {"conversation_id": conversation.public_id, "seq": 0, "offset": offset}
        piece = await called(rest, "read_event", **asked)
        pieces.append(piece["text"])
        offset = piece["next_offset"]
    assert "".join(pieces) == text


async def test_conversations_and_events_are_resources(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    await write(conversation, "hello")
    [listed] = (await post(rest, "resources/list")).json()["result"]["resources"]
    for uri, text in ((listed["uri"], '"text":"hello"'), (f"{listed['uri']}/events/0", '"text":"hello"')):
        [content] = (await post(rest, "resources/read", uri=uri)).json()["result"]["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "application/json")
        assert text in content["text"]
    assert len((await post(rest, "resources/templates/list")).json()["result"]["resourceTemplates"]) == 2
    for uri in ("convserver://conversations/none", f"{listed['uri']}/events/7", "file:///etc/passwd"):
        assert (await post(rest, "resources/read", uri=uri)).json()["error"]["message"]


REFUSED: list[tuple[str, Result, str]] = [
    ("search", {}, "'query' is a required property"),
    ("search", {"query": "x", "limit": 21}, "limit: 21 is greater than the maximum of 20"),
    ("search", {"query": "x", "cursor": "nonsense"}, "."),
    ("search", {"query": "x", "since": "yesterday"}, "since"),
    ("search", {"query": "x", "kind": "poem"}, "kind"),
    ("search", {"query": "x", "delete": True}, "delete"),
    ("list_conversations", {"limit": 0}, "limit"),
    ("read_conversation", {"conversation_id": "none"}, "."),
    ("read_conversation", {"conversation_id": "../tokens"}, "."),
    ("read_conversation", {"conversation_id": ""}, "."),
    ("read_conversation", {"conversation_id": "talk", "after": -2}, "after"),
    ("read_event", {"conversation_id": "talk", "seq": 5}, "There is no event 5. The newest is -1."),
]


async def test_what_cannot_be_done_is_refused_with_a_sentence(
    rest: httpx.AsyncClient, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    for name, arguments, words in REFUSED:
        with subtests.test(name=name, arguments=arguments):
            assert words in await refused(rest, name, **arguments)


async def test_a_tool_that_is_not_there_and_a_message_that_is_none_are_errors_of_the_protocol(
    rest: httpx.AsyncClient,
) -> None:
    answer = await post(rest, "tools/call", name="delete_conversation", arguments={})
    assert "delete_conversation" in answer.json()["error"]["message"]
    headers = {**ACCEPTED, "content-type": "application/json"}
    assert (await rest.post("/mcp", content=b"{", headers=headers)).status_code == 400
    for method in ("GET", "DELETE", "PUT"):
        answer = await rest.request(method, "/mcp", headers=ACCEPTED)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# Who may


@pytest.fixture
async def tokens(alice: User, bob: User, accounts: None, conversation: ConversationRef) -> dict[str, str]:
    """Tokens of several rights; the conversation is alice's."""
    await write(conversation, "a secret word")

    def issue() -> dict[str, str]:
        grants = {
            "owner": Grant(scopes=[Scope.READ]),
            "small": Grant(scopes=[Scope.WRITE, Scope.RUN]),
            "late": Grant(scopes=[Scope.READ], expires_at=timezone.now() + timedelta(days=1)),
            "revoked": Grant(scopes=[Scope.READ]),
        }
        issued = {name: ApiToken.issue(alice.pk, name, grant) for name, grant in grants.items()}
        ApiToken.objects.filter(pk=issued["late"][0].pk).update(expires_at=timezone.now())
        issued["revoked"][0].revoke()
        stranger = ApiToken.issue(bob.pk, "stranger", Grant(scopes=[Scope.READ]))
        return {**{name: text for name, (_, text) in issued.items()}, "stranger": stranger[1], "nobody": ""}

    return await astore.call(issue)


async def test_who_may_not_read_learns_nothing(
    rest: httpx.AsyncClient, tokens: dict[str, str], subtests: pytest.Subtests
) -> None:
    for who in ["nobody", "small", "late", "revoked", "wrong"]:
        with subtests.test(who=who):
            calls: list[tuple[str, dict[str, Any]]] = [
                ("tools/list", {}),
                ("tools/call", {"name": "list_conversations"}),
            ]
            for method, params in calls:
                answer = await post(rest, method, tokens.get(who, "cs_wrong"), **params)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_token_that_only_reads_opens_its_users_conversations_and_no_others(
    rest: httpx.AsyncClient, tokens: dict[str, str], conversation: ConversationRef
) -> None:
    talk = conversation.public_id
    owner, stranger = tokens["owner"], tokens["stranger"]
    assert (await called(rest, "search", owner, query="secret"))["events"]
    assert (await called(rest, "read_conversation", owner, conversation_id=talk))["events"]
    assert not (await called(rest, "search", stranger, query="secret"))["events"]
    assert not (await called(rest, "list_conversations", stranger))["conversations"]
    unknown = await refused(rest, "read_conversation", stranger, conversation_id="never-was")
    reads: list[tuple[str, dict[str, Any]]] = [("read_conversation", {}), ("read_event", {"seq": 0})]
    for name, more in reads:
        said = await refused(rest, name, stranger, conversation_id=talk, **more)
        assert said.replace(talk, "never-was") == unknown


async def test_a_deleted_conversation_is_gone_from_the_next_call_on(
    rest: httpx.AsyncClient, alice: User, conversation: ConversationRef
) -> None:
    await write(conversation, "hello")
    assert (await called(rest, "search", query="hello"))["events"]
    await astore.call(deletion.soft_delete, conversation)
    assert not (await called(rest, "search", query="hello"))["events"]
    assert await refused(rest, "read_conversation", conversation_id=conversation.public_id)


def test_no_result_of_a_search_can_be_too_long() -> None:
    piece = "\U0001f44d" * 400
    hit = {
        "conversation": {"id": "x" * 100, "title": piece[:200]},
        **dict.fromkeys(("seq", "kind", "source", "timestamp"), "x" * 50),
        "snippet": [{"text": piece}],
    }
    assert tools.size(tools._hit(hit)) < RESULT_MAX_BYTES


async def test_every_version_of_a_conversation_is_read(rest: httpx.AsyncClient, alice: User) -> None:
    for version in Version:
        made = await astore.call(
            lambda v=version: creation.create(alice, conversation_id=f"talk-{v}", version=v)  # type: ignore[misc]
        )
        page = await called(rest, "read_conversation", conversation_id=made.public_id)
        assert page["conversation"]["id"] == made.public_id


@pytest.mark.parametrize("version", Version)
async def test_a_note_is_appended_and_asks_nothing(
    version: Version, rest: httpx.AsyncClient, alice: User, configured: Callable[..., None]
) -> None:
    configured(mcp_notes=True)
    talk = await astore.call(creation.create, alice, conversation_id="noted", version=version)
    assert await called(rest, "append_note", conversation_id="noted", text="Use Decimal.") == {
        "conversation_id": "noted",
        "seq": 0,
    }
    [read] = (await called(rest, "read_conversation", conversation_id="noted"))["events"]
    assert (read["text"], read["source"]) == ("Note: Use Decimal.", "user")
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    assert row.asked_through == -1


async def test_notes_are_off_unless_the_operator_wants_them(rest: httpx.AsyncClient, alice: User) -> None:
    listed = (await post(rest, "tools/list")).json()["result"]["tools"]
    assert "append_note" not in [tool["name"] for tool in listed]
    answer = await post(rest, "tools/call", name="append_note", arguments={})
    assert "error" in answer.json()


async def test_a_token_that_only_reads_appends_no_note(
    rest: httpx.AsyncClient,
    tokens: dict[str, str],
    conversation: ConversationRef,
    configured: Callable[..., None],
) -> None:
    configured(auth=AuthMode.ACCOUNTS, mcp_notes=True)
    talk = conversation.public_id
    said = await refused(rest, "append_note", tokens["owner"], conversation_id=talk, text="x")
    assert "`write`" in said
