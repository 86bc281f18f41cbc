"""Labels by the native door: lists that have one, and which ones there are."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.store import creation, deletion
from tests.conftest import once

pytestmark = once

LIST = "/api/native/conversations"
LABELS = "/api/native/labels"
TAGS: dict[str, dict[str, str]] = {
    "a": {"work": "", "source": "codex", "directory": "/home/me/site"},
    "b": {"work": ""},
    "c": {"source": "claude-code"},
    "d": {},
}


@pytest.fixture
def four(alice: User, bob: User) -> None:
    for name, tags in TAGS.items():
        creation.create(
            alice, conversation_id=name, tags=tags, llm_model="openai/gpt-5" if name < "c" else None
        )
    creation.create(bob, conversation_id="bobs", tags={"work": "", "secret": ""})


@pytest.fixture
def deleted(alice: User) -> None:
    deletion.soft_delete(creation.create(alice, tags={"gone": ""}))


async def ids(rest: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await rest.get(LIST, params=query)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["conversations"]]


FILTERED: list[tuple[dict[str, Any], list[str]]] = [
    ({"label": "work"}, ["b", "a"]),
    ({"label": ["work", "source"]}, ["a"]),
    ({"label": "source:claude-code"}, ["c"]),
    ({"label": "directory:/home/me/site"}, ["a"]),
    ({"label": "secret"}, []),
    ({"label": "wor"}, []),
    ({"model": "openai/gpt-5"}, ["b", "a"]),
    ({"model": "openai/gpt-5", "label": "source"}, ["a"]),
]


async def test_a_list_has_what_has_all_labels(
    rest: httpx.AsyncClient, four: None, subtests: pytest.Subtests
) -> None:
    for query, found in FILTERED:
        with subtests.test(query=query, found=found):
            assert await ids(rest, **query) == found


async def test_a_list_of_a_label_comes_by_pages(rest: httpx.AsyncClient, four: None) -> None:
    first = (await rest.get(LIST, params={"label": "work", "limit": 1})).json()
    assert [each["id"] for each in first["conversations"]] == ["b"]
    assert await ids(rest, label="work", limit=1, page_id=first["next_page_id"]) == ["a"]


async def test_a_changed_tag_changes_the_lists_at_once(rest: httpx.AsyncClient, four: None) -> None:
    await rest.patch(f"{LIST}/d", json={"tags": {"new": "yes"}})
    assert await ids(rest, label="new:yes") == ["d"]
    await rest.delete(f"{LIST}/d")
    assert await ids(rest, label="new:yes") == []
    assert await ids(rest, label="new:yes", deleted=True) == ["d"]


async def test_labels_are_counted_and_come_by_pages(rest: httpx.AsyncClient, four: None) -> None:
    first = (await rest.get(LABELS, params={"limit": 2})).json()
    assert first["labels"] == [{"label": "directory", "count": 1}, {"label": "source", "count": 2}]
    second = (await rest.get(LABELS, params={"limit": 2, "after": first["next_after"]})).json()
    assert second == {"labels": [{"label": "work", "count": 2}], "next_after": None}
    values = (await rest.get(LABELS, params={"name": "source"})).json()["labels"]
    assert values == [{"label": "source:claude-code", "count": 1}, {"label": "source:codex", "count": 1}]


async def test_deleted_conversations_do_not_count(rest: httpx.AsyncClient, deleted: None) -> None:
    assert (await rest.get(LABELS)).json() == {"labels": [], "next_after": None}


async def test_labels_that_none_can_have_are_refused(
    rest: httpx.AsyncClient, four: None, subtests: pytest.Subtests
) -> None:
    wrong: list[dict[str, Any]] = [{"label": "x" * 602}, {"label": "\0"}, {"label": ["x"] * 11}]
    for query in wrong:
        with subtests.test(query=query):
            assert (await rest.get(LIST, params=query)).status_code == 400
