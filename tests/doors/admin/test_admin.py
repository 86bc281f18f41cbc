"""The admin: what staff see and may do, what it costs however much there is, and what nobody is shown."""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from html import unescape
from itertools import product
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client as Browser
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations import server_log
from conversations.events import Dialect, Kind
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation, deletion
from convserver.admin import cells, payload, repairs
from convserver.exports import conversation as export
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.models import (
    AgentLoop,
    ApiToken,
    Connection,
    ConversationKey,
    ExecutionStatus,
    Grant,
    LoopStatus,
    RemoteProgram,
    Repair,
    Scope,
    Secret,
    SecretKind,
    UserSettings,
)
from sessions_app.processes import this_process
from sessions_app.settings.tool_servers import sealed_parameter
from sessions_app.settings.user_settings import secret_value, store_secret
from tests.support.data.events import event
from tests.support.data.events import payload as event_payload

pytestmark = pytest.mark.one_engine

LIST = "/admin/conversations/conversation/"
LOOPS = "/admin/sessions_app/agentloop/"
CONNECTIONS = "/admin/sessions_app/connection/"
REMOTE_AGENTS = "/admin/sessions_app/remoteprogram/"
REPAIRS = "/admin/sessions_app/repair/"
TOKENS = "/admin/sessions_app/apitoken/"
SECRETS = "/admin/sessions_app/secret/"
SETTINGS = "/admin/sessions_app/usersettings/"
USERS = "/admin/auth/user/"
GROUPS = "/admin/auth/group/"
USE = "/admin/sessions_app/modeluse/"
LOG = "/admin/admin/logentry/"

CLEAR = "the-clear-text-of-a-secret"


def of(conversation: ConversationRef, rest: str = "change/") -> str:
    return f"{LIST}{conversation.pk}/{rest}"


def log_in(user: User) -> Browser:
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(user)
    return browser


@pytest.fixture
def boss(accounts: None, database: None) -> Browser:
    """A superuser's browser."""
    return log_in(User.objects.create_superuser("boss", password="boss's password"))


Staff = Callable[..., Browser]


@pytest.fixture
def staff(accounts: None, database: None) -> Staff:
    """Log a member of staff in who has these permissions (`app.codename`) and no others."""

    def logged_in(*permissions: str) -> Browser:
        user = User.objects.create_user(f"staff-{User.objects.count()}", is_staff=True)
        for permission in permissions:
            app, codename = permission.split(".")
            user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
        return log_in(user)

    return logged_in


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A conversation of alice's with three events."""
    writes.append(conversation, [event(f"text {number}", event_id=f"e{number}") for number in range(3)])
    return conversation


def text_of(answer: Any) -> str:
    """Return what a page says, with tags and references undone."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


def shown(answer: Any) -> list[str]:
    """Return the titles of the rows of a list of conversations, in order."""
    pattern = r'field-shown_as.*?<span class="admin-narrow" title="([^"]*)"'
    return [unescape(title) for title in re.findall(pattern, answer.content.decode(), re.DOTALL)]


def link(answer: Any, rel: str) -> str | None:
    """Return where a page's link of this kind leads."""
    found = re.search(rf'rel="{rel}" href="([^"]*)"', answer.content.decode())
    return unescape(found[1]) if found else None


# Rows in bulk


def make_conversations(count: int, owner: User) -> list[Conversation]:
    have = Conversation.objects.count()
    numbers = range(have, have + count)
    return Conversation.objects.bulk_create(
        Conversation(public_id=f"c{number:05}", owner=owner, title=f"title {number:05}") for number in numbers
    )


def make_events(conversation: ConversationRef, count: int) -> None:
    start = Event.objects.of(conversation).count()
    now = timezone.now()
    Event.objects.bulk_create(
        Event(
            conversation_id=conversation.pk,
            seq=seq,
            event_id=f"bulk {seq}",
            dialect=Dialect.V0,
            type="message",
            kind=Kind.MESSAGE,
            source="user",
            timestamp=now,
            size=len(event_payload()),
            digest="",
            received_at=now,
            text=f"text {seq}",
            payload=event_payload(),
        )
        for seq in range(start, start + count)
    )
    Conversation.objects.filter(pk=conversation.pk).update(next_seq=start + count)


def make_loops(count: int, owner: User) -> None:
    AgentLoop.objects.bulk_create(AgentLoop(conversation=row) for row in make_conversations(count, owner))


def make_connections(count: int, owner: User) -> None:
    rows = make_conversations(count, owner)
    Connection.objects.bulk_create(Connection(conversation=row, user=owner, door="native") for row in rows)


def make_remote_agents(count: int, owner: User) -> None:
    have = RemoteProgram.objects.count()
    here = this_process()
    process = {"host": here.host, "pid": here.pid, "process_started": here.started}
    RemoteProgram.objects.bulk_create(
        RemoteProgram(user=owner, name=f"helper-{have + number}", conversation=row, **process)
        for number, row in enumerate(make_conversations(count, owner))
    )


def make_repairs(count: int, owner: User) -> None:
    rows = make_conversations(count, owner)
    Repair.objects.bulk_create(Repair(conversation=row, turn_id="t", host="h", pid=1) for row in rows)


def make_users(count: int, owner: User) -> list[User]:
    have = User.objects.count()
    return User.objects.bulk_create(User(username=f"user {have + number}") for number in range(count))


def make_tokens(count: int, owner: User) -> None:
    ApiToken.objects.bulk_create(
        ApiToken(user=user, name="t", prefix="cs_", digest=f"d{user.pk}") for user in make_users(count, owner)
    )


def make_secrets(count: int, owner: User) -> None:
    value = store_secret(owner.pk, SecretKind.CUSTOM, name="first", value=CLEAR).value
    Secret.objects.bulk_create(
        Secret(user=user, kind=SecretKind.CUSTOM, name="s", value=value) for user in make_users(count, owner)
    )


def make_settings(count: int, owner: User) -> None:
    UserSettings.objects.bulk_create(UserSettings(user=user) for user in make_users(count, owner))


def make_entries(count: int, owner: User) -> None:
    kind = ContentType.objects.get_for_model(User)
    LogEntry.objects.bulk_create(
        LogEntry(user=user, content_type=kind, object_id="1", object_repr="x", action_flag=CHANGE)
        for user in make_users(count, owner)
    )


MAKERS: dict[str, Callable[[int, User], Any]] = {
    LIST: make_conversations,
    LOOPS: make_loops,
    CONNECTIONS: make_connections,
    REMOTE_AGENTS: make_remote_agents,
    REPAIRS: make_repairs,
    TOKENS: make_tokens,
    SECRETS: make_secrets,
    SETTINGS: make_settings,
    USERS: make_users,
    LOG: make_entries,
}


def statements(browser: Browser, path: str, status: int = 200) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(path).status_code == status
    return [query["sql"] for query in captured]


# What it costs


@pytest.mark.parametrize("path", MAKERS)
@pytest.mark.sampled(2)
def test_a_list_asks_as_much_of_the_database_with_10_rows_as_with_more_than_a_page(
    boss: Browser, alice: User, path: str, is_full: bool
) -> None:
    MAKERS[path](10, alice)
    boss.get(path)  # what is asked once a process, like the kinds of rows, is known from now on
    few = statements(boss, path)
    MAKERS[path](990 if is_full else 110, alice)
    assert len(statements(boss, path)) == len(few)


def test_pages_of_events_ask_as_much_of_the_database_with_10_as_with_1000(
    boss: Browser, conversation: ConversationRef
) -> None:
    pages = ["", "?after=4", "?before=9", "?seq=3", "7/"]
    make_events(conversation, 10)
    boss.get(of(conversation, "events/"))
    few = [len(statements(boss, of(conversation, f"events/{page}"))) for page in pages]
    make_events(conversation, 990)
    pages = ["", "?after=499", "?before=999", "?seq=500", "700/"]
    assert [len(statements(boss, of(conversation, f"events/{page}"))) for page in pages] == few


