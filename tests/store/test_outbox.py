"""The outbox: hooks are told in order and at least once, and nobody pays for it who tells nobody."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations import live
from conversations.events import Kind
from conversations.exceptions import ConversationBusy
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import changes, creation, deletion
from sessions_app import astore, background
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.models import Delivery, Endpoint, RecordedChange
from sessions_app.processes import Process, this_process
from sessions_app.webhooks import deliveries, dispatcher, gathering, hooks, transport
from sessions_app.webhooks.gathering import Watermark, gather
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.data.threads import in_threads
from tests.support.people.clients import WAIT_S
from tests.support.people.hooks import Listener
from tests.support.people.scripted_agent import Stage, ask, manager, stage, until, until_here

__all__ = ["manager", "stage"]

pytestmark = pytest.mark.no_second_try

PATH = "tests.support.people.hooks.Listener"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deliveries, "RETRY_FIRST_S", 0.02)
    monkeypatch.setattr(deliveries, "RETRY_MAX_S", 0.1)
    monkeypatch.setattr(dispatcher, "POLL_S", 0.2)
    hooks.hooks_of_this_process.cache_clear()
    yield
    hooks.hooks_of_this_process.cache_clear()


Hooked = Callable[..., None]


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch, settings: object) -> Listener:
    """A hook that this process has; it is installed when the dispatcher starts."""
    monkeypatch.setattr("django.conf.settings.CONVERSATION_HOOKS", (PATH,))
    hook = hooks.hooks_of_this_process()[PATH]
    assert isinstance(hook, Listener)
    return hook


@pytest.fixture
async def dispatching(live: None, listener: Listener, manager: ConversationManager) -> None:
    """Start the dispatcher, and wait until the hook is an endpoint."""
    background.start()
    await until(lambda: Endpoint.objects.exists())


# Hooks


async def test_a_hook_is_told_all_that_happens_in_order(
    dispatching: None, listener: Listener, alice: User
) -> None:
    talk = await astore.call(creation.create, alice)
    await astore.append(talk, [event("one"), event("two")])
    await astore.call(changes.retitle, talk, "A title")
    await astore.append(talk, [event("three")])
    await astore.call(deletion.soft_delete, talk)
    await until_here(lambda: "deleted" in listener.kinds)
    assert listener.kinds == ["created", "appended", "status", "appended", "deleted"]
    assert listener.texts == ["one", "two", "three"]


async def test_a_hook_is_told_that_a_run_began_and_ended(
    dispatching: None, listener: Listener, stage: Stage, conversation: ConversationRef
) -> None:
    await ask(conversation, "hold")
    await until_here(lambda: "running" in listener.statuses)
    stage.go.set()
    await until_here(lambda: listener.statuses[-1] == "finished")
    assert listener.texts[0] == "hold"


async def test_a_hook_that_raises_is_told_again_before_anything_newer(
    dispatching: None, listener: Listener, conversation: ConversationRef
) -> None:
    listener.failures = 2
    for text in ("one", "two", "three"):
        await astore.append(conversation, [event(text)])
    await until_here(lambda: len(listener.texts) == 3)
    assert listener.texts == ["one", "two", "three"]


async def test_what_a_hook_raises_is_kept_by_its_name_alone(
    dispatching: None, listener: Listener, conversation: ConversationRef
) -> None:
    listener.failures = 1_000
    await astore.append(conversation, [event()])
    await until(lambda: Delivery.objects.failing().exists())
    error = await astore.call(lambda: Delivery.objects.values_list("last_error", flat=True).get())
    assert error == "It raised RuntimeError; the server's log has more."


def test_a_hook_that_cannot_be_made_keeps_nobody_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ("tests.support.people.hooks.Nothing", "tests.support.people.hooks.Deaf", PATH)
    monkeypatch.setattr("django.conf.settings.CONVERSATION_HOOKS", paths)
    assert list(hooks.found_hooks()) == [PATH]


async def test_the_hook_of_the_documentation_works(
    live: None,
    manager: ConversationManager,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "operation.md").read_text()
    _, _, of_hooks = documentation.partition("### Hooks")
    (code, *_) = re.findall(r"```python\n(.*?)```", of_hooks, re.DOTALL)
    module = ModuleType("my_hooks")
    exec(code, vars(module))
    monkeypatch.setitem(sys.modules, "my_hooks", module)
    monkeypatch.setattr("django.conf.settings.CONVERSATION_HOOKS", ("my_hooks.Diary",))
    background.start()
    await until(lambda: Endpoint.objects.exists())
    talk = await astore.call(creation.create, alice, title="Lunch")
    await astore.append(talk, [event("soup")])
    await until(lambda: Delivery.objects.filter(through=0, due_at=None).exists())
    assert capsys.readouterr().out == f"{talk.public_id} begins: Lunch\n{talk.public_id} 0 message: soup\n"


# What it costs


def statements(conversation: ConversationRef) -> int:
    with CaptureQueriesContext(connection) as captured:
        writes.append(conversation, [event(), event()])
    return len(captured)


def test_an_append_costs_the_same_with_endpoints_and_without(conversation: ConversationRef) -> None:
    statements(conversation)
    without = statements(conversation)
    transport.create("http://localhost:1")
    assert statements(conversation) == without
    assert not Delivery.objects.exists()


def test_nothing_is_noted_when_nobody_is_told(alice: User) -> None:
    changes.retitle(creation.create(alice), "A title")
    assert not RecordedChange.objects.exists()


@pytest.mark.parametrize("events", [1, 50])
def test_what_is_new_is_found_by_the_same_statements_however_much_it_is(
    conversation: ConversationRef, alice: User, events: int
) -> None:
    writes.append(conversation, [event()])  # before it, the keys of earlier tests would be a gap
    endpoint = transport.create("http://localhost:1")
    for _ in range(events):
        writes.append(creation.create(alice), [event() for _ in range(events)])
    watermark = Watermark()
    with CaptureQueriesContext(connection) as captured:
        watermark.look()
        gather(endpoint, watermark)
    assert len([each for each in captured if "SAVEPOINT" not in each["sql"]]) <= 7
    assert Delivery.objects.count() == events


# What is found


def found(endpoint: Endpoint) -> list[tuple[int, int]]:
    watermark = Watermark()
    watermark.look()
    gather(endpoint, watermark)
    return list(Delivery.objects.order_by("conversation_id").values_list("through", "known"))


def settled() -> Watermark:
    """Return a watermark with all settled; on PostgreSQL, others' transactions may be in the way."""
    watermark = Watermark()
    deadline = time.monotonic() + WAIT_S
    watermark.look()
    while watermark.settled != watermark.newest:
        assert time.monotonic() < deadline
        time.sleep(0.01)
        watermark.look()
    return watermark


