"""Take pictures of every page and state, light and dark, narrow and wide.

Those that README.md or a page of docs/ shows go to docs/pictures/, all others to build/pictures/.

Run as `python -m tests.browser.pictures [part of a name …]`, with a server of its own on demo data.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from playwright.sync_api import BrowserContext, Page, WebSocketRoute, expect, sync_playwright

from tests.browser.site import Site, message
from tests.browser.talk import Talk
from tests.support.data import import_files
from tests.support.people import chromium
from tests.support.people.clients import HTTP
from tests.support.servers.model_server import Answer, Asked, calling, completion, model_server

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
DOCUMENTED = ROOT / "docs" / "pictures"
OTHERS = ROOT / "build" / "pictures"
SIZES = {390: 844, 1440: 900}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

SLOW = "/slow"
"""Is answered for ten seconds: enough to be paused or stopped on a busy machine, too."""
SLOW_WORDS = "so that you can try"
"""Of that answer, soon after its beginning."""


class Studio(Site):
    """A server on a database of its own, which remembers what was made for one picture."""

    made: list[str]

    def create(self, **members: Any) -> str:
        """Make a conversation; return its id."""
        self.made.append(super().create(**members))
        return self.made[-1]

    def clear_up(self) -> None:
        """Delete what was made since the last time, so that the next picture does not show it."""
        for conversation_id in self.made:
            self.delete(conversation_id)
        self.made = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the server is started with."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CONVSERVER_")}
        kept.pop("DATABASE_URL", None)
        return {**kept, "CONVSERVER_DATA_DIR": str(self.log.parent / "data"), "PORT": str(self.port)}


Scene = Callable[[Page, Studio], None]
SCENES: dict[str, Scene] = {}
"""What is shown where somebody has worked for a while, by the name of the picture; the admin's come first.

It also shows what was made and deleted for other pictures.
"""
MODEL: dict[str, Scene] = {}
"""What is shown where a model answers, which may call tools if the user approves."""
BEFORE: dict[str, Scene] = {}
"""What is shown before anything was said."""
LOGGED_OUT: dict[str, Scene] = {}
"""What is shown to whom the server does not know."""
KEYED: dict[str, Scene] = {}
"""What is shown to who has not given the server's key."""


def _scene(name: str, scenes: dict[str, Scene] = SCENES) -> Callable[[Scene], Scene]:
    def kept(scene: Scene) -> Scene:
        scenes[name] = scene
        return scene

    return kept


@_scene("empty", BEFORE)
def _empty(page: Page, studio: Studio) -> None:
    page.goto(studio.url)


@_scene("empty-conversation", BEFORE)
def _empty_conversation(page: Page, studio: Studio) -> None:
    Talk(page, studio, studio.create(title="Nothing yet")).open()


@_scene("key", KEYED)
def _key(page: Page, studio: Studio) -> None:
    page.goto(studio.url)


@_scene("login", LOGGED_OUT)
def _login(page: Page, studio: Studio) -> None:
    page.goto(studio.url)


@_scene("login-refused", LOGGED_OUT)
def _login_refused(page: Page, studio: Studio) -> None:
    page.goto(studio.url)
    page.get_by_label("Name").fill("alice")
    page.get_by_label("Password").fill("not her password")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()


