"""Reads that are answered before the views: the same as by their views, and only for whoever may."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError

from conversations import provisional_titles
from conversations.log import writes
from conversations.models import ConversationRef, Version
from conversations.store import DatabaseConversationStore, creation, deletion
from convserver.api.direct import callers, recent_failure
from convserver.api.direct.reads import ROUTES
from convserver.api.direct.recent_failure import LONG_S, REMEMBERED_S, RecentFailure
from convserver.quotas import Quotas
from convserver.serving import admission
from sessions_app import astore
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import conversation_keys
from sessions_app.live import marks
from sessions_app.models import ApiToken, Grant, Scope
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.support.data.events import delete_events, event
from tests.support.wires.direct_doors import DirectDoors
from tests.support.wires.v1_socket import v1_event, v1_events

NATIVE, V0, APP, AGENT = (
    "/api/native/conversations",
    "/api/conversations",
    "/api/v1/app-conversations",
    "/agent/api/conversations",
)
EVENTS = "/api/v1/events/search?conversation_id__eq="
GOOD = {
    "native-conversation-detail": f"{NATIVE}/{{v0}}",
    "native-conversation-list": f"{NATIVE}?limit=2",
    "v0-conversation": f"{V0}/{{v1}}",
    "v0-conversations": f"{V0}?limit=2",
    "app-conversations": f"{APP}?ids={{child}}&ids={{v1}}",
    "app-search": f"{APP}/search?limit=2",
    "app-event-search": f"{EVENTS}{{v1}}&limit=2",
    "agent-events-search": f"{AGENT}/{{v1}}/events/search?limit=2",
    "agent-conversation": f"{AGENT}/{{v1}}",
    "agent-conversations-search": f"{AGENT}/search?limit=2",
}
"""By route, a read that is like most."""
OTHERS = (
    *(
        f"{NATIVE}/{which}"
        for which in ("{v1}", "{child}", "{spelled}", "{deleted}", "other", "a..b", "search")
    ),
    *(
        f"{NATIVE}{query}"
        for query in ("", "?limit=100", "?limit=0", "?limit=101", "?limit=01000", "?limit=x", "?limit=٣")
    ),
    *(
        f"{NATIVE}{query}"
        for query in ("?limit=1&limit=2", "?pinned=true", "?page_id=x", "?limit=", "?deleted=true")
    ),
    *(
        f"{V0}/{which}"
        for which in ("{v0}", "{child}", "{spelled}", "{deleted}", "other", "a..b", "{v0}?a=b")
    ),
    *(
        f"{V0}{query}"
        for query in ("", "?limit=100", "?limit=0", "?limit=x", "?include_sub_conversations=true")
    ),
    *(f"{APP}{query}" for query in ("", "?ids=", "?ids=x", "?ids={v0}", "?ids={deleted}", "?ids={v1}&a=b")),
    f"{APP}?ids={{grandchild}}&ids={uuid4()}&ids={{spelled}}&ids={{v1}}",
    *(f"{APP}/search{query}" for query in ("", "?limit=0", "?limit=3&title__contains=a")),
    *(
        f"{EVENTS}{which}"
        for which in ("{v0}", "{v1}", "{spelled}", "{deleted}", "{child}", "x", str(uuid4()))
    ),
    *(f"{EVENTS}{{v1}}&{more}" for more in ("limit=1", "limit=0", "sort_order=TIMESTAMP_DESC", "limit=1000")),
    *(
        f"{EVENTS}{{v1}}&{more}"
        for more in ("sort_order=TIMESTAMP_DESC&limit=2", "sort_order=x", "page_id=x")
    ),
    *(f"{EVENTS}{{v1}}&{more}" for more in ("kind__eq=MessageEvent", "kind__eq=x", "a=b")),
    "/api/v1/events/search?limit=3",
    *(f"{AGENT}/{which}" for which in ("{v0}", "{child}", "{spelled}", "{deleted}", "other", "{v1}?a=b")),
    *(
        f"{AGENT}/{which}/events/search"
        for which in ("{v0}", "{v1}", "{spelled}", "{deleted}", "{child}", "other", "a..b")
    ),
    *(
        f"{AGENT}/{{v1}}/events/search?{more}"
        for more in ("limit=1", "limit=0", "limit=101", "limit=x", "sort_order=TIMESTAMP_DESC&limit=2")
    ),
    *(
        f"{AGENT}/{{v1}}/events/search?{more}"
        for more in ("limit=4", "page_id=x", "page_id=", "kind=MessageEvent", "a=b", "limit=1&limit=3")
    ),
    *(
        f"{AGENT}/search{query}"
        for query in ("", "?limit=0", "?limit=3&sort_order=CREATED_AT", "?status=idle")
    ),
)
"""Other reads, good and bad."""
HEADERS: tuple[dict[str, str], ...] = (
    {"accept": "text/html"},
    {"accept": "application/json; indent=4"},
    {"if-none-match": "*"},
    {"cookie": "sessionid=abc"},
    {"origin": "http://localhost"},
    {"host": "127.0.0.1:80"},
    {"x-forwarded-proto": "https"},
)


class World(NamedTuple):
    """Alice's conversations."""

    v0: ConversationRef
    v1: ConversationRef
    child: ConversationRef
    grandchild: ConversationRef
    deleted: ConversationRef

    def address(self, path: str) -> str:
        ids = {name: conversation.public_id for name, conversation in self._asdict().items()}
        spelled = f"{ids['v1'][:8]}-{ids['v1'][8:12]}-{ids['v1'][12:16]}-{ids['v1'][16:20]}-{ids['v1'][20:]}"
        for name, public_id in {**ids, "spelled": spelled.upper()}.items():
            path = path.replace(f"{{{name}}}", public_id)
        return path


