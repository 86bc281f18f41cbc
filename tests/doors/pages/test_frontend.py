"""A built frontend at `/`: which addresses are its files, which its pages, and which stay convserver's."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.client import HTTPConnection
from itertools import product
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from conversations.events import ConversationRef
from convserver import configuration
from convserver.configuration import AuthMode
from convserver.variables import ConfigurationError
from tests.conftest import Dial
from tests.support.people.clients import HTTP, WAIT_S, Server

pytestmark = pytest.mark.one_engine

NO_CACHE = "no-cache, no-store, must-revalidate, max-age=0"
INDEX = "<!doctype html><script src=/assets/app-1a2b.js></script>"
SCRIPT = "console.log('hello')"
SECRET = "nobody may read this"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """What a frontend's build leaves behind, next to a file that is none of it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key.txt").write_text(SECRET)
    root = tmp_path / "build"
    for folder in ("assets", "locales/en", ".git"):
        (root / folder).mkdir(parents=True)
    (root / "index.html").write_text(INDEX)
    (root / "favicon.ico").write_bytes(b"\0\1")
    (root / "assets" / "app-1a2b.js").write_text(SCRIPT)
    (root / "locales" / "en" / "translation.json").write_text("{}")
    (root / ".env").write_text(SECRET)
    (root / ".git" / "config").write_text(SECRET)
    return root


@pytest.fixture
def frontend(build: Path, configured: Callable[..., None], rest: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client of a server that serves this build."""
    configured(frontend_dir=build)
    return rest


@pytest.fixture(autouse=True)
def addresses() -> Iterator[None]:
    """Have the addresses that the settings choose where a frontend is served."""
    with override_settings(ROOT_URLCONF="convserver.web.frontend_urls"):
        yield


# Pages and files


PAGES = [
    "/",
    "/index.html",
    "/conversations/0123",
    "/conversations/task-0123",
    "/settings",
    "/settings/secrets",
    "/microagent-management",
    "/a.page.with.dots",
    "/conversations/",
    "/a%0Ab",
    "/apiary",
    "/?page=1",
]


async def test_every_address_of_a_page_is_the_first_page(
    frontend: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in PAGES:
        with subtests.test(path):
            answer = await frontend.get(path)
            assert (answer.status_code, answer.text) == (200, INDEX)
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert answer.headers["cache-control"] == NO_CACHE
            assert (answer.headers["pragma"], answer.headers["expires"]) == ("no-cache", "0")


@pytest.mark.parametrize(
    ("path", "content_type", "cached"),
    [
        ("/assets/app-1a2b.js", "text/javascript; charset=utf-8", "public, max-age=2592000, immutable"),
        ("/locales/en/translation.json", "application/json", NO_CACHE),
        ("/favicon.ico", "image/x-icon", NO_CACHE),
    ],
)
async def test_a_file_has_its_type_and_only_assets_may_be_kept(
    frontend: httpx.AsyncClient, build: Path, path: str, content_type: str, cached: str
) -> None:
    answer = await frontend.get(path)
    assert (answer.status_code, answer.content) == (200, (build / path[1:]).read_bytes())
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == (content_type, cached)
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_frontend_loads_and_asks_nothing_of_other_hosts(
    frontend: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in ["/", "/assets/app-1a2b.js", "/settings"]:
        with subtests.test(path):
            answer = await frontend.get(path)
            policy = directives(answer)
            assert (policy["default-src"], policy["script-src"], policy["connect-src"]) == (["'self'"],) * 3
            assert "'none'" in policy["frame-ancestors"]
            assert answer.headers["x-frame-options"] == "DENY"


def directives(answer: httpx.Response) -> dict[str, list[str]]:
    """Return an answer's policy."""
    parts = answer.headers["content-security-policy"].split(";")
    return {name: sources for name, *sources in (part.split() for part in parts)}


async def test_the_scripts_in_the_first_page_are_allowed_by_their_digests(
    frontend: httpx.AsyncClient, build: Path
) -> None:
    texts = ["start(1 < 2, '</b>');\n", 'import("/assets/app-1a2b.js")']
    scripts = f"<script>{texts[0]}</script><script type=module>{texts[1]}</script>"
    (build / "index.html").write_text(f"<!doctype html><head>{scripts}</head><p>No script: {texts[0]}")
    answer = await frontend.get("/settings")
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in texts]
    assert directives(answer)["script-src"] == ["'self'", *(f"'sha256-{each}'" for each in digests)]


