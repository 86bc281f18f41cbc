"""What the V0 wire asks about a workspace, feedback and uploads: every status and body of spec V0 §1.7."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection, connections

from conversations.exceptions import ConversationNotFound
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation, deletion
from sessions_app import astore
from sessions_app.models import ApiToken, Attachment, Feedback
from sessions_app.storage import attachments
from sessions_app.storage.attachments import NewFile, attachments_of, content_of
from sessions_app.workspaces import uploads as workspace_uploads
from tests.doors.test_access import CSRF, login_cookie
from tests.support.wires.v0 import CONVERSATIONS, NEW_ID, Problem

pytestmark = pytest.mark.one_engine

TALK = f"{CONVERSATIONS}/talk"
BINARY = bytes(range(256)) + b"\r\n--\xff\xfe\0"

STUBS: list[tuple[str, int, Any]] = [
    ("config", 200, {"runtime_id": None, "session_id": "talk"}),
    ("microagents", 200, {"microagents": []}),
    ("web-hosts", 200, {"hosts": {}}),
    ("vscode-url", 200, {"vscode_url": None}),
    ("list-files", 200, []),
    ("list-files?path=src", 200, []),
    ("select-file?file=a.py", 404, {"error": "Error opening file: There is no “a.py”."}),
    ("select-file", 422, Problem("missing", ["query", "file"])),
    ("git/changes", 200, []),
    ("git/diff?path=a.py", 404, {"error": "Not a git repository"}),
    ("git/diff", 422, Problem("missing", ["query", "path"])),
]
GETS = [*(path for path, status, _ in STUBS if status != 422), "zip-directory"]
POSTS: dict[str, dict[str, Any]] = {
    "submit-feedback": {"json": {"polarity": "positive"}},
    "upload-files": {"files": [("files", ("a.txt", b"a"))]},
}
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    *(("GET", path, {}) for path in GETS),
    *(("POST", path, body) for path, body in POSTS.items()),
]


async def test_each_question_about_a_workspace_is_answered_as_the_frontend_takes_it(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path, status, body in STUBS:
        with subtests.test(path=path, status=status):
            answer = await rest.get(f"{TALK}/{path}")
            assert (answer.status_code, answer.json()) == (status, body)
            assert answer.headers["cache-control"] == "no-cache, no-store, must-revalidate, max-age=0"


async def test_an_unknown_a_deleted_and_a_strangers_conversation_are_not_found(
    alice: User, bob: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(lambda: deletion.soft_delete(creation.create(alice, conversation_id="gone")))
    await astore.call(creation.create, bob, conversation_id="bobs")
    for method, path, body in REQUESTS:
        with subtests.test(method=method, path=path):
            for name in ("nowhere", "gone", "bobs"):
                answer = await rest.request(method, f"{CONVERSATIONS}/{name}/{path}", **body)
                assert (answer.status_code, answer.json()) == (
                    404,
                    {"detail": f"Conversation {name} not found"},
                )
            assert not await astore.call(lambda: Feedback.objects.exists() or Attachment.objects.exists())


async def test_an_id_that_cannot_be_one_is_refused_here_too(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for method, path, body in REQUESTS:
        with subtests.test(method=method, path=path):
            answer = await rest.request(method, f"{CONVERSATIONS}/a..b/{path}", **body)
            refusal = {"detail": "Conversation ID contains invalid path characters"}
            assert (answer.status_code, answer.json()) == (400, refusal)


async def test_nobody_is_let_in_and_no_other_method_is_served(
    rest: httpx.AsyncClient, accounts: None, alice: User, subtests: pytest.Subtests
) -> None:
    for method, path, body in REQUESTS:
        with subtests.test(method=method, path=path):
            answer = await rest.request(method, f"{TALK}/{path}", **body)
            assert (answer.status_code, answer.json()) == (401, {"detail": "Unauthorized"})
            token = await astore.call(lambda: ApiToken.issue(alice.pk, "laptop")[1])
            answer = await rest.put(f"{TALK}/{path}", headers={"authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})


async def test_a_v1_conversation_is_answered_by_its_id(alice: User, rest: httpx.AsyncClient) -> None:
    name = "c7c6d34aca9d4b3dbbefaed95f43880f"
    await astore.call(creation.create, alice, conversation_id=name, version=Version.V1)
    answer = await rest.get(f"{CONVERSATIONS}/c7c6d34a-ca9d-4b3d-bbef-aed95f43880f/config")
    assert answer.json() == {"runtime_id": "64yKrYfCGvdogUefBVB7d9", "session_id": name}


# Files


async def test_files_are_listed_opened_and_zipped_as_the_wire_says(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for path in ("src/a.py", "Src2/x", "b.txt", "A.txt", "node_modules/m.js", ".git/config", "src/größe"):
        await astore.call(workspace_uploads.put, conversation, path, path.encode())
    assert (await rest.get(f"{TALK}/list-files")).json() == ["src/", "Src2/", "A.txt", "b.txt"]
    assert (await rest.get(f"{TALK}/list-files?path=src")).json() == ["src/a.py", "src/größe"]
    assert (await rest.get(f"{TALK}/list-files?path=/workspace/src/")).json() == [
        *("/workspace/src/a.py", "/workspace/src/größe"),
    ]
    for nothing in ("none", "b.txt", "../..", "/etc", "a%00b"):
        answer = await rest.get(f"{TALK}/list-files?path={nothing}")
        assert (answer.status_code, answer.json()) == (200, [])
    for name in ("src/a.py", "/workspace/src/a.py", "src/../src/a.py"):
        assert (await rest.get(f"{TALK}/select-file", params={"file": name})).json() == {"code": "src/a.py"}
    answer = await rest.get(f"{TALK}/zip-directory")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="workspace.zip"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    with ZipFile(BytesIO(answer.content)) as file:
        assert file.testzip() is None
        assert {name for name in file.namelist() if not name.endswith("/")} == {
            *("src/a.py", "Src2/x", "b.txt", "A.txt", "node_modules/m.js", ".git/config", "src/größe"),
        }
        assert file.read("src/größe") == "src/größe".encode()


async def test_a_workspace_without_files_is_an_empty_zip_file(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get(f"{TALK}/zip-directory")
    with ZipFile(BytesIO(answer.content)) as file:
        assert file.namelist() == []


async def test_what_cannot_be_opened_is_told_in_words(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    for name, content in {
        "nul": b"a\0b",
        "latin": b"\xff",
        "long": b"x" * 2_000_001,
        "most": b"x" * 2_000_000,
    }.items():
        await astore.call(workspace_uploads.put, conversation, name, content)
    await astore.call(workspace_uploads.make_directory, conversation, "folder")
    statuses = {
        "nul": 415,
        "latin": 415,
        "long": 413,
        "most": 200,
        "none": 404,
        "none/none": 404,
        "folder": 400,
        "../x": 400,
        "/etc/passwd": 400,
        "/workspace/../etc/passwd": 400,
        "x" * 300: 400,
    }
    for name, status in statuses.items():
        answer = await rest.get(f"{TALK}/select-file", params={"file": name})
        assert answer.status_code == status, name
        assert status == 200 or answer.json()["error"].startswith(
            ("Error opening file: ", "Unable to open binary")
        )
    assert "Unable to open binary file: nul" in (await rest.get(f"{TALK}/select-file?file=nul")).text


async def test_a_name_with_any_byte_is_listed_and_opened(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    def written() -> None:
        workspace_uploads.put(conversation, "\udcff.txt", b"found")

    await astore.call(written)
    assert (await rest.get(f"{TALK}/list-files")).json() == ["\udcff.txt"]
    assert (await rest.get(f"{TALK}/select-file?file=%FF.txt")).json() == {"code": "found"}
    with ZipFile(BytesIO((await rest.get(f"{TALK}/zip-directory")).content)) as file:
        assert file.namelist() == ["\ufffd.txt"]


async def test_what_is_uploaded_is_in_the_workspace(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await upload(rest, ("a.txt", b"first"), ("../a.txt", b"second"))
    assert answer["uploaded_files"] == ["/workspace/a.txt", "/workspace/a-1.txt"]
    assert (await rest.get(f"{TALK}/list-files")).json() == ["a-1.txt", "a.txt"]
    assert (await rest.get(f"{TALK}/select-file?file=/workspace/a-1.txt")).json() == {"code": "second"}


# Sandboxes


@pytest.mark.parametrize(
    ("query", "body"),
    [("?id=null", [None]), ("?id=talk", [None]), ("?id=a&id=b&id=a", [None, None, None])],
)
async def test_each_sandbox_that_is_asked_about_is_null(
    conversation: ConversationRef, rest: httpx.AsyncClient, query: str, body: list[None]
) -> None:
    answer = await rest.get(f"/api/v1/sandboxes{query}")
    assert (answer.status_code, answer.json()) == (200, body)


# Feedback


async def feedback(rest: httpx.AsyncClient, body: Any) -> tuple[int, Any]:
    answer = await rest.post(f"{TALK}/submit-feedback", json=body)
    return answer.status_code, answer.json()


async def test_feedback_is_stored_and_told_so(conversation: ConversationRef, rest: httpx.AsyncClient) -> None:
    said = {"version": "1.0", "email": "me@example.org", "polarity": "negative", "permissions": "public"}
    status, body = await feedback(rest, {**said, "token": "", "trajectory": [{"id": 0}]})
    message = "Your feedback is stored on this server."
    receipt = {"message": message, "feedback_id": NEW_ID, "password": ""}
    assert (status, body) == (200, {"statusCode": 200, "body": receipt})
    row = await astore.call(lambda: Feedback.objects.get(conversation_id=conversation.pk))
    assert {name: getattr(row, name) for name in said} == said
    assert row.feedback_id == body["body"]["feedback_id"]


async def test_only_the_polarity_is_needed(conversation: ConversationRef, rest: httpx.AsyncClient) -> None:
    assert (await feedback(rest, {"polarity": "positive", "email": None, "version": None}))[0] == 200
    row = await astore.call(Feedback.objects.get)
    assert (row.polarity, row.permissions, row.email, row.version) == ("positive", "private", "", "")


NO_FEEDBACK: list[tuple[Any, Problem]] = [
    ({}, Problem("missing", ["body", "polarity"])),
    ({"polarity": None}, Problem("enum", ["body", "polarity"])),
    ({"polarity": "so-so"}, Problem("enum", ["body", "polarity"])),
    ({"polarity": "positive", "permissions": "all"}, Problem("enum", ["body", "permissions"])),
    ({"polarity": "positive", "email": 5}, Problem("string_type", ["body", "email"])),
    ({"polarity": "positive", "email": "x" * 321}, Problem("string_too_long", ["body", "email"])),
    ({"polarity": "positive", "version": "a\0"}, Problem("value_error", ["body", "version"])),
    ([], Problem("model_attributes_type", ["body"])),
]


async def test_feedback_that_is_none_is_refused_and_not_stored(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for body, problem in NO_FEEDBACK:
        with subtests.test(body=body, problem=problem):
            assert await feedback(rest, body) == (422, problem)
            assert not await astore.call(Feedback.objects.exists)


async def test_feedback_without_a_body_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(f"{TALK}/submit-feedback")
    assert (answer.status_code, answer.json()) == (422, Problem("missing", ["body"]))


@pytest.fixture
def broken_table(database: None) -> Iterator[None]:
    """A database that cannot store feedback."""
    rename = "ALTER TABLE {} RENAME TO {}".format
    with connection.cursor() as cursor:
        cursor.execute(rename("sessions_app_feedback", "elsewhere"))
    yield
    with connection.cursor() as cursor:
        cursor.execute(rename("elsewhere", "sessions_app_feedback"))


async def test_feedback_that_cannot_be_stored_is_a_500_in_words_that_give_nothing_away(
    conversation: ConversationRef, rest: httpx.AsyncClient, broken_table: None
) -> None:
    assert await feedback(rest, {"polarity": "positive"}) == (500, {"error": "Failed to submit feedback"})


# Uploads


async def upload(rest: httpx.AsyncClient, *files: tuple[str, bytes]) -> dict[str, Any]:
    answer = await rest.post(f"{TALK}/upload-files", files=[("files", file) for file in files])
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def kept(conversation: ConversationRef) -> dict[str, bytes | None]:
    """Return what an agent would read, by name."""

    def read() -> dict[str, bytes | None]:
        return {each.name: content_of(conversation, each.name) for each in attachments_of(conversation)}

    return await astore.call(read)


async def test_files_are_kept_byte_for_byte_and_the_answer_says_where(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await upload(rest, ("data.bin", BINARY), ("empty.txt", b""), ("größe.txt", b"\xef\xbb\xbfx"))
    paths = ["/workspace/data.bin", "/workspace/empty.txt", "/workspace/größe.txt"]
    assert answer == {"uploaded_files": paths, "skipped_files": []}
    assert await kept(conversation) == {"data.bin": BINARY, "empty.txt": b"", "größe.txt": b"\xef\xbb\xbfx"}


async def test_an_agent_is_told_paths_and_sizes_oldest_first(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await upload(rest, ("b.txt", b"12"))
    await upload(rest, ("a.txt", b"123"))
    found = await astore.call(attachments_of, conversation)
    assert [(each.path, each.size) for each in found] == [("/workspace/b.txt", 2), ("/workspace/a.txt", 3)]
    assert await astore.call(content_of, conversation, "c.txt") is None


async def test_a_name_that_is_taken_gets_a_number_and_replaces_nothing(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await upload(rest, ("a.tar.gz", b"1"))
    answer = await upload(rest, ("a.tar.gz", b"2"), ("a.tar.gz", b"3"), (".env", b"4"), (".env", b"5"))
    names = [path.removeprefix("/workspace/") for path in answer["uploaded_files"]]
    assert names == ["a.tar-1.gz", "a.tar-2.gz", ".env", ".env-1"]
    contents = [b"1", b"2", b"3", b"4", b"5"]
    assert await kept(conversation) == dict(zip(["a.tar.gz", *names], contents, strict=True))


NAMES = [
    ("../../etc/passwd", "passwd"),
    ("/etc/shadow", "shadow"),
    ("..\\..\\boot.ini", "boot.ini"),
    ("C:\\boot.ini", "boot.ini"),
    ("..", "file"),
    (".", "file"),
    ("a/", "file"),
    ("  ", "file"),
    ("a\x07b\x1b[31m.txt", "ab[31m.txt"),
    ("gpj.\u202etxt", "gpj.txt"),
    ("e\u0301.txt", "é.txt"),
    ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
    ("y." + "x" * 300, "y." + "x" * 198),
    ("two words.txt", "two words.txt"),
]


def test_a_stored_name_is_no_path_and_can_be_seen(alice: User, subtests: pytest.Subtests) -> None:
    for sent, stored in NAMES:
        with subtests.test(sent=sent, stored=stored):
            (found,) = attachments.attach(creation.create(alice), [NewFile(name=sent, content=b"x")])
            assert found.name == stored


@pytest.mark.parametrize(
    "sent", ["../../etc/passwd", "..", ".", "a/..", "C:\\\\x\\\\passwd", "&period;&period;"]
)
async def test_a_form_cannot_name_a_file_outside_the_workspace_either(
    conversation: ConversationRef, rest: httpx.AsyncClient, sent: str
) -> None:
    (path,) = (await upload(rest, (sent, b"x")))["uploaded_files"]
    assert path in ("/workspace/passwd", "/workspace/file")


async def test_what_is_too_large_is_skipped_and_harms_no_other_file(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "FILE_MAX_BYTES", 10)
    answer = await upload(rest, ("../large.txt", b"x" * 11), ("fits.txt", b"x" * 10))
    reason = "The file has 11 bytes; the limit is 10."
    assert answer == {
        "uploaded_files": ["/workspace/fits.txt"],
        "skipped_files": [{"name": "large.txt", "reason": reason}],
    }
    assert list(await kept(conversation)) == ["fits.txt"]


async def test_the_files_of_a_conversation_have_a_size_and_a_number_together(
    conversation: ConversationRef, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "TOTAL_MAX_BYTES", 10)
    monkeypatch.setattr(attachments, "FILES_MAX", 3)
    await upload(rest, ("a", b"x" * 6))
    answer = await upload(rest, ("b", b"x" * 5), ("c", b"x" * 4), ("d", b""), ("e", b""))
    assert answer["uploaded_files"] == ["/workspace/c", "/workspace/d"]
    assert answer["skipped_files"] == [
        {"name": "b", "reason": "The files of a conversation may have 10 bytes together."},
        {"name": "e", "reason": "The conversation has 3 files already, and that is the most."},
    ]


def test_uploads_at_the_same_time_keep_all_files_under_names_of_their_own(
    conversation: ConversationRef,
) -> None:
    def attach(number: int) -> str:
        try:
            (stored,) = attachments.attach(
                conversation, [NewFile(name="same.txt", content=str(number).encode())]
            )
            return stored.name
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(attach, range(12)))
    assert len(set(names)) == 12
    assert all(content_of(conversation, name) == str(n).encode() for n, name in enumerate(names))


def test_nothing_is_attached_to_a_conversation_that_was_deleted_meanwhile(
    conversation: ConversationRef,
) -> None:
    deletion.soft_delete(conversation)
    with pytest.raises(ConversationNotFound):
        attachments.attach(conversation, [NewFile(name="a", content=b"")])


BOUNDARY = "multipart/form-data; boundary=b"
PART = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nhello'
TEXT = PART.replace(b'; filename="a.txt"', b"")
FORMS: list[tuple[str, str | None, bytes, Sequence[str]]] = [
    ("no form", None, b"", ["body", "files"]),
    ("JSON", "application/json", b"{}", ["body", "files"]),
    ("another form", "application/x-www-form-urlencoded", b"files=a", ["body", "files"]),
    ("no type that can be read", "///;;", b"files=a", ["body", "files"]),
    ("no boundary", "multipart/form-data", PART, ["body"]),
    ("an odd charset", BOUNDARY + "; charset=nothing", b"--b--\r\n", ["body", "files"]),
    ("an empty form", BOUNDARY, b"--b--\r\n", ["body", "files"]),
    ("no form inside", BOUNDARY, b"hello", ["body", "files"]),
    ("a form that is cut off", BOUNDARY, PART, ["body"]),
    ("a second file that is cut off", BOUNDARY, PART + b"\r\n" + PART, ["body"]),
    ("another field", BOUNDARY, PART.replace(b'"files"', b'"file"') + b"\r\n--b--\r\n", ["body", "files"]),
    ("no name", BOUNDARY, PART.replace(b'="a.txt"', b'=""') + b"\r\n--b--\r\n", ["body", "files"]),
    ("text", BOUNDARY, TEXT + b"\r\n--b--\r\n", ["body", "files"]),
    ("too many files", BOUNDARY, (PART + b"\r\n") * 101 + b"--b--\r\n", ["body"]),
    ("too many fields", BOUNDARY, (TEXT + b"\r\n") * 1100 + b"--b--\r\n", ["body"]),
    (
        "broken base64",
        BOUNDARY,
        PART.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n") + b"\r\n--b--\r\n",
        ["body"],
    ),
    (
        "an odd charset of a name",
        BOUNDARY,
        PART.replace(b'filename="a.txt"', b"filename*=nothing''a.txt") + b"\r\n--b--\r\n",
        ["body", "files"],
    ),
]


async def test_what_is_no_form_with_files_is_refused_whole(
    conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for content_type, content, place in [form[1:] for form in FORMS]:
        with subtests.test(content_type=content_type, content=content):
            headers = {"content-type": content_type} if content_type else {}
            answer = await rest.post(f"{TALK}/upload-files", content=content, headers=headers)
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["loc"] == list(place)
            assert await kept(conversation) == {}


async def test_a_form_beyond_the_limit_of_bodies_is_a_413(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    files = [("files", (f"{n}.bin", b"x" * 6_000_000)) for n in range(3)]
    assert (await rest.post(f"{TALK}/upload-files", files=files)).status_code == 413


async def test_a_browsers_login_uploads_with_its_csrf_token_and_not_without(
    conversation: ConversationRef, rest: httpx.AsyncClient, accounts: None, alice: User
) -> None:
    cookie = f"{await astore.call(login_cookie, alice)}; csrftoken={CSRF}"
    files = [("files", ("a.txt", b"a"))]
    refused = await rest.post(f"{TALK}/upload-files", files=files, headers={"cookie": cookie})
    headers = {"cookie": cookie, "x-csrftoken": CSRF}
    answer = await rest.post(f"{TALK}/upload-files", files=files, headers=headers)
    assert (refused.status_code, answer.status_code) == (403, 200)
    assert await kept(conversation) == {"a.txt": b"a"}


def test_feedback_and_files_go_with_their_conversation(alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk")
    attachments.attach(talk, [NewFile(name="a", content=b"x")])
    Feedback.objects.create(conversation_id=talk.pk, polarity="positive")
    Conversation.objects.get(pk=talk.pk).delete()
    assert (Feedback.objects.count(), Attachment.objects.count()) == (0, 0)
