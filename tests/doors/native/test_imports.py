"""Imports by REST: pieces that can be repeated, an import that goes on by itself, and a report to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Permission, User

from conversations.confined import sqlite_files
from convserver.quotas import Quotas
from sessions_app import astore, background
from sessions_app.imports.uploads.pieces import PIECE_MAX_BYTES
from sessions_app.models import ApiToken, Grant, ImportRun, Scope
from tests.support.data import hostile_databases
from tests.support.data.import_files import SAID, chat, export, zipped
from tests.support.people.scripted_agent import until_true

pytestmark = pytest.mark.one_engine

IMPORTS = "/api/native/imports"


@pytest.fixture(autouse=True)
def data_directory(configured: Callable[..., None], tmp_path: Path) -> None:
    configured(data_dir=tmp_path)


@pytest.fixture
async def importing(live: None) -> None:
    """Let this process import, as a server does."""
    background.start()


async def begun(rest: httpx.AsyncClient, size: int, **members: Any) -> dict[str, Any]:
    answer = await rest.post(IMPORTS, json={"file_name": "export.zip", "size": size, **members})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def put(rest: httpx.AsyncClient, made: dict[str, Any], offset: int, piece: bytes) -> httpx.Response:
    return await rest.put(f"{IMPORTS}/{made['id']}/pieces?offset={offset}", content=piece)


async def ended(rest: httpx.AsyncClient, made: dict[str, Any]) -> dict[str, Any]:

    async def look() -> dict[str, Any] | None:
        found: dict[str, Any] = (await rest.get(f"{IMPORTS}/{made['id']}")).json()
        return found if found["state"] not in ("waiting", "running") else None

    found = await until_true(look)
    assert found is not None
    return found


async def imported(rest: httpx.AsyncClient, content: bytes, **members: Any) -> dict[str, Any]:
    made = await begun(rest, len(content), **members)
    assert (await put(rest, made, 0, content)).json() == {"received": len(content)}
    assert (await rest.post(f"{IMPORTS}/{made['id']}/start")).status_code == 202
    return await ended(rest, made)


async def test_a_file_is_uploaded_in_pieces_imported_and_accounted_for(
    rest: httpx.AsyncClient, importing: None
) -> None:
    content = export(chat(said=[SAID, "In the forest."]), chat("2", title="Empty", said=[]))
    made = await begun(rest, len(content), labels=["moved"], timezone="Europe/Berlin")
    assert (made["state"], made["received"], made["totals"]) == ("uploading", 0, None)
    for offset in range(0, len(content), 100):
        await put(rest, made, offset, content[offset : offset + 100])
    started = await rest.post(f"{IMPORTS}/{made['id']}/start")
    assert started.json()["received"] == len(content)
    done = await ended(rest, made)
    assert (done["state"], done["format"], done["conversations"], done["failed"]) == ("done", "chatgpt", 2, 0)
    records = done["totals"]["records"]
    assert records["found"] == records["stored"] + sum(records["skipped"].values())
    page = (await rest.get(f"{IMPORTS}/{made['id']}/conversations")).json()
    assert [each["title"] for each in page["conversations"]] == ["Cuckoo clocks", "Empty"]
    talk = page["conversations"][0]["conversation"]
    found = (await rest.get(f"/api/native/conversations/{talk}")).json()
    assert "moved" in found["tags"]
    events = (await rest.get(f"/api/native/conversations/{talk}/events")).json()["events"]
    assert [each["text"] for each in events if each["kind"] == "message"] == [SAID, "In the forest."]


async def test_who_was_cut_off_asks_where_the_file_stands_and_goes_on(rest: httpx.AsyncClient) -> None:
    made = await begun(rest, 30)
    await put(rest, made, 0, b"0123456789")
    assert (await rest.get(f"{IMPORTS}/{made['id']}")).json()["received"] == 10
    assert (await put(rest, made, 5, b"5678901234")).json() == {"received": 15}


async def test_a_piece_that_leaves_a_gap_is_told_where_the_next_one_begins(rest: httpx.AsyncClient) -> None:
    made = await begun(rest, 30)
    await put(rest, made, 0, b"0123456789")
    answer = await put(rest, made, 20, b"0123456789")
    assert answer.status_code == 409
    assert answer.json() == {
        "code": "wrong_offset",
        "detail": "The next piece begins at 10.",
        "received": 10,
    }


async def test_a_piece_that_is_too_large_is_refused(rest: httpx.AsyncClient) -> None:
    made = await begun(rest, 2 * PIECE_MAX_BYTES)
    answer = await put(rest, made, 0, bytes(PIECE_MAX_BYTES + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_piece_says_where_it_begins(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    made = await begun(rest, 30)
    for query in ["", "?offset=", "?offset=-1", "?offset=x", "?offset=99999999999999999999"]:
        with subtests.test(query=query):
            answer = await rest.put(f"{IMPORTS}/{made['id']}/pieces{query}", content=b"0")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_an_import_does_not_begin_before_its_file_is_whole(rest: httpx.AsyncClient) -> None:
    made = await begun(rest, 30)
    answer = await rest.post(f"{IMPORTS}/{made['id']}/start")
    assert (answer.status_code, answer.json()["code"]) == (409, "not_whole")


WRONG: list[tuple[dict[str, Any], int]] = [
    ({"size": 0}, 400),
    ({"size": "many"}, 400),
    ({"size": 10**18}, 413),
    ({"file_name": 7}, 400),
    ({"format": "word-perfect"}, 400),
    ({"labels": "moved"}, 400),
    ({"labels": [""]}, 400),
    ({"timezone": "Mars/Olympus"}, 400),
    ({"timezone": "../../etc/passwd"}, 400),
]


async def test_what_is_wrong_with_an_import_is_said_in_a_sentence(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for members, status in WRONG:
        with subtests.test(members=members, status=status):
            answer = await rest.post(IMPORTS, json={"file_name": "export.zip", "size": 10, **members})
            assert answer.status_code == status
            assert answer.json()["detail"]
            assert (await rest.get(IMPORTS)).json() == {"imports": []}


async def test_a_refused_file_says_why_and_brings_nothing(rest: httpx.AsyncClient, importing: None) -> None:
    done = await imported(rest, b"Dear diary", file_name="diary.txt")
    assert done["state"] == "failed"
    assert done["problem"].startswith("It is in no format that is known here.")
    assert (await rest.get("/api/native/conversations")).json()["conversations"] == []


async def test_a_report_is_read_page_by_page(rest: httpx.AsyncClient, importing: None) -> None:
    done = await imported(rest, export(*(chat(str(number), title=f"Talk {number}") for number in range(5))))
    titles, after = [], 0
    while after is not None:
        answer = await rest.get(f"{IMPORTS}/{done['id']}/conversations?limit=2&after={after}")
        page = answer.json()
        titles += [each["title"] for each in page["conversations"]]
        after = page["next"]
    assert titles == [f"Talk {number}" for number in range(5)]


async def test_an_import_is_listed_and_can_be_removed(rest: httpx.AsyncClient) -> None:
    made = await begun(rest, 30)
    assert [each["id"] for each in (await rest.get(IMPORTS)).json()["imports"]] == [made["id"]]
    assert (await rest.delete(f"{IMPORTS}/{made['id']}")).status_code == 204
    assert (await rest.get(IMPORTS)).json() == {"imports": []}
    assert (await rest.delete(f"{IMPORTS}/{made['id']}")).status_code == 404


async def test_a_cancel_that_comes_too_late_leaves_the_report(
    rest: httpx.AsyncClient, importing: None
) -> None:
    done = await imported(rest, export())
    answer = await rest.post(f"{IMPORTS}/{done['id']}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "done")
    assert (await rest.get(f"{IMPORTS}/{done['id']}")).json()["conversations"] == 1


async def test_the_start_says_what_is_chosen_by_then(rest: httpx.AsyncClient, importing: None) -> None:
    made = await begun(rest, len(export()), labels=["old"], timezone="Europe/Berlin")
    await put(rest, made, 0, export())
    place = f"{IMPORTS}/{made['id']}/start"
    assert (await rest.post(place, json={"format": "word-perfect"})).status_code == 400
    assert (await rest.post(place, json={"labels": ["new"]})).status_code == 202
    done = await ended(rest, made)
    assert (done["state"], done["labels"], done["timezone"]) == ("done", ["new"], "Europe/Berlin")


async def test_a_token_that_only_reads_imports_nothing(
    accounts: None, alice: User, rest: httpx.AsyncClient
) -> None:
    _, token = await astore.call(ApiToken.issue, alice.pk, "reader", Grant(scopes=[Scope.READ]))
    headers = {"authorization": f"Bearer {token}"}
    answer = await rest.post(IMPORTS, json={"file_name": "a.zip", "size": 1}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_too_small")
    assert (await rest.get(IMPORTS, headers=headers)).status_code == 200


# Hostile files


def with_state(session: str, directory: Path) -> bytes:
    """Return an upload of hermes-webui: a session, and the agent's database with what is beside it."""
    files = {each.name: each.read_bytes() for each in directory.iterdir()}
    document = {
        "session_id": session,
        "messages": [{"role": "user", "content": SAID}, {"role": "assistant", "content": "In the forest."}],
    }
    return zipped({f"sessions/{session}.json": json.dumps(document).encode(), **files})


