"""The 14 endpoints of the V0 wire about conversations: every status and body of spec V0 §1.1 to §1.6."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.events import NewEvent
from conversations.log import reads, writes
from conversations.models import ConversationRef, Version
from conversations.store import changes, creation, store
from sessions_app import astore
from sessions_app.models import ApiToken, UserSettings
from tests.support.data.events import event
from tests.support.data.faulty import fail, find_locked
from tests.support.wires.v0 import CONVERSATIONS, EVENT_TIME, NEW_ID, Matching, Problem, info, said

pytestmark = pytest.mark.one_engine

TALK = f"{CONVERSATIONS}/talk"
BOBS = f"{CONVERSATIONS}/bobs"
UNKNOWN = f"{CONVERSATIONS}/nowhere"
MICROAGENTS = "/api/microagent-management/conversations"
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Case:
    """One request, and what it is answered with."""

    endpoint: str
    when: str
    path: str
    _: KW_ONLY
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = ABSENT
    text: str | None = None
    """The body where it is not the JSON of `body`."""
    given: tuple[str, ...] = ()
    """What was arranged before."""
    status: int = 200
    answer: Any

    @property
    def method(self) -> str:
        return self.endpoint.partition(" ")[0]

    def __str__(self) -> str:
        return f"{self.endpoint}: {self.when}"


def created(conversation_id: Any = NEW_ID) -> dict[str, Any]:
    return {
        "status": "ok",
        "conversation_id": conversation_id,
        "message": None,
        "conversation_status": "STARTING",
    }


def refused(message: str, msg_id: str) -> dict[str, Any]:
    return {"status": "error", "message": message, "msg_id": msg_id}


def detail(text: Any) -> dict[str, Any]:
    return {"detail": text}


def not_found(conversation_id: str = "nowhere") -> dict[str, Any]:
    return detail(f"Conversation {conversation_id} not found")


MISSING_BODY = Problem("missing", ["body"])
NO_JSON = Problem("json_invalid", ["body", 1])

CREATE = "POST /api/conversations"
LIST = "GET /api/conversations"
GET = "GET /api/conversations/{id}"
PATCH = "PATCH /api/conversations/{id}"
DELETE = "DELETE /api/conversations/{id}"
START = "POST …/{id}/start"
STOP = "POST …/{id}/stop"
EXPERIMENT = "POST …/{id}/exp-config"
REMEMBER = "GET …/{id}/remember-prompt"
MICROAGENT_LIST = "GET /api/microagent-management/conversations"
EVENTS = "GET …/{id}/events"
APPEND = "POST …/{id}/events"
MESSAGE = "POST …/{id}/message"
TRAJECTORY = "GET …/{id}/trajectory"

CASES = [
    # §1.1
    Case(CREATE, "empty object", CONVERSATIONS, body={}, answer=created()),
    Case(
        CREATE,
        "everything that needs no repository",
        CONVERSATIONS,
        body={
            "repository": None,
            "git_provider": "gitlab",
            "selected_branch": "main",
            "initial_user_msg": "hello",
            "image_urls": ["data:image/png;base64,AA=="],
            "replay_json": None,
            "suggested_task": None,
            "create_microagent": None,
            "conversation_instructions": "be brief",
            "mcp_config": {"sse_servers": ["https://tools.example.org"], "shttp_servers": []},
        },
        answer=created(),
    ),
    Case(CREATE, "no body", CONVERSATIONS, status=422, answer=MISSING_BODY),
    Case(CREATE, "no JSON", CONVERSATIONS, text="{]", status=422, answer=NO_JSON),
    *(
        Case(CREATE, when, CONVERSATIONS, body=body, status=422, answer=Problem(problem, place))
        for when, body, problem, place in [
            ("a list", [], "model_attributes_type", ["body"]),
            ("unknown field", {"colour": "green"}, "extra_forbidden", ["body", "colour"]),
            (
                "chosen id, not allowed",
                {"conversation_id": "mine"},
                "extra_forbidden",
                ["body", "conversation_id"],
            ),
            ("unknown provider", {"git_provider": "sourceforge"}, "enum", ["body", "git_provider"]),
            (
                "task without its fields",
                {"suggested_task": {}},
                "missing",
                ["body", "suggested_task", "issue_number"],
            ),
            ("message that is no text", {"initial_user_msg": 5}, "string_type", ["body", "initial_user_msg"]),
            (
                "unknown field of mcp_config",
                {"mcp_config": {"servers": []}},
                "extra_forbidden",
                ["body", "mcp_config", "servers"],
            ),
            (
                "replay and message",
                {
                    "initial_user_msg": "hi",
                    "replay_json": json.dumps([{"action": "message", "args": {"content": "hello"}}]),
                },
                "value_error",
                ["body"],
            ),
        ]
    ),
    Case(
        CREATE,
        "chosen id, allowed",
        CONVERSATIONS,
        given=("ids may be chosen",),
        body={"conversation_id": "0F0E0D0C-0B0A-4908-8706-050403020100"},
        answer=created("0f0e0d0c0b0a49088706050403020100"),
    ),
    Case(
        CREATE,
        "chosen id that cannot be one",
        CONVERSATIONS,
        given=("ids may be chosen",),
        body={"conversation_id": "../x"},
        status=422,
        answer=Problem("value_error", ["body", "conversation_id"]),
    ),
    Case(
        CREATE,
        "chosen id of one's own",
        CONVERSATIONS,
        given=("talk", "ids may be chosen"),
        body={"conversation_id": "talk"},
        answer=created("talk"),
    ),
    Case(
        CREATE,
        "chosen id of another's",
        CONVERSATIONS,
        given=("bobs", "ids may be chosen"),
        body={"conversation_id": "bobs"},
        status=409,
        answer=detail("The conversation id bobs is taken."),
    ),
    Case(
        CREATE,
        "repository without a token",
        CONVERSATIONS,
        body={"repository": "owner/name"},
        status=401,
        answer="Git provider token required. (such as GitHub).",
    ),
    Case(
        CREATE,
        "no settings",
        CONVERSATIONS,
        given=("an agent that asks a model",),
        body={},
        status=400,
        answer=refused("Settings not found", "CONFIGURATION$SETTINGS_NOT_FOUND"),
    ),
    Case(
        CREATE,
        "no key",
        CONVERSATIONS,
        given=("an agent that asks a model", "settings without a key"),
        body={},
        status=400,
        answer=refused(
            "Error authenticating with the LLM provider. Please check your API key",
            "STATUS$ERROR_LLM_AUTHENTICATION",
        ),
    ),
    Case(
        CREATE,
        "a model that needs no key",
        CONVERSATIONS,
        given=("an agent that asks a model", "settings of bedrock"),
        body={},
        answer=created(),
    ),
    # §1.2
    Case(LIST, "nothing", CONVERSATIONS, answer={"results": [], "next_page_id": None}),
    Case(
        LIST,
        "one's own, not another's",
        CONVERSATIONS,
        given=("talk", "bobs"),
        answer={"results": [info("talk")], "next_page_id": None},
    ),
    Case(
        LIST,
        "a page that is not the last",
        CONVERSATIONS,
        query={"limit": 1},
        given=("talk", "a V1 conversation"),
        answer={
            "results": [
                info(
                    "c7c6d34aca9d4b3dbbefaed95f43880f",
                    title="Conversation 64yKrYfCGvdogUefBVB7d9",
                    conversation_version="V1",
                    status="RUNNING",
                    runtime_status="STATUS$READY",
                    url="http://localhost/api/conversations/c7c6d34aca9d4b3dbbefaed95f43880f",
                )
            ],
            "next_page_id": Matching(".+"),
        },
    ),
    Case(
        LIST,
        "the older form of a page id",
        CONVERSATIONS,
        query={"page_id": "MQ==", "limit": 5},
        given=("talk", "a V1 conversation"),
        answer={"results": [info("talk")], "next_page_id": None},
    ),
    Case(
        LIST,
        "the older combined form",
        CONVERSATIONS,
        query={"page_id": "eyJ2MCI6ICJNUT09IiwgInYxIjogbnVsbH0="},
        given=("talk", "a V1 conversation"),
        answer={"results": [info("talk")], "next_page_id": None},
    ),
    Case(
        LIST,
        "another repository",
        CONVERSATIONS,
        query={"selected_repository": "owner/name"},
        given=("talk",),
        answer={"results": [], "next_page_id": None},
    ),
    Case(
        LIST,
        "page id that is none",
        CONVERSATIONS,
        query={"page_id": "☃"},
        status=400,
        answer=detail(Matching(".*page.*")),
    ),
    *(
        Case(
            LIST,
            f"{name}={value}",
            CONVERSATIONS,
            query={name: value},
            status=422,
            answer=Problem(problem, ["query", name]),
        )
        for name, value, problem in [
            ("limit", "0", "greater_than_equal"),
            ("limit", "-1", "greater_than_equal"),
            ("limit", "101", "less_than_equal"),
            ("limit", "many", "int_parsing"),
            ("conversation_trigger", "moon", "enum"),
            ("include_sub_conversations", "perhaps", "bool_parsing"),
        ]
    ),
    # §1.3
    Case(GET, "stopped", TALK, given=("talk",), answer=info("talk")),
    Case(
        GET,
        "running",
        TALK,
        given=("talk", "running"),
        answer=info("talk", status="RUNNING", runtime_status="STATUS$READY", url="/api/conversations/talk"),
    ),
    Case(GET, "unknown", UNKNOWN, answer=None),
    Case(GET, "another's", BOBS, given=("bobs",), answer=None),
    Case(GET, "deleted", TALK, given=("talk", "deleted"), answer=None),
    Case(PATCH, "new title", TALK, given=("talk",), body={"title": " New "}, answer=True),
    Case(
        PATCH,
        "unknown",
        UNKNOWN,
        body={"title": "New"},
        status=404,
        answer=refused("Conversation not found", "CONVERSATION$NOT_FOUND"),
    ),
    Case(
        PATCH,
        "deleted",
        TALK,
        given=("talk", "deleted"),
        body={"title": "New"},
        status=404,
        answer=refused("Conversation not found", "CONVERSATION$NOT_FOUND"),
    ),
    Case(
        PATCH,
        "another's",
        BOBS,
        given=("bobs",),
        body={"title": "New"},
        status=403,
        answer=refused(
            "Permission denied: You can only update your own conversations",
            "AUTHORIZATION$PERMISSION_DENIED",
        ),
    ),
    Case(
        PATCH,
        "the store fails",
        TALK,
        given=("talk", "a failing store"),
        body={"title": "New"},
        status=500,
        answer=refused(
            "Failed to update conversation: the server's log says why.", "CONVERSATION$UPDATE_ERROR"
        ),
    ),
    *(
        Case(
            PATCH,
            json.dumps(body)[:40],
            TALK,
            given=("talk",),
            body=body,
            status=422,
            answer=Problem(problem, loc),
        )
        for body, problem, loc in [
            ({}, "missing", ["body", "title"]),
            ({"title": ""}, "string_too_short", ["body", "title"]),
            ({"title": "   "}, "string_too_short", ["body", "title"]),
            ({"title": "x" * 201}, "string_too_long", ["body", "title"]),
            ({"title": "New", "trigger": "gui"}, "extra_forbidden", ["body", "trigger"]),
            ({"title": None}, "string_type", ["body", "title"]),
        ]
    ),
    Case(DELETE, "one's own", TALK, given=("talk",), answer=True),
    Case(DELETE, "running", TALK, given=("talk", "running"), answer=True),
    Case(DELETE, "unknown", UNKNOWN, answer=False),
    Case(DELETE, "a second time", TALK, given=("talk", "deleted"), answer=False),
    Case(DELETE, "another's", BOBS, given=("bobs",), answer=False),
    # §1.4
    Case(
        START,
        "stopped",
        f"{TALK}/start",
        given=("talk",),
        body={},
        answer={**created("talk"), "conversation_status": "RUNNING"},
    ),
    Case(
        START,
        "running, with providers",
        f"{TALK}/start",
        given=("talk", "running"),
        body={"providers_set": ["github", "azure_devops"]},
        answer={**created("talk"), "conversation_status": "RUNNING"},
    ),
    Case(START, "no body", f"{TALK}/start", given=("talk",), status=422, answer=MISSING_BODY),
    Case(
        START,
        "unknown provider",
        f"{TALK}/start",
        given=("talk",),
        body={"providers_set": ["sourceforge"]},
        status=422,
        answer=Problem("enum", ["body", "providers_set", 0]),
    ),
    *(
        Case(
            START,
            when,
            f"{path}/start",
            given=given,
            body={},
            status=404,
            answer={"status": "error", "conversation_id": conversation_id},
        )
        for when, path, given, conversation_id in [
            ("unknown", UNKNOWN, (), "nowhere"),
            ("another's", BOBS, ("bobs",), "bobs"),
        ]
    ),
    Case(
        START,
        "the agent cannot be made",
        f"{TALK}/start",
        given=("talk", "a broken agent"),
        body={},
        status=500,
        answer={
            "status": "error",
            "conversation_id": "talk",
            "message": "Failed to start conversation: "
            "The agent couldn't start. The server's log has the reason.",
        },
    ),
    Case(
        START,
        "no settings",
        f"{TALK}/start",
        given=("talk", "an agent that asks a model"),
        body={},
        status=400,
        answer=refused("Settings not found", "CONFIGURATION$SETTINGS_NOT_FOUND"),
    ),
    Case(
        STOP,
        "running: the status before",
        f"{TALK}/stop",
        given=("talk", "running"),
        answer={
            "status": "ok",
            "conversation_id": "talk",
            "message": "Conversation stopped successfully",
            "conversation_status": "RUNNING",
        },
    ),
    *(
        Case(
            STOP,
            when,
            f"{path}/stop",
            given=given,
            answer={
                "status": "ok",
                "conversation_id": path.rpartition("/")[2],
                "message": "Conversation was not running",
                "conversation_status": "STOPPED",
            },
        )
        for when, path, given in [
            ("not running", TALK, ("talk",)),
            ("unknown", UNKNOWN, ()),
            ("another's", BOBS, ("bobs", "bobs is running")),
        ]
    ),
    Case(
        STOP,
        "the loop does not let go",
        f"{TALK}/stop",
        given=("talk", "running", "an unstoppable manager"),
        status=500,
        answer={
            "status": "error",
            "conversation_id": "talk",
            "message": "Failed to stop conversation: the server's log says why.",
        },
    ),
    # §1.5
    Case(EVENTS, "no events", f"{TALK}/events", given=("talk",), answer={"events": [], "has_more": False}),
    Case(
        EVENTS,
        "a page of three",
        f"{TALK}/events",
        query={"start_id": 1, "limit": 2},
        given=("talk", "four messages"),
        answer={"events": [said(1, "b"), said(2, "c")], "has_more": True},
    ),
    Case(
        EVENTS,
        "reversed, to an end",
        f"{TALK}/events",
        query={"start_id": 1, "end_id": 2, "reverse": "true"},
        given=("talk", "four messages"),
        answer={"events": [said(2, "c"), said(1, "b")], "has_more": False},
    ),
    Case(
        EVENTS,
        "filter in the body",
        f"{TALK}/events",
        body={"query": "C", "source": "user"},
        given=("talk", "four messages"),
        answer={"events": [said(2, "c")], "has_more": False},
    ),
    Case(
        EVENTS,
        "filter in the query",
        f"{TALK}/events",
        query={"query": "d", "exclude_hidden": "true", "start_date": "2020-01-01"},
        given=("talk", "four messages"),
        answer={"events": [said(3, "d")], "has_more": False},
    ),
    *(
        Case(
            EVENTS,
            f"limit={limit}",
            f"{TALK}/events",
            query={"limit": limit},
            given=("talk",),
            status=400,
            answer=detail("Invalid limit"),
        )
        for limit in (-1, 101)
    ),
    Case(
        EVENTS,
        "a word for an id",
        f"{TALK}/events",
        query={"start_id": "first"},
        given=("talk",),
        status=422,
        answer=Problem("int_parsing", ["query", "start_id"]),
    ),
    Case(EVENTS, "unknown", f"{UNKNOWN}/events", status=404, answer=not_found()),
    Case(EVENTS, "another's", f"{BOBS}/events", given=("bobs",), status=404, answer=not_found("bobs")),
    Case(
        APPEND,
        "message",
        f"{TALK}/events",
        given=("talk",),
        body={"action": "message", "args": {"content": "hello"}},
        answer={"success": True},
    ),
    Case(
        APPEND,
        "observation",
        f"{TALK}/events",
        given=("talk",),
        body={"observation": "error", "content": "boom", "extras": {"error_id": "E1"}},
        answer={"success": True},
    ),
    Case(APPEND, "no JSON", f"{TALK}/events", given=("talk",), text="{]", status=422, answer=NO_JSON),
    *(
        Case(
            APPEND,
            json.dumps(body),
            f"{TALK}/events",
            given=("talk",),
            body=body,
            status=422,
            answer=Problem("value_error", ["body"]),
        )
        for body in [
            {"action": "dance", "args": {}},
            {"observation": "dancing", "content": ""},
            {"action": "message", "args": {}},
            {"action": "message", "args": {"content": 5}},
            {"kind": "MessageEvent"},
            {},
            [],
            "hello",
        ]
    ),
    Case(
        APPEND,
        "unknown",
        f"{UNKNOWN}/events",
        body={"action": "message", "args": {"content": "hello"}},
        status=404,
        answer=not_found(),
    ),
    Case(
        APPEND,
        "another's",
        f"{BOBS}/events",
        given=("bobs",),
        body={"action": "message", "args": {"content": "hello"}},
        status=404,
        answer=not_found("bobs"),
    ),
    Case(
        APPEND,
        "a decision that nothing waits for",
        f"{TALK}/events",
        given=("talk",),
        body={"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}},
        status=409,
        answer=detail("No call is waiting for approval."),
    ),
    Case(
        MESSAGE,
        "text",
        f"{TALK}/message",
        given=("talk",),
        body={"message": "hello"},
        answer={"success": True},
    ),
    Case(
        MESSAGE, "empty", f"{TALK}/message", given=("talk",), body={"message": ""}, answer={"success": True}
    ),
    Case(
        MESSAGE,
        "no message",
        f"{TALK}/message",
        given=("talk",),
        body={},
        status=422,
        answer=Problem("missing", ["body", "message"]),
    ),
    Case(MESSAGE, "no body", f"{TALK}/message", given=("talk",), status=422, answer=MISSING_BODY),
    Case(MESSAGE, "unknown", f"{UNKNOWN}/message", body={"message": "hello"}, status=404, answer=not_found()),
    Case(
        MESSAGE,
        "another's",
        f"{BOBS}/message",
        given=("bobs",),
        body={"message": "hello"},
        status=404,
        answer=not_found("bobs"),
    ),
    Case(
        MESSAGE,
        "the conversation stays locked",
        f"{TALK}/message",
        given=("talk", "a busy store"),
        body={"message": "hello"},
        status=503,
        answer=detail("The conversation is locked by another process. Try again."),
    ),
    Case(
        MESSAGE,
        "the store fails",
        f"{TALK}/message",
        given=("talk", "a failing store"),
        body={"message": "hello"},
        status=500,
        answer={
            "success": False,
            "error": "Error adding message to conversation: the server's log says why.",
        },
    ),
    Case(TRAJECTORY, "no events", f"{TALK}/trajectory", given=("talk",), answer={"trajectory": []}),
    Case(
        TRAJECTORY,
        "events, hidden ones and what browsers show left out",
        f"{TALK}/trajectory",
        given=("talk", "hidden and browsing events"),
        answer={
            "trajectory": [
                {
                    "id": 1,
                    "timestamp": EVENT_TIME,
                    "source": "agent",
                    "message": "Visited x",
                    "observation": "browse",
                    "content": "text",
                    "extras": {"url": "x", "inner": {"kept": 1}},
                }
            ]
        },
    ),
    Case(TRAJECTORY, "unknown", f"{UNKNOWN}/trajectory", status=404, answer=not_found()),
    Case(
        TRAJECTORY, "another's", f"{BOBS}/trajectory", given=("bobs",), status=404, answer=not_found("bobs")
    ),
    Case(
        TRAJECTORY,
        "the store fails",
        f"{TALK}/trajectory",
        given=("talk", "a failing store"),
        status=500,
        answer={"trajectory": None, "error": "Error getting trajectory: the server's log says why."},
    ),
    # §1.6
    Case(
        EXPERIMENT,
        "stored now",
        f"{TALK}/exp-config",
        given=("talk",),
        body={"config": {"system_prompt_filename": "short.j2"}},
        answer=True,
    ),
    Case(EXPERIMENT, "nothing is set", f"{TALK}/exp-config", given=("talk",), body={}, answer=True),
    Case(
        EXPERIMENT,
        "already there",
        f"{TALK}/exp-config",
        given=("talk", "an experiment"),
        body={"config": None},
        answer=False,
    ),
    Case(
        EXPERIMENT,
        "key that no experiment may set",
        f"{TALK}/exp-config",
        given=("talk",),
        body={"config": {"llm": "mine"}},
        status=422,
        answer=Problem("value_error", ["body", "config"]),
    ),
    Case(EXPERIMENT, "unknown", f"{UNKNOWN}/exp-config", body={}, status=404, answer=not_found()),
    Case(
        EXPERIMENT,
        "another's",
        f"{BOBS}/exp-config",
        given=("bobs",),
        body={},
        status=404,
        answer=not_found("bobs"),
    ),
    Case(
        REMEMBER,
        "around an event",
        f"{TALK}/remember-prompt",
        query={"event_id": 2},
        given=("talk", "four messages"),
        answer={"status": "success", "prompt": "Remember what the user asked for: a"},
    ),
    Case(
        REMEMBER,
        "no event",
        f"{TALK}/remember-prompt",
        given=("talk",),
        status=422,
        answer=Problem("missing", ["query", "event_id"]),
    ),
    Case(
        REMEMBER,
        "unknown",
        f"{UNKNOWN}/remember-prompt",
        query={"event_id": 2},
        status=404,
        answer=not_found(),
    ),
    Case(
        REMEMBER,
        "another's",
        f"{BOBS}/remember-prompt",
        query={"event_id": 2},
        given=("bobs",),
        status=404,
        answer=not_found("bobs"),
    ),
    Case(
        REMEMBER,
        "no settings",
        f"{TALK}/remember-prompt",
        query={"event_id": 2},
        given=("talk", "an agent that asks a model"),
        status=400,
        answer=refused("Settings not found", "CONFIGURATION$SETTINGS_NOT_FOUND"),
    ),
    *(
        Case(
            REMEMBER,
            given,
            f"{TALK}/remember-prompt",
            query={"event_id": 0},
            given=("talk", given),
            status=502,
            answer=detail(Matching(".*Try again.")),
        )
        for given in ("an agent beside the point", "an agent that cannot answer")
    ),
    Case(
        MICROAGENT_LIST,
        "of one repository",
        MICROAGENTS,
        query={"selected_repository": "owner/name"},
        given=("talk", "a microagent conversation"),
        answer={
            "results": [
                info(
                    "micro", selected_repository="owner/name", trigger="microagent_management", pr_number=[7]
                )
            ],
            "next_page_id": None,
        },
    ),
    Case(
        MICROAGENT_LIST,
        "no repository",
        MICROAGENTS,
        status=422,
        answer=Problem("missing", ["query", "selected_repository"]),
    ),
    Case(
        MICROAGENT_LIST,
        "limit=0",
        MICROAGENTS,
        query={"selected_repository": "owner/name", "limit": 0},
        status=422,
        answer=Problem("greater_than_equal", ["query", "limit"]),
    ),
    Case(
        MICROAGENT_LIST,
        "page id that is none",
        MICROAGENTS,
        query={"selected_repository": "owner/name", "page_id": "!"},
        status=400,
        answer=detail(Matching(".*page.*")),
    ),
]

ENDPOINTS = {
    CREATE: CONVERSATIONS,
    LIST: CONVERSATIONS,
    GET: "{id}",
    PATCH: "{id}",
    DELETE: "{id}",
    START: "{id}/start",
    STOP: "{id}/stop",
    EVENTS: "{id}/events",
    APPEND: "{id}/events",
    MESSAGE: "{id}/message",
    TRAJECTORY: "{id}/trajectory",
    EXPERIMENT: "{id}/exp-config",
    REMEMBER: "{id}/remember-prompt",
    MICROAGENT_LIST: MICROAGENTS,
}
OF_ONE = [endpoint for endpoint, path in ENDPOINTS.items() if path.startswith("{id}")]


def address(endpoint: str, conversation_id: str = "talk") -> str:
    return ENDPOINTS[endpoint].replace("{id}", f"{CONVERSATIONS}/{conversation_id}")


class Arrangement:
    """What may be given before a request."""

    def __init__(
        self,
        alice: User,
        bob: User,
        configured: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.alice, self.bob = alice, bob
        self.configured, self.monkeypatch = configured, monkeypatch
        self.started: list[str] = []
        """What is to be started once the server's event loop runs."""

    def arrange(self, given: str) -> None:
        match given:
            case "talk":
                creation.create(self.alice, conversation_id="talk")
            case "bobs":
                creation.create(self.bob, conversation_id="bobs")
            case "a V1 conversation":
                creation.create(
                    self.alice, conversation_id="c7c6d34a-ca9d-4b3d-bbef-aed95f43880f", version=Version.V1
                )
            case "a microagent conversation":
                creation.create(
                    self.alice,
                    conversation_id="micro",
                    repository="owner/name",
                    trigger="microagent_management",
                    pr_number=[7],
                )
            case "deleted":
                store().delete_metadata("talk")
            case "running":
                self.started.append("talk")
            case "bobs is running":
                self.started.append("bobs")
            case "an experiment":
                changes.set_parameter_once(self._talk(), "experiment_config", {})
            case "four messages":
                writes.append(self._talk(), [_said(text) for text in "abcd"])
            case "hidden and browsing events":
                writes.append(self._talk(), [event(raw=json.dumps(each)) for each in HIDDEN_AND_BROWSING])
            case "ids may be chosen":
                self.configured(allow_set_conversation_id=True)
            case "settings without a key":
                UserSettings.objects.create(user=self.alice, llm_model="gpt-9")
            case "settings of bedrock":
                UserSettings.objects.create(user=self.alice, llm_model="bedrock/claude")
            case _:
                self._choose_part(given)

    def _choose_part(self, given: str) -> None:
        agents = {
            "an agent that asks a model": "ModelAgent",
            "a broken agent": "BrokenAgent",
            "an agent beside the point": "BlankAgent",
            "an agent that cannot answer": "SilentAgent",
        }
        if given in agents:
            self.configured(agent=f"tests.support.data.faulty.{agents[given]}")
        elif given == "a failing store":
            self.monkeypatch.setattr(settings, "CONVERSATION_STORE", "tests.support.data.faulty.FailingStore")
            self.monkeypatch.setattr(reads, "read_after", fail)
            self.monkeypatch.setattr(changes, "retitle", fail)
            self.monkeypatch.setattr(writes, "append_many", fail)
        elif given == "a busy store":
            self.monkeypatch.setattr(writes, "append_many", find_locked)
        elif given == "an unstoppable manager":
            manager = "tests.support.data.faulty.UnstoppableManager"
            self.monkeypatch.setattr(settings, "CONVERSATION_MANAGER", manager)
        else:
            raise ValueError(f"nobody knows how to arrange {given}")

    def _talk(self) -> ConversationRef:
        return creation.join(self.alice, "talk")


