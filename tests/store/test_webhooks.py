"""Outgoing webhooks: what is sent, in order, at least once, whatever the endpoint or the server does."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from conversations.dialects import v1
from conversations.log import reads, writes
from conversations.models import ConversationRef, Version
from conversations.store import changes, creation, deletion
from sessions_app import astore, background
from sessions_app.identity.authentication import local_user
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.loops.manager import get_manager
from sessions_app.models import Delivery, Endpoint
from sessions_app.openhands_v1.information import information_of
from sessions_app.processes import this_process
from sessions_app.webhooks import deliveries, dispatcher
from sessions_app.webhooks import transport as webhooks
from sessions_app.webhooks.dispatcher import Dispatcher
from sessions_app.webhooks.gathering import Watermark, gather
from sessions_app.webhooks.transport import WebhookCredentials
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S, Server
from tests.support.people.scripted_agent import Hooked, ask, hooked, manager, stage, until, until_here
from tests.support.servers.webhook_server import WebhookServer

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

CLEAR = "the-clear-text-of-a-key"


@pytest.fixture
def endpoint() -> Iterator[WebhookServer]:
    """An endpoint that says yes to everything."""
    with WebhookServer() as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon, and look for what others wrote often."""
    monkeypatch.setattr(deliveries, "RETRY_FIRST_S", 0.02)
    monkeypatch.setattr(deliveries, "RETRY_MAX_S", 0.1)
    monkeypatch.setattr(dispatcher, "POLL_S", 0.2)


@pytest.fixture
async def dispatching(live: None, manager: ConversationManager) -> None:
    await manager.ensure_started()
    background.start()


def webhook(server: WebhookServer, *, flush_delay_s: float = 0.0, **columns: Any) -> Endpoint:
    return webhooks.create(server.url, flush_delay_s=flush_delay_s, **columns)


async def append(conversation: ConversationRef, *texts: str) -> None:
    for text in texts:
        await astore.append(conversation, [event(text)])


def texts(batches: list[list[dict[str, object]]]) -> list[str]:
    """Return what was said in the events of all batches, in order."""
    return [str(each["llm_message"]["content"][0]["text"]) for batch in batches for each in batch]  # type: ignore[index]


def shown(conversation: ConversationRef) -> list[str]:
    return [v1.shown(each, conversation.public_id) for each in reads.read_after(conversation, -1)]