async def test_an_uploaded_database_deletes_nothing_and_takes_a_bounded_time(
    accounts: None,
    bob: User,
    rest: httpx.AsyncClient,
    importing: None,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    rest.headers.update(await with_token(bob, Scope.READ, Scope.WRITE))
    victim = tmp_path / "secret_key"
    victim.write_text("a key of the server")
    hostile: list[tuple[Callable[[Path], Path], str]] = [
        (partial(hostile_databases.with_super_journal, victim=victim), "a change was not completed"),
        (hostile_databases.with_endless_view, "sessions is not a plain table"),
        (hostile_databases.with_large_values, "computed"),
        (hostile_databases.with_repeated_pages, "more in it than a file of its size can hold"),
    ]
    for number, (make, why) in enumerate(hostile):
        with subtests.test(why):
            directory = tmp_path / str(number)
            directory.mkdir()
            make(directory / "state.db")
            content = with_state(f"s{number}", directory)
            done = await imported(rest, content, format="hermes-webui")
            assert (done["state"], done["conversations"], done["failed"]) == ("done", 2, 1)
            page = (await rest.get(f"{IMPORTS}/{done['id']}/conversations")).json()["conversations"]
            assert [why in (each["problem"] or "") for each in page] == [True, False]
            assert victim.read_text() == "a key of the server"


async def test_an_import_is_cancelled_while_a_database_is_read(
    accounts: None,
    bob: User,
    rest: httpx.AsyncClient,
    importing: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest.headers.update(await with_token(bob, Scope.READ, Scope.WRITE))
    endless = tmp_path / "reader.py"
    endless.write_text("def read(*arguments):\n    while True: pass\n")
    monkeypatch.setattr(sqlite_files, "READER", endless)
    (tmp_path / "state").mkdir()
    hostile_databases.made(tmp_path / "state/state.db", hostile_databases.TABLES, hostile_databases.ROWS)
    content = with_state("s", tmp_path / "state")
    made = await begun(rest, len(content), format="hermes-webui")
    await put(rest, made, 0, content)
    await rest.post(f"{IMPORTS}/{made['id']}/start")

    async def is_running() -> bool:
        return bool((await rest.get(f"{IMPORTS}/{made['id']}")).json()["state"] == "running")

    assert await until_true(is_running)
    assert (await rest.post(f"{IMPORTS}/{made['id']}/cancel")).status_code in (200, 202)
    assert (await ended(rest, made))["state"] == "cancelled"


# For others


async def with_token(user: User, *scopes: Scope) -> dict[str, str]:
    grant = Grant(scopes=list(scopes or Scope))
    _, token = await astore.call(ApiToken.issue, user.pk, "laptop", grant)
    return {"authorization": f"Bearer {token}"}


async def test_staff_import_for_somebody_else(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient, importing: None
) -> None:
    assert alice.is_superuser
    rest.headers.update(await with_token(alice))
    done = await imported(rest, export(), owner="bob")
    assert (done["state"], done["owner"]) == ("done", "bob")
    assert (await rest.get("/api/native/conversations")).json()["conversations"] == []
    rest.headers.update(await with_token(bob))
    listed = (await rest.get("/api/native/conversations")).json()["conversations"]
    assert [each["title"] for each in listed] == ["Cuckoo clocks"]
    assert (await rest.get(f"{IMPORTS}/{done['id']}")).status_code == 200


async def test_who_staff_import_for_sends_nothing_of_the_file(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    """It would be held to no quota."""
    rest.headers.update(await with_token(alice))
    made = await begun(rest, 30, owner="bob")
    rest.headers.update(await with_token(bob))
    answers = [await put(rest, made, 0, b"0"), await rest.post(f"{IMPORTS}/{made['id']}/start")]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(403, "not_the_sender")}
    assert (await rest.get(f"{IMPORTS}/{made['id']}")).json()["received"] == 0


@pytest.mark.parametrize("scopes", [(), (Scope.READ, Scope.WRITE)])
async def test_nobody_else_imports_for_others(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient, scopes: tuple[Scope, ...]
) -> None:
    """Neither who is no staff, nor a token of staff that may not administrate."""
    rest.headers.update(await with_token(alice if scopes else bob, *scopes))
    answer = await rest.post(IMPORTS, json={"file_name": "a.zip", "size": 1, "owner": "local"})
    assert answer.status_code == 403
    assert not await astore.call(ImportRun.objects.exists)


async def test_staff_import_for_no_other_staff(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    def promoted() -> None:
        User.objects.filter(pk=bob.pk).update(is_staff=True)
        bob.user_permissions.set(Permission.objects.filter(codename="add_importrun"))
        User.objects.create_user("eve")

    await astore.call(promoted)
    rest.headers.update(await with_token(bob))
    statuses = {}
    for name in ("local", "eve"):  # a superuser, and who is no staff
        answer = await rest.post(IMPORTS, json={"file_name": "a.zip", "size": 1, "owner": name})
        statuses[name] = answer.status_code
    assert statuses == {"local": 400, "eve": 201}


async def test_for_nobody_there_is_no_import(rest: httpx.AsyncClient) -> None:
    answer = await rest.post(IMPORTS, json={"file_name": "a.zip", "size": 1, "owner": "nobody"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "There is no active user 'nobody'.")


async def test_the_quota_on_requests_holds_for_pieces(
    accounts: None, alice: User, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(quotas=Quotas(requests_per_minute=3))
    rest.headers.update(await with_token(alice))
    made = await begun(rest, 30)
    statuses = [(await put(rest, made, 0, b"0")).status_code for _ in range(4)]
    assert statuses[-1] == 429
