"""Labels: the tags as an index, in step with them whoever writes them, and lists that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.cursors import ListCursor
from conversations.engines import guards, label_rows
from conversations.models import Conversation, ConversationRef, Label
from conversations.store import changes, creation, deletion, forks, labels
from convserver.pagination import newest_page
from sessions_app.settings.user_settings import create_custom_secret
from tests.conftest import on_postgresql, on_sqlite

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
TAGS = st.dictionaries(TEXTS, TEXTS, max_size=4)


def labels_of(conversation: ConversationRef) -> set[str]:
    return set(Label.objects.filter(conversation_id=conversation.pk).values_list("text", flat=True))


def expected(tags: dict[str, str]) -> set[str]:
    return set(tags) | {f"{name}:{value}" for name, value in tags.items() if value}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(TAGS, min_size=1, max_size=4))
def test_labels_are_what_the_tags_say_after_every_change(
    conversation: ConversationRef, steps: list[dict[str, str]]
) -> None:
    for tags in steps:
        changes.retag(conversation, tags)
        assert labels_of(conversation) == expected(tags)


def test_a_conversation_is_created_imported_and_forked_with_its_labels(alice: User) -> None:
    made = creation.create(alice, tags={"work": "", "source": "codex"})
    assert labels_of(made) == {"work", "source", "source:codex"}
    assert labels_of(forks.fork(alice, made, tags={"copy": ""})) == {"copy"}


def test_many_conversations_are_labelled_in_as_few_statements_as_a_few_are(alice: User) -> None:
    def statements(count: int, name: str) -> int:
        made = [creation.create(alice, tags={"old": ""}) for _ in range(count)]
        with CaptureQueriesContext(connection) as captured:
            done = labels.set_tag(name, dict.fromkeys(made, "1"))
        assert len(done.before) == count
        assert all(labels_of(each) == {"old", name, f"{name}:1"} for each in made)
        return len(captured)

    assert statements(100, "many") <= statements(10, "few") + 2


def test_secrets_are_masked_in_labels_of_many_conversations(alice: User) -> None:
    create_custom_secret(alice.pk, "S", "a-value-of-a-secret", description="")
    made = [creation.create(alice) for _ in range(2)]
    labels.set_tag("x", dict.fromkeys(made, "about a-value-of-a-secret"))
    for each in made:
        assert "a-value-of-a-secret" not in str(Conversation.objects.get(pk=each.pk).tags)
        assert len(labels_of(each)) == 2


def test_a_change_that_is_rolled_back_leaves_the_labels_as_they_were(conversation: ConversationRef) -> None:
    changes.retag(conversation, {"old": ""})
    with transaction.atomic():
        changes.retag(conversation, {"new": ""})
        transaction.set_rollback(True)
    assert labels_of(conversation) == {"old"}


def test_the_labels_of_a_deleted_conversation_lead_to_it_among_the_deleted_ones_only(
    alice: User, conversation: ConversationRef
) -> None:
    changes.retag(conversation, {"work": ""})
    deletion.soft_delete(conversation)
    assert not Label.objects.of_owner(alice.pk).exists()
    assert Label.objects.of_owner(alice.pk, deleted=True).saying("work").exists()
    deletion.restore(conversation)
    assert Label.objects.of_owner(alice.pk).saying("work").exists()


@pytest.mark.parametrize("tags", ["[]", '["a"]', '"text"', "7", '{"a": null}', '{"a": {"b": 1}}'])
def test_tags_that_no_door_takes_break_no_write(conversation: ConversationRef, tags: str) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(tags=json.loads(tags))
    Conversation.objects.create(owner_id=conversation.owner_id, public_id="born so", tags=json.loads(tags))
    assert labels_of(conversation) in (set(), {"a"}, {"a", 'a:{"b":1}'}, {"a", 'a:{"b": 1}'})


def test_a_label_that_is_too_long_for_an_index_is_found_by_its_beginning(
    alice: User, conversation: ConversationRef
) -> None:
    name, value = "n" * 100, "\U0001f600" * 500
    changes.retag(conversation, {name: value})
    assert Label.objects.of_owner(alice.pk).saying(f"{name}:{value}").exists()
    assert Conversation.objects.matching(labels=[f"{name}:{value}"]).count() == 1


def test_what_was_tagged_before_there_were_labels_is_filled_in_by_parts(alice: User) -> None:
    made = [creation.create(alice, tags={"n": str(number)} if number % 2 else {}) for number in range(9)]
    Label.objects.filter(conversation_id=made[1].pk).delete()
    Label.objects.filter(conversation_id=made[3].pk, text="n").update(text="of before")
    label_rows.fill(connection, batch=2)
    assert [labels_of(each) for each in made] == [
        {"n", f"n:{number}"} if number % 2 else set() for number in range(9)
    ]


def test_what_was_tagged_while_the_guard_was_lost_is_labelled_once_it_is_back(
    conversation: ConversationRef,
) -> None:
    table = f" ON {guards.CONVERSATION}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER label_write{table}")
    changes.retag(conversation, {"late": ""})
    assert labels_of(conversation) == set()
    guards.install(connection)
    assert labels_of(conversation) == {"late"}


def pages(owner: User, *texts: str) -> Iterator[list[str]]:
    """Yield the ids on each page of the conversations with these labels."""
    rows = Conversation.objects.visible_to(owner).matching(labels=texts)
    after: ListCursor | None = None
    while True:
        label = Label.objects.of_owner(owner.pk).saying(texts[0])
        page = newest_page(rows, 2, after=after, label=label)
        found = dict(Conversation.objects.with_pks(page.pks).values_list("pk", "public_id"))
        yield [found[pk] for pk in page.pks]
        if page.next_page_id is None:
            return
        after = ListCursor.decode(page.next_page_id)


def test_pages_of_a_label_are_those_of_the_list_without_the_others(alice: User, bob: User) -> None:
    now = timezone.now()
    for number in range(12):
        tags = {"even": "yes"} if number % 2 == 0 else {}
        tags |= {"three": ""} if number % 3 == 0 else {}
        creation.create(alice, conversation_id=f"c{number}", tags=tags)
        Conversation.objects.filter(public_id=f"c{number}").update(
            created_at=now - timedelta(seconds=number // 4)
        )
    creation.create(bob, conversation_id="bobs", tags={"even": "yes"})
    wanted = [
        row.public_id for row in Conversation.objects.visible_to(alice).newest_first() if "even" in row.tags
    ]
    assert list(chain(*pages(alice, "even:yes"))) == wanted
    assert list(chain(*pages(alice, "even", "three"))) == [each for each in wanted if each in ("c0", "c6")]
    assert list(chain(*pages(alice, "none"))) == []


@on_postgresql
def test_postgresql_reads_a_page_of_a_label_from_the_index_in_its_order(alice: User) -> None:
    tagged(alice, 2_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE conversations_label, conversations_conversation")
    (plan,) = json.loads(label_query(alice).explain(format="json"))
    steps = list(nodes(plan["Plan"]))
    assert any(step.get("Index Name") == "label_list" for step in steps), steps
    assert not any(step["Node Type"] in ("Sort", "Seq Scan", "Hash") for step in steps), steps


@on_sqlite
def test_sqlite_reads_a_page_of_a_label_from_the_index_in_its_order(alice: User) -> None:
    tagged(alice, 20)
    plan = label_query(alice).explain()
    assert "label_list" in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert "SCAN" not in plan, plan


@on_postgresql
def test_postgresql_reads_the_names_of_labels_from_the_index_in_their_order(alice: User) -> None:
    tagged(alice, 2_000, {"many": "a", "more": "b", "most": "c"})
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE conversations_label, conversations_conversation")
    (plan,) = json.loads(names_query(alice).explain(format="json"))
    steps = list(nodes(plan["Plan"]))
    assert any(step.get("Index Name") == "label_name_alone" for step in steps), steps
    assert not any(step["Node Type"] in ("Sort", "Seq Scan") for step in steps), steps


@on_sqlite
def test_sqlite_reads_the_names_of_labels_from_the_index_in_their_order(alice: User) -> None:
    tagged(alice, 20)
    plan = names_query(alice).explain()
    assert "COVERING INDEX label_name_alone" in plan, plan
    assert "TEMP B-TREE" not in plan, plan


def names_query(owner: User) -> Any:
    return labels.counts(Label.objects.of_owner(owner.pk).names())[:3]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def tagged(owner: User, count: int, tags: dict[str, str] | None = None) -> None:
    tags = tags or {"many": ""}
    Conversation.objects.bulk_create(
        Conversation(public_id=f"n{number}", owner=owner, tags=tags if number % 3 else {})
        for number in range(count)
    )


def label_query(owner: User) -> Any:
    rows = Conversation.objects.visible_to(owner).matching(labels=["many"])
    found = Label.objects.of_owner(owner.pk).saying("many").leading_to(rows)
    return found.older_than(timezone.now(), 10**9).values_list("created_at", "conversation_id")[:41]