def told(claim: deliveries.Claim) -> list[tuple[str, int]]:
    """Take everything that is left, and return what it was."""
    steps = []
    while step := deliveries.next_step(claim):
        steps.append((step.notification.kind.value, len(step.notification.events)))
        deliveries.delivered(claim, step)
    return steps


def test_what_is_looked_at_again_changes_nothing(conversation: ConversationRef) -> None:
    endpoint = transport.create("http://localhost:1")
    writes.append(conversation, [event(), event()])
    assert found(endpoint) == [(-1, 1)]
    Delivery.objects.update(through=1, due_at=None)
    Endpoint.objects.update(event_position=0)
    endpoint.refresh_from_db()
    assert found(endpoint) == [(1, 1)]
    assert not Delivery.objects.pending().exists()


def test_after_a_long_rest_everything_is_found_a_window_at_a_time(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "WINDOW", 3)
    endpoint = transport.create("http://localhost:1")
    writes.append(conversation, [event() for _ in range(10)])
    watermark = settled()
    rounds = 1
    while gather(endpoint, watermark):
        rounds += 1
    assert found(endpoint) == [(-1, 9)]
    assert rounds == 4


@on_postgresql
def test_an_event_that_is_committed_after_one_with_a_higher_key_is_found(alice: User) -> None:
    early, late = creation.create(alice), creation.create(alice)
    endpoint = transport.create("http://localhost:1")
    watermark = Watermark()
    with transaction.atomic():
        writes.append(early, [event()])  # has its key, and is not there for others yet

        def meanwhile(_: int) -> None:
            writes.append(late, [event()])
            for _ in range(3):
                watermark.look()
                gather(endpoint, watermark)

        in_threads(1, meanwhile)
    watermark.look()
    gather(endpoint, watermark)
    assert set(Delivery.objects.values_list("conversation_id", flat=True)) == {early.pk, late.pk}


