"""A new operator finds each of five faults on the admin's first page within a minute of its beginning."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import CALM
from tests.browser.violations import THEMES, violations_in_themes
from tests.conftest import on_postgresql
from tests.support.people.clients import HTTP
from tests.support.servers.clusters import NATIVE, Cluster, serving_cluster, workers_of
from tests.support.servers.webhook_server import WebhookServer

pytestmark = [on_postgresql, pytest.mark.needs_engine, pytest.mark.no_second_try, pytest.mark.timeout(240)]

FOUND_WITHIN_S = 60.0
STALLED = {"sessions_app.models.loops.STALLED_S": 5.0}
"""Otherwise a turn that makes no progress is told of after the minute in which it is to be found."""
PICTURES = os.environ.get("OVERVIEW_PICTURES", "")
"""A directory for pictures of the page with all faults; none are taken without one."""
SECRET = "what nobody else may read"
WIDER_THAN_THE_SCREEN = """() => [...document.querySelectorAll("main *, #main *")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => `${each.tagName} ${each.textContent.trim().slice(0, 40)}`)"""

ENDPOINT = """
from sessions_app.models import Endpoint
from sessions_app.webhooks import deliveries, transport
from sessions_app.webhooks.transport import WebhookCredentials
endpoint = Endpoint(name="refusing", base_url="{url}", event_buffer_size=1, flush_delay_s=0)
transport.seal_into(endpoint, WebhookCredentials({{}}, ""))
deliveries.begin(endpoint)
"""


@pytest.fixture
def cluster(django_db_setup: None, django_db_blocker: Any, tmp_path: Path) -> Iterator[Cluster]:
    web = tmp_path / "web"
    web.mkdir()
    with (
        django_db_blocker.unblock(),
        serving_cluster(web, **STALLED) as serving,
        workers_of(serving, tmp_path) as cluster,
    ):
        yield cluster


@pytest.fixture
def overview(cluster: Cluster, browser: Browser) -> Iterator[Page]:
    """The first page of the admin, which is not open yet."""
    context = browser.new_context(base_url=cluster.web.url, **CALM)
    yield context.new_page()
    context.close()


def talk(cluster: Cluster) -> str:
    answer = HTTP.post(f"{cluster.web.url}{NATIVE}", json={"id": uuid4().hex})
    return str(answer.raise_for_status().json()["id"])


@contextmanager
def locked(cluster: Cluster, talk: str) -> Iterator[None]:
    """Hold the row of a conversation, to which a client goes on sending."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            message = {"type": "message", "id": 1, "text": SECRET}
            HTTP.post(f"{cluster.web.url}{NATIVE}/{talk}/events", json=message)

    sending = threading.Thread(target=send)
    address = cluster.variables["DATABASE_URL"]
    with psycopg.connect(address, application_name="nightly report") as session:
        session.execute("SELECT 1 FROM conversations_conversation WHERE public_id = %s FOR UPDATE", [talk])
        sending.start()
        try:
            yield
        finally:
            is_over.set()
            session.rollback()
            sending.join()


def until_shown(page: Page, kind: str, *parts: str, began: float) -> None:
    """Load the page again until it shows the problem with these parts, within a minute of its beginning."""
    card = page.locator(f'article[data-problem="{kind}"]').first
    while True:
        page.goto("/admin/")
        shown = card.inner_text() if card.count() else ""
        if all(part in shown for part in parts):
            return
        missing = f"{kind} is not shown with {parts}: {page.locator('main, #main').first.inner_text()[:2000]}"
        assert time.monotonic() - began < FOUND_WITHIN_S, missing


def leads(page: Page, kind: str) -> str:
    """Follow the link of a problem; return the text of the list that it leads to."""
    page.goto("/admin/")
    page.locator(f'article[data-problem="{kind}"]').first.get_by_role("link").click()
    page.wait_for_url(lambda url: "/admin/" in url and not url.endswith("/admin/"))
    return page.locator("#result_list, main, #main").first.inner_text()


def look_well(page: Page) -> None:
    """Check the page, narrow and wide, light and dark."""
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(WIDER_THAN_THE_SCREEN) == []
        assert violations_in_themes(page) == []
        if PICTURES:
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                page.screenshot(path=f"{PICTURES}/overview-{theme}-{width}.png", full_page=True)


@pytest.mark.slow
def test_each_of_five_faults_is_found_within_a_minute(cluster: Cluster, overview: Page) -> None:
    began = time.monotonic()
    until_shown(overview, "backup_missing", "No backup of this store has ever been made.", began=began)
    leads(overview, "backup_missing")
    assert overview.url.endswith("/backuprecord/")

    killed, _ = cluster.start_worker(), cluster.start_worker()
    pid = killed.pid
    hanging = talk(cluster)
    cluster.say(hanging, "hang")
    began = time.monotonic()
    until_shown(overview, "stalled_loop", "nothing has come of it", began=began)

    began = time.monotonic()
    with WebhookServer() as refusing:
        refusing.status = 503
        cluster.run_code(ENDPOINT.format(url=refusing.url))
        cluster.say(talk(cluster), "Hello")
        until_shown(overview, "webhooks_fail", "Webhooks do not go out", "for ", began=began)
        assert "503" in leads(overview, "webhooks_fail")

    began = time.monotonic()
    killed.kill()
    until_shown(overview, "process_gone", f"worker {pid} on", "Running: 1 server and 1 worker.", began=began)
    assert str(pid) in leads(overview, "process_gone")

    busy = talk(cluster)
    began = time.monotonic()
    with locked(cluster, busy):
        until_shown(overview, "lock_held", "nightly report", busy, "conversations_conversation", began=began)
        assert SECRET not in overview.content()
        overview.get_by_role("link", name="Open the conversation").click()
        expect(overview.locator("#result_list")).to_contain_text(busy)
        overview.goto("/admin/")
        look_well(overview)