def test_nothing_counts_conversations_or_events(
    boss: Browser, alice: User, conversation: ConversationRef
) -> None:
    make_loops(60, alice)
    make_events(conversation, 60)
    older = link(boss.get(LIST), "next")
    paths = [
        "/admin/",
        LIST,
        f"{LIST}{older}",
        f"{LIST}?q=title",
        f"{LIST}?owner=local&loop=not_started&deleted=no&since=2020-01-01",
        f"{LIST}?_facets=True",
        of(conversation),
        of(conversation, "history/"),
        of(conversation, "events/"),
        of(conversation, "events/?before=60"),
        of(conversation, "events/3/"),
        LOOPS,
        f"{LOOPS}?status=stopped",
        "/admin/autocomplete/?app_label=sessions_app&model_name=agentloop&field_name=conversation&term=t",
    ]
    counting = [
        sql
        for path in paths
        for sql in statements(boss, path)
        if "COUNT(" in sql.upper() and re.search("conversations_(conversation|event)", sql)
    ]
    assert counting == []


# Lists


def test_every_column_reads_what_the_rows_of_its_list_have(rf: RequestFactory, database: None) -> None:
    """A page shows a dash for a path that leads nowhere, so that nobody would see the mistake."""
    for model, model_admin in admin.site._registry.items():
        annotated = model_admin.get_queryset(rf.get(LIST)).query.annotations
        for cell in [cell for each in type(model_admin).__mro__ for cell in vars(each).values()]:
            path = getattr(cell, "path", None)
            if not isinstance(path, str) or path in annotated:
                continue
            at: Any = model
            for name in path.split("."):
                assert hasattr(at, name), f"{model_admin}: {path}"
                at = getattr(getattr(at, name), "field", None) and at._meta.get_field(name).related_model


def test_a_list_leads_through_every_conversation_once_and_back(boss: Browser, alice: User) -> None:
    make_conversations(120, alice)
    newest_first = [f"title {number:05}" for number in reversed(range(120))]
    pages, page = [], boss.get(LIST)
    while True:
        pages.append(shown(page))
        if not (older := link(page, "next")):
            break
        page = boss.get(LIST + older)
    assert [title for titles in pages for title in titles] == newest_first

    back = [shown(page)]
    while newer := link(page, "prev"):
        page = boss.get(LIST + newer)
        back.append(shown(page))
    assert back == pages[::-1]


def test_connections_that_came_at_the_same_moment_are_all_listed(boss: Browser, alice: User) -> None:
    make_connections(60, alice)
    Connection.objects.update(since=timezone.now())
    first = boss.get(CONNECTIONS)
    second = boss.get(CONNECTIONS + (link(first, "next") or ""))
    ids = re.findall(CONNECTIONS + "([0-9a-f]{32})/change", (first.content + second.content).decode())
    assert len(set(ids)) == 60


PLACES = [
    "2",
    "older",
    "older,",
    "older,x",
    "sideways,1",
    "older,1,2",
    f"newer,{10**30}",
    "older,%00",
    "newer,-5",
]


def test_a_place_that_nobody_wrote_is_no_failure(
    boss: Browser, alice: User, subtests: pytest.Subtests
) -> None:
    make_connections(2, alice)
    for place, path in product(PLACES, [LIST, CONNECTIONS]):
        with subtests.test(place=place, path=path):
            assert boss.get(f"{path}?p={place}").status_code == 200


@pytest.fixture
def various(alice: User, bob: User) -> None:
    """Two conversations that differ in everything."""
    plain = creation.create(alice, conversation_id="plain", title="plain")
    other = creation.create(
        bob,
        conversation_id="0123456789abcdef0123456789abcdef",
        version=Version.V1,
        title="other",
        repository="acme/shop",
        trigger="slack",
    )
    deletion.soft_delete(other)
    AgentLoop.objects.create(conversation_id=other.pk, status=LoopStatus.ERROR)
    Conversation.objects.filter(pk=plain.pk).update(created_at="2024-02-29T23:59:59Z")


FOUND_BY: list[tuple[str, list[str]]] = [
    ("", ["other", "plain"]),
    ("owner=bob", ["other"]),
    ("owner=nobody", []),
    ("version=V1", ["other"]),
    ("trigger=slack", ["other"]),
    ("repository=acme/shop", ["other"]),
    ("repository=acme", []),
    ("loop=error", ["other"]),
    ("loop=not_started", ["plain"]),
    ("deleted=yes", ["other"]),
    ("deleted=no", ["plain"]),
    ("since=2024-03-01", ["other"]),
    ("since=2024-02-29&until=2024-02-29", ["plain"]),
    ("until=2024-02-28", []),
    ("until=9999-12-31", ["other", "plain"]),
    ("owner=bob&deleted=no", []),
    ("owner=&since=yesterday&version=V9&loop=x", ["other", "plain"]),
    ("owner=%00", ["other", "plain"]),
    ("q=plain", ["plain"]),
    ("q=OTHE", ["other"]),
    ("q=bob", ["other"]),
    ("q=01234567", ["other"]),
    ("q=0123456789ABCDEF0123456789abcdef", ["other"]),
    ("q=01234567-89ab-cdef-0123-456789abcdef", ["other"]),
    ("q=%20%20", ["other", "plain"]),
    ("q=..", []),
]


def test_conversations_are_found_by(boss: Browser, various: None, subtests: pytest.Subtests) -> None:
    for query, titles in FOUND_BY:
        with subtests.test(query=query, titles=titles):
            assert shown(boss.get(f"{LIST}?{query}")) == titles


FELT_FOR: list[tuple[str, str]] = [
    (LIST, "title__startswith"),
    (LIST, "creation_parameters__parameters__contains"),
    (TOKENS, "digest__startswith"),
    (SECRETS, "value__startswith"),
    (USERS, "password__startswith"),
]


def test_what_is_not_shown_cannot_be_felt_for(boss: Browser, subtests: pytest.Subtests) -> None:
    for path, lookup in FELT_FOR:
        with subtests.test(path=path, lookup=lookup):
            assert boss.get(f"{path}?{lookup}=a").status_code == 400


OTHERS_FOUND_BY: list[tuple[str, str, int]] = [
    (LOOPS, "status=running", 1),
    (LOOPS, "execution_status=paused", 1),
    (LOOPS, "owner=local", 2),
    (CONNECTIONS, "presence=expired", 1),
    (CONNECTIONS, "presence=present", 1),
    (CONNECTIONS, "user=local&door=v0", 1),
    (TOKENS, "user=local", 2),
    (TOKENS, "revoked=yes", 1),
    (TOKENS, "revoked=no&beginning=cs_", 1),
    (SECRETS, "kind=custom&name=npm&user=local", 1),
    (SETTINGS, "user=local&model=m", 1),
    (USERS, "staff=no", 0),
    (USERS, "superuser=yes&active=yes", 2),
    (LOG, "who=boss&action=pain", 1),
    (LOG, "who=boss&since=2020-01-01&until=2020-01-02", 0),
]


def test_other_rows_are_found_by(boss: Browser, alice: User, subtests: pytest.Subtests) -> None:
    first, second = make_conversations(2, alice)
    AgentLoop.objects.create(conversation=first, status=LoopStatus.RUNNING)
    AgentLoop.objects.create(conversation=second, execution_status=ExecutionStatus.PAUSED)
    Connection.objects.create(conversation=first, user=alice, door="native")
    long_ago = timezone.now() - timedelta(days=1)
    Connection.objects.create(conversation=second, user=alice, door="v0", last_seen_at=long_ago)
    ApiToken.issue(alice.pk, "laptop")
    ApiToken.issue(alice.pk, "lost")[0].revoke()
    store_secret(alice.pk, SecretKind.CUSTOM, name="npm", value=CLEAR)
    UserSettings.objects.create(user=alice, llm_model="m")
    LogEntry.objects.log_actions(User.objects.get(username="boss").pk, [alice], CHANGE, "Painted")
    for path, query, count in OTHERS_FOUND_BY:
        with subtests.test(path=path, query=query):
            assert f"{count} shown" in text_of(boss.get(f"{path}?{query}"))


