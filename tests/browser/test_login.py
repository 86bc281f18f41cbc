"""Coming in, where not everybody may: a login, or the server's key, asked for once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.violations import violations, violations_in_themes
from tests.conftest import once
from tests.support.people.clients import HTTP

pytestmark = once

NAME = "wendy"
PASSWORD = "wendy's long password"
KEY = "open-sesame"
QUICK_CHECKS = {
    "sessions_app.identity.principals.CHECK_S": 0.0,
    "sessions_app.sockets.native.reader.HEARTBEAT_S": 0.1,
}


@pytest.fixture(scope="class")
def accounts(process: Site) -> Iterator[None]:
    """Let only people with an account in, for as long as the tests below run."""
    process.kill()
    process.open(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    process.manage(
        *("createsuperuser", "--noinput", "--username", NAME, "--email", "wendy@example.org"),
        DJANGO_SUPERUSER_PASSWORD=PASSWORD,
    )
    yield
    process.kill()


@pytest.mark.usefixtures("accounts")
class TestAccounts:
    """Where people have accounts."""

    def test_a_login_leads_to_the_page_that_was_asked_for(self, page: Page) -> None:
        page.goto("/settings")
        log_in(page)
        expect(page).to_have_url("/settings")

    def test_a_wrong_password_says_so_and_can_be_mended(self, page: Page) -> None:
        page.goto("/")
        log_in(page, password="not hers")
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("Name")).to_have_value(NAME)
        log_in(page)
        expect(page.get_by_label("Message", exact=True)).to_be_visible()

    def test_the_way_out_stands_on_one_line_whatever_else_is_below_the_list(self, page: Page) -> None:
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto("/")
        log_in(page)
        way_out = page.get_by_role("button", name=f"Log out {NAME}")
        expect(page.locator("#sidebar").get_by_role("link", name="Admin")).to_be_visible()
        expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_visible()
        height = "each => each.firstElementChild.offsetHeight / parseFloat(getComputedStyle(each).lineHeight)"
        assert way_out.evaluate(height) < 1.5

    def test_a_program_logs_in_by_the_code_that_its_link_has(self, page: Page, site: Site) -> None:
        codes = HTTP.post(f"{site.url}/oauth/device/authorize", json={}).json()
        page.goto("/device")
        log_in(page)
        assert violations_in_themes(page) == []
        page.get_by_label("Code", exact=True).fill(codes["user_code"].lower().replace("-", ""))
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("strong").filter(has_text=codes["user_code"])).to_be_visible()
        assert violations_in_themes(page) == []
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status").filter(has_text="Approved.")).to_be_visible()
        form = {"device_code": codes["device_code"]}
        token = HTTP.post(f"{site.url}/oauth/device/token", data=form).json()["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        assert HTTP.get(f"{site.url}/api/native/conversations", headers=headers).status_code == 200

    @pytest.mark.parametrize("width", [390, 1280])
    @pytest.mark.slow
    def test_a_long_name_is_cut_in_the_sidebar_and_log_out_is_not(
        self, page: Page, site: Site, width: int
    ) -> None:
        page.set_viewport_size({"width": width, "height": 800})
        name = f"annabelle.{'long' * 12}{width}@example.org"
        site.manage(
            *("createsuperuser", "--noinput", "--username", name, "--email", "anna@example.org"),
            DJANGO_SUPERUSER_PASSWORD=PASSWORD,
        )
        page.goto("/")
        log_in(page, name=name)
        button = page.get_by_role("button", name="Log out")
        expect(button).to_have_attribute("title", name)
        expect(button.locator("span")).to_have_css("text-overflow", "ellipsis")
        right = "(all) => all.getBoundingClientRect().right"
        assert button.evaluate(right) <= page.locator("#sidebar").evaluate(right)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert button.locator("span").evaluate("(words) => words.offsetWidth") > 100

    @pytest.mark.slow
    def test_a_logout_keeps_the_draft(self, page: Page) -> None:
        page.goto("/")
        log_in(page)
        page.wait_for_load_state()
        box = page.get_by_label("Message", exact=True)
        box.fill("Hello")
        box.press("Enter")
        expect(page.locator("#events article.message.agent")).to_be_visible()
        address = page.url
        box.fill("half a thought")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Password")).to_be_visible()
        page.goto(address)
        log_in(page)
        expect(page).to_have_url(address)
        expect(box).to_have_value("half a thought")

    @pytest.mark.slow
    def test_a_page_that_was_there_before_a_new_login_can_still_write(self, page: Page, site: Site) -> None:
        page.goto("/")
        log_in(page)
        page.wait_for_load_state()
        box = page.get_by_label("Message", exact=True)
        box.fill("Hello")
        box.press("Enter")
        expect(page.locator("#events article.message.agent")).to_be_visible()
        page.goto("/new")
        other = page.context.new_page()
        log_out(other)
        other.goto("/settings")
        log_in(other)
        expect(other).to_have_url("/settings")
        with page.expect_response(lambda answer: answer.request.method == "PUT") as stored:
            box.fill("half a thought")
        assert stored.value.ok
        row = page.locator("#list .row").first
        row.hover()
        row.locator("summary").click()
        row.get_by_role("button", name="Pin").click()
        expect(page.locator("#pinned .row")).to_have_count(1)

    def test_a_conversation_asks_for_a_login_as_soon_as_another_tab_has_logged_out(self, page: Page) -> None:
        page.goto("/")
        log_in(page)
        page.wait_for_load_state()
        page.get_by_label("Message", exact=True).fill("Hello")
        page.get_by_label("Message", exact=True).press("Enter")
        expect(page.locator("#events article.message.agent")).to_be_visible()
        address = page.url
        log_out(page.context.new_page())
        log_in(page)
        expect(page).to_have_url(address)


def log_out(tab: Page) -> None:
    """End the login that this tab shares with others."""
    tab.goto("/settings")
    tab.get_by_role("button", name="Log out").click()


@pytest.fixture(scope="class")
def guarded(process: Site) -> Iterator[None]:
    """Ask for the server's key."""
    process.kill()
    process.open(constants=QUICK_CHECKS, SESSION_API_KEY=KEY)
    process.headers = {"X-Session-API-Key": KEY}
    yield
    process.kill()
    process.headers = {}