HIDDEN_AND_BROWSING: list[dict[str, Any]] = [
    {"source": "agent", "message": "", "action": "run", "args": {"command": "env", "hidden": True}},
    {
        "source": "agent",
        "message": "Visited x",
        "observation": "browse",
        "content": "text",
        "extras": {
            "url": "x",
            "screenshot": "data:,",
            "dom_object": {},
            "inner": {"kept": 1, "axtree_object": {}, "set_of_marks": ""},
        },
    },
]


def _said(text: str) -> NewEvent:
    args = {
        "content": text,
        "file_urls": None,
        "image_urls": None,
        "wait_for_response": False,
        "security_risk": -1,
    }
    return event(raw=json.dumps({"source": "user", "message": text, "action": "message", "args": args}))


@pytest.fixture
def arrangement(
    request: pytest.FixtureRequest,
    alice: User,
    bob: User,
    configured: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> Arrangement:
    arranged = Arrangement(alice, bob, configured, monkeypatch)
    case: Case = request.getfixturevalue("case")
    for given in case.given:
        arranged.arrange(given)
    return arranged


REFUSED = [case for case in CASES if case.status >= 400 and set(case.given) <= {"talk", "bobs"}]
"""Cases that change nothing and can share the two conversations."""


@pytest.mark.parametrize("case", [case for case in CASES if case not in REFUSED], ids=str)
async def test_each_endpoint_answers_as_the_wire_says(
    case: Case, arrangement: Arrangement, rest: httpx.AsyncClient
) -> None:
    for conversation_id in arrangement.started:
        await _start(conversation_id)
    await check(rest, case)


async def test_each_endpoint_refuses_as_the_wire_says(
    conversation: ConversationRef, bob: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(creation.create, bob, conversation_id="bobs")
    for case in REFUSED:
        with subtests.test(str(case)):
            await check(rest, case)


async def check(rest: httpx.AsyncClient, case: Case) -> None:
    body = {} if case.body is ABSENT else {"json": case.body}
    if case.text is not None:
        body = {"content": case.text}
    response = await rest.request(case.method, case.path, params=case.query, **body)
    assert (response.status_code, response.json()) == (case.status, case.answer)
    assert response.headers["cache-control"] == "no-cache, no-store, must-revalidate, max-age=0"


async def _start(conversation_id: str) -> None:
    from sessions_app.loops.manager import get_manager

    conversation = await get_manager().attach_to_conversation(conversation_id)
    assert conversation is not None
    await get_manager().maybe_start_agent_loop(conversation)


def test_the_table_has_every_endpoint_and_every_status_of_the_wire() -> None:
    found = {endpoint: {case.status for case in CASES if case.endpoint == endpoint} for endpoint in ENDPOINTS}
    assert found == {
        CREATE: {200, 400, 401, 409, 422},
        LIST: {200, 400, 422},
        GET: {200},
        PATCH: {200, 403, 404, 422, 500},
        DELETE: {200},
        START: {200, 400, 404, 422, 500},
        STOP: {200, 500},
        EVENTS: {200, 400, 404, 422},
        APPEND: {200, 404, 409, 422},
        MESSAGE: {200, 404, 422, 500, 503},
        TRAJECTORY: {200, 404, 500},
        EXPERIMENT: {200, 404, 422},
        REMEMBER: {200, 400, 404, 422, 502},
        MICROAGENT_LIST: {200, 400, 422},
    }


WRONG_IDS = {
    "x" * 101: "Conversation ID is too long",
    "a%00b": "Conversation ID contains invalid characters",
    "a..b": "Conversation ID contains invalid path characters",
    "a%5Cb": "Conversation ID contains invalid path characters",
    "a%07b": "Conversation ID contains control characters",
}


async def test_an_id_that_cannot_be_one_is_refused_in_the_wires_words_everywhere(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for wrong_id, endpoint in product(WRONG_IDS, OF_ONE):
        with subtests.test(wrong_id=wrong_id, endpoint=endpoint):
            response = await rest.request(endpoint.partition(" ")[0], address(endpoint, wrong_id))
            assert (response.status_code, response.json()) == (400, {"detail": WRONG_IDS[wrong_id]})


@pytest.mark.parametrize("spelling", ["with%20spaces%20in%20it", "x" * 100, "name-efeb15780f39c816"])
async def test_ids_with_spaces_and_of_exactly_100_characters_pass(
    spelling: str, rest: httpx.AsyncClient
) -> None:
    response = await rest.get(f"{CONVERSATIONS}/{spelling}")
    assert (response.status_code, response.json()) == (200, None)


async def test_nobody_is_let_in_where_credentials_are_asked_for(
    rest: httpx.AsyncClient, accounts: None, subtests: pytest.Subtests
) -> None:
    for endpoint in ENDPOINTS:
        with subtests.test(endpoint):
            response = await rest.request(endpoint.partition(" ")[0], address(endpoint))
            assert (response.status_code, response.json()) == (401, {"detail": "Unauthorized"})


async def test_a_method_that_nobody_serves_is_not_allowed(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for endpoint in ENDPOINTS:
        with subtests.test(endpoint):
            response = await rest.put(address(endpoint), json={})
            assert (response.status_code, response.json()) == (405, {"detail": "Method Not Allowed"})


async def test_an_address_that_nobody_serves_is_not_found_and_none_ends_with_a_slash(
    rest: httpx.AsyncClient,
) -> None:
    for path in ("/api/nothing", f"{CONVERSATIONS}/", f"{TALK}/events/"):
        response = await rest.get(path)
        assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})


@pytest.fixture
def bobs_token(bob: User) -> str:
    return ApiToken.issue(bob.pk, "laptop")[1]


async def test_a_strangers_token_sees_an_unknown_conversation_and_can_only_not_rename_it(
    conversation: ConversationRef,
    bobs_token: str,
    accounts: None,
    rest: httpx.AsyncClient,
    subtests: pytest.Subtests,
) -> None:
    bodies: dict[str, dict[str, Any]] = {
        PATCH: {"title": "mine"},
        APPEND: {"action": "message", "args": {"content": "hi"}},
        MESSAGE: {"message": "hi"},
        START: {},
        EXPERIMENT: {},
    }

    async def answer(endpoint: str, conversation_id: str) -> tuple[int, str]:
        response = await rest.request(
            endpoint.partition(" ")[0],
            address(endpoint, conversation_id),
            params={"event_id": 0},
            headers={"Authorization": f"Bearer {bobs_token}"},
            content=json.dumps(bodies[endpoint]) if endpoint in bodies else None,
        )
        return response.status_code, response.text.replace(conversation_id, "…")

    for endpoint in OF_ONE:
        with subtests.test(endpoint):
            foreign, unknown = await answer(endpoint, "talk"), await answer(endpoint, "nowhere")
            if endpoint == PATCH:
                assert (foreign[0], unknown[0]) == (403, 404)
            else:
                assert foreign == unknown
