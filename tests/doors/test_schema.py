"""The OpenAPI document: every route stands in it as it is, and who may come in can read it and try it out."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
import yaml
from django.contrib.auth.models import User
from django.core.management import call_command
from django.urls import URLPattern, URLResolver, get_resolver, path
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from conversations.events import ConversationRef
from convserver import __version__
from convserver.api.native import shapes
from convserver.api.schema import NativeRefusal, document
from sessions_app import astore
from sessions_app.live.status import ListedConversation, LoopState
from sessions_app.models import ApiToken
from tests.doors.test_access import login_cookie, methods
from tests.support.people.clients import HTTP, Server

pytestmark = pytest.mark.one_engine

SCHEMA = "/api/schema/"
DOCS = "/api/docs/"
SHOWING = {"schema", "docs"}
"""The routes that show the document itself."""

REF = "#/components/schemas/"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document("application/json"))
    return found


def read_yaml(text: str) -> Any:
    """Read it by libyaml where PyYAML has that: it is ten times quicker."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return each operation with its method and address."""
    for address, found in schema["paths"].items():
        for method, operation in found.items():
            yield method.upper(), address, operation


def native(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for method, address, operation in operations(schema):
        if operation["tags"] == ["native"]:
            yield f"{method} {address}", operation


def body(operation: dict[str, Any], status: str) -> Any:
    return operation["responses"][status]["content"]["application/json"]["schema"]


def api_routes(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return the address and each method under /api/, and of the REST framework's views elsewhere."""
    for route in resolver.url_patterns:
        address = prefix + str(route.pattern)
        if isinstance(route, URLResolver):
            yield from api_routes(route, address)
        elif is_described_elsewhere(route):
            continue
        elif (address.startswith("api/") or hasattr(route.callback, "cls")) and route.name not in SHOWING:
            yield from ((address, method) for method in methods(route))


def is_described_elsewhere(route: URLPattern) -> bool:
    """Say whether a route is another address of one that is described."""
    return getattr(route.callback, "initkwargs", {}).get("schema", ...) is None


# The document


@pytest.mark.slow
def test_it_is_made_without_a_warning_and_valid(tmp_path: Path) -> None:
    call_command("spectacular", file=str(tmp_path / "schema.yaml"), validate=True, fail_on_warn=True)


def test_it_is_made_once() -> None:
    assert document("application/json") is document("application/json")


def test_every_route_of_the_api_stands_in_it(schema: dict[str, Any]) -> None:
    assert len(list(operations(schema))) == len(list(api_routes(get_resolver())))


def test_it_names_the_server_and_its_version(schema: dict[str, Any]) -> None:
    assert (schema["info"]["title"], schema["info"]["version"]) == ("convserver", __version__)


def test_the_package_has_the_version_that_the_code_says() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "convserver.__version__"}


def test_each_way_to_come_in_is_described(schema: dict[str, Any]) -> None:
    ways = schema["components"]["securitySchemes"]
    assert {(way["type"], way.get("in"), way.get("name"), way.get("scheme")) for way in ways.values()} == {
        ("apiKey", "header", "X-Session-API-Key", None),
        ("http", None, None, "bearer"),
        ("apiKey", "cookie", "sessionid", None),
    }


def test_any_one_way_to_come_in_is_enough(schema: dict[str, Any]) -> None:
    for where, operation in native(schema):
        assert operation["security"] == [{"sessionApiKey": []}, {"bearer": []}, {"login": []}], where


def test_the_probes_need_no_credentials(schema: dict[str, Any]) -> None:
    assert [schema["paths"][path]["get"]["security"] for path in ("/alive", "/health")] == [[{}], [{}]]
    assert {} in schema["paths"]["/server_info"]["get"]["security"]


# What the native door answers


def test_every_native_operation_says_how_it_refuses(schema: dict[str, Any]) -> None:
    for where, operation in native(schema):
        for status in ("401", "403", "406"):
            assert body(operation, status) == {"$ref": f"{REF}NativeRefusal"}, (where, status)


def test_every_native_operation_on_one_conversation_may_not_find_it(schema: dict[str, Any]) -> None:
    assert [
        where
        for where, operation in native(schema)
        if "{conversation_id}" in where and not {"400", "404"} <= operation["responses"].keys()
    ] == []


def test_every_native_operation_with_a_body_may_refuse_it(schema: dict[str, Any]) -> None:
    assert [
        where
        for where, operation in native(schema)
        if "requestBody" in operation and not {"400", "413", "415"} <= operation["responses"].keys()
    ] == []


@pytest.mark.parametrize(
    ("described", "sent"),
    [(shapes.NativeConversation, ListedConversation), (shapes.NativeLoop, LoopState)],
)
def test_a_conversation_has_the_members_that_are_described(described: type[BaseModel], sent: Any) -> None:
    assert list(described.model_fields) == list(get_type_hints(sent))


async def test_an_event_has_the_members_that_are_described(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    address = "/api/native/conversations/talk/events"
    for example in shapes.FRAME_EXAMPLES.values():
        assert (await rest.post(address, json=example)).status_code == 200
    events = (await rest.get(address)).json()["events"]
    assert {tuple(event) for event in events} == {tuple(shapes.NativeEvent.model_fields)}


async def test_a_token_has_the_members_that_are_described(rest: httpx.AsyncClient) -> None:
    new = (await rest.post("/api/native/tokens", json={"name": "laptop"})).json()
    (listed,) = (await rest.get("/api/native/tokens")).json()["tokens"]
    assert new.keys() == shapes.NewNativeToken.model_fields.keys()
    assert listed.keys() == shapes.NativeToken.model_fields.keys()


# Bodies that are pydantic's


class Place(BaseModel):
    """Where something is."""

    town: str
    street: str | None = None


class Move(BaseModel):
    """From where to where."""

    origin: Place
    destination: Place | None


def described(**annotation: Any) -> dict[str, Any]:
    """Return the document of one POST that is annotated like this."""

    class View(APIView):
        @extend_schema(**annotation)
        def post(self, request: Request) -> Response:
            return Response()

    GENERATOR_STATS.reset()
    generator = SchemaGenerator(patterns=[path("it", View.as_view())])
    found: dict[str, Any] = generator.get_schema(request=None, public=True)
    assert not GENERATOR_STATS
    return found


def answer(schema: dict[str, Any], status: str = "200") -> Any:
    return body(schema["paths"]["/it"]["post"], status)


def test_a_model_is_a_component_with_all_that_it_holds() -> None:
    schema = described(request=Move, responses={200: Move})
    request = schema["paths"]["/it"]["post"]["requestBody"]
    assert request == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": f"{REF}Move"}}},
    }
    assert answer(schema) == {"$ref": f"{REF}Move"}
    assert {"Move", "Place"} <= schema["components"]["schemas"].keys()


def test_a_model_or_null_may_be_null() -> None:
    schema = described(request=Place | None, responses={200: Place | None})
    place_or_null = {"anyOf": [{"$ref": f"{REF}Place"}, {"type": "null"}]}
    assert answer(schema) == place_or_null
    assert "required" not in schema["paths"]["/it"]["post"]["requestBody"]


BODIES: list[tuple[Any, dict[str, Any]]] = [
    (bool, {"type": "boolean"}),
    (str, {"type": "string"}),
    (type(None), {"type": "null"}),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    (list[str], {"type": "array", "items": {"type": "string"}}),
    (list[Place], {"type": "array", "items": {"$ref": f"{REF}Place"}}),
    (Place | bool, {"anyOf": [{"$ref": f"{REF}Place"}, {"type": "boolean"}]}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
]


def test_a_body_may_be_any_type(subtests: pytest.Subtests) -> None:
    for body, expected in BODIES:
        with subtests.test(body=body, expected=expected):
            assert answer(described(request=None, responses={200: body})) == expected


def test_an_operation_that_describes_a_status_itself_is_left_alone() -> None:
    schema = described(request=Place, responses={200: bool, 403: str})
    assert answer(schema, "403") == {"type": "string"}
    assert answer(schema, "413") == {"$ref": f"{REF}NativeRefusal"}


def test_two_shapes_of_one_name_are_noticed() -> None:
    other = type("NativeRefusal", (BaseModel,), {"__annotations__": {"reason": str}})
    with pytest.raises(AssertionError):
        described(request=None, responses={200: other, 403: NativeRefusal})


# Reading it


FORMS: list[tuple[str, str, str]] = [
    ("*/*", "", "application/json"),
    ("text/html, */*;q=0.8", "", "application/json"),
    ("application/json", "", "application/json"),
    ("application/vnd.oai.openapi+json", "", "application/vnd.oai.openapi+json"),
    ("application/yaml", "", "application/yaml"),
    ("application/vnd.oai.openapi", "", "application/vnd.oai.openapi"),
    ("*/*", "?format=json", "application/json"),
    ("*/*", "?format=yaml", "application/yaml"),
]


async def test_it_comes_in_the_form_that_is_asked_for(
    rest: httpx.AsyncClient, schema: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for accept, query, media_type in FORMS:
        with subtests.test(accept=accept, query=query):
            answer = await rest.get(SCHEMA + query, headers={"accept": accept})
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
            assert (json.loads(answer.text) if "json" in media_type else read_yaml(answer.text)) == schema


@pytest.mark.parametrize("address", [SCHEMA, DOCS])
async def test_whoever_has_valid_credentials_may_read_it(
    accounts: None, bob: User, rest: httpx.AsyncClient, address: str
) -> None:
    _, token = await astore.call(ApiToken.issue, bob.pk, "laptop")
    cookie = await astore.call(login_cookie, bob)
    for headers in ({"authorization": f"Bearer {token}"}, {"cookie": cookie}):
        assert (await rest.get(address, headers=headers)).status_code == 200


async def test_nobody_may_not_read_it(accounts: None, rest: httpx.AsyncClient) -> None:
    answer = await rest.get(SCHEMA)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")


async def test_nobody_is_shown_the_way_to_the_docs(accounts: None, rest: httpx.AsyncClient) -> None:
    answer = await rest.get(DOCS)
    assert answer.status_code == 401
    assert 'href="/ui/login?next=/api/docs/"' in answer.text


# Trying it out


async def page(rest: httpx.AsyncClient) -> str:
    return (await rest.get(DOCS)).text


async def test_the_docs_page_keeps_to_the_strict_policy(rest: httpx.AsyncClient) -> None:
    answer = await rest.get(DOCS)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", answer.text)


async def test_the_docs_page_asks_nothing_of_other_servers(rest: httpx.AsyncClient) -> None:
    assert re.findall(r'(?:src|href|data-document)="(?!/(?!/))', await page(rest)) == []


def test_all_that_the_docs_page_loads_is_served(server: Server) -> None:
    server.start()
    text = HTTP.get(server.url + DOCS).text
    addresses = re.findall(r'(?:src|href|data-document)="([^"]+)"', text)
    assert len(addresses) == 5
    assert [HTTP.get(server.url + address).status_code for address in addresses] == [200] * 5


async def test_the_docs_page_brings_a_csrf_token_where_one_is_needed(
    accounts: None, bob: User, rest: httpx.AsyncClient
) -> None:
    cookie = await astore.call(login_cookie, bob)
    answer = await rest.get(DOCS, headers={"cookie": cookie})
    (token,) = re.findall(r'data-csrf-token="([^"]+)"', answer.text)
    written = await rest.post(
        "/api/native/conversations",
        headers={"cookie": f"{cookie}; csrftoken={answer.cookies['csrftoken']}", "x-csrftoken": token},
    )
    assert written.status_code == 201


async def test_the_docs_page_of_local_mode_needs_no_csrf_token(rest: httpx.AsyncClient) -> None:
    assert "csrf" not in await page(rest)
