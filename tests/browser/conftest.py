"""A browser, a server, and the rule that no page may misbehave in any test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect

from tests.browser.browsers import Browsers, LentBrowser
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.watch import Watch
from tests.support.people import chromium
from tests.support.people.clients import WAIT_S
from tests.support.servers.two_servers import TwoServers

HERE = Path(__file__).parent
# A service worker would stand between a page and what tests put before the network.
CALM: dict[str, Any] = {"reduced_motion": "reduce", "service_workers": "block"}

expect.set_options(timeout=WAIT_S * 1000)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests last, since driving a browser leaves an event loop running; skip without Chromium."""
    items.sort(key=lambda item: item.path.is_relative_to(HERE))
    if problem := chromium.problem():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=problem))


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Say which browser is started, and how: Debian's, without what talks to the world."""
    return {"executable_path": chromium.PROGRAM, "args": list(chromium.LAUNCH)}


@pytest.fixture(scope="session")
def process(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Site]:
    """The server of all these tests: no test empties the database, each begins with an empty list."""
    place = tmp_path_factory.mktemp("site")
    site = TwoServers(place) if pytestconfig.getoption("--two-servers") else Site(place)
    yield site
    site.kill()


@pytest.fixture(scope="session")
def base_url(process: Site) -> str:
    """Where addresses without an origin lead."""
    return process.url


@pytest.fixture(scope="session")
def playwright(process: Site, playwright: Playwright) -> Playwright:
    """What drives the browser: begun after the database is made, ended before it goes."""
    return playwright


@pytest.fixture
def site(process: Site) -> Site:
    """The server, running, whatever the test before has done to it."""
    if not process.is_running:
        process.open()
    process.forget_draft()
    process.forget_talks()
    return process


@pytest.fixture(scope="session")
def session_watch(process: Site) -> Watch:
    """What looks at every page of all tests."""
    return Watch(process.url)


@pytest.fixture
def watch(session_watch: Watch) -> Iterator[Watch]:
    """Fail the test if any of its pages did what none may do."""
    session_watch.faults.clear()
    yield session_watch
    assert session_watch.faults == []


Browse = Callable[..., BrowserContext]


@pytest.fixture(scope="session")
def browsers(
    browser: Browser, browser_context_args: dict[str, Any], process: Site, session_watch: Watch
) -> Browsers:
    """Browsers that tests share, one after the other."""

    def made(**options: Any) -> BrowserContext:
        context = browser.new_context(**browser_context_args, **CALM, **options)
        session_watch.follow(context)
        return context

    return Browsers(made, process.url)


@pytest.fixture
def browse(browsers: Browsers, site: Site, watch: Watch) -> Iterator[Browse]:
    """Take another browser with cookies and storage of its own."""
    lent: list[LentBrowser] = []

    def taken(**options: Any) -> BrowserContext:
        lent.append(browsers.lend(**options))
        return lent[-1].context

    yield taken
    for each in lent:
        browsers.take_back(each)


@pytest.fixture
def browse_anew(new_context: Callable[..., BrowserContext], site: Site, watch: Watch) -> Browse:
    """Make another browser that no test has used or will use: it has fetched nothing, and may be changed."""

    def made(**options: Any) -> BrowserContext:
        context = new_context(**CALM, **options)
        context.set_default_timeout(WAIT_S * 1000)
        watch.follow(context)
        return context

    return made


@pytest.fixture
def context(request: pytest.FixtureRequest) -> BrowserContext:
    """The browser of most tests: 1280 by 720, with a mouse; a new one for a test that uses `browse_anew`."""
    way = "browse_anew" if "browse_anew" in request.fixturenames else "browse"
    browse: Browse = request.getfixturevalue(way)
    return browse()


@pytest.fixture
def talk(page: Page, site: Site) -> Talk:
    """A new conversation, open in a tab."""
    return Talk(page, site, site.create(title="A talk")).open()


@pytest.fixture
def another_tab(context: BrowserContext, talk: Talk) -> Talk:
    """The same conversation in a second tab of the same browser."""
    return Talk(context.new_page(), talk.site, talk.id).open()