class Doors(DirectDoors):
    """The direct reads before the views, and the views alone."""

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Read as a client does, before the views."""
        async with self.client(self.direct, **headers) as client:
            return await client.get(path)

    async def warmed_up(self, world: World, **headers: str) -> None:
        """Read by each route, so that the caller is known."""
        for path in GOOD.values():
            assert (await self.get(world.address(path), **headers)).status_code == 200

    async def compare(self, method: str, path: str, **headers: str) -> int:
        """Require that both answer the same, and return the status."""
        answers = []
        for application in (self.direct, self.views):
            async with self.client(application, **headers) as client:
                answer = await client.request(method, path)
            answers.append((answer.status_code, answer.content, sorted(answer.headers.multi_items())))
        assert answers[0] == answers[1], (method, path, headers)
        return answers[0][0]


@pytest.fixture
def doors(live: None, alice: User) -> Doors:
    return Doors()


@pytest.fixture
def world(alice: User) -> World:
    def new(version: Version = Version.V1, **facts: Any) -> ConversationRef:
        return creation.create(alice, conversation_id=uuid4().hex, version=version, **facts)

    v0 = new(Version.V0, title="Ä title", repository="a/b", branch="main", tags={"a": "b"})
    provisional = {provisional_titles.PARAMETER: provisional_titles.PROVISIONAL}
    v1 = agent_setups.create(
        alice,
        NewSetup(agent={"kind": "Agent", "llm": {"api_key": "k"}}, workspace={"working_dir": "w"}),
        conversation_id=uuid4().hex,
        events=v1_events(4),
    )
    child = new(parent_id=v1.pk, parameters=provisional, title="made")
    grandchild, deleted = new(parent_id=child.pk), new(parent_id=v1.pk)
    writes.append(v0, [event()])
    deletion.soft_delete(deleted)
    marks.mark(alice.pk, v0, pinned=True)
    return World(v0, v1, child, grandchild, deleted)


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch, live: None) -> list[float]:
    """Let callers be known by a clock that stands; its only item is what it shows."""
    now = [0.0]
    monkeypatch.setattr(callers, "_callers", PerEventLoop(lambda: _watched(now)))
    return now


def _watched(now: list[float]) -> callers.Callers:
    made = callers.Callers(lambda: now[0])
    callers._all.add(made)
    return made


def test_each_route_is_compared() -> None:
    assert {route.name for route in ROUTES} == GOOD.keys()


@pytest.mark.slow(on="sqlite")
async def test_reads_are_answered_as_their_views_answer(doors: Doors, world: World) -> None:
    await doors.warmed_up(world)
    for path in (*GOOD.values(), *OTHERS):
        for method in ("GET", "HEAD"):
            await doors.compare(method, world.address(path))
    for path in GOOD.values():
        for headers in HEADERS:
            await doors.compare("GET", world.address(path), **headers)
        await doors.compare("OPTIONS", world.address(path))


@pytest.mark.slow(on="postgresql")
async def test_every_sort_of_client_is_answered_as_by_the_views(
    accounts: None, doors: Doors, world: World, alice: User, bob: User
) -> None:
    async def token(user: User, grant: Grant | None = None) -> dict[str, str]:
        _, text = await sync_to_async(ApiToken.issue)(user.pk, uuid4().hex, *([grant] if grant else []))
        return {"authorization": f"Bearer {text}"}

    own = await token(alice)
    key = await sync_to_async(conversation_keys.key_of)(world.v1)
    clients: tuple[dict[str, str], ...] = (
        own,
        {"x-session-api-key": own["authorization"].removeprefix("Bearer ")},
        await token(bob),
        await token(alice, Grant(scopes=(Scope.READ,))),
        await token(alice, Grant(scopes=(Scope.READ,), conversation=world.v1)),
        {"x-session-api-key": key},
        {"authorization": f"Bearer {key}"},
        {"authorization": "Bearer nonsense"},
        {},
    )
    await doors.warmed_up(world, **own)
    statuses = set()
    for headers in clients:
        for path in (*GOOD.values(), f"{AGENT}/{{child}}", f"{V0}/{{v0}}", f"{APP}?ids={{v1}}&ids={{child}}"):
            for _ in range(2):  # by a client who is not known yet, and by one who is
                statuses.add(await doors.compare("GET", world.address(path), **headers))
    assert statuses >= {200, 401, 404}


@pytest.mark.parametrize("route", GOOD)
async def test_a_read_like_most_asks_no_view(doors: Doors, world: World, route: str) -> None:
    path = world.address(GOOD[route])
    assert [(await doors.get(path)).status_code for _ in range(3)] == [200] * 3
    assert doors.left_to_views == 0


@pytest.mark.parametrize("hsts_s", [0, 300])
async def test_successes_have_the_headers_of_their_views(
    live: None, world: World, alice: User, settings: Any, hsts_s: int
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = hsts_s
    doors = Doors()
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    for path in GOOD.values():
        for scheme in ("http", "https"):
            for key in ({}, {"authorization": f"Bearer {text}"}):
                headers = {"x-forwarded-proto": scheme, **key}
                assert await doors.compare("GET", world.address(path), **headers) == 200
    assert doors.left_to_views == 0


async def test_an_event_is_shown_from_the_next_read_on(doors: Doors, world: World) -> None:
    await doors.warmed_up(world)
    await sync_to_async(writes.append)(world.v1, [v1_event("the newest")])
    newest = f"{EVENTS}{world.v1.public_id}&sort_order=TIMESTAMP_DESC&limit=1"
    assert '"the newest"' in (await doors.get(newest)).text
    assert (await doors.get(f"{NATIVE}/{world.v1.public_id}")).json()["last_seq"] == 4


async def test_pages_of_events_go_on_where_the_one_before_ended(doors: Doors, world: World) -> None:
    await doors.warmed_up(world)
    for order in ("TIMESTAMP", "TIMESTAMP_DESC"):
        path = f"{EVENTS}{world.v1.public_id}&limit=3&sort_order={order}"
        page_id = (await doors.get(path)).json()["next_page_id"]
        assert await doors.compare("GET", f"{path}&page_id={page_id}") == 200
        other = f"{EVENTS}{world.v0.public_id}&page_id={page_id}"
        assert await doors.compare("GET", other) == 400
        path = world.address(f"{AGENT}/{{v1}}/events/search?limit=3&sort_order={order}")
        first = (await doors.get(path)).json()
        assert await doors.compare("GET", f"{path}&page_id={first['next_page_id']}") == 200
        # An agent server's own page id: the event with which the page begins.
        assert await doors.compare("GET", f"{path}&page_id={first['items'][1]['id']}") == 200
        other_order = path.replace(order, "TIMESTAMP" if order.endswith("DESC") else "TIMESTAMP_DESC")
        assert await doors.compare("GET", f"{other_order}&page_id={first['next_page_id']}") == 422


Take = Callable[[User, ApiToken, World], object]


def revoke(alice: User, token: ApiToken, world: World) -> None:
    token.revoke()


def deactivate(alice: User, token: ApiToken, world: World) -> None:
    alice.is_active = False
    alice.save()


@pytest.mark.parametrize("take_away", [revoke, deactivate])
async def test_access_that_is_taken_away_ends_with_the_next_read(
    accounts: None, stopped_clock: list[float], doors: Doors, world: World, alice: User, take_away: Take
) -> None:
    token, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    key = {"authorization": f"Bearer {text}"}
    for _ in range(2):
        await doors.warmed_up(world, **key)
    await sync_to_async(take_away)(alice, token, world)
    for path in GOOD.values():
        assert await doors.compare("GET", world.address(path), **key) == 401


async def test_a_conversation_that_was_deleted_just_now_is_not_found(
    stopped_clock: list[float], doors: Doors, world: World
) -> None:
    await doors.warmed_up(world)
    for conversation in (world.v0, world.v1):
        await sync_to_async(deletion.soft_delete)(conversation)
    statuses = {
        route: await doors.compare("GET", world.address(path)) for route, path in GOOD.items() if "{" in path
    }
    assert statuses["native-conversation-detail"] == statuses["agent-conversation"] == 404
    shown = (await doors.get(world.address(GOOD["app-conversations"]))).json()
    assert [each and each["id"] for each in shown] == [world.child.public_id, None]


async def test_a_rotated_key_of_a_conversation_reads_nothing_from_the_next_request_on(
    accounts: None, stopped_clock: list[float], doors: Doors, world: World, alice: User
) -> None:
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    await doors.warmed_up(world, authorization=f"Bearer {text}")
    key = {"x-session-api-key": await sync_to_async(conversation_keys.key_of)(world.v1)}
    path = world.address(GOOD["agent-conversation"])
    left = doors.left_to_views
    assert [(await doors.get(path, **key)).status_code for _ in range(2)] == [200, 200]
    assert doors.left_to_views == left
    await sync_to_async(conversation_keys.rotate)(world.v1)
    assert await doors.compare("GET", path, **key) == 401


async def test_a_change_without_a_signal_counts_after_a_second(
    accounts: None, stopped_clock: list[float], doors: Doors, world: World, alice: User
) -> None:
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    key = {"authorization": f"Bearer {text}"}
    await doors.warmed_up(world, **key)
    await User.objects.filter(pk=alice.pk).aupdate(is_active=False)
    stopped_clock[0] = callers.KNOWN_S
    assert await doors.compare("GET", world.address(GOOD["v0-conversation"]), **key) == 401


async def test_a_read_counts_once_for_its_users_quota(
    configured: Callable[..., None], doors: Doors, world: World
) -> None:
    configured(quotas=Quotas(requests_per_minute=4))
    path = world.address(GOOD["native-conversation-detail"])
    paths = [path, path, f"{NATIVE}/other", path, path]
    assert [(await doors.get(each)).status_code for each in paths] == [200, 200, 404, 200, 429]


async def test_a_read_that_waits_too_long_is_left_to_its_view(
    doors: Doors, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.address(GOOD["native-conversation-detail"])
    assert [(await doors.get(path)).status_code for _ in range(2)] == [200, 200]
    monkeypatch.setattr(admission, "WAIT_S", 0.05)
    have_begun, may_end = threading.Semaphore(0), threading.Event()

    def long() -> None:
        have_begun.release()
        may_end.wait()

    others = [asyncio.ensure_future(astore.database().read(None, long)) for _ in range(astore.READERS)]
    for _ in others:
        await asyncio.to_thread(have_begun.acquire)
    try:
        assert (await doors.get(path)).status_code == 200
        assert doors.left_to_views == 1
    finally:
        may_end.set()
        await asyncio.gather(*others)


class OwnStore(DatabaseConversationStore):
    """A store that somebody has written."""


async def test_a_store_of_ones_own_is_asked_by_the_view(doors: Doors, world: World, settings: Any) -> None:
    settings.CONVERSATION_STORE = f"{__name__}.OwnStore"
    path = world.address(GOOD["native-conversation-detail"])
    assert [(await doors.get(path)).status_code for _ in range(3)] == [200] * 3
    assert doors.left_to_views == 3


async def test_a_failure_that_others_have_waited_for_is_answered_at_once(
    doors: Doors, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await doors.warmed_up(world)
    now = [0.0]

    def failing() -> None:
        now[0] += LONG_S
        raise OperationalError("couldn't get a connection")

    remembered = RecentFailure(lambda: now[0])
    monkeypatch.setattr(recent_failure, "_recent_failures", PerEventLoop(lambda: remembered))
    with pytest.raises(OperationalError):
        remembered.run(failing)
    for path in GOOD.values():
        answer = await doors.get(world.address(path))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), path
    now[0] += REMEMBERED_S
    for path in GOOD.values():
        assert await doors.compare("GET", world.address(path)) == 200


async def test_a_key_that_is_sent_twice_is_judged_by_the_view(
    accounts: None, doors: Doors, world: World, alice: User
) -> None:
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    await doors.warmed_up(world, authorization=f"Bearer {text}")
    path = world.address(GOOD["native-conversation-detail"])
    answers = []
    for application in (doors.direct, doors.views):
        async with doors.client(application) as client:
            keys = [("x-session-api-key", "wrong"), ("x-session-api-key", text)]
            answers.append((await client.get(path, headers=keys)).status_code)
    assert answers[0] == answers[1]


async def test_events_behind_a_hole_in_a_log_are_shown(doors: Doors, world: World) -> None:
    await doors.warmed_up(world)
    await sync_to_async(writes.append)(world.v1, v1_events(20))
    await sync_to_async(delete_events)(world.v1, range(6, 12))
    for limit in (3, 8, 30):
        for order in ("", "&sort_order=TIMESTAMP_DESC"):
            path = f"{EVENTS}{world.v1.public_id}&limit={limit}{order}"
            while path:
                async with doors.client(doors.views) as client:
                    following = (await client.get(path)).json()["next_page_id"]
                assert await doors.compare("GET", path) == 200
                path = (
                    f"{EVENTS}{world.v1.public_id}&limit={limit}{order}&page_id={following}"
                    if following
                    else ""
                )