async def test_a_webhook_is_told_nothing_from_before_it_was_made(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await append(conversation, "before")
    await astore.call(webhook, endpoint)
    await append(conversation, "after")
    await until_here(lambda: endpoint.batches)
    assert [texts(endpoint.batches), endpoint.infos] == [["after"], []]


async def test_events_are_posted_byte_for_byte_as_v1_clients_are_shown_them(
    dispatching: None, endpoint: WebhookServer, alice: User
) -> None:
    await astore.call(webhook, endpoint)
    talk = await astore.call(creation.create, alice, version=Version.V1)
    payload = v1.user_message([v1.text_part("grüß\u2028dich")])
    authored = v1.authored(payload, event_id="0" * 32)
    await astore.append(talk, [authored.event("0" * 32)])
    await until_here(lambda: len(endpoint.batches) == 1)
    (call,) = [call for call in endpoint.taken if call.path.startswith("/events/")]
    assert call.path == f"/events/{talk.public_id}"
    assert call.headers["content-type"] == "application/json"
    assert call.text == f"[{','.join(await astore.call(shown, talk))}]"


async def test_events_of_a_v0_conversation_are_posted_as_v1_events(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(webhook, endpoint)
    await append(conversation, "one")
    await until_here(lambda: len(endpoint.batches) == 1)
    assert endpoint.batches[0][0]["kind"] == "MessageEvent"


async def test_a_batch_waits_until_its_buffer_is_full(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(webhook, endpoint, flush_delay_s=3600.0)
    await append(conversation, *map(str, range(4)))
    await until(lambda: Delivery.objects.filter(known=3, due_at__gt=timezone.now()).exists())
    assert endpoint.calls == []
    await append(conversation, *map(str, range(4, 11)))
    await until_here(lambda: len(endpoint.batches) == 2)
    assert [len(batch) for batch in endpoint.batches] == [5, 5]
    assert texts(endpoint.batches) == list(map(str, range(10)))


async def test_a_buffer_that_is_not_full_is_flushed_after_a_while(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(webhook, endpoint, flush_delay_s=0.3)
    began = time.monotonic()
    await append(conversation, "one")
    await until_here(lambda: endpoint.batches)
    assert time.monotonic() - began >= 0.3


async def test_the_conversation_is_posted_when_it_is_made_retitled_and_before_it_is_deleted(
    dispatching: None, endpoint: WebhookServer, alice: User
) -> None:
    await astore.call(webhook, endpoint)
    talk = await astore.call(creation.create, alice)
    await until_here(lambda: len(endpoint.infos) == 1)
    await astore.call(changes.retitle, talk, "A title")
    await until_here(lambda: len(endpoint.infos) == 2)
    await append(talk, "last")
    await astore.call(deletion.soft_delete, talk)
    await until_here(lambda: len(endpoint.infos) == 3)
    assert [call.path.split("/")[1] for call in endpoint.taken] == [
        "conversations",
        "conversations",
        "events",
        "conversations",
    ]
    assert endpoint.infos[-1] == (await astore.call(information_of, [talk.pk], deleted=True))[talk.pk]


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_events_that_came_while_a_deletion_was_looked_for_are_told_before_it(
    database: None, endpoint: WebhookServer, alice: User, hooked: Hooked
) -> None:
    receiver = webhook(endpoint)
    talk = creation.create(alice)
    watermark = Watermark()
    watermark.look()
    gather(receiver, watermark)
    [claim] = deliveries.claim(receiver.pk, this_process(), limit=1)
    created = deliveries.next_step(claim)
    assert created is not None
    assert deliveries.delivered(claim, created)

    def append_and_delete() -> None:
        writes.append(talk, [event("last")])
        deletion.soft_delete(talk)

    hooked(reads, "read_after").after(append_and_delete)
    told = []
    while (step := deliveries.next_step(claim)) is not None:
        told.append(step.notification.kind)
        assert deliveries.delivered(claim, step)
    assert told == ["appended", "deleted"]


async def test_the_conversation_is_posted_when_a_run_ends_after_the_events_of_the_run(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(changes.retitle, conversation, "Given")  # so that none is made, and posted, meanwhile
    await astore.call(webhook, endpoint, flush_delay_s=3600.0, event_buffer_size=100)
    await ask(conversation, "hello")
    await until_here(lambda: endpoint.infos)
    assert [call.path.split("/")[1] for call in endpoint.taken] == ["events", "conversations"]
    assert endpoint.infos[0]["execution_status"] in ("idle", "finished")


async def test_the_conversation_is_posted_when_it_is_given_a_title(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(webhook, endpoint, flush_delay_s=0.0)
    await ask(conversation, "hello")
    await until_here(lambda: any(info["title"] for info in endpoint.infos))


async def test_the_conversation_is_posted_when_it_is_paused(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    await astore.call(webhook, endpoint)
    await get_manager().pause(conversation)
    await until_here(lambda: endpoint.infos)
    assert endpoint.infos[0]["execution_status"] == "paused"


async def test_the_session_key_and_the_headers_are_sent(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    credentials = WebhookCredentials({"X-Team": "blue"}, CLEAR)
    await astore.call(webhooks.create, endpoint.url, credentials, flush_delay_s=0.0)
    await append(conversation, "one")
    await until_here(lambda: endpoint.batches)
    sent = endpoint.calls[0].headers
    assert (sent["x-session-api-key"], sent["x-team"]) == (CLEAR, "blue")


@pytest.mark.no_second_try
async def test_after_failures_the_same_batches_come_in_order_before_newer_ones(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    endpoint.status = 500
    await astore.call(webhook, endpoint)
    await append(conversation, *map(str, range(5)))
    await until_here(lambda: len(endpoint.calls) >= 3)
    await append(conversation, *map(str, range(5, 8)))
    endpoint.status = 200
    await until_here(lambda: len(texts(endpoint.batches)) == 8)
    assert texts(endpoint.batches) == list(map(str, range(8)))


@pytest.mark.needs_engine
@pytest.mark.parametrize("step", ["next_step", "delivered", "failed"])
async def test_a_fault_of_the_database_holds_up_a_delivery_for_a_moment_only(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef, hooked: Hooked, step: str
) -> None:
    hooked(deliveries, step).before(broken)
    endpoint.status = 500 if step == "failed" else 200
    await astore.call(webhook, endpoint)
    await append(conversation, "one")
    await until_here(lambda: endpoint.calls)
    endpoint.status = 200
    await until(lambda: Delivery.objects.filter(through=0, due_at=None, claim="").exists())
    assert endpoint.batches[-1][0]["kind"] == "MessageEvent"


def broken() -> None:
    raise OperationalError("The connection is gone.")


@pytest.mark.no_second_try
async def test_what_happens_while_an_endpoint_is_down_comes_when_it_is_back(
    dispatching: None, conversation: ConversationRef
) -> None:
    with WebhookServer() as gone:
        address = gone.url
    await astore.call(webhooks.create, address, flush_delay_s=0.0)
    await append(conversation, "one", "two")
    await until(lambda: Delivery.objects.failing().exists())
    with WebhookServer() as back:
        await astore.call(lambda: Endpoint.objects.update(base_url=back.url))
        await until_here(lambda: len(texts(back.batches)) == 2)
        assert texts(back.batches) == ["one", "two"]


async def test_an_endpoint_that_hangs_is_tried_again_after_its_time(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    endpoint.never_answer()
    await astore.call(webhook, endpoint, timeout_s=0.2)
    await append(conversation, "one")
    await until(lambda: Delivery.objects.failing().exists())
    error = await astore.call(lambda: Delivery.objects.values_list("last_error", flat=True).get())
    endpoint.let_go()
    await until(lambda: Delivery.objects.filter(through=0, due_at=None).exists())
    assert error == "No response in time."


async def test_a_redirect_of_a_webhook_is_not_followed(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    with WebhookServer() as elsewhere:
        endpoint.status, endpoint.redirects_to = 307, elsewhere.url
        await astore.call(webhook, endpoint)
        await append(conversation, "one")
        await until(lambda: Delivery.objects.failing().exists())
        assert endpoint.calls
        assert elsewhere.calls == []


async def test_a_dead_endpoint_delays_no_other(
    dispatching: None, endpoint: WebhookServer, alice: User
) -> None:
    talks = [await astore.call(creation.create, alice) for _ in range(12)]
    with WebhookServer() as dead:
        dead.never_answer()
        await astore.call(webhook, dead)
        await astore.call(webhook, endpoint)
        for talk in talks:
            await append(talk, "one")
        await until_here(lambda: len(endpoint.batches) == 12 and len(dead.calls) == deliveries.PER_ENDPOINT)
        assert dead.batches == []


@pytest.mark.needs_engine
@pytest.mark.no_second_try
async def test_two_dispatchers_deliver_each_batch_once(
    live: None, endpoint: WebhookServer, alice: User
) -> None:
    talks = [await astore.call(creation.create, alice) for _ in range(3)]
    await astore.call(webhook, endpoint)
    endpoint.hold()
    tasks = [asyncio.create_task(Dispatcher(this_process()).run()) for _ in range(2)]
    for talk in talks:
        await append(talk, *map(str, range(3)))
    await until_here(lambda: len(endpoint.calls) >= 3)
    for talk in talks:
        await append(talk, *map(str, range(3, 20)))
    endpoint.let_go()
    await until(lambda: Delivery.objects.filter(through=19, due_at=None).count() == 3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for talk in talks:
        of_talk = [call.body for call in endpoint.calls if call.path.endswith(talk.public_id)]
        assert texts(of_talk) == list(map(str, range(20)))


async def test_a_webhook_of_one_user_is_told_of_nobody_elses_conversations(
    dispatching: None, endpoint: WebhookServer, alice: User, bob: User
) -> None:
    await astore.call(webhook, endpoint, owner=bob)
    of_alice = await astore.call(creation.create, alice)
    of_bob = await astore.call(creation.create, bob)
    await append(of_alice, "one")
    await append(of_bob, "two")
    await until_here(lambda: endpoint.batches)
    assert texts(endpoint.batches) == ["two"]
    assert len(endpoint.infos) == 1


async def test_what_happens_while_a_webhook_is_switched_off_comes_when_it_is_on_again(
    dispatching: None, endpoint: WebhookServer, conversation: ConversationRef
) -> None:
    row = await astore.call(webhook, endpoint, enabled=False)
    await append(conversation, "one")
    await astore.call(lambda: Endpoint.objects.filter(pk=row.pk).update(enabled=True))
    await until_here(lambda: endpoint.batches)
    assert texts(endpoint.batches) == ["one"]


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_server_that_is_killed_mid_delivery_delivers_again(server: Server, endpoint: WebhookServer) -> None:
    webhook(endpoint)
    endpoint.hold()
    server.start()
    talk = creation.create(local_user())
    writes.append(talk, [event("one"), event("two")])
    wait_for(lambda: endpoint.calls)
    server.kill()
    endpoint.let_go()
    before = len(endpoint.calls)
    writes.append(talk, [event("three")])
    server.start()
    wait_for(lambda: Delivery.objects.filter(through=2, due_at=None).exists())
    again = [call.body for call in endpoint.calls[before:] if call.path.startswith("/events/")]
    assert texts(again) == ["one", "two", "three"]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 2 * WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_with_accounts_a_private_address_is_refused(
    subtests: pytest.Subtests, accounts: None, database: None
) -> None:
    for address in [
        "http://example.org",
        "https://127.0.0.1/hooks",
        "https://localhost",
        "https://10.0.0.7",
        "https://[::1]",
        "https://[::ffff:192.168.0.1]",
        "https://0x7f000001",
    ]:
        with subtests.test(address=address), pytest.raises(webhooks.InvalidWebhook):
            webhooks.create(address)


async def test_with_accounts_a_private_address_is_refused_when_it_is_asked_too(
    dispatching: None, endpoint: WebhookServer, accounts: None, conversation: ConversationRef
) -> None:
    row = await astore.call(webhooks.create, "https://example.org", flush_delay_s=0.0)
    await astore.call(lambda: Endpoint.objects.filter(pk=row.pk).update(base_url=endpoint.url))
    await append(conversation, "one")
    await until(lambda: Delivery.objects.failing().exists())
    assert endpoint.calls == []


async def test_with_accounts_a_webhook_is_asked_at_the_address_that_was_checked(
    dispatching: None, accounts: None, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[httpx.Request] = []

    async def handle(transport: object, request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle)
    place = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("140.82.112.3", 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [place])
    await astore.call(webhooks.create, "https://hooks.example.org", flush_delay_s=0.0)
    await append(conversation, "one")
    await until_here(lambda: asked)
    assert (asked[0].url.host, asked[0].headers["host"]) == ("140.82.112.3", "hooks.example.org")
    assert asked[0].extensions["sni_hostname"] == "hooks.example.org"


def test_an_address_that_cannot_be_one_is_refused(subtests: pytest.Subtests, database: None) -> None:
    for address in [
        "ftp://example.org",
        "example.org",
        "https://user:pass@example.org",
        "https://example.org/?key=1",
        "",
        "https://[",
        "https://xn--a",
        "https://a..b",
        f"https://{'a' * 64}.example.org",
        "https://example.org:99999",
        "https://example.org/\ud800",
    ]:
        with subtests.test(address=address):
            with pytest.raises(webhooks.InvalidWebhook) as refused:
                webhooks.create(address)
            assert "pass" not in str(refused.value).replace("password", "")


def test_headers_that_cannot_be_sent_are_refused(subtests: pytest.Subtests) -> None:
    for text in ["no colon", "Name:", ": value", "A B: c", "Host: x", "Ünï: x", "A: b\0c"]:
        with subtests.test(text=text), pytest.raises(webhooks.InvalidWebhook):
            webhooks.checked_headers(text)


def test_what_a_webhook_carries_is_sealed(database: None) -> None:
    row = webhooks.create("http://localhost:1", WebhookCredentials({"X-Team": CLEAR}, CLEAR))
    stored = json.dumps(
        list(Endpoint.objects.values()), default=lambda value: getattr(value, "token", str(value))
    )
    assert CLEAR not in stored + repr(row) + repr(webhooks.opened(row))
    assert webhooks.opened(row) == WebhookCredentials({"X-Team": CLEAR}, CLEAR)