@on_postgresql
def test_an_endpoint_begins_when_what_was_being_written_is_there(alice: User) -> None:
    early, late = creation.create(alice), creation.create(alice)

    def begun() -> Endpoint:
        try:
            writes.append(late, [event()])
            return transport.create("http://localhost:1")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            writes.append(early, [event()])  # has the lower key, and is not there for others yet
            endpoint = pool.submit(begun)
            with pytest.raises(TimeoutError):
                endpoint.result(timeout=0.5)  # all the time that it would need if it did not wait
        assert endpoint.result(WAIT_S).event_position == max(Event.objects.values_list("pk", flat=True))


@on_postgresql
def test_an_endpoint_that_cannot_begin_for_too_long_is_refused(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "SETTLES_S", 0.05)
    talk = creation.create(alice)
    with transaction.atomic():
        writes.append(talk, [event()])

        def begins(_: int) -> None:
            with pytest.raises(ConversationBusy):
                transport.create("http://localhost:1")

        in_threads(1, begins)
    assert not Endpoint.objects.exists()


def test_a_disabled_endpoint_holds_recorded_changes_for_a_time_only_and_is_marked(alice: User) -> None:
    ungathered, gathered = (transport.create(f"http://localhost:{port}") for port in (1, 2))
    creation.create(alice)
    gather(gathered, settled())
    Endpoint.objects.update(enabled=False)
    assert deliveries.prune() == 0
    later = timezone.now() + timedelta(days=deliveries.HELD_DAYS)
    assert deliveries.prune(now=later) == 1
    for endpoint in (ungathered, gathered):
        endpoint.refresh_from_db()
        assert endpoint.skipped_until is not None
        assert endpoint.skipped_until > endpoint.created_at


def test_an_endpoint_that_is_not_disabled_holds_recorded_changes_however_old_they_are(alice: User) -> None:
    off, on = (transport.create(f"http://localhost:{port}") for port in (1, 2))
    Endpoint.objects.filter(pk=off.pk).update(enabled=False)
    creation.create(alice)
    gather(on, settled())
    assert deliveries.prune(now=timezone.now() + timedelta(days=1000)) == 0
    off.refresh_from_db()
    assert off.skipped_until is None


def test_an_endpoint_that_is_enabled_again_is_told_all_events_though_facts_are_gone(
    conversation: ConversationRef,
) -> None:
    endpoint = transport.create("http://localhost:1", flush_delay_s=0.0)
    writes.append(conversation, [event("one")])
    changes.retitle(conversation, "A title")
    gather(endpoint, settled())
    Endpoint.objects.update(enabled=False)
    assert deliveries.prune(now=timezone.now() + timedelta(days=deliveries.HELD_DAYS)) == 1
    Endpoint.objects.update(enabled=True)
    writes.append(conversation, [event("two")])
    gather(endpoint, settled())
    (claim,) = deliveries.claim(endpoint.pk, this_process(), limit=1)
    assert told(claim) == [("appended", 2)]


