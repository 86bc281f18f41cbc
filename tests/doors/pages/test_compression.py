"""Pages go out compressed where nothing can be learnt from their length."""

from __future__ import annotations

import pytest

from conversations.models import ConversationRef
from tests.support.people.web_browser import Browser

pytestmark = pytest.mark.one_engine

GZIP = {"accept-encoding": "gzip", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
OWN = {**GZIP, "sec-fetch-site": "same-origin"}


async def test_a_page_that_its_reader_asks_for_is_compressed(
    conversation: ConversationRef, visitor: Browser
) -> None:
    plain = await visitor.http.get(
        "/c/talk", headers={"accept-encoding": "identity", "sec-fetch-site": "none"}
    )
    for site in ("same-origin", "none"):
        packed = await visitor.http.get("/c/talk", headers={**GZIP, "sec-fetch-site": site})
        assert packed.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in packed.headers["vary"]
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        assert "</html>" in packed.text
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
async def test_a_page_that_another_site_asks_for_is_not_compressed(
    conversation: ConversationRef, visitor: Browser, site: str
) -> None:
    headers = {**GZIP, "sec-fetch-site": site} if site else GZIP
    for path in ("/c/talk", "/search?q=guess", "/"):
        answer = await visitor.http.get(path, headers=headers)
        assert answer.headers["content-type"].startswith("text/html")
        assert "content-encoding" not in answer.headers


async def test_the_length_of_a_compressed_page_differs_each_time(
    conversation: ConversationRef, visitor: Browser
) -> None:
    lengths = {(await visitor.http.get("/c/talk", headers=OWN)).headers["content-length"] for _ in range(8)}
    assert len(lengths) > 2


async def test_what_is_no_page_is_not_compressed(conversation: ConversationRef, visitor: Browser) -> None:
    paths = ("/api/native/conversations", "/c/talk/export.html", "/static/web/style.css")
    for path in paths:
        answer = await visitor.http.get(path, headers=OWN)
        assert "content-encoding" not in answer.headers, path
