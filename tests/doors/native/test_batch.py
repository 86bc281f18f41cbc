"""One action on many conversations by the native door, and its undoing."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.models import Conversation
from conversations.store import creation, deletion
from convserver.batches import undo
from convserver.web.conversations.export import EXPORT_MAX
from sessions_app import astore
from sessions_app.models import Mark
from tests.conftest import once

pytestmark = once

BATCH = "/api/native/batch"
FOUR = ["a", "b", "c", "d"]


@pytest.fixture
def four(alice: User, bob: User) -> None:
    for name, tags in zip(FOUR, [{"work": ""}, {"work": "old"}, {}, {"other": "1"}], strict=True):
        creation.create(alice, conversation_id=name, tags=tags)
    creation.create(bob, conversation_id="bobs")


@pytest.fixture
def post(rest: httpx.AsyncClient, four: None) -> Callable[..., Any]:
    async def sent(**body: Any) -> Any:
        answer = await rest.post(BATCH, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return sent


async def tags() -> dict[str, Any]:
    rows = Conversation.objects.filter(public_id__in=FOUR).order_by("public_id")
    return {name: found async for name, found in rows.values_list("public_id", "tags")}


async def active() -> list[str]:
    return [row.public_id async for row in Conversation.objects.active().order_by("public_id")]


async def archived() -> list[str]:
    marks = Mark.objects.archived().order_by("conversation__public_id")
    return [name async for name in marks.values_list("conversation__public_id", flat=True)]


async def test_a_label_is_given_to_many_and_taken_back_from_exactly_those_that_changed(
    post: Callable[..., Any],
) -> None:
    before = await tags()
    done = await post(action="label", ids=[*FOUR, "none", "bobs"], label="work")
    assert (done["changed"], done["unchanged"], done["not_found"]) == (3, 1, ["none", "bobs"])
    assert {name for name, each in (await tags()).items() if each["work"] == ""} == set(FOUR)
    assert (await post(action="undo", undo=done["undo"]))["changed"] == 3
    assert await tags() == before


async def test_a_label_is_taken_from_many_with_its_value_and_comes_back_with_it(
    post: Callable[..., Any],
) -> None:
    before = await tags()
    done = await post(action="unlabel", ids=FOUR, label="work")
    assert (done["changed"], done["unchanged"]) == (2, 2)
    await post(action="undo", undo=done["undo"])
    assert await tags() == before


async def test_a_label_that_was_changed_again_since_is_left_as_it_is(
    post: Callable[..., Any], rest: httpx.AsyncClient
) -> None:
    done = await post(action="label", ids=["c", "d"], label="work")
    await rest.patch("/api/native/conversations/c", json={"tags": {"work": "mine"}})
    undone = await post(action="undo", undo=done["undo"])
    assert (undone["changed"], undone["unchanged"]) == (1, 1)
    assert (await tags())["c"] == {"work": "mine"}


async def test_many_are_archived_and_taken_back_without_those_that_were_before(
    post: Callable[..., Any],
) -> None:
    await post(action="archive", ids=["a"])
    done = await post(action="archive", ids=FOUR)
    assert (done["changed"], await archived()) == (3, FOUR)
    await post(action="undo", undo=done["undo"])
    assert await archived() == ["a"]


async def test_many_are_deleted_and_restored(post: Callable[..., Any]) -> None:
    done = await post(action="delete", ids=["a", "b", "bobs"])
    assert (done["changed"], done["not_found"], await active()) == (2, ["bobs"], ["bobs", "c", "d"])
    assert (await post(action="restore", ids=["a", "c"]))["changed"] == 1
    assert (await post(action="undo", undo=done["undo"])) == {
        "changed": 1,
        "unchanged": 1,
        "not_found": [],
        "refused": [],
        "undo": None,
    }
    assert await active() == ["a", "b", "bobs", "c", "d"]


async def test_those_that_can_be_deleted_are_and_have_an_undo_whatever_becomes_of_the_others(
    post: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(settings, "CONVERSATION_STORE", "tests.support.data.faulty.BusyStore")
        broken.setattr(settings, "CONVERSATION_MANAGER", "tests.support.data.faulty.HoldingManager")
        done = await post(action="delete", ids=FOUR)
    refused = {each["id"]: each["detail"] for each in done["refused"]}
    assert (done["changed"], done["unchanged"], set(refused)) == (2, 0, {"b", "c"})
    assert "locked by another process" in refused["b"]
    assert await active() == ["b", "bobs", "c"]
    await post(action="undo", undo=done["undo"])
    assert await active() == [*FOUR[:2], "bobs", *FOUR[2:]]


async def test_what_changed_nothing_has_no_undo(post: Callable[..., Any]) -> None:
    assert (await post(action="unarchive", ids=FOUR))["undo"] is None


async def test_a_conversation_that_has_as_many_tags_as_it_may_is_named_and_the_others_change(
    post: Callable[..., Any], rest: httpx.AsyncClient
) -> None:
    await rest.patch("/api/native/conversations/c", json={"tags": {f"t{at}": "" for at in range(50)}})
    done = await post(action="label", ids=["c", "d"], label="one more")
    assert (done["changed"], [each["id"] for each in done["refused"]]) == (1, ["c"])


REFUSED: list[tuple[Any, str]] = [
    ({"action": "label", "ids": ["a"]}, "label"),
    ({"action": "label", "ids": ["a"], "label": ": x"}, "begins with its name"),
    ({"action": "archive"}, "ids"),
    ({"action": "archive", "ids": ["a"] * 201}, "200"),
    ({"action": "burn", "ids": ["a"]}, "is not one of archive"),
    ({"action": "undo"}, "undo"),
    ({"action": "undo", "undo": "x"}, "undo"),
    ({"action": "archive", "ids": [7]}, "string"),
    ([], "object"),
]


async def test_what_cannot_be_done_is_refused_in_a_sentence(
    rest: httpx.AsyncClient, four: None, subtests: pytest.Subtests
) -> None:
    for body, words in REFUSED:
        with subtests.test(body=body, words=words):
            answer = await rest.post(BATCH, json=body)
            assert (answer.status_code, words in answer.json()["detail"]) == (400, True), answer.text


async def test_an_undo_is_of_the_user_who_has_made_the_change(
    rest: httpx.AsyncClient, four: None, bob: User
) -> None:
    theirs = await astore.call(undo.written, bob.pk, undo.UndoableChange("archive", "", None, {"a": None}))
    answer = await rest.post(BATCH, json={"action": "undo", "undo": theirs})
    assert answer.status_code == 400


async def test_an_undo_ends_after_an_hour(
    rest: httpx.AsyncClient, four: None, monkeypatch: pytest.MonkeyPatch, post: Callable[..., Any]
) -> None:
    done = await post(action="archive", ids=["a"])
    later = time.time() + 2 * undo.UNDO_S
    monkeypatch.setattr(time, "time", lambda: later)
    answer = await rest.post(BATCH, json={"action": "undo", "undo": done["undo"]})
    assert "hour has passed" in answer.text


async def test_an_export_has_what_was_chosen(rest: httpx.AsyncClient, four: None) -> None:
    async def names(**query: Any) -> list[str]:
        answer = await rest.get("/api/native/export", params=query)
        assert answer.status_code == 200
        found = ZipFile(BytesIO(answer.content)).namelist()
        return sorted(each.removeprefix("conversations/")[0] for each in found)

    assert await names(id=["a", "c", "bobs"]) == ["a", "c"]
    assert await names(label="work") == ["a", "b"]
    assert await names() == FOUR


@pytest.fixture
def many(alice: User) -> None:
    for number in range(120):
        creation.create(alice, conversation_id=f"n{number}", tags={"many": ""} if number % 2 else {})
    deletion.soft_delete(creation.create(alice, tags={"many": ""}))


async def test_the_page_does_it_to_all_that_match_step_by_step(visitor: Any, many: None) -> None:
    counted = (await visitor.get("/batch?label=many")).json()
    assert counted == {"count": 60, "has_more": False}
    form = {"action": "archive", "all": "true", "label": "many"}
    first = (await visitor.send("/batch", form, page="/")).json()
    second = (await visitor.send("/batch", form | {"page_id": first["next"]}, page="/")).json()
    assert (first["changed"], second["changed"], second["next"]) == (50, 10, None)
    assert (await visitor.get("/batch?label=many")).json()["count"] == 0
    undone = (await visitor.send("/batch", {"undo": first["undo"]}, page="/")).json()
    assert (undone["changed"], (await visitor.get("/batch?label=many")).json()["count"]) == (50, 50)


async def test_all_of_a_list_of_sub_conversations_are_those_of_that_list(
    visitor: Any, many: None, family: None
) -> None:
    assert (await visitor.get("/batch?parent=head")).json()["count"] == 2
    assert (await visitor.get("/batch?parent=no%20id")).json()["count"] == 0
    form = {"action": "delete", "all": "true", "parent": "head"}
    exported = await visitor.send("/export", form, page="/?parent=head")
    assert len(ZipFile(BytesIO(exported.content)).namelist()) == 2
    done = (await visitor.send("/batch", form, page="/?parent=head")).json()
    assert (done["changed"], done["next"]) == (2, None)
    assert len(await active()) == 121


async def test_the_page_exports_all_that_were_chosen_or_says_that_they_are_too_many(
    visitor: Any, many: None
) -> None:
    chosen = [f"n{number}" for number in range(120)]
    padded = " ".join([*("none" for _ in range(EXPORT_MAX - 120)), *chosen])
    exported = await visitor.send("/export", {"id": padded}, page="/")
    assert len(ZipFile(BytesIO(exported.content)).namelist()) == 120
    refused = await visitor.send("/export", {"id": f"{padded} none"}, page="/")
    assert (refused.status_code, "2,000" in refused.text) == (400, True)


@pytest.fixture
def family(alice: User) -> None:
    head = creation.create(alice, conversation_id="head")
    for name in ("c1", "c2"):
        creation.create(alice, conversation_id=name, parent_id=head.pk)


async def test_the_page_is_told_in_a_sentence_what_cannot_be_done(
    visitor: Any, four: None, subtests: pytest.Subtests
) -> None:
    for form in [{}, {"action": "burn", "id": "a"}, {"action": "archive"}, {"undo": "x"}]:
        with subtests.test(form=form):
            answer = await visitor.send("/batch", form, page="/")
            assert answer.status_code == 400
            assert answer.text.endswith((".", "!"))