# One conversation


def test_a_conversations_page_says_what_is_known_of_it(
    boss: Browser, talk: ConversationRef, alice: User
) -> None:
    fork = creation.create(alice, conversation_id="fork", title="the fork")
    Conversation.objects.filter(pk=fork.pk).update(forked_from=talk.pk, forked_at=1)
    Connection.objects.create(conversation_id=talk.pk, user=alice, door="native")
    row = Conversation.objects.get(pk=talk.pk)
    page = text_of(boss.get(of(talk)))
    for fact in ("Title Conversation talk", "ID talk", "Owner local", row.head_digest, "Forks the fork"):
        assert fact in page
    assert "Events 3 " in page
    assert "Connected 1 " in page
    assert "Fork of Conversation talk up to event 1" in text_of(boss.get(of(fork)))


def test_creation_parameters_are_shown_without_keys(boss: Browser, alice: User) -> None:
    parameters = {
        "instructions": "Be brief.",
        "api_key": CLEAR,
        "nested": [{"Authorization": CLEAR, "colour": "green"}],
        "replay": [{"content": CLEAR}],
    }
    tool_servers = {
        "sse_servers": [
            f"https://{CLEAR}.example/",
            {"url": f"https://u:{CLEAR}@host.example/{CLEAR}?k={CLEAR}"},
        ],
        "stdio_servers": [{"name": "files", "command": "mcp", "args": [CLEAR], "env": {"A": CLEAR}}],
    }
    sealed = sealed_parameter(json.dumps(tool_servers))
    conversation = creation.create(alice, parameters=parameters | sealed)
    page = boss.get(of(conversation)).content.decode()
    assert CLEAR not in page
    for harmless in ("Be brief.", "green", "host.example", "files", "mcp", "1 entries"):
        assert harmless in page


def test_tool_servers_that_no_key_opens_are_only_named(
    boss: Browser, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = creation.create(alice, parameters=sealed_parameter("{}"))
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of at least 32 characters")
    boss.force_login(User.objects.get(username="boss"))  # the login was made under the old key
    assert "mcp_config" in boss.get(of(conversation)).content.decode()


# Events


def test_events_are_paged_by_seq(boss: Browser, conversation: ConversationRef) -> None:
    make_events(conversation, 120)

    def seqs(answer: Any) -> list[int]:
        return [int(seq) for seq in re.findall(r"/events/(\d+)/", answer.content.decode())]

    path = of(conversation, "events/")
    first = boss.get(path)
    assert seqs(first) == list(range(50))
    assert link(first, "prev") is None
    second = boss.get(link(first, "next"))  # type: ignore[arg-type]
    third = boss.get(link(second, "next"))  # type: ignore[arg-type]
    assert seqs(second) + seqs(third) == list(range(50, 120))
    assert link(third, "next") is None
    assert seqs(boss.get(link(third, "prev"))) == list(range(50, 100))  # type: ignore[arg-type]
    assert seqs(boss.get(f"{path}?before=120")) == list(range(70, 120))
    assert seqs(boss.get(f"{path}?seq=77")) == list(range(77, 120))


def test_a_page_of_events_that_is_not_there_is_no_failure(
    boss: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    for query in ["after=x", "before=-1", f"seq={10**30}", "after=%00", "seq=999", "before=0"]:
        with subtests.test(query=query):
            assert boss.get(of(talk, f"events/?{query}")).status_code == 200


def test_an_empty_log_has_a_page(boss: Browser, conversation: ConversationRef) -> None:
    assert "No events" in text_of(boss.get(of(conversation, "events/")))


def test_an_event_is_shown_token_by_token_as_it_was_received(
    boss: Browser, conversation: ConversationRef
) -> None:
    raw = '{"action":"message","source":"user","args":{"content":"<b>&","n":1.10,"big":1E5,"empty":{}}}'
    writes.append(conversation, [event(raw=raw)])
    page = boss.get(of(conversation, "events/0/")).content.decode()
    assert "<b>&" not in page
    assert '"content": "<b>&",\n    "n": 1.10,\n    "big": 1E5,\n    "empty": {}\n  }\n}' in unescape(page)


def test_a_payload_is_downloaded_byte_for_byte(boss: Browser, alice: User) -> None:
    conversation = creation.create(alice, conversation_id='a"b;c é')
    raw = '{ "action":"message", "source":"user","args":{"content":"é","n":1.10}}'
    writes.append(conversation, [event(raw=raw)])
    answer = boss.get(of(conversation, "events/0/payload/"))
    assert answer.content == raw.encode()
    assert answer["Content-Disposition"] == 'attachment; filename="conversation-a-b-c-event-0.json"'
    assert answer["Content-Type"] == "application/json"


def test_of_a_long_payload_the_beginning_is_shown(boss: Browser, conversation: ConversationRef) -> None:
    writes.append(conversation, [event("x" * 15_000_000)])
    answer = boss.get(of(conversation, "events/0/"))
    assert "Download everything" in text_of(answer)
    assert len(answer.content) < 1_000_000
    assert len(boss.get(of(conversation, "events/")).content) < 1_000_000


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[]", ["[]"]),
        ('{"a":[1,{"b":"}"}]}', ["{", '  "a": [', "    1,", "    {", '      "b": "}"', "    }", "  ]", "}"]),
        (r'{"a":"\"\\","b":tru', ["{", r'  "a": "\"\\",', '  "b": tru']),
        ('{"a":"cut of', ["{", '  "a": "cut of']),
        ('{"a":"cut \\', ["{", '  "a": "cut \\']),
    ],
)
def test_json_text_is_indented_whole_or_cut_off(text: str, lines: list[str]) -> None:
    assert payload.indented(text).split("\n") == lines


def test_what_is_nested_without_end_is_shown_in_bounds() -> None:
    assert len(payload.indented("[" * payload.READ_MAX_CHARACTERS)) < payload.SHOWN_MAX_CHARACTERS + 10


@pytest.mark.parametrize(
    ("rest", "entry"),
    [
        ("events/", "Read events 0 to 2"),
        ("events/?after=0", "Read events 1 to 2"),
        ("events/?after=2", "Read events (there were none)"),
        ("events/1/", "Read event 1"),
        ("events/1/payload/", "Downloaded the payload of event 1"),
    ],
)
def test_reading_events_is_entered_in_both_logs(
    boss: Browser, talk: ConversationRef, caplog: pytest.LogCaptureFixture, rest: str, entry: str
) -> None:
    reader = User.objects.get(username="boss")
    with caplog.at_level(logging.INFO, logger=server_log.ACTS):
        boss.get(of(talk, rest))
    entries = LogEntry.objects.filter(object_id=str(talk.pk)).values_list("user", "change_message")
    assert list(entries) == [(reader.pk, entry)]
    (line,) = (record.msg for record in caplog.records if record.name == server_log.ACTS)
    assert isinstance(line, dict)
    assert (line["event"], line["by_user"], line["conversation"]) == (f"Admin: {entry}", reader.pk, "talk")
    assert entry in text_of(boss.get(of(talk, "history/")))
    assert entry in text_of(boss.get(LOG))


def test_a_history_says_how_many_entries_it_shows_and_when_they_were_made(
    boss: Browser, talk: ConversationRef
) -> None:
    boss.get(of(talk, "events/1/"))
    entry = LogEntry.objects.get()
    words = text_of(boss.get(of(talk, "history/")))
    assert f"{entry.action_time:%Y-%m-%d %H:%M:%S} boss Read event 1 1 shown" in words


def test_an_empty_list_offers_to_add_nothing_where_nothing_can_be_added(
    boss: Browser, subtests: pytest.Subtests
) -> None:
    for path in [LOOPS, CONNECTIONS, REMOTE_AGENTS, REPAIRS, LOG]:
        with subtests.test(path):
            answer = boss.get(path)
            words = text_of(answer)
            assert re.search(r"<h2[^>]*>No [a-z ]+</h2>", answer.content.decode())
            assert " yet" not in words  # rows are removed again, such as those of closed connections
            assert "Add " not in words
            assert "new item" not in words


