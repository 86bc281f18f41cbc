"""How often a page asks a server that is away."""

from __future__ import annotations

import pytest

from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = [once, pytest.mark.one_engine]


def test_a_server_that_is_away_is_asked_for_an_answer_ever_more_seldom(talk: Talk) -> None:
    waits = _waits(talk, tries=10)
    # Each wait is between three and five quarters of a time that doubles up to half a minute.
    for wait, middle in zip(waits, [1500, 3000, 6000, 12_000, 24_000, *[30_000] * 5], strict=True):
        assert 0.75 * middle <= wait <= 1.25 * middle
    assert len({wait / 30_000 for wait in waits[5:]}) == 5, "Pages that were cut off together ask together."


@pytest.mark.parametrize(
    ("event", "target"), [("online", "window"), ("visibilitychange", "document")], ids=["online", "shown"]
)
def test_an_answer_is_asked_for_at_once_when_the_network_or_the_tab_is_back(
    talk: Talk, event: str, target: str
) -> None:
    _waits(talk, tries=6)
    heard = f"{target}.dispatchEvent(new Event('{event}', {{ bubbles: true }}))"
    tries = talk.page.evaluate(f"() => {{ {heard}; return tries; }}")
    assert tries == 7


def test_a_server_that_answers_again_is_asked_as_often_as_before(talk: Talk) -> None:
    _waits(talk, tries=6)
    talk.page.evaluate("() => { away = false; dispatchEvent(new Event('online')); }")
    talk.page.evaluate(_UNTIL, ["tries", 7])
    talk.page.evaluate("() => { away = true; answers.show({ answer: 'another', index: 1 }); }")
    talk.page.evaluate(_UNTIL, ["tries", 8])
    assert talk.page.evaluate(_NEXT_WAIT) <= 1.25 * 1500


def _waits(talk: Talk, *, tries: int) -> list[float]:
    """Fail `tries` requests of the page; return the wait after each. The last wait has not ended."""
    talk.say("Hello")
    talk.answered("You said: Hello")
    waits: list[float] = talk.page.evaluate(_FAIL, tries)
    assert len(waits) == tries
    return waits


# Not by a timer, which the test counts.
_UNTIL = """
async ([name, least]) => {
  while (window[name] < least) await new Promise(requestAnimationFrame);
}
"""
_NEXT_WAIT = """
async () => {
  while (waits.length < 7) await new Promise(requestAnimationFrame);
  return waits.at(-1);
}
"""

# Timers of the page are over at once until `tries` requests have failed; the last one never ends by itself.
_FAIL = """
async (most) => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { Answers } = await import(names.find((name) => name.includes("/web/answers")));
  Object.assign(window, { waits: [], tries: 0, away: true });
  const real = window.fetch;
  window.fetch = async (address, options) => {
    if (!`${address}`.includes("/answer?")) return real(address, options);
    tries += 1;
    if (away) throw new TypeError("Failed to fetch");
    return new Response(null, { status: 204 });
  };
  const later = window.setTimeout;
  const failed = new Promise((done) => {
    window.setTimeout = (act, wait) => {
      if (!(wait > 1000)) return later(act, wait); // of something else
      waits.push(wait);
      if (waits.length === most) done();
      return later(act, waits.length < most ? 0 : 1_000_000);
    };
  });
  window.answers = new Answers(document.querySelector("#conversation"), { onShown() {} });
  answers.show({ answer: "one", index: 1 });
  await failed;
  return waits;
}
"""