@_scene("admin-overview")
def _admin(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/admin/")


@_scene("admin-list")
def _admin_list(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/admin/conversations/conversation/")


@_scene("admin-conversation")
def _admin_conversation(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/admin/conversations/conversation/?q=text")
    page.locator("#result_list").get_by_role("link", name="A function that adds up").first.click()
    expect(page.get_by_role("link", name="Open events")).to_be_visible()


@_scene("admin-events")
def _admin_events(page: Page, studio: Studio) -> None:
    _admin_conversation(page, studio)
    page.goto(page.url.replace("/change/", "/events/"))


@_scene("admin-loops")
def _admin_loops(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/admin/sessions_app/agentloop/")


@_scene("home")
def _home(page: Page, studio: Studio) -> None:
    page.goto(studio.url)


@_scene("new")
def _new(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/new")
    page.get_by_text("Connect a client or a script").click()


@_scene("settings")
def _settings(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/settings")


@_scene("import")
def _import(page: Page, studio: Studio) -> None:
    content = import_files.export(*(import_files.chat(name, title=title) for name, title in IMPORTED))
    upload = {"name": "chatgpt-2026-11.zip", "mimeType": "application/zip", "buffer": content}
    page.goto(f"{studio.url}/settings/import")
    page.get_by_label("File", exact=True).set_input_files(upload)  # type: ignore[arg-type]
    page.get_by_role("button", name="Upload and import").click()
    expect(page.locator(".import-state")).to_contain_text("Finished")


@_scene("imports")
def _imports(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/settings/import")


@_scene("search")
def _search(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/search?q=discount")
    expect(page.locator("#hits li").first).to_be_visible()


@_scene("palette")
def _palette(page: Page, studio: Studio) -> None:
    Talk(page, studio, "text").open()
    page.keyboard.press("Control+k")
    page.keyboard.type("the")
    expect(page.locator("#palette").get_by_role("option", name="Find out why")).to_be_visible()


@_scene("help")
def _help(page: Page, studio: Studio) -> None:
    Talk(page, studio, "text").open()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


@_scene("actions")
def _actions(page: Page, studio: Studio) -> None:
    page.goto(studio.url)
    page.locator("#row-text .actions > summary").click()


@_scene("list-selection")
def _list_selection(page: Page, studio: Studio) -> None:
    _labelled(studio)
    page.goto(studio.url)
    page.get_by_role("button", name="Select conversations").click()
    page.locator(".pick").nth(0).click()
    page.locator(".pick").nth(3).click(modifiers=["Shift"])
    page.get_by_role("button", name="Label…").click()
    expect(page.get_by_role("region", name="Selected conversations")).to_contain_text("4 selected")


@_scene("list-labels")
def _list_labels(page: Page, studio: Studio) -> None:
    _labelled(studio)
    page.goto(f"{studio.url}/?label=project:website")
    expect(page.locator(".row")).to_have_count(4)


@_scene("as-of")
def _as_of(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/c/text?as_of=0")


def _labelled(studio: Studio) -> None:
    tags = ({"project": "website"}, {"project": "website", "urgent": ""}, {"source": "codex"})
    for number in range(6):
        studio.create(title=f"Draft {number + 1} of the front page", tags=tags[number // 2])


@_scene("not-found")
def _not_found(page: Page, studio: Studio) -> None:
    page.goto(f"{studio.url}/c/never-there")


@_scene("conversation")
def _conversation(page: Page, studio: Studio) -> None:
    Talk(page, studio, "recorded").open()


@_scene("conversation-tools")
def _tools(page: Page, studio: Studio) -> None:
    Talk(page, studio, "recorded").open("#e20")


@_scene("conversation-v1")
def _v1(page: Page, studio: Studio) -> None:
    Talk(page, studio, "examples").open("#e3")


@_scene("conversation-text")
def _text(page: Page, studio: Studio) -> None:
    Talk(page, studio, "text").open()


@_scene("branch")
def _branch(page: Page, studio: Studio) -> None:
    talk = studio.create(title="Where the lantern was")
    texts = (
        ("user", "Where did you see it?"),
        ("agent", "In the cellar."),
        ("user", "Then look there again."),
    )
    studio.record(talk, [message(text, source=source) for source, text in texts])
    page.goto(f"{studio.url}/c/{talk}/branch?after=1")
    page.get_by_role("button", name="Create branch").click()
    expect(page.locator("header .ways")).to_contain_text("2/2")
    studio.made.append(page.url.rpartition("/")[2])


@_scene("menu")
def _menu(page: Page, studio: Studio) -> None:
    Talk(page, studio, "text").open()
    page.get_by_label("More about this conversation").click()


@_scene("files")
def _files(page: Page, studio: Studio) -> None:
    talk = studio.create(title="A talk with files")
    shown = Path(__file__).read_bytes()[:1_500]
    files = [("files", (name, shown)) for name in ("main.py", "notes.txt", "pyproject.toml")]
    HTTP.post(f"{studio.url}/api/conversations/{talk}/upload-files", files=files).raise_for_status()
    page.goto(f"{studio.url}/c/{talk}")
    page.get_by_role("link", name="Files", exact=True).click()
    page.get_by_role("link", name="notes.txt").wait_for()


@_scene("file")
def _file(page: Page, studio: Studio) -> None:
    _files(page, studio)
    page.get_by_role("link", name="main.py").click()
    page.locator("#beside code").wait_for()


@_scene("streaming")
def _streaming(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="What is in this repository?")).open()
    studio.record(talk.id, [message("Good morning. What would you like to look at?", source="agent")])
    _say(talk, SLOW)
    expect(talk.streaming).to_contain_text(SLOW_WORDS)


@_scene("approval")
def _approval(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Clean up the build")).open()
    _say(talk, "/approve")
    expect(talk.approval).to_be_visible()


@_scene("queued")
def _queued(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="What is in this repository?")).open()
    _say(talk, "Good morning")
    expect(talk.delivery("Good morning")).to_contain_text("Answered")
    _say(talk, SLOW)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#agent-state")).to_have_text("Paused", timeout=30_000)
    _say(talk, "And then write the release notes.")
    expect(talk.delivery("release notes")).to_contain_text("Queued")


@_scene("stopped")
def _stopped(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="What is in this repository?")).open()
    _say(talk, SLOW)
    expect(talk.streaming).to_contain_text(SLOW_WORDS)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(talk.delivery(SLOW)).to_contain_text("Unfinished")
    expect(talk.streaming).to_have_count(0)


@_scene("deleted-elsewhere")
def _deleted_elsewhere(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="What is in this repository?")).open()
    _say(talk, "Good morning")
    expect(talk.delivery("Good morning")).to_contain_text("Answered")
    studio.delete(talk.id)
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    studio.made.remove(talk.id)


@_scene("error")
def _error(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="An agent that breaks down")).open()
    _say(talk, "/fail")
    expect(page.locator("#agent-state")).to_have_text("Failed")
    expect(page.locator("#events article.error")).to_be_visible()


@_scene("plan")
def _plan(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Round prices once")).open()
    studio.record(talk.id, [message("Prices are rounded twice. Please mend that, with tests.")], key="asked")
    for done in range(3):
        studio.record(talk.id, [_planned(done)], key=f"plan {done}")
        expect(page.locator("article.plan:visible .now > summary")).to_have_text(f"{done} of 4 tasks done")
    page.locator("article.plan:visible .earlier > summary").click()


def _planned(done: int) -> dict[str, Any]:
    titles = ("Find where prices are rounded", "Round in `total()` alone", "Test it", "Note the change")
    states = ["done"] * done + ["in_progress"] + ["todo"] * len(titles)
    tasks = [{"title": each, "status": state} for each, state in zip(titles, states, strict=False)]
    return {"action": "task_tracking", "source": "agent", "args": {"command": "plan", "task_list": tasks}}


@_scene("model-answer", MODEL)
def _model_answer(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Review the billing module")).open()
    _say(talk, "Please review the billing module.")
    talk.answered("ignores the discount")
    page.locator("#events .reasoning > summary").click()


@_scene("model-approval", MODEL)
def _model_approval(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Clean up the build")).open()
    _say(talk, "Please delete the old build.")
    talk.asked(is_read=False)


@_scene("model-tool", MODEL)
def _model_tool(page: Page, studio: Studio) -> None:
    _model_approval(page, studio)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#events article.message.agent").last).to_contain_text("is gone")


@_scene("model-files-changed", MODEL)
def _model_files_changed(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Write the new page")).open()
    _say(talk, "Please write the new page.")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#events .files-changed")).to_contain_text("The agent changed 3 files.")


@_scene("model-files-restored", MODEL)
def _model_files_restored(page: Page, studio: Studio) -> None:
    _model_files_changed(page, studio)
    page.locator("#events .files-changed").get_by_role("link", name="Restore files").click()
    page.get_by_role("button", name="Restore files").wait_for()


@_scene("model-failed", MODEL)
def _model_failed(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="Good morning")).open()
    _say(talk, "This one is rejected.")
    expect(page.locator("#events article.error")).to_contain_text("Open Settings")
    expect(page.locator("#next").get_by_role("button", name="Retry")).to_be_visible()


def _answers(asked: Asked) -> Answer:
    """Answer as a model that reviews, deletes when told to, and may be asked with a wrong key."""
    told = json.dumps(asked.body["messages"])
    if "rejected" in told:
        return Answer(401, {"error": {"message": "Incorrect API key provided."}})
    if "new page" in told:
        if asked.body["messages"][-1]["role"] == "tool":
            return completion(["The new page is written."])
        return calling(
            ("terminal", {"command": "mkdir site && cd site && touch index.html style.css app.js"})
        )
    if "old build" not in told:
        return completion([REVIEW], reasoning=["The user wants a review. ", "I look at the sums first."])
    if asked.body["messages"][-1]["role"] == "tool":
        return completion(["The old build is gone."])
    return calling(("delete", {"path": "build/2024"}), text="I'll delete it.")


REVIEW = (
    "The **billing** module has two problems:\n\n1. Prices are rounded twice.\n"
    "2. `total()` ignores the discount of a basket.\n\nShall I mend them?"
)


@_scene("offline")
def _offline(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, "text").open()
    page.context.set_offline(True)
    _say(talk, "Nothing of this is lost: it goes out when the network is back.")
    _say(talk, "And this after it.")
    expect(talk.line).to_contain_text("2 waiting")


@_scene("reconnecting")
def _reconnecting(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, "text")
    page.route_web_socket("**/ws/conversations/text*", lambda socket: socket.close(code=1012))
    page.goto(f"{studio.url}/c/{talk.id}")
    expect(talk.line).to_contain_text("Reconnecting")


@_scene("catching-up")
def _catching_up(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, studio.create(title="What was missed"))
    page.route_web_socket("**/ws/conversations/*", _hold_after_120)
    page.goto(f"{studio.url}/c/{talk.id}")
    studio.record(talk.id, [message(f"Something that was missed, number {number}") for number in range(300)])
    expect(talk.line).to_contain_text("Catching up")


@_scene("image")
def _image(page: Page, studio: Studio) -> None:
    talk = Talk(page, studio, "text").open()
    page.locator('#composer input[type="file"]').set_input_files(DOCUMENTED / "conversation-light-1440.png")
    talk.box.fill("Here is what it looks like now.\nCan the list be calmer?")
    expect(page.get_by_role("img", name="Image 1")).to_be_visible()


def _say(talk: Talk, text: str) -> None:
    """Send by the button: where there is no keyboard, Enter makes a new line."""
    talk.box.fill(text)
    talk.page.get_by_role("button", name="Send").click()


def _hold_after_120(socket: WebSocketRoute) -> None:
    """Let a page hear of so many events and no more: the rest seems to be on its way."""
    server = socket.connect_to_server()

    def passed(frame: str | bytes) -> None:
        read = json.loads(frame)
        if read.get("type") == "hello":
            socket.send(json.dumps({**read, "last_seq": 299}))
        elif read.get("seq", 0) < 120 and read["type"] != "replay_complete":
            socket.send(frame)

    server.on_message(passed)


def _fill(studio: Studio) -> None:
    """Put in what somebody has who has worked with agents for a while."""
    studio.create(id="examples", title="Refactor the payment module", version="V1", repository="acme/shop")
    files = sorted((DATA / "openhands-v1").glob("conversation/*/events/*.json"))
    studio.record("examples", [json.loads(file.read_text()) for file in files])
    studio.create(
        id="recorded", title="Find out why the tests are slow", repository="acme/shop", branch="main"
    )
    studio.record("recorded", json.loads((DATA / "openhands-v0-agent-run.json").read_text()))
    studio.create(id="text", title="A function that adds up a basket", repository="acme/shop")
    studio.record("text", TEXT)
    for number, (title, text) in enumerate(ROWS.items()):
        conversation_id = studio.create(title=title, repository="acme/shop" if number % 2 else None)
        studio.send(conversation_id, {"type": "message", "text": text})


ROWS = {
    "Explain the checkout": "Good morning",
    "Remove the old build": "/approve",
    "Nightly report": "/fail",
    "Write release notes": "/finish",
    "What time is it?": "/tool",
}
"""Conversations in the list, by what is said in them: each ends in another state."""

IMPORTED = (("a", "Cuckoo clocks"), ("b", "A week in Lisbon"), ("c", "Why the sky is blue"))
"""Conversations of an export, by id and title."""

TEXT: list[dict[str, Any]] = [
    message("How do I add up a basket with a discount? Please show the code and a **table**."),
    message(
        "Here is a function that does it:\n\n"
        "```python\nfrom decimal import Decimal\n\n\n"
        "def total(items: list[Item], discount: Decimal) -> Decimal:\n"
        '    """Return what a basket costs, never less than nothing."""\n'
        "    full = sum((item.price * item.count for item in items), Decimal())\n"
        "    return max(Decimal(), full - discount)\n```\n\n"
        "It gives:\n\n| basket | discount | total |\n|:--|--:|--:|\n"
        "| two pens | 0.50 | 1.90 |\n| nothing | 1.00 | 0.00 |\n\n"
        "1. Prices are decimals, so nothing is lost by rounding.\n2. A discount can not make it negative.\n\n"
        "> Ask me for tests if you like.",
        source="agent",
    ),
    message("Yes, with tests."),
]


def main(names: Sequence[str]) -> int:
    """Take the pictures whose names contain any of these; all without one. Return the exit code."""
    if problem := chromium.problem():
        print(f"No pictures can be taken: {problem}.", file=sys.stderr)
        return 1
    with TemporaryDirectory() as directory:
        # Room for all that `_fill` asks: on a slow machine one would be stopped for another.
        with _serving(Path(directory, "local"), CONVSERVER_MAX_CONCURRENT="20") as studio:
            _take(studio, BEFORE, names)
            _fill(studio)
            studio.made = []  # that stays
            _take(studio, SCENES, names)
        with (
            model_server(_answers) as (base_url, _),
            _serving(Path(directory, "model"), CONVSERVER_AGENT="auto") as studio,
        ):
            _enter_model(studio, base_url)
            _take(studio, MODEL, names)
        accounts = {
            "CONVSERVER_AUTH": "accounts",
            "CONVSERVER_ALLOWED_HOSTS": "127.0.0.1",
            "SECRET_KEY": "x" * 60,
        }
        with _serving(Path(directory, "accounts"), **accounts) as studio:
            _take(studio, LOGGED_OUT, names)
        with _serving(Path(directory, "key"), SESSION_API_KEY="open-sesame") as studio:
            _take(studio, KEYED, names)
    return 0


def _enter_model(studio: Studio, base_url: str) -> None:
    """Store a model, a tool server, and that its calls wait for approval."""
    program = {
        "name": "files",
        "command": sys.executable,
        "args": ["-m", "tests.support.servers.tool_program", "counting", str(studio.log.parent / "calls")],
        "env": {"PYTHONPATH": str(ROOT)},
    }
    settings = {
        "llm_model": "openai/gpt-x",
        "llm_base_url": base_url,
        "llm_api_key": "sk-123456",
        "confirmation_mode": True,
        "mcp_config": {"sse_servers": [], "shttp_servers": [], "stdio_servers": [program]},
    }
    HTTP.post(f"{studio.url}/api/settings", json=settings).raise_for_status()


@contextmanager
def _serving(directory: Path, **environment: str) -> Iterator[Studio]:
    Path(directory, "data").mkdir(parents=True)
    studio = Studio(directory)
    studio.made = []
    studio.open(constants=None, **environment)
    try:
        yield studio
    finally:
        studio.kill()


def _take(studio: Studio, scenes: dict[str, Scene], names: Sequence[str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.PROGRAM, args=list(chromium.LAUNCH))
        for name, scene in scenes.items():
            if names and not any(part in name for part in names):
                continue
            for theme in THEMES:
                for width, height in SIZES.items():
                    picture = f"{name}-{theme}-{width}.png"
                    context = browser.new_context(
                        viewport={"width": width, "height": height},
                        color_scheme=theme,
                        reduced_motion="reduce",
                        has_touch=width < 800,
                    )
                    _shoot(context, scene, studio, _folder(picture) / picture)
                    context.close()
                    studio.clear_up()


def _folder(picture: str) -> Path:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    is_shown = any(f"pictures/{picture}" in page.read_text() for page in pages)
    return DOCUMENTED if is_shown else OTHERS


def _shoot(context: BrowserContext, scene: Scene, studio: Studio, path: Path) -> None:
    page = context.new_page()
    scene(page, studio)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, caret="initial")
    print(path.relative_to(ROOT), f"{path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