def test_an_empty_list_of_a_search_offers_to_clear_it(boss: Browser) -> None:
    assert "Clear search and filters" in text_of(boss.get(f"{LIST}?q=nothing"))


@pytest.mark.parametrize(
    ("path", "place"), [(LOOPS, "Agent loops"), (LOG, "Log entries"), (LIST, "Conversations")]
)
def test_a_page_says_where_it_stands_without_naming_an_application(
    boss: Browser, path: str, place: str
) -> None:
    links = re.findall(r'truncate tracking-tight">\s*(.*?)\s*</a>', boss.get(path).content.decode())
    assert links == [place]


def test_ids_that_begin_alike_can_be_told_apart_and_copied_whole(boss: Browser, alice: User) -> None:
    names = [f"nightly-build-of-the-{name}" for name in ("site", "docs")]
    for name in names:
        creation.create(alice, conversation_id=name)
    codes = re.findall(r'<code class="admin-id"[^>]*>(.*?)</code>', boss.get(LIST).content.decode())
    seen = {re.sub(r'<span class="admin-id-middle">.*?</span>', "…", code) for code in codes}
    assert seen == {"nigh…site", "nigh…docs"}
    assert {re.sub("<[^>]+>", "", code) for code in codes} == set(names)


def test_every_time_is_written_in_one_way(boss: Browser) -> None:
    user = User.objects.get(username="boss")
    for path in (USERS, f"{USERS}{user.pk}/change/"):
        assert f"{user.date_joined:%Y-%m-%d %H:%M:%S}" in text_of(boss.get(path))


def test_looking_at_a_conversations_facts_is_not_reading_it(boss: Browser, talk: ConversationRef) -> None:
    boss.get(of(talk))
    boss.get(LIST)
    assert not LogEntry.objects.exists()


# Nothing can be edited or removed


NO_WAYS = [
    LIST + "add/",
    LIST + "{pk}/delete/",
    LOOPS + "add/",
    LOOPS + "{pk}/delete/",
    CONNECTIONS + "add/",
    REPAIRS + "add/",
    LOG + "add/",
    USERS + "{user}/delete/",
    "/admin/conversations/event/",
    "/admin/conversations/event/add/",
    "/admin/conversations/event/1/change/",
    "/admin/conversations/event/1/delete/",
    "/admin/conversations/purge/add/",
    "/admin/conversations/purge/1/delete/",
    "/admin/conversations/creationparameters/{pk}/change/",
]


