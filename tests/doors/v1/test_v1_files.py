"""The files of a conversation's workspace by the V1 wire: both forms of each address, statuses, bounds."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from convserver.quotas import Quotas
from sessions_app import astore
from sessions_app.identity.conversation_keys import key_of
from sessions_app.models import ApiToken, Attachment, Grant, Scope, Workspace
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.storage import attachments
from sessions_app.workspaces import uploads
from tests.doors.test_access import bearer
from tests.support.wires.app_face import APP
from tests.support.wires.v1 import AGENT, HEX, ID, NONE, SHARED, known

pytestmark = pytest.mark.one_engine

Configured = Callable[..., None]

PROJECT = "/workspace/project"
BINARY = bytes(range(256)) * 3


@pytest.fixture
def root(tmp_path: Path, configured: Configured) -> Path:
    """Where the directories of workspaces are."""
    configured(workspaces=tmp_path / "workspaces")
    return tmp_path / "workspaces"


@pytest.fixture
def talk(alice: User, root: Path) -> ConversationRef:
    """A V1 conversation of alice's."""
    return agent_setups.create(alice, NewSetup(), conversation_id=HEX)


@pytest.fixture
def key(talk: ConversationRef) -> dict[str, str]:
    """The headers with the key that opens `talk`."""
    return {"x-session-api-key": key_of(talk)}


FORMS = ["/api/file", "/agent/api/file", f"{SHARED}/{ID}/file", f"{AGENT}/{ID}/file"]
"""The first two mean the conversation whose key is given."""


async def put(talk: ConversationRef, **files: bytes) -> None:
    for name, content in files.items():
        await astore.call(uploads.put, talk, name, content)


def only_one_in(root: Path) -> Path:
    (found,) = filter(Path.is_dir, root.iterdir())
    return found


async def held(talk: ConversationRef) -> tuple[int, int]:
    def read() -> tuple[int, int]:
        row = Workspace.objects.get(conversation_id=talk.pk)
        return row.bytes, row.files

    return await astore.call(read)


async def test_a_file_is_sent_and_fetched_by_both_forms_of_each_address(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for number, base in enumerate(FORMS):
        with subtests.test(base):
            path = {"path": f"{PROJECT}/src/data{number}.bin"}
            files = {"file": ("x", BINARY)}
            answer = await rest.post(f"{base}/upload", params=path, files=files, headers=key)
            assert known(answer) == {"success": True, "file_size": len(BINARY)}
            fetched = await rest.get(f"{base}/download", params=path, headers=key)
            assert (fetched.status_code, fetched.content) == (200, BINARY)
            assert fetched.headers["content-type"] == "application/octet-stream"
            assert fetched.headers["content-length"] == str(len(BINARY))
            assert fetched.headers["content-disposition"] == f'attachment; filename="data{number}.bin"'
            assert fetched.headers["x-content-type-options"] == "nosniff"
            assert "no-store" in fetched.headers["cache-control"]
    for address in ("/api/file/download/{}", "/agent/api/file/download/{}"):
        fetched = await rest.get(address.format(f"%2Fworkspace%2Fproject%2Fsrc%2Fdata{0}.bin"), headers=key)
        assert fetched.content == BINARY


async def test_a_file_takes_the_place_of_one_that_is_there(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    for content in (b"first", b"second"):
        path = {"path": f"{PROJECT}/a.txt"}
        known(await rest.post("/api/file/upload", params=path, files={"file": content}, headers=key))
        assert (await rest.get("/api/file/download", params=path, headers=key)).content == content
    assert await held(talk) == (6, 1)


REFUSED: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "download", {}, 422, "Field required"),
    ("GET", "download", {"path": "a.txt"}, 400, "Path must be absolute"),
    ("GET", "download", {"path": f"{PROJECT}/none"}, 404, "There is no"),
    ("GET", "download", {"path": f"{PROJECT}/a.txt/none"}, 404, "There is no"),
    ("GET", "download", {"path": f"{PROJECT}/folder"}, 400, "is not a file"),
    ("GET", "download", {"path": "/etc/passwd"}, 400, "outside the workspace"),
    ("GET", "download", {"path": f"{PROJECT}/../../etc/passwd"}, 400, "outside the workspace"),
    ("GET", "download", {"path": f"{PROJECT}/a\0b"}, 400, "cannot be the name"),
    ("GET", "download", {"path": f"{PROJECT}/{'x' * 300}"}, 400, "cannot be used"),
    ("POST", "upload", {"path": f"{PROJECT}/folder"}, 400, "is a directory"),
    ("POST", "upload", {"path": PROJECT}, 400, "is a directory"),
    ("POST", "upload", {"path": f"{PROJECT}/a.txt/b"}, 404, "There is no"),
    ("POST", "upload", {"path": "/tmp/x"}, 400, "outside the workspace"),
    ("POST", "upload", {"path": f"{PROJECT}/{'d/' * 70}x"}, 400, "too deep"),
    ("POST", "create_directory", {}, 422, "Field required"),
    ("POST", "create_directory", {"path": "folder"}, 400, "Path must be absolute"),
    ("POST", "create_directory", {"path": f"{PROJECT}/a.txt"}, 404, "There is no"),
    ("POST", "create_directory", {"path": "/"}, 400, "outside the workspace"),
    ("GET", "archive", {}, 422, "Field required"),
    ("GET", "archive", {"path": PROJECT}, 400, "Not a git repository"),
    ("GET", "archive", {"path": PROJECT, "format": "rar"}, 422, "format"),
    ("GET", "archive", {"path": f"{PROJECT}/none", "format": "tar.gz"}, 404, "There is no"),
    ("GET", "archive", {"path": f"{PROJECT}/a.txt", "format": "tar.gz"}, 400, "is not a directory"),
    ("GET", "archive", {"path": PROJECT, "format": "tar.gz", "exclude": ["x"] * 101}, 400, "At most 100"),
]


