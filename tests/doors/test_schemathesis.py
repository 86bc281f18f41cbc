"""The OpenAPI document keeps its word: generated requests to a running server are answered as it says."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from schemathesis import BaseSchema, Case, CheckContext, HookContext, Response
from schemathesis.core.result import Ok
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from convserver import quotas
from convserver.api.native.shapes import FRAME_EXAMPLES
from convserver.api.schema import document
from sessions_app.identity.authentication import local_user
from tests.conftest import FULL, empty_database
from tests.support.people.clients import Server

pytestmark = pytest.mark.one_engine

SEED = int(os.environ.get("TEST_SEED") or 20261120)
KEY = {"X-Session-API-Key": "the-key-of-the-server"}
ANY_GUESSES = {
    "sessions_app.identity.key_throttle.WRONG_MAX": 1_000_000,
    "sessions_app.identity.key_throttle.WRONG_IN_ALL_MAX": 1_000_000,
}
"""Wrong keys are among what is made up."""
NATIVE = "/api/native/conversations"
SEEDED = ["my-first", "second", "third", "0123456789abcdef0123456789abcdef"]
"""Conversations that stand; the first is the example of the document."""

IS_FULL = settings.get_current_profile_name() == FULL
GENERATED = 8 if IS_FULL else 2
"""How many requests are made up at random for each operation."""
SURELY_ASKED = 20 if IS_FULL else 2
"""How many of the cases that follow from an operation's schema are asked; of the others one in SOME."""
SOME = 5 if IS_FULL else 41


def loaded() -> BaseSchema:
    """Return what the document says, ready to make up requests."""
    schema = schemathesis.openapi.from_dict(json.loads(document("application/json")))
    schema.config.phases.coverage.unexpected_methods = set()  # the framework's, and the same everywhere
    return schema


owners = loaded()
nobodys = loaded()


@owners.hook
def flatmap_path_parameters(
    context: HookContext, path_parameters: dict[str, Any] | None
) -> SearchStrategy[Any]:
    """Let half of the addresses name a conversation that stands."""
    if not path_parameters or "conversation_id" not in path_parameters:
        return st.just(path_parameters)
    named = st.sampled_from(SEEDED).map(lambda name: {**path_parameters, "conversation_id": name})
    return st.just(path_parameters) | named


@owners.hook
def map_body(context: HookContext, body: Any) -> Any:
    """Let no made-up token be asked about outside: at a host that is refused nobody is."""
    tokens = body.get("provider_tokens") if isinstance(body, dict) else None
    if not isinstance(tokens, dict):
        return body
    given = {
        name: {**token, "host": "127.0.0.1"} if isinstance(token, dict) else token
        for name, token in tokens.items()
    }
    return {**body, "provider_tokens": given}


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server in accounts mode; the seed is printed, and TEST_SEED=… makes up the same requests again."""
    reporter: Any = request.config.pluginmanager.get_plugin("terminalreporter")
    reporter.write_line(f"\n{request.node.name}: TEST_SEED={SEED}")
    with django_db_blocker.unblock():
        local_user()
        server = Server(tmp_path_factory.mktemp("server"))
        server.start(
            constants=ANY_GUESSES,
            CONVSERVER_AUTH="accounts",
            CONVSERVER_ALLOWED_HOSTS="127.0.0.1",
            SESSION_API_KEY=KEY["X-Session-API-Key"],
            **quotas.none(),
        )
        yield server
        server.kill()
        empty_database()


@pytest.fixture(scope="module")
def session(running: Server) -> Iterator[requests.Session]:
    """A connection, and conversations of both versions with events of both wires."""
    with requests.Session() as session:
        for number, name in enumerate(SEEDED):
            new = {"id": name, "version": f"V{number % 2}"}
            session.post(running.url + NATIVE, json=new, headers=KEY).raise_for_status()
            for frame in FRAME_EXAMPLES.values():
                events = f"{running.url}{NATIVE}/{name}/events"
                session.post(events, json=frame, headers=KEY).raise_for_status()
        yield session


def never_fails(context: CheckContext, response: Response, case: Case[Any]) -> None:
    """Fail if the server did: 503 is an answer where it is documented, 500 never is."""
    assert response.status_code != 500, "The server failed: its log says why."


CHECKS = [
    never_fails,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

seen: Counter[str] = Counter()


def is_asked(case: Case[Any]) -> bool:
    """Say whether this case is among those that the time allows."""
    if case.meta is None or case.meta.phase.name is not TestPhase.COVERAGE:
        return True
    seen[case.operation.label] += 1
    number = seen[case.operation.label]
    return number <= SURELY_ASKED or number % SOME == SEED % SOME


def needs_credentials(case: Case[Any]) -> bool:
    return {} not in case.operation.definition.raw["security"]


def end_stream(case: Case[Any]) -> None:
    """Let a stream end after what there is: otherwise it goes on until its client leaves."""
    if case.operation.path.endswith("/stream"):
        case.query = {**(case.query or {}), "follow": "false"}


@owners.parametrize()
@seed(SEED)
@settings(max_examples=GENERATED, deadline=None)
def test_the_owner_is_answered_as_the_document_says(
    case: Case[Any], running: Server, session: requests.Session
) -> None:
    end_stream(case)
    if is_asked(case):
        case.call_and_validate(running.url, session, headers=KEY, checks=CHECKS)
    if case.method == "DELETE" and (name := case.path_parameters.get("conversation_id")) in SEEDED:
        # So that the next request finds it.
        session.post(f"{running.url}{NATIVE}/{name}/restore", headers=KEY).raise_for_status()


def test_nobody_is_let_in_and_the_document_says_so(
    running: Server, session: requests.Session, subtests: pytest.Subtests
) -> None:
    @seed(SEED)
    @settings(max_examples=1, deadline=None)
    @given(data=st.data())
    def is_refused(data: st.DataObject) -> None:
        case: Case[Any] = data.draw(operation.as_strategy())
        end_stream(case)
        response = case.call(running.url, session)
        case.validate_response(response, checks=CHECKS)
        assert response.status_code == 401 or not needs_credentials(case)

    for found in nobodys.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        with subtests.test(operation.label):
            is_refused()
