"""The files of pages: served whole, as they are asked for, and without a warning."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

import convserver

PATH = "/static/web/style.css"
FILES = Path(convserver.__file__).parent / "static" / "web"
STYLE = (FILES / "style.css").read_bytes()
COSTLY = re.compile(r":has\([^)]*[+~][^)]*:(?:first|last|only|nth|empty)")
"""A browser computes all styles of a page anew, at each change of it, for a rule that asks this."""


async def test_a_file_is_served_without_a_warning(rest: httpx.AsyncClient) -> None:
    """Any warning fails a test: this one stands for all that a first page loads."""
    answer = await rest.get(PATH)
    assert (answer.status_code, answer.content) == (200, STYLE)
    assert answer.headers["content-type"] == 'text/css; charset="utf-8"'


@pytest.mark.parametrize(
    ("method", "headers", "status", "content"),
    [
        ("HEAD", {}, 200, b""),
        ("GET", {"range": "bytes=2-7"}, 206, STYLE[2:8]),
        ("POST", {}, 405, b""),
    ],
)
async def test_a_file_is_answered_as_it_is_asked_for(
    rest: httpx.AsyncClient, method: str, headers: dict[str, str], status: int, content: bytes
) -> None:
    answer = await rest.request(method, PATH, headers=headers)
    assert (answer.status_code, answer.content) == (status, content)


async def test_a_file_that_has_not_changed_is_not_sent_again(rest: httpx.AsyncClient) -> None:
    seen = (await rest.get(PATH)).headers["last-modified"]
    answer = await rest.get(PATH, headers={"if-modified-since": seen})
    assert (answer.status_code, answer.content, "content-type" in answer.headers) == (304, b"", False)


def test_no_style_rule_asks_which_sibling_is_the_last_one() -> None:
    assert COSTLY.search(".part:has(+ .part:last-child:empty) { margin: 0 }")
    assert [file.name for file in FILES.glob("*.css") if COSTLY.search(file.read_text())] == []