async def test_what_cannot_be_done_is_refused_in_words_and_leaves_nothing(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await put(talk, **{"a.txt": b"old"})
    await astore.call(uploads.make_directory, talk, "folder")
    before = await held(talk)
    for method, action, query, status, words in REFUSED:
        with subtests.test(action=action, query=query):
            files = {"file": ("x", b"new")} if action == "upload" else None
            for base in (FORMS[0], FORMS[-1]):
                answer = await rest.request(
                    method, f"{base}/{action}", params=query, files=files, headers=key
                )
                assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert await held(talk) == before
    assert await astore.call(lambda: [each.name for each in Attachment.objects.of(talk)]) == ["a.txt"]


async def test_a_directory_is_made_once_and_listed(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    for base in FORMS:
        for name in ("b/deep", ".hidden", "a"):
            path = {"path": f"{PROJECT}/{name}"}
            answer = await rest.post(f"{base}/create_directory", params=path, headers=key)
            assert known(answer) == {"success": True}
    assert await held(talk) == (0, 4)
    home = known(await rest.get("/api/file/home", headers=key))
    favorites = [{"label": name, "path": f"{PROJECT}/{name}"} for name in ("a", "b")]
    assert home == {"home": PROJECT, "favorites": favorites, "locations": []}
    pages: list[Any] = []
    page_id: str | None = None
    while len(pages) < 5:
        query: dict[str, Any] = {
            "path": PROJECT,
            "limit": 1,
            "include_hidden": "true",
            "page_id": page_id or "",
        }
        page = known(await rest.get("/api/file/search_subdirs", params=query, headers=key))
        pages.append(page["items"])
        if (page_id := page["next_page_id"]) is None:
            break
    assert pages == [[{"name": name, "path": f"{PROJECT}/{name}"}] for name in (".hidden", "a", "b")]
    for address, status in ((f"?path={PROJECT}/none", 404), ("?path=a", 400), ("", 422)):
        known(await rest.get(f"/api/file/search_subdirs{address}", headers=key), status)


async def test_an_archive_has_what_the_wire_puts_into_it(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, root: Path
) -> None:
    paths = ["src/a.py", "src/a.pyc", "node_modules/m/i.js", "build/out", "src/build", "größe", ".git/config"]
    await put(talk, **{path: path.encode() for path in paths})
    directory = only_one_in(root)
    (directory / "link").symlink_to("/etc/passwd")
    (directory / "run.sh").write_bytes(b"#!")
    (directory / "run.sh").chmod(0o755)

    async def names(**query: Any) -> set[str]:
        base = FORMS[len(query) % len(FORMS)]
        query = {"path": PROJECT, "format": "tar.gz", **query}
        answer = await rest.get(f"{base}/archive", params=query, headers=key)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/gzip"
        with tarfile.open(fileobj=BytesIO(answer.content)) as file:
            for each in file.getmembers():
                if each.isfile() and not each.name.endswith(("manifest.json", "run.sh")):
                    extracted = file.extractfile(each)
                    assert extracted is not None
                    assert extracted.read().decode() == each.name.removeprefix("project/")
            return {each.name for each in file.getmembers()}

    always = {"project/archive_manifest.json", "project/run.sh", "project/größe", "project/src"}
    assert await names() == always | {"project/src/a.py", "project/src/build"}
    whole = always | {f"project/{path}" for path in paths if path != ".git/config"}
    folders = {f"project/{path}" for path in ("node_modules", "node_modules/m", "build", ".git")}
    assert await names(use_default_excludes="false") == whole | folders
    found = await names(exclude=["src/*.py", "run.sh"], use_default_excludes="true")
    assert found == (always | {"project/src/build"}) - {"project/run.sh"}


async def test_an_archive_of_a_workspace_without_files_has_its_manifest(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    query = {"path": PROJECT, "format": "tar.gz"}
    answer = await rest.get("/api/file/archive", params=query, headers=key)
    with tarfile.open(fileobj=BytesIO(answer.content)) as file:
        assert file.getnames() == ["project/archive_manifest.json"]


async def test_what_is_more_than_a_workspace_may_hold_is_left_out_of_archives_which_say_so(
    talk: ConversationRef, rest: httpx.AsyncClient, configured: Configured
) -> None:
    await put(talk, a=b"1", b=b"2", c=b"3")
    configured(workspace_max_files=2)
    answer = await rest.get(f"/api/conversations/{HEX}/zip-directory")
    with ZipFile(BytesIO(answer.content)) as file:
        assert file.namelist() == ["a", "b", "LEFT-OUT.txt"]


async def test_the_app_face_reads_a_file_as_text(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await put(talk, **{"PLAN.md": "# Größe".encode(), "nul": b"\0", "long": b"x" * 2_000_001})
    texts = {
        "": "# Größe",
        f"?file_path={PROJECT}/PLAN.md": "# Größe",
        **dict.fromkeys((f"?file_path={PROJECT}/{name}" for name in ("nul", "long", "none", "")), ""),
        "?file_path=/etc/passwd": "",
    }
    for query, text in texts.items():
        with subtests.test(query):
            answer = await rest.get(f"{APP}/app-conversations/{ID}/file{query}")
            assert known(answer) == text


# Rights


async def test_a_token_that_only_reads_changes_no_file(
    accounts: None, talk: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    await put(talk, a=b"old")
    grant = Grant(scopes=[Scope.READ])
    headers = bearer(await astore.call(lambda: ApiToken.issue(alice.pk, "reader", grant)[1]))
    base, path = FORMS[-1], {"path": f"{PROJECT}/a"}
    for action in ("upload", "create_directory"):
        files = {"file": ("x", b"new")}
        answer = await rest.post(f"{base}/{action}", params=path, files=files, headers=headers)
        assert (answer.status_code, "`write`" in answer.text) == (403, True)
    files_of_v0 = [("files", ("b", b"new"))]
    answer = await rest.post(f"/api/conversations/{HEX}/upload-files", files=files_of_v0, headers=headers)
    assert answer.status_code == 403
    assert (await rest.get(f"{base}/download", params=path, headers=headers)).content == b"old"


async def test_the_key_of_one_conversation_reaches_no_file_of_another_one(
    accounts: None, talk: ConversationRef, key: dict[str, str], alice: User, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(agent_setups.create, alice, NewSetup(), conversation_id=NONE)
    await put(other, secret=b"of the other")
    for base in (f"{SHARED}/{NONE}/file", f"{AGENT}/{NONE}/file"):
        for method, action in (("GET", "download"), ("GET", "archive"), ("POST", "create_directory")):
            query = {"path": f"{PROJECT}/secret", "format": "tar.gz"}
            known(await rest.request(method, f"{base}/{action}", params=query, headers=key), 404)
    query = {"path": f"{PROJECT}/secret"}
    known(await rest.get("/api/file/download", params=query, headers=key), 404)


async def test_files_are_gone_with_a_deleted_conversation(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    await put(talk, a=b"x")
    known(await rest.delete(f"{AGENT}/{ID}", headers=key))
    answer = await rest.get(f"{FORMS[-1]}/download", params={"path": f"{PROJECT}/a"})
    known(answer, 404)


# Bounds


async def test_a_quota_and_a_full_workspace_are_refused_with_a_sentence(
    talk: ConversationRef,
    key: dict[str, str],
    rest: httpx.AsyncClient,
    configured: Configured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 100)
    configured(quotas=Quotas(uploads_mb=1), workspace_max_mb=2)
    query = {"path": f"{PROJECT}/a"}

    async def sent(size: int) -> httpx.Response:
        files = {"file": ("x", b"x" * size)}
        return await rest.post("/api/file/upload", params=query, files=files, headers=key)

    known(await sent(500_000))
    over_quota = await sent(1_500_000)
    assert over_quota.status_code == 429
    assert "bytes of uploads" in over_quota.json()["detail"]
    full = await sent(2_000_001)
    assert full.status_code == 400
    assert full.json()["detail"].startswith("The workspace of this conversation is full")
    fetched = await rest.get("/api/file/download", params=query, headers=key)
    assert fetched.content == b"x" * 500_000
    assert await held(talk) == (500_000, 1)


async def test_a_file_that_grows_while_it_is_sent_is_as_long_as_was_promised(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient, root: Path
) -> None:
    await put(talk, a=b"x" * 300_000)
    directory = only_one_in(root)

    query = {"path": f"{PROJECT}/a"}
    async with rest.stream("GET", "/api/file/download", params=query, headers=key) as answer:
        with (directory / "a").open("ab") as file:
            file.write(b"y" * 600_000)
        assert len(await answer.aread()) == int(answer.headers["content-length"])


async def test_an_odd_name_cannot_break_the_header_that_names_a_download(
    talk: ConversationRef, key: dict[str, str], rest: httpx.AsyncClient
) -> None:
    for name in ('a"b\\c', "a\nb", "a\rSet-Cookie: x", "größe", "\udcff"):
        await put(talk, **{name: b"x"})
        raw = "".join(f"%{each:02X}" for each in name.encode("utf-8", "surrogateescape"))
        address = f"/api/file/download?path=%2Fworkspace%2Fproject%2F{raw}"
        fetched = await rest.get(address, headers=key)
        assert (fetched.status_code, fetched.content) == (200, b"x")
        assert fetched.headers["content-disposition"].startswith("attachment; filename")
        assert "set-cookie" not in fetched.headers
