"""What the pages' scripts, templates and error pages keep to, whatever is written in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.template.loader import render_to_string

import convserver
from tests.support.people.web_browser import Browser, words

ROOT = Path(convserver.__file__).parent
SCRIPTS = sorted(path for path in (ROOT / "static" / "web").glob("*.js") if path.name != "htmx.js")
TEMPLATES = sorted((ROOT / "templates").glob("*.html")) + sorted((ROOT / "templates" / "web").rglob("*.html"))
ADDRESS = re.compile(r"""["'`](/[a-z][^"'`]*)""")
TEMPLATES = [path for path in TEMPLATES if not path.name.startswith("document_")]  # of files that stand alone
FIXED = ("/api/", "/ws/")
"""What is there whatever is served at `/`."""


def test_scripts_name_no_address_of_a_page(subtests: pytest.Subtests) -> None:
    for script in SCRIPTS:
        with subtests.test(script.name):
            named = ADDRESS.findall(script.read_text())
            assert [address for address in named if not address.startswith(FIXED)] == []


def test_templates_bring_no_styles_and_scripts_of_their_own_and_name_no_address_of_a_page(
    subtests: pytest.Subtests,
) -> None:
    for template in TEMPLATES:
        if template.parent.name == "previews":  # of no site: their policy is their own
            continue
        with subtests.test(template.name):
            text = template.read_text()
            assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", text) == []
            assert re.findall(r'(?:href|action|src)="/[^"]*"', text) == []


def test_the_help_lists_every_key() -> None:
    listed = set(re.findall(r"<kbd>(.)</kbd>", (ROOT / "templates" / "web" / "dialogs.html").read_text()))
    keys = (ROOT / "static" / "web" / "keys.js").read_text()
    agent = (ROOT / "static" / "web" / "agent.js").read_text()
    undo = (ROOT / "static" / "web" / "undo.js").read_text()
    go = re.search(r"\{([^{}]*)\}\[event\.key\]", keys)
    steer = re.search(r"const KEYS = \{([^}]*)\}", agent)
    assert go is not None
    assert steer is not None
    known = re.findall(r"""(?:^|,)\s*"?(.)"?:""", go[1]) + re.findall(r"""(?:^|,)\s*"?(.)"?:""", steer[1])
    known += re.findall(r'detail === "(.)"', undo)
    assert {"n", "a", "z"} <= set(known) <= listed


def test_an_error_page_needs_nothing_and_says_what_to_do(subtests: pytest.Subtests) -> None:
    for status in ["400", "403", "404", "403_csrf", "500"]:
        with subtests.test(status):
            page = render_to_string(f"{status}.html")
            assert 'href="/"' in page
            assert page.count("<h1") == page.count("<main") == 1


async def test_a_form_without_its_token_is_answered_by_a_page_that_says_so(visitor: Browser) -> None:
    answer = await visitor.http.post("/begin", data={"text": "hello"})
    assert (answer.status_code, "Nothing was changed" in words(answer)) == (403, True)