def test_what_is_noted_for_an_endpoint_that_begins_meanwhile_stays(alice: User) -> None:
    def begin(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if "MIN(" in sql and not Endpoint.objects.exists():  # the endpoints have been looked at
            transport.create("http://localhost:1")
            creation.create(alice)
        return answer

    with connection.execute_wrapper(begin):
        assert deliveries.prune() == 0
    assert RecordedChange.objects.exists()


def test_recorded_changes_go_once_everybody_has_taken_them(alice: User) -> None:
    endpoint = transport.create("http://localhost:1")
    talk = creation.create(alice)
    gather(endpoint, settled())
    assert deliveries.prune() == 0
    (claim,) = deliveries.claim(endpoint.pk, this_process(), limit=1)
    step = deliveries.next_step(claim)
    assert step is not None
    deliveries.delivered(claim, step)
    assert deliveries.prune() == 1
    assert Conversation.objects.filter(pk=talk.pk).exists()


def test_a_fact_that_nobody_has_found_yet_is_told_before_the_events_behind_it(
    conversation: ConversationRef,
) -> None:
    endpoint = transport.create("http://localhost:1", flush_delay_s=0.0)
    writes.append(conversation, [event("one")])
    found(endpoint)
    changes.retitle(conversation, "A title")
    writes.append(conversation, [event("two")])
    (claim,) = deliveries.claim(endpoint.pk, this_process(), limit=1)
    assert told(claim) == [("appended", 1), ("status", 0), ("appended", 1)]


# Who delivers


@pytest.fixture
def due(conversation: ConversationRef) -> Endpoint:
    """An endpoint that is to be told of two events."""
    endpoint = transport.create("http://localhost:1", flush_delay_s=0.0)
    writes.append(conversation, [event("one"), event("two")])
    found(endpoint)
    return endpoint


def test_what_one_process_has_taken_no_other_takes(due: Endpoint) -> None:
    assert len(deliveries.claim(due.pk, this_process(), limit=5)) == 1
    assert deliveries.claim(due.pk, this_process(), limit=5) == []


def test_what_a_process_has_left_behind_is_free_at_once(due: Endpoint) -> None:
    gone = this_process()._replace(started=this_process().started - 100)
    deliveries.claim(due.pk, gone, limit=5)
    deliveries.release_abandoned()
    assert len(deliveries.claim(due.pk, this_process(), limit=5)) == 1


def test_what_a_living_process_has_taken_stays_its_own(due: Endpoint) -> None:
    deliveries.claim(due.pk, this_process(), limit=5)
    deliveries.release_abandoned()
    assert deliveries.claim(due.pk, this_process(), limit=5) == []


def test_whoever_has_lost_a_claim_moves_nothing(due: Endpoint) -> None:
    elsewhere = Process("another host", 1, 0.0)
    (lost,) = deliveries.claim(due.pk, elsewhere, limit=1, lease_s=-1.0)
    step = deliveries.next_step(lost)
    assert step is not None
    (taken,) = deliveries.claim(due.pk, this_process(), limit=1)
    assert not deliveries.delivered(lost, step)
    deliveries.failed(lost, "too late")
    assert deliveries.next_step(lost) is None
    assert deliveries.next_step(taken) is not None
    assert Delivery.objects.get().through == -1


def test_what_became_known_while_the_last_of_it_was_told_is_not_forgotten(
    due: Endpoint, conversation: ConversationRef
) -> None:
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    step = deliveries.next_step(claim)
    assert step is not None
    deliveries.delivered(claim, step)
    row = Delivery.objects.select_related("endpoint", "conversation").get()
    writes.append(conversation, [event("three")])
    found(due)
    deliveries._rest(row, due_at=None)
    assert Delivery.objects.pending().count() == 1


def test_tries_get_rarer_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "RETRY_FIRST_S", 2.0)
    monkeypatch.setattr(deliveries, "RETRY_MAX_S", 600.0)
    assert 1.0 <= deliveries.retry_delay_s(0) <= 2.0
    assert 8.0 <= deliveries.retry_delay_s(3) <= 16.0
    assert 300.0 <= deliveries.retry_delay_s(10_000) <= 600.0


