"""Code that can be run, notes and what is folded away in messages; who gets a preview, and what it may do."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import ConversationRef
from conversations.store import creation
from convserver.rendering.text.blocks import blocks
from convserver.rendering.text.markdown import markdown
from convserver.rendering.text.pieces import runnable_in
from convserver.rendering.text.runnable import Language, Origin
from tests.support.data.events import event
from tests.support.wires.page_parts import PageParts

pytestmark = pytest.mark.one_engine

PAGE = "```html\n<p id=x></p><script>document.getElementById('x').textContent = 'ran'</script>\n```"
DRAWING = "```xml\n<svg viewBox='0 0 1 1'><rect width='1' height='1'/></svg>\n```"
DIAGRAM = "```mermaid\ngraph TD; A --> B\n```"


def shown(text: str) -> str:
    html = markdown(text, origin=Origin(5, "/c/talk/events/5/preview/"))
    assert html is not None
    PageParts(html)
    return html


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation whose agent has written a page, a drawing and a diagram."""
    made = creation.create(alice, conversation_id="talk")
    said = {"content": "\n\n".join(["Here:", PAGE, DRAWING, DIAGRAM])}
    writes.append(made, [event(raw=json.dumps({"action": "message", "source": "agent", "args": said}))])
    return made


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode."""
    return Browser(headers={"host": "localhost"})


def links(browser: Browser) -> list[str]:
    page = browser.get("/c/talk").content.decode()
    return re.findall(r'class="run" href="([^"]+)"', page)


def test_code_of_pages_drawings_and_diagrams_can_be_run_and_no_other() -> None:
    found = runnable_in(
        f"Here:\n{PAGE}\n\n{PAGE}\n\n{DRAWING}\n\n{DIAGRAM}\n\n```python\nx\n```\n\n```html\n\n```"
    )
    assert sorted(each.language for each in found.values()) == [Language.HTML, Language.MERMAID, Language.SVG]
    assert shown(PAGE).count('class="run"') == 1
    assert "run" not in shown("```python\nprint()\n```") + shown("```xml\n<a/>\n```")
    assert 'class="run"' not in str(markdown(PAGE)), "of no event"
    forged = "[Run](/c/talk/events/5/preview/0123456789abcdef) <a class=run href=x>y</a>"
    assert "<a" not in shown(forged)


def test_long_code_is_shown_as_code_and_can_be_run_alone_and_within_a_text() -> None:
    code = "".join(f"<p>{number} <b>bold</b></p>\n" for number in range(1_500))
    for text in (f"```html\n{code}```\n", f"Here:\n\n```html\n{code}```\n\nThat is all."):
        (found,) = runnable_in(text).values()
        assert found.code == code
    assert shown(f"```html\n{code}```\n").startswith('<figure class="code">')
    two = f"```html\n{code}```\n\n```html\n{code}```\n"
    assert markdown(two) is None, "more than one block"


def test_each_language_gets_the_least_that_it_needs(talk: ConversationRef, browser: Browser) -> None:
    found = links(browser)
    assert len(found) == 3
    for link, scripts in zip(found, ("'unsafe-inline'", "'none'", "'nonce-"), strict=True):
        framed = browser.get(f"{link}?frame", headers={"Sec-Fetch-Dest": "iframe"})
        policy = framed.headers["Content-Security-Policy"]
        assert policy.startswith(f"sandbox allow-scripts; default-src 'none'; script-src {scripts}")
        assert "frame-ancestors 'self'" in policy
        assert "allow-same-origin" not in policy
        assert framed.headers["X-Frame-Options"] == "SAMEORIGIN"
        for opened in (link, f"{link}?frame"):
            page = browser.get(opened, headers={"Sec-Fetch-Dest": "document"})
            assert '<iframe class="preview" src="?frame" sandbox="allow-scripts"' in page.content.decode()
            assert "<script>" not in page.content.decode()
            assert page.headers["X-Frame-Options"] == "SAMEORIGIN"
            assert "default-src 'self'" in page.headers["Content-Security-Policy"]


def test_a_preview_is_there_for_who_may_read_the_event_and_for_code_that_it_has(
    accounts: None, talk: ConversationRef, alice: User, bob: User
) -> None:
    owner, stranger, unknown = (Browser(headers={"host": "localhost"}) for _ in range(3))
    owner.force_login(alice)
    stranger.force_login(bob)
    link = links(owner)[0]
    assert [each.get(f"{link}?frame").status_code for each in (owner, stranger, unknown)] == [200, 404, 302]
    for other in (link[:-1] + ("0" if link[-1] != "0" else "1"), link.replace("/0/", "/1/"), link[:-16]):
        assert owner.get(f"{other}?frame").status_code == 404


def test_notes_lead_to_their_texts_and_back_and_are_told_apart_by_their_events() -> None:
    html = shown("See[^1] and[^1].\n\n[^1]: A *note*.\n")
    assert '<sup><a href="#fn-5-1" id="fnref-5-1"' in html
    assert '<li id="fn-5-1"><p>A <em>note</em>.' in html
    assert html.count('aria-label="Back to the text"') == 2
    assert "target" not in html
    for text in ("No[^2] note", "[^1]: " * 200, "[^1]: " + "[^1]" * 200):
        assert "<sup>" not in shown(text)


def test_a_note_that_nothing_refers_to_is_shown_as_it_is_written() -> None:
    for text in (
        "Fine.\n\n[^1]: Beware.",
        "Fine.[^1]\n\n[^1]: Beware.\n[^1]: Other.",
        "`[^1]`\n\n[^1]: Beware.",
    ):
        assert "Beware." in shown(text)
    assert "Beware." in shown("> [^1]: > [^1]: Beware.")


def test_what_is_folded_away_is_markdown_and_brings_no_other_html() -> None:
    text = "a\n<details>\n<summary>More **of it**</summary>\n\n- one\n\n<b>x</b>\n</details>\n\nafter"
    html = shown(text)
    assert "<details>\n<summary>More <strong>of it</strong></summary>\n<ul>" in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert html.rstrip().endswith("</details>\n<p>after</p>")
    assert shown("<details onclick=x>\n\nx\n</details>").count("<details") == 0
    assert shown("<details>\nunclosed").count("</details>") == 1
    assert shown("<details>\n" * 200).count("<details>") <= 50
    for text, outside in (
        ("- <details>\n  inside\n\nOUTSIDE\n\nmore", ["inside", "OUTSIDE", "more"]),
        ("1. x\n   <details><summary>s</summary>\n\n   in\n\n2. two\n\nend", ["in", "two", "end"]),
        ("- <details>\n  inside\n\noutside\n\n</details>", ["inside", "outside", "&lt;/details&gt;"]),
    ):
        assert [each for each in outside if each not in shown(text)] == []
    text = "a\n<details>\n<summary>More</summary>\n\n- one\n</details>\n\nafter"
    html = shown(text)
    parts = "".join(str(markdown(each)) for each in blocks(text))
    assert parts == html
