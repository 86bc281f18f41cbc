"""What the admin is shown of a user's stored bytes: as far as they are counted, whatever is locked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from conversations.log import writes
from conversations.models import ConversationRef, Event, StorageProgress
from conversations.storage import stored_bytes
from convserver.quotas import Quotas
from sessions_app.storage import usage
from sessions_app.storage.usage import QuotaUse
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.no_second_try


@pytest.fixture
def counting() -> Iterator[None]:
    """Another thread counts, and does not come to an end."""
    is_begun, is_over = threading.Event(), threading.Event()

    def count() -> None:
        with transaction.atomic():
            StorageProgress.objects.get_or_create(pk=1)
            StorageProgress.objects.select_for_update().get(pk=1)
            is_begun.set()
            is_over.wait(5 * WAIT_S)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(count)
        assert is_begun.wait(WAIT_S)
        yield
        is_over.set()
        ended.result()


@pytest.fixture
def stored(conversation: ConversationRef, configured: Callable[..., None]) -> int:
    """The bytes of three events that are not counted yet."""
    configured(quotas=Quotas(stored_mb=5))
    writes.append(conversation, [event("one"), event("two"), event("three")])
    return sum(Event.objects.of(conversation).values_list("size", flat=True))


def test_what_is_stored_is_shown_while_it_is_counted(alice: User, stored: int, counting: None) -> None:
    assert usage.use_of(alice.pk)["stored_mb"] == QuotaUse(stored)


def test_what_is_not_counted_yet_is_not_counted_by_the_page(
    alice: User, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_bytes, "STEP_EVENTS", 2)
    assert usage.use_of(alice.pk)["stored_mb"] == QuotaUse(0, is_all=False)