def test_news_do_not_bring_the_next_try_forward(due: Endpoint, conversation: ConversationRef) -> None:
    later = timezone.now() + timedelta(hours=1)
    Delivery.objects.update(tries=3, due_at=later)
    writes.append(conversation, [event() for _ in range(20)])
    found(due)
    assert Delivery.objects.get().due_at == later


def test_the_dispatcher_is_woken_once_a_retry_is_due(due: Endpoint) -> None:
    Delivery.objects.update(tries=3, due_at=timezone.now() + timedelta(hours=1))
    were_due: list[bool] = []
    end = live.add_listener(lambda _: were_due.append(Delivery.objects.due().exists()))
    try:
        deliveries.try_again(Delivery.objects.all())
    finally:
        end()
    assert were_due == [True]


# Again


def test_events_are_told_again_from_one_on(due: Endpoint, conversation: ConversationRef) -> None:
    Delivery.objects.update(through=1, due_at=None)
    deliveries.replay(due, conversation, first=1)
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    step = deliveries.next_step(claim)
    assert step is not None
    assert [each["text"] for each in step.notification.events] == ["two"]


def test_events_from_before_the_endpoint_was_made_are_told_when_they_are_asked_for(
    conversation: ConversationRef,
) -> None:
    writes.append(conversation, [event("old")])
    endpoint = transport.create("http://localhost:1")
    deliveries.replay(endpoint, conversation, first=0)
    assert len(deliveries.claim(endpoint.pk, this_process(), limit=1)) == 1


@pytest.mark.parametrize("first", [-1, 2, 10**18])
def test_what_there_is_not_is_not_told_again(
    due: Endpoint, conversation: ConversationRef, first: int
) -> None:
    with pytest.raises(deliveries.InvalidReplay):
        deliveries.replay(due, conversation, first=first)


def test_nobody_is_told_again_of_another_users_conversation(
    due: Endpoint, conversation: ConversationRef, bob: User
) -> None:
    due.owner = bob
    with pytest.raises(deliveries.InvalidReplay):
        deliveries.replay(due, conversation, first=0)


def test_the_events_of_a_purged_conversation_hold_nothing_up(
    due: Endpoint, conversation: ConversationRef
) -> None:
    from conversations.models import Purge

    Purge.objects.create(conversation_id=conversation.pk, requested_by="tests", reason="asked for")
    Event.objects.all()._raw_delete("default")
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    assert deliveries.next_step(claim) is None
    assert not Delivery.objects.pending().exists()


def test_whoever_has_nothing_left_to_fail_with_is_told_what_comes_next(
    due: Endpoint, conversation: ConversationRef
) -> None:
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    deliveries.failed(claim, "It is not there.")
    changes.retitle(conversation, "A title")
    past = timezone.now() - timedelta(seconds=1)  # SQLite counts milliseconds alone
    Delivery.objects.update(through=F("known"), due_at=past)  # as after a replay, or a purge
    RecordedChange.objects.all().delete()
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    assert deliveries.next_step(claim) is None
    assert Delivery.objects.get().tries == 0
    writes.append(conversation, [event()])
    gather(due, settled())
    assert Delivery.objects.pending().exists()


def test_the_end_of_a_run_is_told_behind_its_events(due: Endpoint, conversation: ConversationRef) -> None:
    writes.append(conversation, [event("the end", kind=Kind.TURN), event("more")])
    (claim,) = deliveries.claim(due.pk, this_process(), limit=1)
    assert told(claim) == [("appended", 3), ("status", 0), ("appended", 1)]


def test_secret_keys_of_webhooks_are_rotated(
    database: None, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.conf import settings as the_settings

    transport.create("http://localhost:1", transport.WebhookCredentials({}, "key"))
    monkeypatch.setattr(the_settings, "SECRET_KEY_FALLBACKS", [the_settings.SECRET_KEY])
    monkeypatch.setattr(the_settings, "SECRET_KEY", "another secret key of enough characters")
    call_command("rotate_secrets")
    monkeypatch.setattr(the_settings, "SECRET_KEY_FALLBACKS", [])
    assert transport.opened(Endpoint.objects.get()).session_key == "key"
