"""The list as people read it: by last use, by creation, or by title; each from an index, whatever moves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, Label, ListOrder
from conversations.store import changes, creation, deletion
from convserver import pagination
from sessions_app.live import marks
from tests.conftest import once
from tests.support.data.events import event

PATH = "/api/native/conversations"


@pytest.fixture
def reader() -> Client:
    """A client of the local user, with cookies."""
    return Client(headers={"host": "localhost"})


@pytest.fixture
def names(alice: User) -> list[str]:
    """Five conversations, from the oldest to the newest, with titles in another order."""
    began = timezone.now() - timedelta(days=9)
    titles = ["echo", "Alpha", "delta", "Bravo", None]
    for number, title in enumerate(titles):
        talk = creation.create(alice, conversation_id=f"t{number}", title=title)
        moment = began + timedelta(days=number)
        Conversation.objects.filter(pk=talk.pk).update(created_at=moment)
    return [f"t{number}" for number in range(5)]


def use(name: str) -> None:
    writes.append(Conversation.objects.get(public_id=name).ref, [event("hello again")])


def listed(reader: Client, **query: Any) -> list[str]:
    answer = reader.get(PATH, query)
    assert answer.status_code == 200, answer.content
    return [each["id"] for each in answer.json()["conversations"]]


def pages(reader: Client, **query: Any) -> Iterator[list[str]]:
    page_id: str | None = None
    while True:
        given: dict[str, Any] = {**query, "limit": 2, **({"page_id": page_id} if page_id else {})}
        answer = reader.get(PATH, given)
        assert answer.status_code == 200, answer.content
        yield [each["id"] for each in answer.json()["conversations"]]
        page_id = answer.json()["next_page_id"]
        if page_id is None:
            return


@pytest.mark.usefixtures("names")
def test_the_last_used_comes_first_unless_another_order_is_chosen(reader: Client) -> None:
    assert listed(reader) == ["t4", "t3", "t2", "t1", "t0"]
    use("t1")
    use("t0")
    assert listed(reader) == listed(reader, order="used") == ["t0", "t1", "t4", "t3", "t2"]
    assert listed(reader, order="created") == ["t4", "t3", "t2", "t1", "t0"]
    assert listed(reader, order="title") == ["t1", "t3", "t4", "t2", "t0"]  # untitled: "Conversation t4"


@pytest.mark.usefixtures("names")
def test_a_rename_a_mark_and_a_restart_are_no_use(reader: Client, alice: User) -> None:
    talk = Conversation.objects.get(public_id="t1").ref
    changes.retitle(talk, "Zulu")
    marks.mark(alice.pk, talk, pinned=True, archived=None)
    deletion.soft_delete(talk)
    deletion.restore(talk)
    assert listed(reader) == ["t4", "t3", "t2", "t1", "t0"]


def test_pages_together_are_the_list_in_every_order(
    names: list[str], reader: Client, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for name in names:
        changes.retag(Conversation.objects.get(public_id=name).ref, {"rare": ""})
    use("t2")
    filters: list[dict[str, str]] = [{}, {"label": "rare"}, {"version": "V0"}]
    for order, sorted_max in product(ListOrder.values, (200, 2)):
        monkeypatch.setattr(pagination, "SORTED_MAX", sorted_max)
        for query in filters:
            with subtests.test(order, sorted_max=sorted_max, query=query):
                in_pages = [name for page in pages(reader, order=order, **query) for name in page]
                assert in_pages == listed(reader, order=order, **query)
                assert sorted(in_pages) == names


@pytest.mark.usefixtures("names")
def test_what_is_used_between_two_pages_moves_to_the_front_and_comes_at_most_once(reader: Client) -> None:
    reading = pages(reader)
    assert next(reading) == ["t4", "t3"]
    use("t3")  # read already
    use("t1")  # not read yet
    assert [*reading] == [["t2", "t0"]]
    assert listed(reader) == ["t1", "t3", "t4", "t2", "t0"]


@pytest.mark.usefixtures("names")
def test_a_cursor_of_another_order_is_refused_with_a_sentence(reader: Client) -> None:
    cursors = {
        order: reader.get(PATH, {"limit": "2", "order": order}).json()["next_page_id"]
        for order in ListOrder.values
    }
    for order in ListOrder.values:
        for other, cursor in cursors.items():
            answer = reader.get(PATH, {"order": order, "page_id": cursor})
            assert answer.status_code == (200 if order == other else 400)
            assert order == other or answer.json()["detail"].endswith(".")
    # A page id by an earlier release, whose list was ordered by creation.
    assert reader.get(PATH, {"page_id": cursors["created"]}).status_code == 400
    assert reader.get(PATH, {"order": "newest"}).status_code == 400
    assert reader.get(PATH, {"order": "title", "deleted": "true"}).status_code == 400
    assert reader.get(PATH, {"deleted": "true"}).status_code == 200


@pytest.mark.parametrize(
    ("order", "name"), [("used", "conversation_last_used"), ("title", "conversation_by_title")]
)
def test_each_order_is_read_from_its_index(alice: User, reader: Client, order: str, name: str) -> None:
    creation.create(alice)
    Conversation.objects.bulk_create(
        Conversation(owner=alice, public_id=f"c{n}", title=f"Title {n}") for n in range(300)
    )
    cursor = reader.get(PATH, {"limit": "2", "order": order}).json()["next_page_id"]
    queries: list[dict[str, Any]] = [{}, {"page_id": cursor}]
    for query in queries:
        with CaptureQueriesContext(connection) as captured:
            assert len(listed(reader, order=order, limit=2, **query)) == 2
        statement = next(each["sql"] for each in captured if "list_key" in each["sql"])
        with transaction.atomic(), connection.cursor() as cursor_of_plan:
            if connection.vendor == "postgresql":
                cursor_of_plan.execute("SET LOCAL enable_seqscan = off")
                cursor_of_plan.execute("SET LOCAL enable_bitmapscan = off")
                # What the tables held when they were last analysed may make a sort seem cheap.
                cursor_of_plan.execute("SET LOCAL enable_sort = off")
                cursor_of_plan.execute(f"EXPLAIN {statement}")
            else:
                cursor_of_plan.execute(f"EXPLAIN QUERY PLAN {statement}")
            plan = str(cursor_of_plan.fetchall())
        assert name in plan
        assert "TEMP B-TREE" not in plan
        assert "Sort" not in plan


@once
@pytest.mark.usefixtures("names")
def test_the_page_keeps_the_order_that_was_chosen(reader: Client) -> None:
    use("t0")

    def shown(path: str = "/rows", **query: str) -> list[str]:
        text = reader.get(path, query).content.decode()
        places = {text.find(f'id="row-t{number}"'): f"t{number}" for number in range(5)}
        return [places[place] for place in sorted(places)]

    assert shown() == ["t0", "t4", "t3", "t2", "t1"]
    assert shown(order="title") == ["t1", "t3", "t4", "t2", "t0"]
    assert shown() == shown("/") == shown("/c/t2") == ["t1", "t3", "t4", "t2", "t0"]
    assert shown("/", order="created") == shown() == ["t4", "t3", "t2", "t1", "t0"]
    assert shown(order="no such order") == shown() == ["t0", "t4", "t3", "t2", "t1"]
    other = Client(headers={"host": "localhost"})
    assert other.get("/rows").content.decode().find('id="row-t0"') > 0
    assert "list_order" not in other.cookies


@once
def test_rows_by_their_ids_do_not_change_what_is_remembered(reader: Client, names: list[str]) -> None:
    reader.get("/rows", {"order": "title"})
    reader.get("/rows", {"order": "used", "id": names})
    assert reader.cookies["list_order"].value == "title"
    assert Label.objects.count() == 0
