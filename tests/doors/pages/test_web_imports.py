"""The pages of imports: what can be chosen, what was imported, and what of this computer is followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from sessions_app import astore, background
from sessions_app.models import FollowedProgram, ImportedConversation, ImportRun, ImportState
from tests.support.data.import_files import SAID, chat, export
from tests.support.people.scripted_agent import until_true
from tests.support.people.web_browser import COOKIES_OF, HOST, Browser, words

pytestmark = pytest.mark.one_engine

PAGE = "/settings/import"


@pytest.fixture(autouse=True)
def data_directory(configured: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a data directory, and a home, that nobody else has."""
    configured(data_dir=tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))


async def upload(visitor: Browser, content: bytes, name: str = "export.zip") -> str:
    """Send a file by the plain form; return where that leads."""
    visitor.http.cookies.set("csrftoken", "c" * 32, domain=COOKIES_OF)
    answer = await visitor.http.post(
        PAGE,
        data={"csrfmiddlewaretoken": "c" * 32, "format": "", "labels": "old, moved", "timezone": "UTC"},
        files={"file": (name, content)},
        headers={"referer": f"http://{HOST}{PAGE}"},
    )
    assert answer.status_code == 302, words(answer)
    return answer.headers["location"]


async def test_without_scripts_a_small_file_is_imported_by_a_plain_form(visitor: Browser) -> None:
    background.start()
    place = await upload(visitor, export(chat(said=[SAID])))

    async def look() -> str:
        shown = words(await visitor.get(place))
        return shown if "Finished · ChatGPT" in shown else ""

    shown = await until_true(look)
    assert "Conversations in the file 1" in shown
    assert "Cuckoo clocks" in shown
    run = await astore.call(ImportRun.objects.get)
    assert run.labels == ["old", "moved"]


async def test_a_form_without_a_file_is_refused_in_a_sentence(visitor: Browser) -> None:
    answer = await visitor.send(PAGE)
    assert answer.status_code == 400
    assert "Choose a file." in words(answer)


async def test_the_report_is_escaped_and_says_why_something_failed(alice: User, visitor: Browser) -> None:
    run = await astore.call(
        ImportRun.objects.create,
        user=alice,
        file_name="<b>x</b>.zip",
        size=9,
        state=ImportState.DONE,
        conversations=1,
        failed=1,
    )
    line = {"title": "<i>t</i>", "problem": "<u>damaged</u>"}
    await astore.call(ImportedConversation.objects.create, run=run, number=1, source_id="a", **line)
    answer = await visitor.get(f"{PAGE}/{run.public_id}")
    assert "Finished, with problems" in words(answer)
    for text in ("<b>x</b>.zip", "<i>t</i>", "<u>damaged</u>"):
        assert text not in answer.text
        assert text.replace("<", "&lt;").replace(">", "&gt;") in answer.text


async def test_a_long_report_has_pages(alice: User, visitor: Browser) -> None:
    run = await astore.call(
        ImportRun.objects.create, user=alice, file_name="x", size=9, state="done", conversations=150
    )
    lines = [
        ImportedConversation(run=run, number=number, source_id=str(number), title=f"Talk {number:03}")
        for number in range(1, 151)
    ]
    await astore.call(ImportedConversation.objects.bulk_create, lines)
    first = words(await visitor.get(f"{PAGE}/{run.public_id}"))
    second = words(await visitor.get(f"{PAGE}/{run.public_id}?after=100"))
    assert ("Talk 100" in first, "Talk 101" in first, "Show more" in first) == (True, False, True)
    assert ("Talk 101" in second, "Talk 150" in second, "Show more" in second) == (True, True, False)


async def test_an_upload_that_was_cut_off_is_listed_with_how_much_is_here(
    alice: User, visitor: Browser
) -> None:
    await astore.call(ImportRun.objects.create, user=alice, file_name="mine.zip", size=200, received=50)
    assert "Upload not finished, 25 % uploaded. Choose the same file again" in words(await visitor.get(PAGE))


# Keeping in step


async def test_a_program_is_followed_while_it_is_switched_on(visitor: Browser, alice: User) -> None:
    answer = await visitor.send(f"{PAGE}/follow", {"program": "claude-code", "do": "on"}, page=PAGE)
    assert answer.headers["location"] == f"{PAGE}#follow"
    row = await astore.call(FollowedProgram.objects.get)
    assert (row.user_id, row.format, row.is_on) == (alice.pk, "claude-code", True)
    assert "Turn off Claude Code" in words(await visitor.get(PAGE))
    await visitor.send(f"{PAGE}/follow", {"program": "claude-code", "do": "off"}, page=PAGE)
    assert "Turn on Claude Code" in words(await visitor.get(PAGE))


async def test_what_cannot_be_followed_cannot_be_switched_on(visitor: Browser) -> None:
    await visitor.send(f"{PAGE}/follow", {"program": "chatgpt", "do": "on"}, page=PAGE)
    assert "'chatgpt' cannot be followed here." in words(await visitor.get(PAGE))
    assert not await astore.call(FollowedProgram.objects.exists)


async def test_with_accounts_nothing_of_the_servers_computer_is_followed(
    accounts: None, alice: User, visitor: Browser
) -> None:
    await visitor.log_in(alice)
    assert "Keep in step" not in words(await visitor.get(PAGE))
    await visitor.send(f"{PAGE}/follow", {"program": "claude-code", "do": "on"}, page=PAGE)
    assert not await astore.call(FollowedProgram.objects.exists)