def test_there_is_no_way_to_add_or_remove(
    boss: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    AgentLoop.objects.create(conversation_id=talk.pk)
    for method, path in product(["get", "post"], NO_WAYS):
        with subtests.test(method=method, path=path):
            answer = getattr(boss, method)(path.format(pk=talk.pk, user=talk.owner_id), {"post": "yes"})
            assert answer.status_code in (403, 404)
            assert Event.objects.of(talk).count() == 3
            assert AgentLoop.objects.of(talk).exists()


def test_a_conversations_pages_take_nothing(
    boss: Browser, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    before = (Conversation.objects.values().get(pk=talk.pk), list(Event.objects.of(talk).values()))
    for rest, method in product(
        ["change/", "events/", "events/1/", "events/1/payload/", "export/"],
        ["post", "put", "patch", "delete"],
    ):
        with subtests.test(rest=rest, method=method):
            answer = getattr(boss, method)(of(talk, rest), {"title": "mine", "payload": "{}"})
            # The page that only shows facts answers some of these like a GET.
            assert answer.status_code in ((200, 403) if rest == "change/" else (405,))
            assert (
                Conversation.objects.values().get(pk=talk.pk),
                list(Event.objects.of(talk).values()),
            ) == before


JARGON = re.compile(
    r"\b(Lease|Epoch|epoch|[Dd]igest|Door|Turn through|Turn id|Refused writes:?)$", re.MULTILINE
)


def test_labels_of_conversations_loops_and_connections_are_no_names_of_columns(
    boss: Browser, talk: ConversationRef
) -> None:
    AgentLoop.objects.create(conversation_id=talk.pk)
    for path in (of(talk), LOOPS, f"{LOOPS}{talk.pk}/change/", "/admin/sessions_app/connection/"):
        page = boss.get(path).content.decode()
        labels = [each.strip() for each in re.findall(r">([^<>]+)<", page)]
        assert [each for each in labels if JARGON.search(each)] == []


def test_remote_agents_are_shown_with_their_user_and_process_and_whether_they_are_connected(
    boss: Browser, alice: User
) -> None:
    make_remote_agents(1, alice)
    RemoteProgram.objects.create(user=alice, name="gone", gone_at=timezone.now())
    row = RemoteProgram.objects.get(name="helper-0")
    shown = text_of(boss.get(REMOTE_AGENTS))
    for each in ("helper-0", alice.username, "Connected", f"{row.pid} on", "gone", "All", "Not connected"):
        assert each in shown
    page = f"{REMOTE_AGENTS}{row.pk}/change/"
    assert "helper-0" in text_of(boss.get(page))
    assert boss.post(page, {"name": "mine"}).status_code == 403
    assert f'href="{REMOTE_AGENTS}"' in boss.get("/admin/").content.decode()


@pytest.mark.parametrize(("status", "shown"), [("stopped", "-"), ("running", "No")])
def test_a_closed_loop_is_not_said_to_have_lost_its_process(
    boss: Browser, talk: ConversationRef, status: str, shown: str
) -> None:
    AgentLoop.objects.create(conversation_id=talk.pk, status=status, owner_host="elsewhere", owner_pid=1)
    page = boss.get(LOOPS).content.decode()
    assert re.findall(r'class="field-is_held_now[^>]*>\s*(.*?)\s*</td>', page, re.DOTALL) == [shown]


def test_the_lists_offer_no_removal(boss: Browser, talk: ConversationRef) -> None:
    body = {"action": "delete_selected", "_selected_action": [str(talk.pk)], "index": "0", "post": "yes"}
    boss.post(LIST, body)
    assert Conversation.objects.filter(pk=talk.pk).exists()
    assert 'value="delete_selected"' not in boss.get(LIST).content.decode()


# Who may what


CONVERSATION_PAGES = ["", "{pk}/change/", "{pk}/history/"]
READING_PAGES = ["{pk}/events/", "{pk}/events/0/", "{pk}/events/0/payload/"]


def test_only_staff_get_past_the_login_page(
    accounts: None, alice: User, bob: User, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=False, is_superuser=False)
    browsers = [Browser(headers={"host": "localhost"}), log_in(bob), log_in(User.objects.get(pk=alice.pk))]
    for page in [*CONVERSATION_PAGES, *READING_PAGES, "{pk}/export/", "{pk}/do/"]:
        with subtests.test(page):
            path = LIST + page.format(pk=talk.pk)
            answers = [browser.get(path) for browser in browsers]
            assert [answer.status_code for answer in answers] == [302, 302, 302]
            assert {answer["Location"] for answer in answers} == {f"/admin/login/?next={path}"}


@pytest.mark.parametrize(
    ("permissions", "may_look", "may_read"),
    [
        ((), False, False),
        (("conversations.view_event",), False, False),
        (("conversations.view_conversation",), True, False),
        (("conversations.change_conversation",), True, False),
        (("conversations.view_conversation", "conversations.view_event"), True, True),
    ],
)
def test_staff_see_what_their_permissions_let_them(
    staff: Staff, talk: ConversationRef, permissions: tuple[str, ...], may_look: bool, may_read: bool
) -> None:
    browser = staff(*permissions)

    def statuses(pages: list[str]) -> set[int]:
        return {browser.get(LIST + page.format(pk=talk.pk)).status_code for page in pages}

    assert statuses(CONVERSATION_PAGES) == {200 if may_look else 403}
    assert statuses(READING_PAGES) == {200 if may_read else 403}
    assert may_read or (browser.get(of(talk, "export/")).status_code == 403)
    assert may_read or not LogEntry.objects.exists()


def test_staff_that_may_only_look_steer_nothing(
    staff: Staff, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    browser = staff("conversations.view_conversation", "conversations.view_event")
    for action in ["start", "stop", "hide", "restore", "reset_key"]:
        with subtests.test(action):
            assert browser.post(of(talk, "do/"), {"action": action}).status_code == 403
            browser.post(LIST, {"action": action, "_selected_action": [str(talk.pk)], "index": "0"})
            assert not Conversation.objects.deleted().exists()
            assert not ConversationKey.objects.exists()
            assert "Stop agent" not in text_of(browser.get(of(talk)))


def test_staff_that_may_not_read_are_offered_no_events(staff: Staff, talk: ConversationRef) -> None:
    browser = staff("conversations.view_conversation")
    page = text_of(browser.get(of(talk)))
    assert "Open events" not in page
    assert "Export" not in page
    assert "Export as JSON" not in text_of(browser.get(LIST))


def test_a_list_needs_its_own_permission(staff: Staff, subtests: pytest.Subtests) -> None:
    for path in [LOOPS, CONNECTIONS, USE, REPAIRS, TOKENS, SECRETS, SETTINGS, USERS, GROUPS, LOG]:
        with subtests.test(path):
            app, model = path.split("/")[2:4]
            assert staff("conversations.view_conversation").get(path).status_code == 403
            assert staff(f"{app}.view_{model}").get(path).status_code == 200


def test_the_sidebar_shows_what_may_be_seen(staff: Staff) -> None:
    page = staff("sessions_app.view_agentloop").get("/admin/").content.decode()
    assert f'href="{LOOPS}"' in page
    assert f'href="{LIST}"' not in page


def test_staff_without_any_permission_are_told_so(staff: Staff) -> None:
    assert "no permissions yet" in text_of(staff().get("/admin/"))


def test_in_local_mode_the_local_user_needs_no_login(talk: ConversationRef) -> None:
    browser = Browser(headers={"host": "localhost"})
    assert browser.get(of(talk, "events/")).status_code == 200
    assert LogEntry.objects.get().user.get_username() == "local"


def test_a_button_needs_a_post_of_the_admins_own_page(talk: ConversationRef) -> None:
    browser = Browser(enforce_csrf_checks=True, headers={"host": "localhost"})
    assert browser.get(of(talk, "do/") + "?action=hide").status_code == 405
    assert browser.post(of(talk, "do/"), {"action": "hide"}).status_code == 403
    assert not Conversation.objects.deleted().exists()


# What staff do, through the whole server


class Page:
    """A browser of the local user's that answers forms."""

    def __init__(self, rest: httpx.AsyncClient) -> None:
        self._rest = rest

    async def get(self, path: str) -> httpx.Response:
        return await self._rest.get(path, follow_redirects=True)

    async def post(self, path: str, **fields: Any) -> httpx.Response:
        """Send a form of a page, and return the page that its answer leads to."""
        await self._rest.get(LIST)
        token = self._rest.cookies.get("csrftoken")
        body = {**fields, "csrfmiddlewaretoken": token}
        return await self._rest.post(path, data=body, follow_redirects=True)

    async def choose(self, path: str, action: str, *pks: Any) -> httpx.Response:
        """Run an action of a list on these rows."""
        return await self.post(path, action=action, index="0", _selected_action=list(map(str, pks)))


@pytest.fixture
def page(rest: httpx.AsyncClient) -> Page:
    return Page(rest)


async def status_of(conversation: ConversationRef) -> str | None:
    rows = AgentLoop.objects.of(conversation).values_list("status", flat=True)
    return await astore.call(lambda: rows.first())


async def entries(conversation: ConversationRef) -> list[str]:
    rows = LogEntry.objects.filter(object_id=str(conversation.pk)).order_by("pk")
    return await astore.call(lambda: list(rows.values_list("change_message", flat=True)))


async def deleted(conversation: ConversationRef) -> bool:
    return await astore.call(lambda: Conversation.objects.deleted().filter(pk=conversation.pk).exists())


async def test_the_buttons_of_a_conversation_start_stop_hide_and_restore(
    page: Page, conversation: ConversationRef
) -> None:
    do = of(conversation, "do/")
    assert "Started the agent: Conversation talk (talk)." in text_of(await page.post(do, action="start"))
    assert await status_of(conversation) == LoopStatus.RUNNING
    assert "Stopped the agent: " in text_of(await page.post(do, action="stop"))
    assert await status_of(conversation) == LoopStatus.STOPPED
    assert "Deleted: " in text_of(await page.post(do, action="hide"))
    assert await deleted(conversation)
    assert "Restored: " in text_of(await page.post(do, action="restore"))
    assert not await deleted(conversation)
    assert await entries(conversation) == ["Started the agent", "Stopped the agent", "Deleted", "Restored"]


BUTTON = re.compile(r'name="action" value="(\w+)"')


@pytest.mark.parametrize(
    ("columns", "actions"),
    [
        (None, ["start", "hide"]),
        ({"status": "running", "execution_status": "idle"}, ["stop", "hide"]),
        ({"status": "running", "execution_status": "running"}, ["stop", "hide"]),
        ({"status": "running", "execution_status": "paused"}, ["start", "stop", "hide"]),
        ({"status": "stopped", "execution_status": "idle"}, ["start", "hide"]),
        ({"status": "stopped", "execution_status": "paused"}, ["start", "stop", "hide"]),
        ({"status": "stopped", "execution_status": "waiting_for_confirmation"}, ["start", "stop", "hide"]),
        ({"status": "error", "execution_status": "idle"}, ["start", "hide"]),
    ],
)
def test_the_page_of_a_conversation_offers_what_can_be_done_with_it(
    boss: Browser, talk: ConversationRef, columns: dict[str, str] | None, actions: list[str]
) -> None:
    if columns is not None:
        AgentLoop.objects.create(conversation_id=talk.pk, **columns)
    assert BUTTON.findall(boss.get(of(talk)).content.decode()) == actions
    deletion.soft_delete(talk)
    assert BUTTON.findall(boss.get(of(talk)).content.decode()) == ["restore"]


def test_lists_say_of_their_times_that_they_are_utc(boss: Browser, talk: ConversationRef) -> None:
    AgentLoop.objects.create(conversation_id=talk.pk)
    for path, columns in ((LIST, ["Last message", "Created"]), (LOOPS, ["Reserved until"])):
        words = text_of(boss.get(path))
        assert [f"{column} (UTC)" in words for column in columns] == [True] * len(columns)


def test_the_name_of_a_row_is_written_as_it_is_above_its_page(boss: Browser) -> None:
    group = Group.objects.create(name="iPhone notes")
    page = boss.get(f"{GROUPS}{group.pk}/change/").content.decode()
    trail = re.findall(r'class="align-middle inline-block[^"]*">\s*(.*?)\s*</', page)
    assert trail == ["Groups", "iPhone notes"]


@pytest.fixture
def keyed(alice: User) -> ConversationRef:
    """A conversation that clients are given a key of."""
    return creation.create(alice, conversation_id="keyed", version=Version.V1)


def change_of(browser: Browser, conversation: ConversationRef, *, by: str, action: str) -> Any:
    """Do something with a conversation by its page or from the list; return the page that comes of it."""
    if by == "page":
        return browser.post(of(conversation, "do/"), {"action": action}, follow=True)
    form = {"action": action, "_selected_action": [str(conversation.pk)], "index": "0"}
    return browser.post(LIST, form, follow=True)


@pytest.mark.parametrize("by", ["page", "list"])
def test_staff_reset_the_access_key_of_a_conversation_and_its_history_says_so(
    staff: Staff, keyed: ConversationRef, by: str
) -> None:
    browser = staff("conversations.view_conversation", "conversations.change_conversation")
    old = conversation_keys.key_of(keyed)
    said = text_of(change_of(browser, keyed, by=by, action="reset_key"))
    assert "Reset the access key: Conversation keyed (keyed)." in said
    new = conversation_keys.key_of(keyed)
    assert [conversation_keys.opened_by(key) is not None for key in (old, new)] == [False, True]
    assert new not in said
    [entry] = LogEntry.objects.filter(object_id=str(keyed.pk))
    assert entry.change_message == "Reset the access key"


def test_only_a_standing_conversation_with_a_key_offers_to_reset_it(
    boss: Browser, talk: ConversationRef, keyed: ConversationRef
) -> None:
    def is_offered(conversation: ConversationRef) -> bool:
        return "reset_key" in BUTTON.findall(boss.get(of(conversation)).content.decode())

    assert [is_offered(each) for each in (talk, keyed)] == [False, True]
    said = text_of(change_of(boss, talk, by="list", action="reset_key"))
    assert "(talk): It has no access key. Only V1 conversations have one." in said
    deletion.soft_delete(keyed)
    assert not is_offered(keyed)
    said = text_of(change_of(boss, keyed, by="page", action="reset_key"))
    assert "(keyed): It is deleted. Restore it first." in said
    assert not ConversationKey.objects.exists()


def test_where_the_server_asks_for_no_credentials_there_is_no_key_to_reset(keyed: ConversationRef) -> None:
    browser = Browser(headers={"host": "localhost"})
    assert "reset_key" not in BUTTON.findall(browser.get(of(keyed)).content.decode())
    said = text_of(change_of(browser, keyed, by="list", action="reset_key"))
    assert "(keyed): It has no access key. This server asks for no credentials." in said


async def test_hiding_stops_the_agent(page: Page, conversation: ConversationRef) -> None:
    await page.post(of(conversation, "do/"), action="start")
    await page.post(of(conversation, "do/"), action="hide")
    assert await status_of(conversation) == LoopStatus.STOPPED


@pytest.mark.parametrize(
    ("action", "problem"),
    [("start", "It is deleted. Restore it first."), ("hide", "It is already deleted."), ("restore", None)],
)
async def test_what_cannot_be_done_with_one_is_done_with_the_others(
    page: Page, alice: User, action: str, problem: str | None
) -> None:
    standing = await astore.call(creation.create, alice, conversation_id="standing")
    gone = await astore.call(creation.create, alice, conversation_id="gone")
    await astore.call(deletion.soft_delete, gone)
    said = text_of(await page.choose(LIST, action, standing.pk, gone.pk))
    done, left = (gone, standing) if action == "restore" else (standing, gone)
    assert len(await entries(done)) == 1
    assert await entries(left) == []
    assert f"({left.public_id}): {problem or 'It is not deleted.'}" in said


async def test_a_failure_of_the_server_is_told_and_is_no_500(
    page: Page, conversation: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(agent="tests.nowhere.Agent")
    answer = await page.choose(LIST, "start", conversation.pk)
    assert answer.status_code == 200
    assert "(talk): The agent couldn't start. The server's log has the reason." in text_of(answer)
    assert await entries(conversation) == []


@pytest.mark.slow
async def test_an_action_takes_a_hundred_rows_and_no_more(page: Page, alice: User) -> None:
    rows = await astore.call(make_conversations, 101, alice)
    pks = [row.pk for row in rows]
    assert "Nothing was done. Select 100" in text_of(await page.choose(LIST, "hide", *pks))
    assert "Deleted: 100 conversations." in text_of(await page.choose(LIST, "hide", *pks[:100]))
    body = {"action": "restore", "index": "0", "_selected_action": [str(pks[0])], "select_across": "1"}
    assert "Nothing was done" in text_of(await page.post(LIST, **body))


async def test_rows_that_no_list_has_are_no_failure(page: Page, subtests: pytest.Subtests) -> None:
    for key, path in product(["x", "", 10**30, -1], [LIST, LOOPS]):
        with subtests.test(key=key, path=path):
            assert (await page.choose(path, "stop", key)).status_code == 200


async def test_loops_are_started_and_stopped_from_their_list(
    page: Page, conversation: ConversationRef
) -> None:
    await astore.call(lambda: AgentLoop.objects.create(conversation_id=conversation.pk))
    assert "Started the agent: " in text_of(await page.choose(LOOPS, "start", conversation.pk))
    assert await status_of(conversation) == LoopStatus.RUNNING
    assert "Stopped the agent: " in text_of(await page.choose(LOOPS, "stop", conversation.pk))
    assert await status_of(conversation) == LoopStatus.STOPPED


async def test_what_no_button_asks_for_is_not_found(
    page: Page, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    for action in ["", "paint", "export"]:
        with subtests.test(action):
            assert (await page.post(of(conversation, "do/"), action=action)).status_code == 404


# Export


async def test_an_export_holds_the_conversation_and_its_payloads_byte_for_byte(
    page: Page, alice: User
) -> None:
    raw = '{ "action":"message","source":"user","args":{"content":"é","n":1.10}}'
    conversation = await astore.call(
        creation.create, alice, conversation_id="../x".replace("../", "a b"), parameters={"api_key": CLEAR}
    )
    await astore.call(writes.append, conversation, [event(raw=raw), event("two")])
    answer = await page.get(of(conversation, "export/"))
    document = answer.json()
    assert list(document) == ["conversation", "events"]
    assert (document["conversation"]["id"], document["conversation"]["last_seq"]) == ("a bx", 1)
    assert [each["seq"] for each in document["events"]] == [0, 1]
    assert f'"event":{raw}'.encode() in answer.content
    assert CLEAR not in answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="conversation-a-bx.json"'
    assert await entries(conversation) == ["Exported as JSON"]


async def test_several_conversations_are_exported_as_one_list(page: Page, alice: User) -> None:
    refs = [await astore.call(creation.create, alice, conversation_id=f"c{n}") for n in range(3)]
    await astore.call(writes.append, refs[1], [event("hello")])
    answer = await page.choose(LIST, "export", *(ref.pk for ref in refs))
    documents = answer.json()
    assert [each["conversation"]["id"] for each in documents] == ["c2", "c1", "c0"]
    assert [len(each["events"]) for each in documents] == [0, 1, 0]
    assert answer.headers["content-disposition"] == 'attachment; filename="conversations-3.json"'


async def test_an_export_is_read_a_page_at_a_time(
    page: Page, conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    await astore.call(make_events, conversation, 1_200)
    pages: list[int] = []
    read_after = astore.read_after

    async def counted(*arguments: Any) -> Any:
        found = await read_after(*arguments)
        pages.append(len(found))
        return found

    monkeypatch.setattr(astore, "read_after", counted)
    document = (await page.get(of(conversation, "export/"))).json()
    assert [each["seq"] for each in document["events"]] == list(range(1_200))
    assert pages == [500, 500, 200]


@pytest.mark.parametrize(
    ("public_id", "name"),
    [("a/../b", "a-b"), ('"\r\n;', "unnamed"), ("é" * 9, "unnamed"), ("x" * 200, "x" * 80)],
)
def test_a_file_is_named_safely(public_id: str, name: str) -> None:
    assert export.safe_name(public_id) == name


# Tokens


def issued_text(answer: Any) -> str:
    found = re.search(r"cs_[A-Za-z0-9_-]{20,}", answer.content.decode())
    assert found
    return found[0]


def test_an_issued_tokens_text_is_in_one_answer_and_nowhere_else(boss: Browser, bob: User) -> None:
    answer = boss.post(TOKENS + "add/", {"user": bob.pk, "name": "laptop"})
    text = issued_text(answer)
    token = ApiToken.objects.valid().matching(text).get()
    assert (token.user, token.name) == (bob, "laptop")
    assert "no-store" in answer["Cache-Control"]
    assert text not in str(boss.cookies)
    later = [TOKENS, f"{TOKENS}{token.pk}/change/", f"{TOKENS}{token.pk}/history/", LOG, "/admin/"]
    assert not any(text in boss.get(path).content.decode() for path in later)


def test_a_name_that_a_token_of_the_user_has_is_refused(boss: Browser, bob: User) -> None:
    ApiToken.issue(bob.pk, "laptop")
    answer = boss.post(TOKENS + "add/", {"user": bob.pk, "name": "laptop"})
    assert "There is a token named “laptop” already." in answer.content.decode()
    assert ApiToken.objects.count() == 1


def test_no_page_shows_a_digest(boss: Browser, bob: User) -> None:
    token, _ = ApiToken.issue(bob.pk, "laptop")
    answer = boss.post(TOKENS + "add/", {"user": bob.pk, "name": "phone"})
    pages = [answer, *map(boss.get, (TOKENS, f"{TOKENS}{token.pk}/change/", f"{TOKENS}{token.pk}/history/"))]
    digests = list(ApiToken.objects.values_list("digest", flat=True))
    assert not any(digest in page.content.decode() for page in pages for digest in digests)


def test_the_list_of_tokens_says_what_each_can_do(boss: Browser, bob: User) -> None:
    ApiToken.issue(bob.pk, "laptop")
    ApiToken.issue(bob.pk, "ci", Grant(scopes=[Scope.READ, Scope.RUN]))
    page = boss.get(TOKENS).content.decode()
    assert re.findall(r'class="field-can[^>]*>\s*(.*?)\s*</td>', page, re.DOTALL) == [
        "Read and talk to the agent",
        "Full access",
    ]


def test_tokens_are_revoked_once(boss: Browser, bob: User) -> None:
    token, text = ApiToken.issue(bob.pk, "laptop")
    body = {"action": "revoke", "_selected_action": [str(token.pk)], "index": "0"}
    assert "Revoked 1 token." in text_of(boss.post(TOKENS, body, follow=True))
    assert not ApiToken.objects.valid().matching(text).exists()
    revoked_at = ApiToken.objects.get(pk=token.pk).revoked_at
    assert "Revoked 0 tokens." in text_of(boss.post(TOKENS, body, follow=True))
    assert ApiToken.objects.get(pk=token.pk).revoked_at == revoked_at
    assert list(LogEntry.objects.values_list("change_message", flat=True)) == ["Revoked"]


def test_an_issued_token_cannot_be_changed(boss: Browser, bob: User) -> None:
    token, _ = ApiToken.issue(bob.pk, "laptop")
    assert boss.post(f"{TOKENS}{token.pk}/change/", {"name": "mine"}).status_code == 403
    assert boss.post(f"{TOKENS}{token.pk}/delete/", {"post": "yes"}).status_code == 403


def test_staff_issue_no_tokens_for_staff_nor_for_who_may_not_come_in(staff: Staff, bob: User) -> None:
    browser = staff("sessions_app.add_apitoken", "sessions_app.view_apitoken", "conversations.view_event")
    mighty = User.objects.create_superuser("mighty")
    asleep = User.objects.create_user("asleep", is_active=False)
    for user in (mighty, asleep):
        answer = browser.post(TOKENS + "add/", {"user": user.pk, "name": "mine"})
        assert "Select a valid choice" in text_of(answer)
    assert not ApiToken.objects.exists()
    issued_text(browser.post(TOKENS + "add/", {"user": bob.pk, "name": "his"}))


def test_who_may_not_read_what_was_said_issues_no_token_that_could(staff: Staff, bob: User) -> None:
    browser = staff("sessions_app.add_apitoken", "sessions_app.view_apitoken")
    assert browser.get(TOKENS + "add/").status_code == 403
    assert browser.post(TOKENS + "add/", {"user": bob.pk, "name": "his"}).status_code == 403
    assert not ApiToken.objects.exists()


def test_looking_at_tokens_is_not_revoking_them(staff: Staff, bob: User) -> None:
    token, _ = ApiToken.issue(bob.pk, "laptop")
    body = {"action": "revoke", "_selected_action": [str(token.pk)], "index": "0"}
    staff("sessions_app.view_apitoken").post(TOKENS, body)
    assert ApiToken.objects.valid().exists()


# Secrets and settings


def secret_form(owner: User, **changes: Any) -> dict[str, Any]:
    return {
        "user": owner.pk,
        "kind": "custom",
        "name": "NPM_TOKEN",
        "clear": CLEAR,
        "description": "d",
        "host": "",
        **changes,
    }


def test_a_secret_is_stored_sealed_and_never_shown(boss: Browser, bob: User) -> None:
    assert boss.post(SECRETS + "add/", secret_form(bob)).status_code == 302
    secret = Secret.objects.get()
    assert secret_value(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN") == CLEAR
    one = f"{SECRETS}{secret.pk}/"
    paths = [SECRETS, f"{one}change/", f"{one}history/", f"{one}delete/", LOG, "/admin/"]
    pages = [boss.get(path).content.decode() for path in paths]
    assert not any(CLEAR in page or secret.value.token in page for page in pages)


def test_a_secret_is_replaced_by_a_new_value_and_kept_without_one(boss: Browser, bob: User) -> None:
    stored = store_secret(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN", value="old value")
    path = f"{SECRETS}{stored.pk}/change/"
    assert boss.post(path, {"clear": "", "description": "why"}).status_code == 302
    assert secret_value(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN") == "old value"
    assert Secret.objects.get().description == "why"
    assert boss.post(path, {"clear": CLEAR, "description": "why"}).status_code == 302
    assert secret_value(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN") == CLEAR


NO_SECRETS: list[tuple[dict[str, Any], str]] = [
    ({"clear": ""}, "A secret cannot be blank."),
    ({"clear": " \t"}, "A secret cannot be blank."),
    ({"name": ""}, "This field is required."),
    ({"name": " "}, "This field is required."),
    ({"name": "a\0b"}, "Null characters are not allowed."),
    ({"kind": "setting"}, "A secret of this kind must be named llm_api_key"),
    ({"kind": "provider_token"}, "A secret of this kind must be named"),
    ({"kind": "magic"}, "Select a valid choice."),
    ({"user": 10**9}, "Select a valid choice."),
    ({"host": "git.example"}, "Only provider tokens have a host."),
]


def test_a_secret_that_cannot_be_kept_is_refused(boss: Browser, bob: User, subtests: pytest.Subtests) -> None:
    for changes, problem in NO_SECRETS:
        with subtests.test(changes=changes, problem=problem):
            answer = boss.post(SECRETS + "add/", secret_form(bob, **changes))
            assert answer.status_code == 200
            assert problem in text_of(answer)
            assert CLEAR not in answer.content.decode()
            assert not Secret.objects.exists()


def test_a_second_secret_of_a_name_is_refused(boss: Browser, bob: User) -> None:
    store_secret(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN", value="old value")
    assert "already exists" in text_of(boss.post(SECRETS + "add/", secret_form(bob)))
    assert secret_value(bob.pk, SecretKind.CUSTOM, name="NPM_TOKEN") == "old value"


def test_settings_are_edited_and_what_is_left_empty_is_not_set(boss: Browser, bob: User) -> None:
    UserSettings.objects.create(user=bob, llm_model="old", language="de", git_user_name="Bob")
    path = f"{SETTINGS}{bob.pk}/change/"
    assert boss.post(path, {"llm_model": "new", "language": "", "max_iterations": "7"}).status_code == 302
    row = UserSettings.objects.get()
    shown = (row.llm_model, row.language, row.max_iterations, row.git_user_name)
    assert shown == ("new", None, 7, None)


def test_a_form_that_was_open_for_long_writes_only_what_was_edited_in_it(boss: Browser, bob: User) -> None:
    UserSettings.objects.create(user=bob, llm_model="old")
    path = f"{SETTINGS}{bob.pk}/change/"
    page = boss.get(path)
    form = page.context["adminform"].form
    values = {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}
    carried = dict(
        re.findall(r'<input type="hidden" name="(initial-\w+)"(?: value="([^"]*)")?', page.content.decode())
    )
    UserSettings.objects.update(git_user_name="Bob", enable_sound_notifications=True, max_iterations=5)
    assert boss.post(path, {**values, **carried, "llm_model": "new"}).status_code == 302
    row = UserSettings.objects.get()
    assert (row.llm_model, row.git_user_name, row.max_iterations) == ("new", "Bob", 5)
    assert row.enable_sound_notifications


def test_settings_are_made_for_a_user_who_has_none(boss: Browser, bob: User) -> None:
    assert boss.post(SETTINGS + "add/", {"user": bob.pk, "llm_model": "m"}).status_code == 302
    assert UserSettings.objects.get().user == bob
    answer = boss.post(SETTINGS + "add/", {"user": bob.pk, "condenser_max_size": "3"})
    assert "already exists" in text_of(answer)
    assert "greater than or equal to 20" in text_of(answer)


def test_a_search_for_a_page_that_is_no_number_is_refused(boss: Browser, subtests: pytest.Subtests) -> None:
    for page, status in [("x", 400), ("-1", 400), ("1", 200)]:
        with subtests.test(page=page, status=status):
            assert boss.get("/admin/search/", {"s": "conversations", "page": page}).status_code == status


# Users and groups


def test_users_are_made_and_changed(boss: Browser) -> None:
    passwords = {"password1": "correct horse 1", "password2": "correct horse 1"}
    assert boss.post(USERS + "add/", {"username": "carol", **passwords}).status_code == 302
    carol = User.objects.get(username="carol")
    body = {"username": "carol", "email": "c@example.org", "is_staff": "on", "is_active": "on"}
    assert boss.post(f"{USERS}{carol.pk}/change/", body).status_code == 302
    assert User.objects.get(pk=carol.pk).is_staff


def test_no_form_of_a_user_speaks_of_logins_that_this_server_does_not_have(boss: Browser, bob: User) -> None:
    for path in ("add/", f"{bob.pk}/change/", f"{bob.pk}/password/"):
        page = boss.get(USERS + path).content.decode()
        assert [each for each in ("LDAP", "Single Sign-On", "usable_password") if each in page] == []


def test_a_password_that_staff_sets_lets_its_user_in(boss: Browser, bob: User) -> None:
    bob.set_password("the old one")
    bob.save()
    passwords = {"password1": "correct horse 2", "password2": "correct horse 2"}
    assert boss.post(f"{USERS}{bob.pk}/password/", passwords).status_code == 302
    assert User.objects.get(pk=bob.pk).check_password("correct horse 2")


def test_only_superusers_hand_out_rights(staff: Staff, bob: User) -> None:
    browser = staff(
        *(
            f"auth.{verb}_{model}"
            for verb in ("view", "add", "change", "delete")
            for model in ("user", "group")
        )
    )
    body = {
        "username": "bob",
        "is_active": "on",
        "is_staff": "on",
        "is_superuser": "on",
        "user_permissions": ["1"],
    }
    assert browser.post(f"{USERS}{bob.pk}/change/", body).status_code == 302
    changed = User.objects.get(pk=bob.pk)
    assert (changed.is_staff, changed.is_superuser, changed.user_permissions.count()) == (False, False, 0)
    mighty = User.objects.create_superuser("mighty")
    assert browser.post(f"{USERS}{mighty.pk}/change/", body).status_code == 403
    assert browser.post(f"{USERS}{mighty.pk}/password/", body).status_code == 403
    group = Group.objects.create(name="readers")
    assert browser.post(f"{GROUPS}{group.pk}/change/", {"name": "x"}).status_code == 403
    assert browser.post(GROUPS + "add/", {"name": "x"}).status_code == 403
    group.delete()


# The first page and the banner


def repair(conversation: ConversationRef, turn_id: str, **values: Any) -> None:
    process = this_process()
    Repair.objects.create(
        conversation_id=conversation.pk,
        turn_id=turn_id,
        **{"host": process.host, "pid": process.pid, **values},
    )


@pytest.mark.parametrize("path", ["/admin/", LIST])
def test_repaired_turns_are_told_of_with_the_way_to_their_conversations(
    boss: Browser, talk: ConversationRef, path: str
) -> None:
    assert "interrupted" not in text_of(boss.get(path))
    repair(talk, "one")
    repair(talk, "two", pid=1)
    repair(talk, "old", repaired_at=timezone.now() - repairs.RECENT - timedelta(minutes=1))
    answer = boss.get(path)
    said = "2 interrupted turns were repaired in the last 24 hours, 1 of them since this server started."
    assert said in text_of(answer)
    assert f'href="{of(talk)}"' in answer.content.decode()


def test_turns_that_went_on_are_told_from_those_that_were_ended(boss: Browser, talk: ConversationRef) -> None:
    repair(talk, "ended")
    repair(talk, "went on", has_ended=False, continuations=1)
    repair(talk, "went on, then ended", continuations=2)
    assert "1 of them went on, the others were ended." in text_of(boss.get("/admin/"))
    shown = text_of(boss.get("/admin/sessions_app/repair/"))
    assert all(said in shown for said in ("Ended", "Went on", "Went on 2 times, then ended"))


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 interrupted turn was repaired in the last 24 hours, since this server started."),
        (2, "2 interrupted turns were repaired in the last 24 hours, all of them since this server started."),
    ],
)
def test_turns_that_were_all_repaired_since_the_start_are_not_counted_twice(
    boss: Browser, talk: ConversationRef, count: int, said: str
) -> None:
    for number in range(count):
        repair(talk, f"turn {number}")
    shown = text_of(boss.get("/admin/"))
    assert said in shown
    assert re.search(rf"this server started\. Conversation{'s' if count > 1 else ''}: \S", shown)


def test_of_many_repaired_turns_some_are_linked(boss: Browser, talk: ConversationRef) -> None:
    for number in range(cells.NAMED_MAX + 2):
        repair(talk, f"turn {number}", pid=1)
    assert "7 interrupted turns were repaired in the last 24 hours." in text_of(boss.get("/admin/"))
    assert "and 2 more" in text_of(boss.get("/admin/"))


def test_who_may_see_no_conversation_is_told_of_none(staff: Staff, talk: ConversationRef) -> None:
    repair(talk, "one")
    assert "interrupted" not in text_of(staff("sessions_app.view_agentloop").get("/admin/"))


# The content security policy


STRICT = "default-src 'self'"


def policy_of(answer: Any) -> dict[str, str]:
    return dict(part.split(maxsplit=1) for part in answer["Content-Security-Policy"].split("; "))


def test_pages_beside_the_admin_keep_the_strict_policy(boss: Browser, subtests: pytest.Subtests) -> None:
    for path in ["/", "/ui/login", "/health", "/api/native/conversations", "/nowhere", "/adminx"]:
        with subtests.test(path):
            policy = policy_of(boss.get(path))
            assert policy["default-src"] == "'self'"
            assert not {"script-src", "style-src", "style-src-elem", "style-src-attr"} & policy.keys()


def test_the_admins_policy_lets_in_unfolds_colours_and_no_other_text_of_a_page(
    boss: Browser, subtests: pytest.Subtests
) -> None:
    for path in ["/admin/", LIST, LOOPS, TOKENS + "add/", USERS, "/admin/login/"]:
        with subtests.test(path):
            answer = boss.get(path, follow=True)
            page = answer.content.decode()
            styles = re.findall(r"<style[^>]*>(.*?)</style>", page, re.DOTALL)
            hashes = [f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" for style in styles]
            policy = policy_of(answer)
            assert policy["style-src-elem"] == " ".join(["'self'", *hashes])
            assert len(styles) == 1
            assert policy["script-src"] == "'self' 'unsafe-eval'"
            assert policy["default-src"] == "'self'"
            assert re.findall(r"<script(?![^>]* src=)", page) == []
            assert re.findall(r'\son[a-z]+="', page) == []
            assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"', page) == []


def test_a_style_sheet_in_a_title_gets_no_hash(boss: Browser, talk: ConversationRef) -> None:
    title = '<style id="unfold-theme-colors">*{}</style>'
    Conversation.objects.filter(pk=talk.pk).update(title=title)
    for path in (LIST, of(talk), of(talk, "events/")):
        answer = boss.get(path)
        assert title not in answer.content.decode()
        assert policy_of(answer)["style-src-elem"].count("sha256-") == 1
