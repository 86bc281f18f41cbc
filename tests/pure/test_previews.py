"""An answer that is being given: no sign of Markdown is seen, and no finished block is rendered again."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.events import ConversationRef
from convserver.rendering.text.blocks import blocks
from convserver.rendering.text.markdown import markdown
from convserver.rendering.text.previews import GROWTH, Preview
from sessions_app import astore
from sessions_app.models import UnfinishedAnswer
from tests.conftest import once
from tests.support.data.hostile import COSTLY, HOSTILE, HUGE
from tests.support.people.web_browser import Browser
from tests.support.wires.page_parts import PageParts

pytestmark = once

DOCUMENTS = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
STEP = 37
SIGNS = ("**", "`", "|", "](", "~~", "#", "[", "--", "***")
CODE = re.compile(r"<figure.*?</figure>", re.DOTALL)
ANSWER = """## What I found

A **bold** claim with `code`, a [link](https://example.org) and _emphasis_.

| name | value |
|:-----|------:|
| one | **1** |

```python
x = "a | b"  # not **bold**

y = 2
```

1. first

2. second with ~~gone~~ words

- [x] done
- [ ] to do

> A quote, ***too***.
"""


def html(preview: Preview) -> str:
    return "".join([*preview.finished, preview.open])


def grown(text: str, step: int = STEP) -> Preview:
    """Return the preview of an answer that came in pieces."""
    preview = Preview()
    for end in [*range(step, len(text), step), len(text)]:
        preview.grow(text[:end], end)
    return preview


def test_no_sign_of_markdown_is_seen_at_any_moment() -> None:
    preview = Preview()
    for end in range(1, len(ANSWER) + 1):
        preview.grow(ANSWER[:end], end)
        text = PageParts(CODE.sub("", html(preview))).text
        assert [sign for sign in SIGNS if sign in text] == [], ANSWER[:end]


def test_a_finished_answer_looks_like_the_stored_message() -> None:
    assert html(grown(ANSWER)).replace("\n", "") == str(markdown(ANSWER)).replace("\n", "")


def test_blocks_rendered_one_by_one_are_the_document(
    subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in DOCUMENTS:
        with subtests.test(path.name):
            monkeypatch.setattr("convserver.rendering.text.markdown.MAX_CHARS", 10**6)
            monkeypatch.setattr("convserver.rendering.text.markdown.MAX_MARKS", 10**6)
            text = path.read_text(encoding="utf-8")
            env = {"highest": 1}
            parts = [str(markdown(block, env=env)) for block in blocks(text)]
            assert "".join(parts).replace("\n", "") == str(markdown(text)).replace("\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "One sentence of prose, and so on.\n\n" * 1000,
        "x = 1\n" * 6_000,
        "```\n" + "x = 1\n" * 6_000,
        "- item\n" * 5_000,
    ],
    ids=["paragraphs", "a paragraph", "code", "a list"],
)
def test_what_is_rendered_is_in_proportion_to_the_answer(text: str) -> None:
    preview = grown(text, 250)
    assert preview.rendered_chars <= (2 * GROWTH + 2) * len(text)


def test_finished_blocks_are_not_rendered_again() -> None:
    preview = grown("A paragraph of some words.\n\n" * 100)
    before = preview.rendered_chars
    preview.grow("A paragraph of some words.\n\n" * 100 + "New.", 10**6)
    assert preview.rendered_chars - before < 100


def test_what_became_secret_is_not_shown_any_more() -> None:
    preview = grown("The key is hunter2.\n\nIt opens all.\n\nReally.")
    version = preview.version
    preview.grow("The key is <secret_hidden>.\n\nIt opens all.\n\nReally. Yes.", 10**6)
    assert "hunter2" not in html(preview)
    assert preview.version > version


def test_a_higher_heading_lowers_those_before_it() -> None:
    preview = grown("## Second\n\nWords.\n\n# First\n\nMore words.\n\nEnd")
    parts = PageParts(html(preview))
    assert (len(parts.named("h4")), len(parts.named("h3"))) == (1, 1)
    assert preview.version == 1


def test_readers_of_one_answer_ask_less_often_when_they_are_many() -> None:
    preview = Preview()
    waits = [preview.wait_s(lambda: 100.0) for _ in range(1000)]
    assert waits[0] == 0.2
    assert waits[-1] == pytest.approx(4, abs=0.1)


def test_hostile_answers_stay_balanced_and_bounded(subtests: pytest.Subtests) -> None:
    for hostile in [*HOSTILE, *HUGE, *COSTLY]:
        with subtests.test(hostile.name):
            text = hostile.text[:60_000]
            preview = grown(text, max(1, len(text) // 8))
            PageParts(html(preview))


@given(
    st.lists(
        st.sampled_from(
            ["*", "_", "`", "```", "[", "](", "![", "<", "\n", "\n\n", "- ", "|", "> ", "~~", "a", " b"]
        ),
        max_size=30,
    ).map("".join)
)
def test_any_beginning_of_markdown_is_balanced(text: str) -> None:
    PageParts(html(grown(text, 1)))


# The address


async def says(conversation: ConversationRef, text: str, through: int, *, reasoning: str = "") -> None:
    """Store what an agent has said so far."""
    columns = {"turn_id": "t", "event_id": "an-answer", "through": through, "text": text}
    columns["reasoning"] = reasoning
    await astore.call(
        lambda: UnfinishedAnswer.objects.update_or_create(conversation_id=conversation.pk, defaults=columns)
    )


def said(answer: httpx.Response) -> tuple[dict[str, str], str]:
    """Return what the answer says of itself, and its parts."""
    first, _, rest = answer.text.partition(">")
    return dict(re.findall(r'data-(\w+)="([^"]*)"', first)), rest


async def test_a_page_gets_the_parts_that_it_lacks(visitor: Browser, conversation: ConversationRef) -> None:
    await says(conversation, "One **bold** word.\n\nAnd another paragraph.\n\nThe **la", 7)
    facts, parts = said(await visitor.get("/c/talk/answer"))
    assert (facts["answer"], facts["kept"], facts["finished"]) == ("an-answer", "0", "2")
    assert "<strong>bold</strong>" in parts
    query = f"answer=an-answer&version={facts['version']}&parts=2"
    facts, parts = said(await visitor.get(f"/c/talk/answer?{query}"))
    assert facts["kept"] == "2"
    assert "bold" not in parts
    assert "<strong>la</strong>" in parts


async def test_a_last_part_that_shows_nothing_is_not_sent(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await says(conversation, "First block.\n\n[words]: https://example.org", 3)
    facts, parts = said(await visitor.get("/c/talk/answer"))
    assert parts.count('class="part"') == int(facts["finished"]) == 1


async def test_a_page_that_has_parts_of_another_answer_gets_all_of_this_one(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await says(conversation, "First block.\n\nSecond block of it.", 3)
    facts, parts = said(await visitor.get("/c/talk/answer?answer=another&version=0&parts=1"))
    assert facts["kept"] == "0"
    assert "First block" in parts


async def test_an_answer_that_is_being_given_is_kept_by_no_cache(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await says(conversation, "One", 0)
    answer = await visitor.get("/c/talk/answer")
    assert "no-store" in answer.headers["cache-control"]


async def test_without_an_answer_there_is_nothing(visitor: Browser, conversation: ConversationRef) -> None:
    answer = await visitor.get("/c/talk/answer?parts=nonsense")
    assert (answer.status_code, answer.content) == (204, b"")


async def test_a_page_gets_the_reasoning_that_it_lacks(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await says(conversation, "", 1, reasoning="The capital <of>")
    facts, parts = said(await visitor.get("/c/talk/answer"))
    assert (facts["from"], facts["through"]) == ("0", "16")
    assert parts.startswith('<span class="reasoning">The capital &lt;of&gt;</span>')
    await says(conversation, "Paris.", 3, reasoning="The capital <of> France.")
    query = f"answer=an-answer&version={facts['version']}&parts=0&reasoning=16"
    facts, parts = said(await visitor.get(f"/c/talk/answer?{query}"))
    assert (facts["from"], facts["through"]) == ("16", "24")
    assert parts.startswith('<span class="reasoning"> France.</span>')
    assert "Paris." in parts


async def test_a_page_gets_all_of_the_reasoning_anew_if_a_part_has_become_secret(
    visitor: Browser, conversation: ConversationRef
) -> None:
    await says(conversation, "", 1, reasoning="The key is abc")
    facts, _ = said(await visitor.get("/c/talk/answer"))
    await says(conversation, "", 2, reasoning="The key is <secret_hidden>.")
    query = f"answer=an-answer&version={facts['version']}&parts=0&reasoning=14"
    facts, parts = said(await visitor.get(f"/c/talk/answer?{query}"))
    assert (facts["from"], "&lt;secret_hidden&gt;." in parts) == ("0", True)
