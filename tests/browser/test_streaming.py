"""An answer while it is being given, and what becomes of it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk

pytestmark = pytest.mark.one_engine

ANSWERED = re.compile("Answered( in .+)?")

SLOWLY = f"slow: one two three {' '.join(map(str, range(4, 66)))}"
"""It takes six seconds and more, in which a busy machine has time to do something else."""
STILL_PX = 2.0


def test_an_answer_grows_and_then_stands_where_it_grew(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("one two")
    talk.page.evaluate(_NOTE_PLACES)
    talk.answered(SLOWLY)
    lengths, tops = talk.page.evaluate("[window.lengths, window.tops]")
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 3
    assert max(tops) - min(tops) <= STILL_PX


MARKDOWN = """slow: a
**bold** word and `code`

| name | value |
|------|-------|
| one | **two** |

```python
x = 1
```

- [x] read it
- and {rest}"""


def test_an_answer_in_markdown_is_rendered_while_it_comes_and_does_not_jump_at_its_end(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(MARKDOWN.format(rest=" ".join(f"word{number}" for number in range(30))))
    body = talk.streaming.locator(".body")
    expect(body.locator("strong").first).to_have_text("bold")
    talk.page.evaluate(_NOTE_SIGNS)
    expect(body.locator("table td")).to_have_text(["one", "two"])
    expect(body.locator("figure.code")).to_contain_text("x = 1")
    expect(body.locator(".task.done")).to_be_visible()
    talk.answered("word29")
    assert talk.page.evaluate("window.raw") == []
    before, after = talk.page.evaluate("[window.streamed, window.stored()]")
    assert before == after


@pytest.mark.slow
def test_parts_of_an_answer_that_are_finished_stay_as_they_are(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(f"slow: first\n\nsecond\n\n{SLOWLY}")
    expect(talk.streaming).to_contain_text("second")
    expect(talk.streaming.locator(".part")).to_have_count(3)
    talk.streaming.locator(".part").first.evaluate("(part) => { part.isTheSame = true; }")
    expect(talk.streaming).to_contain_text("three 4 5 6")
    assert talk.streaming.locator(".part").first.evaluate("(part) => part.isTheSame")


@pytest.mark.slow
def test_an_answer_that_is_longer_than_the_window_is_followed(talk: Talk) -> None:
    talk.say("slow: " + "\n".join(f"line {number}" for number in range(25)))
    # On a busy machine the page may see no more pieces of the answer before the whole.
    answer = talk.page.locator("#answers article, #events article.message.agent").last
    expect(answer).to_contain_text("line 20")
    distance = "log.scrollHeight - log.scrollTop - log.clientHeight"
    assert (
        talk.page.evaluate(f"() => {{ const log = document.querySelector('#log'); return {distance} }}") < 5
    )
    talk.answered("line 24")


@pytest.mark.needs_engine
def test_a_page_reloaded_in_mid_answer_shows_all_of_it(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.streaming).to_contain_text("one two")
    talk.page.reload()
    expect(talk.streaming).to_contain_text("You said: slow: one two three")
    talk.answered(SLOWLY)
    expect(talk.messages("user").filter(has_text="one two three")).to_have_count(1)


@pytest.mark.slow
def test_a_message_says_how_far_it_has_come(talk: Talk) -> None:
    talk.site.record(talk.id, [_greeting()])
    talk.say(SLOWLY)
    expect(talk.delivery("one two")).to_have_text("Seen by the agent")
    talk.say("and another")
    expect(talk.delivery("and another")).to_have_text("Queued until this turn ends")
    expect(talk.delivery("one two")).to_have_text(ANSWERED)
    expect(talk.delivery("and another")).to_have_text(ANSWERED)


def test_a_page_opened_in_mid_answer_says_that_the_agent_works(page: Page, site: Site) -> None:
    talk = Talk(page, site, site.create())
    site.send(talk.id, {"type": "message", "text": SLOWLY})
    talk.open()
    expect(page.locator("#agent-state")).to_contain_text("Running")
    expect(page.locator("#working")).to_be_visible()
    expect(page.locator("#agent-state")).to_contain_text("Finished")
    expect(page.locator("#working")).to_be_hidden()


def _greeting() -> dict[str, object]:
    """Return what keeps the demo agent from explaining itself."""
    return {"action": "message", "source": "agent", "args": {"content": "Hello"}}


# What was shown raw, and how high the answer's blocks stood before it was stored and after.
_NOTE_SIGNS = """
() => {
  window.raw = [];
  const tops = (body) => {
    const top = body.getBoundingClientRect().top;
    const blocks = body.querySelectorAll("p, table, figure, ul");
    return [...blocks].map((each) => Math.round(each.getBoundingClientRect().top - top));
  };
  window.stored = () => tops([...document.querySelectorAll("#events article.message.agent .body")].at(-1));
  const note = () => {
    const body = document.querySelector("#answers .body");
    if (body) {
      window.streamed = tops(body);
      window.raw.push(...["**", "```", "|", "[x]"].filter((sign) => body.textContent.includes(sign)));
    }
    requestAnimationFrame(note);
  };
  note();
}
"""

_NOTE_PLACES = """
() => {
  window.lengths = [];
  window.tops = [];
  const note = () => {
    const all = document.querySelectorAll("article.message.agent");
    const last = all[all.length - 1].querySelector(".body");
    window.lengths.push(last.textContent.trim().length);
    window.tops.push(last.getBoundingClientRect().top);
    requestAnimationFrame(note);
  };
  note();
}
"""