async def test_agent_canvas_takes_this_server_for_its_back_end_and_reports_to_nobody(
    frontend: httpx.AsyncClient, build: Path, configured: Callable[..., None]
) -> None:
    (build / "index.html").write_text('<head></head><body data-agent-server-ui="">')
    answer = await frontend.get("/")
    assert "__AGENT_CANVAS_DO_NOT_TRACK__=true" in answer.text
    assert '__AGENT_CANVAS_SESSION_API_KEY__="local"' in answer.text
    (script,) = re.findall("<script>(.*?)</script>", answer.text)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert directives(answer)["script-src"] == ["'self'", f"'sha256-{digest}'"]
    for closed in ({"session_api_key": "k" * 20}, {"auth": AuthMode.ACCOUNTS}):
        configured(**{"session_api_key": None, **closed})
        page = (await frontend.get("/")).text
        assert "__AGENT_CANVAS_AUTH_REQUIRED__=true" in page
        assert "SESSION_API_KEY" not in page


async def test_a_file_that_is_gone_is_no_page_and_is_not_remembered(
    frontend: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in ["/assets/gone.js", "/assets", "/assets/", "/locales/xx/translation.json"]:
        with subtests.test(path):
            answer = await frontend.get(path)
            assert (answer.status_code, answer.headers["cache-control"]) == (404, NO_CACHE)


async def test_a_file_is_sent_again_only_when_it_has_changed(frontend: httpx.AsyncClient) -> None:
    etag = (await frontend.get("/assets/app-1a2b.js")).headers["etag"]
    answer = await frontend.get("/assets/app-1a2b.js", headers={"if-none-match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


async def test_a_part_of_a_file_can_be_asked_for(frontend: httpx.AsyncClient) -> None:
    answer = await frontend.get("/assets/app-1a2b.js", headers={"range": "bytes=0-6"})
    assert (answer.status_code, answer.text) == (206, "console")


async def test_a_packed_file_is_sent_to_who_can_unpack_it(frontend: httpx.AsyncClient, build: Path) -> None:
    long = SCRIPT * 100
    (build / "assets" / "app-1a2b.js").write_text(long)
    (build / "assets" / "app-1a2b.js.gz").write_bytes(gzip.compress(long.encode()))
    answer = await frontend.get("/assets/app-1a2b.js", headers={"accept-encoding": "gzip"})
    assert (answer.text, answer.headers["content-encoding"]) == (long, "gzip")
    plain = await frontend.get("/assets/app-1a2b.js", headers={"accept-encoding": "identity"})
    assert (plain.text, "content-encoding" in plain.headers) == (long, False)


async def test_a_head_has_the_headers_alone(frontend: httpx.AsyncClient) -> None:
    answer = await frontend.head("/settings")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(INDEX))


async def test_a_page_takes_nothing(frontend: httpx.AsyncClient) -> None:
    assert (await frontend.post("/settings", json={})).status_code == 405


async def test_a_new_build_is_served_without_a_restart(frontend: httpx.AsyncClient, build: Path) -> None:
    await frontend.get("/")
    (build / "index.html").write_text("<p>a longer, newer page</p>")
    assert (await frontend.get("/")).text == "<p>a longer, newer page</p>"


# Nothing from outside


WAYS_OUT = [
    "/../secret.txt",
    "/assets/../../secret.txt",
    "/%2e%2e/secret.txt",
    "/..%2fsecret.txt",
    "/assets/%2e%2e/%2e%2e/secret.txt",
    "//etc/passwd",
    "/%2fetc/passwd",
    "/..%5csecret.txt",
    "/.env",
    "/.git/config",
    "/assets/../.env",
    "/%00secret.txt",
    "/secret.txt%00",
    "/" + "x" * 5000,
    "/%ff%fe",
    "/link.txt",
    "/folder/key.txt",
    "/assets/linked.js",
    "/circle",
]


def test_no_address_leads_out_of_the_directory(server: Server, build: Path, tmp_path: Path) -> None:
    (build / "link.txt").symlink_to(tmp_path / "secret.txt")
    (build / "folder").symlink_to(tmp_path / "outside")
    (build / "assets" / "linked.js").symlink_to(tmp_path / "secret.txt")
    (build / "favicon.ico.gz").symlink_to(tmp_path / "secret.txt")
    (build / "circle").symlink_to(build / "circle")
    server.start(CONVSERVER_FRONTEND_DIR=str(build))
    answers = {path: raw_get(server, path) for path in [*WAYS_OUT, "/favicon.ico"]}
    assert [path for path, (_, content) in answers.items() if SECRET.encode() in content] == []
    assert {status for status, _ in answers.values()} == {200, 404}


def raw_get(server: Server, path: str) -> tuple[int, bytes]:
    """Ask for the path as it is written: other clients tidy it up."""
    asking = HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    asking.request("GET", path, headers={"Accept-Encoding": "gzip"})
    answer = asking.getresponse()
    content = answer.read()
    asking.close()
    return answer.status, content


async def test_a_link_that_stays_inside_is_followed(frontend: httpx.AsyncClient, build: Path) -> None:
    (build / "app.js").symlink_to(build / "assets" / "app-1a2b.js")
    assert (await frontend.get("/app.js")).text == SCRIPT


# What stays convserver's


async def test_an_unknown_address_of_the_api_is_a_404_in_json(
    frontend: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path in product(
        ["GET", "POST", "DELETE"], ["/api/nothing", "/api/", "/api/conversations/talk/nothing"]
    ):
        with subtests.test(method=method, path=path):
            answer = await frontend.request(method, path)
            assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


OURS = [
    "/admin/nothing",
    "/static/nothing.js",
    "/ui/nothing",
    "/ws/nothing",
    "/socket.io",
    "/security/x",
    "/mcp/nothing",
]


async def test_an_unknown_address_of_ours_is_no_page_of_the_frontend(
    frontend: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in OURS:
        with subtests.test(path):
            answer = await frontend.get(path)
            assert answer.status_code == 404
            assert INDEX not in answer.text


async def test_our_own_pages_are_under_ui_and_keep_their_policy(frontend: httpx.AsyncClient) -> None:
    for path in ("/ui/", "/ui/settings"):
        answer = await frontend.get(path)
        assert (answer.status_code, "convserver" in answer.text) == (200, True)
        assert "default-src 'self'" in answer.headers["content-security-policy"]


async def test_a_login_leads_to_our_first_page(
    frontend: httpx.AsyncClient, accounts: None, bob: User
) -> None:
    assert (await frontend.get("/ui/")).headers["location"] == "/ui/login?next=/ui/"
    page = await frontend.get("/ui/login")
    token = page.cookies["csrftoken"]
    answer = await frontend.post(
        "/ui/login",
        data={"username": "bob", "password": "bob's password", "csrfmiddlewaretoken": token},
        headers={"cookie": f"csrftoken={token}"},
    )
    assert (answer.status_code, answer.headers["location"]) == (302, "/ui/")


async def test_the_frontend_is_there_for_everybody_and_conversations_are_not(
    frontend: httpx.AsyncClient, accounts: None
) -> None:
    assert (await frontend.get("/")).status_code == 200
    assert (await frontend.get("/api/conversations")).status_code == 401


async def test_doors_probes_and_the_admin_are_where_they_were(
    frontend: httpx.AsyncClient, conversation: ConversationRef, dial: Dial
) -> None:
    paths = ("/alive", "/health", "/server_info", "/admin/", "/api/schema/", "/api/native/conversations")
    assert {path: (await frontend.get(path)).status_code for path in paths} == dict.fromkeys(paths, 200)
    assert (await (await dial("/ws/conversations/talk")).receive())["type"] == "hello"


def test_a_server_that_is_told_of_a_frontend_serves_it_beside_its_sockets(
    server: Server, build: Path
) -> None:
    server.start(CONVSERVER_FRONTEND_DIR=str(build))
    assert HTTP.get(f"{server.url}/conversations/0123").text == INDEX
    assert HTTP.get(f"{server.url}/ui/").status_code == 200
    polling = HTTP.get(f"{server.url}/socket.io/?EIO=4&transport=polling&conversation_id=talk")
    assert polling.text.startswith("0{")


# The variable


def test_a_directory_without_a_readable_first_page_is_refused_in_one_sentence(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "index.html").symlink_to(tmp_path / "index.html")
    (tmp_path / "directory" / "index.html").mkdir(parents=True)
    for text in ["nowhere", "empty", "index.html", "linked", "directory", "nul\0", "~nobody/x"]:
        with subtests.test(text=text):
            chosen = text if text.startswith("~") else str(tmp_path / text)
            with pytest.raises(ConfigurationError, match=r"^CONVSERVER_FRONTEND_DIR is .+\.$") as refused:
                configuration.read({"CONVSERVER_DATA_DIR": str(tmp_path), "CONVSERVER_FRONTEND_DIR": chosen})
            assert "\n" not in str(refused.value)


def test_a_directory_with_a_first_page_is_taken_and_none_is_the_default(build: Path, tmp_path: Path) -> None:
    data = {"CONVSERVER_DATA_DIR": str(tmp_path)}
    assert configuration.read(data).frontend_dir is None
    assert configuration.read({**data, "CONVSERVER_FRONTEND_DIR": str(build)}).frontend_dir == build
