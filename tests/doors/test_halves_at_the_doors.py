"""Half of an emoji, wherever a client can send text: each door takes it or refuses it with a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client as Admin

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver.api.schema import document
from convserver.asgi import application
from sessions_app import astore
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.web_browser import Browser
from tests.support.wires.v0_socket import V0Client

pytestmark = pytest.mark.one_engine

TALK = "0f53f8f1a0f84e0c8f6f6f4c6a3c1a11"
HALF = "x\ud83d"
IN_ADDRESSES = "x%ED%A0%BD"
"""The same, as a program writes it that knows no better."""
DEPTH_MAX = 6
SENTENCE = re.compile(r"[A-Za-z]{2,}")

Asked = tuple[str, str, Any]
Schema = dict[str, Any]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    return creation.create(alice, conversation_id=TALK, title="A talk")


def requests() -> Iterator[Asked]:
    """Yield requests to each operation of the document: each text of each body, and each query, is a half."""
    whole: Schema = json.loads(document("application/json"))
    for path, operations in whole["paths"].items():
        address = re.sub(r"\{[^}]*\}", TALK, path)
        for method, operation in operations.items():
            if not isinstance(operation, dict):
                continue
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query":
                    yield method, f"{address}?{parameter['name']}={IN_ADDRESSES}", None
            if "{" in path and method in ("get", "delete"):
                yield method, re.sub(r"\{[^}]*\}", IN_ADDRESSES, path), None
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                for value in (HALF, *halved(example(whole, body["schema"]))):
                    yield method, address, value


def example(whole: Schema, schema: Schema, depth: int = 0) -> Any:
    """Return a value of a schema with all members."""
    while "$ref" in schema:
        found = whole
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    chosen = next((schema[name][0] for name in ("oneOf", "anyOf", "allOf") if name in schema), None)
    if chosen is not None and depth < DEPTH_MAX:
        return example(whole, chosen, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if "enum" in schema or depth >= DEPTH_MAX:
        return schema.get("enum", [None])[0]
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            members = schema.get("properties", {})
            return {name: example(whole, member, depth + 1) for name, member in members.items()}
        case "array":
            return [example(whole, schema.get("items", {}), depth + 1)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return TALK if schema.get("format") == "uuid" else "a"


def halved(value: Any) -> Iterator[Any]:
    """Yield the value with a half in place of one text, or as a further name, each time elsewhere."""
    match value:
        case str():
            yield HALF
        case dict():
            yield {**value, HALF: HALF}
            for name, member in value.items():
                yield from ({**value, name: other} for other in halved(member))
        case [first, *_]:
            yield from ([other] for other in halved(first))


async def test_every_operation_takes_or_refuses_it(rest: httpx.AsyncClient, talk: ConversationRef) -> None:
    wrong: list[str] = []
    asked = [
        *requests(),
        ("patch", f"/api/native/conversations/{TALK}", {"title": HALF, "tags": {HALF: HALF}}),
    ]
    for method, address, body in asked:
        content = None if body is None else json.dumps(body)
        headers = {} if content is None else {"content-type": "application/json"}
        answer = await rest.request(method, address, content=content, headers=headers)
        is_told = answer.status_code < 400 or SENTENCE.search(answer.content.decode())
        if answer.status_code >= 500 or not is_told:
            wrong.append(f"{method} {address} {body!a}: {answer.status_code} {answer.text[:200]}")
    assert len(asked) > 300
    assert wrong == []


async def test_events_keep_it_and_their_texts_have_a_mark_instead(
    rest: httpx.AsyncClient, alice: User, subtests: pytest.Subtests
) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": HALF}]}
    events = {
        Version.V0: {"action": "message", "source": "user", "args": {"content": HALF, HALF: [HALF]}},
        Version.V1: {"kind": "MessageEvent", "source": "user", "llm_message": message, HALF: HALF},
    }
    for version, event in events.items():
        with subtests.test(version):
            new = await astore.call(partial(creation.create, alice, version=version))
            address = f"/api/native/conversations/{new.public_id}/events"
            frame = json.dumps({"type": "event", "id": "e1", "event": event})
            answer = await rest.post(address, content=frame, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text
            [stored] = await astore.call(reads.read_after, new, -1, limit=1)
            assert (json.loads(stored["payload"]), stored["text"]) == (event, "x\ufffd")
            listed = (await rest.get(address)).json()["events"]
            assert [each["text"] for each in listed] == ["x\ufffd"]


async def test_sockets_take_or_refuse_it(talk: ConversationRef, join: Join, alice: User) -> None:
    client: Client = await join(talk)
    await client.send({"type": "message", "id": "m1", "text": HALF})
    assert (await client.until("ack"))["id"] == "m1"
    for frame in (
        {"type": "message", "id": HALF, "text": "a"},
        {"type": HALF},
        {"type": "read", "seq": HALF},
    ):
        await client.send(frame)
        error = await client.until("error")
        assert SENTENCE.search(error["detail"])
    v0 = V0Client(application, conversation_id=TALK)
    await v0.connect()
    await v0.say(HALF)
    while (await v0.said("user"))["args"]["content"] not in (HALF, "x\ufffd"):
        pass
    texts = [each["text"] for each in await astore.call(reads.read_after, talk, -1, limit=50)]
    assert texts.count("x\ufffd") == 2


async def test_pages_and_the_admin_take_or_refuse_it(
    visitor: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    forms = {
        "/settings/model": "model",
        "/settings/limits": "max_iterations",
        "/settings/secrets": "name",
        "/settings/tokens": "name",
        "/settings/tools": "name",
        f"/c/{TALK}/rename": "title",
        f"/c/{TALK}/labels": "label",
        f"/c/{TALK}/agent": "model",
        f"/c/{TALK}/messages": "text",
        "/labels": "label",
    }
    for address, name in forms.items():
        with subtests.test(address):
            answer = await visitor.send(address, {name: "x\ufffd"})
            assert answer.status_code < 500
    raw = {"content-type": "application/x-www-form-urlencoded", "origin": "http://localhost"}
    for address, name in forms.items():
        with subtests.test(f"{address}, in bytes"):
            answer = await visitor.http.post(address, content=f"{name}={IN_ADDRESSES}", headers=raw)
            assert answer.status_code < 500
    for address in (f"/search?q={IN_ADDRESSES}", f"/?title={IN_ADDRESSES}", f"/c/{IN_ADDRESSES}"):
        with subtests.test(address):
            assert (await visitor.get(address)).status_code < 500
    operator = Admin(headers={"host": "localhost"}, raise_request_exception=False)
    for address in (
        "conversations/conversation",
        "sessions_app/secret",
        "sessions_app/apitoken",
        "auth/user",
    ):
        with subtests.test(address):
            found = await astore.call(operator.get, f"/admin/{address}/?q={IN_ADDRESSES}")
            assert found.status_code < 500


async def test_names_of_files_and_keys_take_or_refuse_it(
    rest: httpx.AsyncClient, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    for name in (IN_ADDRESSES, "x\\ud83d", "x\ufffd"):
        with subtests.test(name):
            files = {"files": (name, b"hello", "text/plain")}
            answer = await rest.post(f"/api/conversations/{TALK}/upload-files", files=files)
            assert answer.status_code < 500
    part = b'Content-Disposition: form-data; name=files; filename="x\xed\xa0\xbd.txt"'
    raw = b"--b\r\n" + part + b"\r\n\r\nx\r\n--b--\r\n"
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = await rest.post(f"/api/conversations/{TALK}/upload-files", content=raw, headers=headers)
    assert answer.status_code < 500
    key = {b"Idempotency-Key": b"x\xed\xa0\xbd", b"content-type": b"application/json"}
    answer = await rest.post("/api/native/conversations", content=b"{}", headers=key)
    assert (answer.status_code, bool(SENTENCE.search(answer.text))) == (400, True)