@pytest.mark.usefixtures("guarded")
class TestServerKey:
    """Where whoever has the server's key may come in."""

    def test_the_key_is_asked_for_once_and_a_logout_keeps_the_draft(self, site: Site, page: Page) -> None:
        talk = Talk(page, site, site.create(title="Fix the list"))
        page.goto(f"/c/{talk.id}")
        give_key(page, "close-sesame")
        expect(page.get_by_text("Wrong key.")).to_be_visible()
        give_key(page)
        talk.is_connected()
        talk.box.fill("half a sentence")
        page.keyboard.press("Control+k")
        page.keyboard.type("log out")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/key")
        page.goto(f"/c/{talk.id}")
        give_key(page)
        expect(talk.box).to_have_value("half a sentence")

    def test_a_page_whose_login_is_over_asks_for_it_and_comes_back(self, site: Site, page: Page) -> None:
        talk = Talk(page, site, site.create(title="Fix the list"))
        page.goto(f"/c/{talk.id}")
        give_key(page)
        talk.is_connected()
        end_login(page.context, site)
        page.wait_for_url(re.compile(r"/ui/key\?next="))
        give_key(page)
        page.wait_for_url(f"**/c/{talk.id}")

    def test_a_list_whose_login_is_over_asks_for_it(self, site: Site, page: Page) -> None:
        page.goto("/settings")
        give_key(page)
        page.wait_for_url("**/settings")
        end_login(page.context, site)
        page.get_by_placeholder("Find by title").fill("anything")
        page.wait_for_url(re.compile(r"/ui/key\?next="))
        give_key(page)
        expect(page).to_have_url("/settings")

    def test_the_question_for_the_key_is_accessible(self, page: Page) -> None:
        page.goto("/ui/key")
        assert violations(page) == []


def log_in(page: Page, *, name: str = NAME, password: str = PASSWORD) -> None:
    """Fill in the login's form and send it."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def give_key(page: Page, key: str = KEY) -> None:
    """Fill in the question for the server's key and send it."""
    page.get_by_label("Server key", exact=True).fill(key)
    page.keyboard.press("Enter")


def end_login(context: BrowserContext, site: Site) -> None:
    """Log out as another tab would."""
    token = next(each["value"] for each in context.cookies() if each["name"] == "csrftoken")
    headers = {"X-CSRFToken": token, "Origin": site.url}
    assert context.request.post(f"{site.url}/ui/logout", headers=headers).ok
