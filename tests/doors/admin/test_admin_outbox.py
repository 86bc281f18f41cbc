"""The outbox in the admin: what staff see of endpoints, how they set them up, and what nobody is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, ConversationRef
from sessions_app.encryption import seal
from sessions_app.models import Delivery, Endpoint, EndpointKind
from sessions_app.processes import this_process
from sessions_app.webhooks import deliveries, transport
from sessions_app.webhooks.gathering import Watermark, gather
from tests.doors.admin.test_admin import (
    CLEAR,
    LOG,
    USERS,
    Staff,
    boss,
    make_conversations,
    staff,
    statements,
    text_of,
)
from tests.support.data.events import event

__all__ = ["boss", "staff"]

ENDPOINTS = "/admin/sessions_app/endpoint/"
DELIVERIES = "/admin/sessions_app/delivery/"


def form(**changes: Any) -> dict[str, Any]:
    return {
        "name": "watcher",
        "base_url": "https://example.org/hooks/",
        "owner": "",
        "enabled": "on",
        "event_buffer_size": 5,
        "flush_delay_s": 30,
        "timeout_s": 30,
        "headers": f"X-Team: {CLEAR}",
        "session_key": CLEAR,
        **changes,
    }


@pytest.fixture
def failing(conversation: ConversationRef) -> Delivery:
    """A delivery of two events whose last try failed."""
    endpoint = transport.create("https://example.org", flush_delay_s=0.0)
    writes.append(conversation, [event(), event()])
    watermark = Watermark()
    watermark.look()
    gather(endpoint, watermark)
    (claim,) = deliveries.claim(endpoint.pk, this_process(), limit=1)
    deliveries.failed(claim, "It answered with status 500.")
    return Delivery.objects.get()


def test_a_webhook_is_set_up_and_what_it_carries_is_never_shown(boss: Browser) -> None:
    assert boss.post(ENDPOINTS + "add/", form()).status_code == 302
    endpoint = Endpoint.objects.get()
    assert transport.opened(endpoint) == transport.WebhookCredentials({"X-Team": CLEAR}, CLEAR)
    one = f"{ENDPOINTS}{endpoint.pk}/"
    paths = [ENDPOINTS, f"{one}change/", f"{one}history/", f"{one}delete/", LOG, "/admin/"]
    pages = [boss.get(path).content.decode() for path in paths]
    assert not any(CLEAR in page or endpoint.sealed.token in page for page in pages)
    assert "X-Team" in pages[1]


def test_what_a_webhook_carries_goes_to_no_other_host(boss: Browser) -> None:
    boss.post(ENDPOINTS + "add/", form())
    endpoint = Endpoint.objects.get()
    moved = {"base_url": "https://elsewhere.example/hooks", "headers": "", "session_key": ""}
    answer = boss.post(f"{ENDPOINTS}{endpoint.pk}/change/", form(**moved))
    assert (answer.status_code, b"are for another host" in answer.content) == (200, True)
    assert boss.post(f"{ENDPOINTS}{endpoint.pk}/change/", form(**moved, forget="on")).status_code == 302
    endpoint.refresh_from_db()
    assert transport.opened(endpoint) == transport.WebhookCredentials({}, "")


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"headers": "", "session_key": ""}, ({"X-Team": CLEAR}, CLEAR)),
        ({"headers": "", "session_key": "other"}, ({"X-Team": CLEAR}, "other")),
        ({"headers": "A: b", "session_key": ""}, ({"A": "b"}, CLEAR)),
        ({"headers": "", "session_key": "", "forget": "on"}, ({}, "")),
    ],
)
def test_what_a_webhook_carries_stays_unless_it_is_replaced(
    boss: Browser, changes: dict[str, str], kept: tuple[dict[str, str], str]
) -> None:
    boss.post(ENDPOINTS + "add/", form())
    endpoint = Endpoint.objects.get()
    assert boss.post(f"{ENDPOINTS}{endpoint.pk}/change/", form(**changes)).status_code == 302
    endpoint.refresh_from_db()
    assert transport.opened(endpoint) == transport.WebhookCredentials(*kept)


WRONG_HOOKS: list[tuple[dict[str, Any], str]] = [
    ({"base_url": "https://10.0.0.1"}, "No public address was found for this host."),
    ({"base_url": "http://example.org"}, "over https only"),
    ({"base_url": ""}, "looks like https://"),
    ({"headers": f"nonsense {CLEAR}"}, "A header is"),
    ({"session_key": f"{CLEAR}ü"}, "printable ASCII"),
    ({"event_buffer_size": 0}, "greater than or equal to 1"),
    ({"timeout_s": 10**6}, "less than or equal to 300"),
]


@pytest.mark.one_engine
def test_a_webhook_that_cannot_be_is_refused(boss: Browser, subtests: pytest.Subtests) -> None:
    for changes, problem in WRONG_HOOKS:
        with subtests.test(changes=changes, problem=problem):
            answer = boss.post(ENDPOINTS + "add/", form(**changes))
            assert answer.status_code == 200
            assert problem in text_of(answer)
            assert CLEAR not in answer.content.decode()
            assert not Endpoint.objects.exists()


def test_a_hook_can_only_be_switched_off(boss: Browser) -> None:
    hook = deliveries.begin(Endpoint(kind=EndpointKind.HOOK, name="my.Hook", sealed=seal("{}")))
    path = f"{ENDPOINTS}{hook.pk}/change/"
    assert boss.get(path).status_code == 200
    assert boss.post(path, {"name": "other", "base_url": "https://example.org"}).status_code == 302
    hook.refresh_from_db()
    assert (hook.name, hook.base_url, hook.enabled) == ("my.Hook", "", False)


def test_how_far_an_endpoint_is_behind_and_why_is_shown(boss: Browser, failing: Delivery) -> None:
    page = text_of(boss.get(ENDPOINTS))
    assert "It answered with status 500." in boss.get(ENDPOINTS).content.decode()
    assert "All conversations" in page
    assert "Failing" in text_of(boss.get(f"{DELIVERIES}{failing.pk}/change/"))


@pytest.mark.parametrize("path", [ENDPOINTS, DELIVERIES])
def test_what_waits_is_tried_again_at_once(boss: Browser, failing: Delivery, path: str) -> None:
    row = failing.endpoint_id if path == ENDPOINTS else failing.pk
    boss.post(path, {"action": "try_again", "_selected_action": [row]})
    failing.refresh_from_db()
    assert failing.due_at is not None
    assert failing.due_at <= timezone.now()


def test_a_conversation_is_told_again_from_an_event_on(boss: Browser, failing: Delivery) -> None:
    Delivery.objects.update(through=1, due_at=None)
    assert boss.post(f"{DELIVERIES}{failing.pk}/change/", {"first": 1}).status_code == 302
    failing.refresh_from_db()
    assert (failing.through, failing.due_at is None) == (0, False)


def test_a_conversation_that_was_never_told_is_told_again(
    boss: Browser, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event()])
    endpoint = transport.create("https://example.org")
    chosen = {"endpoint": endpoint.pk, "conversation_id": conversation.public_id, "first": 0}
    assert boss.post(DELIVERIES + "add/", chosen).status_code == 302
    assert boss.post(DELIVERIES + "add/", chosen).status_code == 302
    assert Delivery.objects.get().known == 0


NOT_THERE: list[tuple[dict[str, Any], str]] = [
    ({"first": 7}, "The newest event of the conversation has the number 1."),
    ({"first": -1}, "greater than or equal to 0"),
    ({"first": "x"}, "Enter a whole number."),
    ({"conversation_id": "nowhere"}, "Conversation not found."),
    ({"conversation_id": "../x"}, "invalid path characters"),
    ({"endpoint": 10**9}, "Select a valid choice."),
]


@pytest.mark.one_engine
def test_what_there_is_not_is_not_told_again(
    boss: Browser, failing: Delivery, subtests: pytest.Subtests
) -> None:
    for changes, problem in NOT_THERE:
        with subtests.test(changes=changes, problem=problem):
            chosen = {"endpoint": failing.endpoint_id, "conversation_id": "talk", "first": 0, **changes}
            assert problem in text_of(boss.post(DELIVERIES + "add/", chosen))


def make_endpoints(count: int, owner: User) -> None:
    for number in range(count):
        deliveries.begin(
            Endpoint(name=f"r{number}", owner=owner, base_url="https://e.org", sealed=seal("{}"))
        )


def make_deliveries(count: int, owner: User) -> None:
    endpoint = transport.create("https://example.org")
    Delivery.objects.bulk_create(
        Delivery(endpoint=endpoint, conversation=each, due_at=timezone.now(), known=3)
        for each in make_conversations(count, owner)
    )


@pytest.mark.parametrize(("path", "make"), [(ENDPOINTS, make_endpoints), (DELIVERIES, make_deliveries)])
def test_a_list_asks_as_much_of_the_database_with_5_rows_as_with_45(
    boss: Browser, alice: User, path: str, make: Callable[[int, User], None]
) -> None:
    make(5, alice)
    boss.get(path)
    few = statements(boss, path)
    make(40, alice)
    assert len(statements(boss, path)) == len(few)


def test_deliveries_are_found_by(boss: Browser, failing: Delivery, subtests: pytest.Subtests) -> None:
    for query in ["endpoint=https://example.org", "conversation=talk", "failing=yes", "failing=no"]:
        with subtests.test(query=query):
            found = f"{DELIVERIES}{failing.pk}/change/" in boss.get(f"{DELIVERIES}?{query}").content.decode()
            assert found is (query != "failing=no")


@pytest.mark.one_engine
def test_pages_and_addresses_say_endpoint(boss: Browser, failing: Delivery) -> None:
    one, delivery = f"{ENDPOINTS}{failing.endpoint_id}/", f"{DELIVERIES}{failing.pk}/"
    staff_of = f"{USERS}{User.objects.get(username='boss').pk}/change/"
    paths = [ENDPOINTS, ENDPOINTS + "add/", one + "change/", one + "delete/", DELIVERIES + "add/"]
    for path in [*paths, DELIVERIES, delivery + "change/", staff_of, "/admin/"]:
        page = text_of(boss.get(path)).lower()
        assert ("endpoint" in page, "receiver" in page) == (True, False), path


@pytest.mark.one_engine
@pytest.mark.parametrize("path", [ENDPOINTS, DELIVERIES])
def test_a_list_needs_its_own_permission(staff: Staff, path: str) -> None:
    model = path.split("/")[3]
    assert staff("conversations.view_conversation").get(path).status_code == 403
    assert staff(f"sessions_app.view_{model}").get(path).status_code == 200


@pytest.mark.one_engine
@pytest.mark.parametrize("path", [ENDPOINTS, DELIVERIES])
def test_who_may_not_read_events_sends_them_nowhere(staff: Staff, failing: Delivery, path: str) -> None:
    model = path.split("/")[3]
    may = [f"sessions_app.{verb}_{model}" for verb in ("view", "add", "change")]
    browser = staff(*may)
    row = failing.endpoint_id if path == ENDPOINTS else failing.pk
    assert browser.get(f"{path}{row}/change/").status_code == 200
    assert browser.get(path + "add/").status_code == 403
    assert browser.post(f"{path}{row}/change/", {**form(), "first": 0}).status_code == 403


def test_an_endpoint_is_removed_with_all_its_deliveries(boss: Browser, failing: Delivery) -> None:
    path = f"{ENDPOINTS}{failing.endpoint_id}/delete/"
    assert boss.post(path, {"post": "yes"}).status_code == 302
    assert not Endpoint.objects.exists()
    assert Conversation.objects.exists()
