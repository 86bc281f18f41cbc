"""The native socket of a user's list: what changes is shown, once, to its owner only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations import live as hints
from conversations.models import Conversation, ConversationRef
from conversations.store import changes, creation, deletion
from sessions_app import astore
from sessions_app.live import hub, status
from sessions_app.live.status import iso
from sessions_app.models import ApiToken
from sessions_app.sockets.native import list_reader as native_list
from tests.conftest import Dial
from tests.support.data.events import event
from tests.support.people.clients import Client

PATH = "/ws/conversations"


@pytest.fixture
def quick_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.02)
    monkeypatch.setattr(native_list, "HEARTBEAT_S", 0.02)


@pytest.fixture
def no_hints(hints_by_layer: None, monkeypatch: pytest.MonkeyPatch) -> None:

    async def lose(group: str, hint: Mapping[str, Any]) -> None:
        pass

    monkeypatch.setattr(hints.hint_channel(), "group_send", lose)


async def opened(dial: Dial, **options: Any) -> Client:
    client = await dial(PATH, **options)
    await client.until("hello")
    return client


async def shown(client: Client) -> dict[str, Any]:
    """Return the next conversation that the list is shown."""
    conversation: dict[str, Any] = (await client.until("conversation"))["conversation"]
    return conversation


async def shown_with(client: Client, **members: Any) -> dict[str, Any]:
    """Return the next conversation with these members; what came before may still be on its way."""
    while not members.items() <= (conversation := await shown(client)).items():
        pass
    return conversation


async def polled(client: Client, times: int) -> None:
    """Read on until the list was polled so often."""
    moments: set[str] = set()
    while len(moments) <= times:
        moments.add((await client.until("heartbeat"))["now"])


async def test_hello_comes_first_and_says_what_time_it_is(dial: Dial) -> None:
    before = iso(timezone.now())
    hello = await (await dial(PATH)).receive()
    assert set(hello) == {"type", "now", "cursor"}
    assert before <= hello["now"] <= iso(timezone.now())


async def test_a_created_conversation_is_shown_as_the_list_shows_it(
    alice: User, dial: Dial, rest: Any
) -> None:
    client = await opened(dial)
    await astore.call(lambda: creation.create(alice, conversation_id="new", title="New"))
    conversation = await shown(client)
    assert (conversation["id"], conversation["title"], conversation["deleted"]) == ("new", "New", False)
    assert conversation == (await rest.get("/api/native/conversations/new")).json()


async def test_a_conversation_made_by_a_join_is_shown(dial: Dial) -> None:
    client = await opened(dial)
    await dial(f"{PATH}/joined")
    assert (await shown(client))["id"] == "joined"


async def test_a_new_title_is_shown(conversation: ConversationRef, dial: Dial) -> None:
    client = await opened(dial)
    await astore.call(changes.retitle, conversation, "A new title")
    assert (await shown_with(client, title="A new title"))["id"] == "talk"


async def test_a_new_message_is_shown(conversation: ConversationRef, dial: Dial) -> None:
    client = await opened(dial)
    await astore.append(conversation, [event("the latest")])
    state = await shown_with(client, last_message="the latest")
    assert state["last_seq"] == 0
    assert state["last_message_at"] is not None


async def test_the_status_of_the_loop_is_shown(conversation: ConversationRef, dial: Dial, rest: Any) -> None:
    client = await opened(dial)
    await rest.post("/api/native/conversations/talk/run")
    while (await shown(client))["loop"]["status"] != "running":
        pass
    await rest.post("/api/native/conversations/talk/stop")
    while (await shown(client))["loop"]["status"] != "stopped":
        pass


async def test_a_deletion_and_a_restoration_are_shown(conversation: ConversationRef, dial: Dial) -> None:
    client = await opened(dial)
    await astore.call(deletion.soft_delete, conversation)
    await shown_with(client, deleted=True)
    await astore.call(deletion.restore, conversation)
    await shown_with(client, deleted=False)


async def test_only_the_owner_is_shown_a_change(
    accounts: None, quick_poll: None, conversation: ConversationRef, bob: User, dial: Dial
) -> None:
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    client = await opened(dial, token=token)
    await astore.call(changes.retitle, conversation, "None of bob's business")
    await polled(client, 2)
    await astore.call(lambda: creation.create(bob, conversation_id="bobs"))
    assert (await shown(client))["id"] == "bobs"


async def test_a_hint_about_somebody_elses_conversation_shows_nothing(
    accounts: None, conversation: ConversationRef, bob: User, dial: Dial
) -> None:
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    client = await opened(dial, token=token)
    hints.announce(hints.user_group(bob.pk), {"kind": "listed", "conversation": conversation.pk})
    await astore.call(lambda: creation.create(bob, conversation_id="bobs"))
    assert (await shown(client))["id"] == "bobs"


@pytest.mark.no_second_try
async def test_since_is_read_page_by_page_and_loses_none_of_the_same_microsecond(
    alice: User, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_list, "PAGE_MAX", 2)
    now = timezone.now()
    rows = [Conversation(public_id=f"same-{n}", owner=alice, listed_at=now) for n in range(5)]
    await astore.call(Conversation.objects.bulk_create, rows)
    real, sizes = status.listed, []

    def listed(found: Any, user_pk: int) -> Any:
        page = real(found, user_pk)
        sizes.append(len(page))
        return page

    monkeypatch.setattr(native_list, "listed", listed)
    client = await opened(dial, query={"since": iso(now)})
    assert [(await shown(client))["id"] for _ in range(5)] == [f"same-{n}" for n in range(5)]
    assert sizes == [2, 2, 1]


async def test_since_shows_what_changed_meanwhile(alice: User, dial: Dial) -> None:
    refs = await astore.call(lambda: [creation.create(alice, conversation_id=name) for name in "abc"])
    long_ago = timezone.now() - timedelta(hours=1)
    await astore.call(Conversation.objects.update, listed_at=long_ago)
    first = await dial(PATH)
    now = (await first.receive())["now"]
    await first.leave()
    await astore.call(changes.retitle, refs[0], "renamed")
    await astore.call(deletion.soft_delete, refs[2])
    second = await opened(dial, query={"since": now})
    await shown_with(second, id="a", title="renamed")
    await shown_with(second, id="c", deleted=True)
    await astore.call(changes.retitle, refs[1], "live again")
    await shown_with(second, id="b", title="live again")
    assert [frame["conversation"]["id"] for frame in second.frames[1:]] == ["a", "c", "b"]


@pytest.mark.no_second_try
async def test_since_misses_nothing_that_was_committed_a_little_late(
    conversation: ConversationRef, dial: Dial
) -> None:
    client = await dial(PATH, query={"since": iso(timezone.now() + timedelta(seconds=5))})
    assert (await shown(client))["id"] == "talk"


@pytest.mark.one_engine
async def test_a_moment_that_is_none_closes_with_4400(dial: Dial, subtests: pytest.Subtests) -> None:
    for moment in ["yesterday", "", "2026-01-31T12:00:00", "0001-01-01T00:00:00+14:00"]:
        with subtests.test(moment=moment):
            assert (await (await dial(PATH, query={"since": moment})).closed()).code == 4400


@pytest.mark.no_second_try
async def test_a_lost_hint_costs_one_poll(quick_poll: None, no_hints: None, alice: User, dial: Dial) -> None:
    client = await opened(dial)
    ref = await astore.call(lambda: creation.create(alice, conversation_id="new"))
    await shown_with(client, id="new")
    await astore.append(ref, [event("the latest")])
    await shown_with(client, last_message="the latest")
    await astore.call(deletion.soft_delete, ref)
    await shown_with(client, id="new", deleted=True)


@pytest.mark.no_second_try
async def test_nothing_is_shown_twice_unchanged(
    quick_poll: None, conversation: ConversationRef, dial: Dial
) -> None:
    client = await opened(dial)
    await astore.call(changes.retitle, conversation, "A new title")
    await shown_with(client, title="A new title")
    await polled(client, 4)
    shown = [frame["conversation"] for frame in client.frames if frame["type"] == "conversation"]
    assert [each["title"] for each in shown if each["title"] == "A new title"] == ["A new title"]
    assert all(earlier != later for earlier, later in pairwise(shown))


@pytest.mark.one_engine
@pytest.mark.parametrize("frame", ["no JSON", {"type": "message", "text": "hello", "id": 1}])
async def test_this_socket_takes_no_frames_but_auth(dial: Dial, frame: Any) -> None:
    client = await opened(dial)
    await client.send(frame)
    error = await client.until("error")
    assert (error["code"], error["id"]) == ("bad_frame", 1 if isinstance(frame, dict) else None)
    await client.send({"type": "auth", "id": "a"})
    assert await client.until("ack") == {"type": "ack", "id": "a"}


@pytest.mark.one_engine
async def test_a_binary_frame_is_answered_with_an_error(dial: Dial) -> None:
    client = await opened(dial)
    await client.send_bytes(b"{}")
    assert (await client.until("error"))["detail"] == "Frames are text, not binary."
