"""What `make wires` reads out of packages, and that the page of compatibility is about routes that exist."""

from __future__ import annotations

from pathlib import Path

from django.urls import Resolver404, resolve

from wires import documented, packages, sources

ROUTER = """
SECRETS_PATH = "/secrets"  # below the settings
settings_router = APIRouter(
    prefix="/settings", tags=["Settings"], dependencies=[Depends(check)]
)

@settings_router.get("", response_model=Settings)
async def settings(request: Request) -> Settings: ...

@settings_router.put(
    SECRETS_PATH,
    responses={404: {"description": "none"}},
)
async def put_secret[T: Secret](secret: T) -> T: ...

@settings_router.post("/hidden", include_in_schema=False)
def hidden() -> None: ...

@settings_router.websocket("/{name}/changes")
async def changes(name: str) -> None: ...
"""
EVENTS = """
class Event(Model, ABC): ...

class Shown(Event, ABC): ...

class MessageEvent(Shown):
    text: str

class Kind(StrEnum): ...
"""


def test_routes_are_read_whatever_the_syntax_around_them(tmp_path: Path) -> None:
    (tmp_path / "settings_router.py").write_text(ROUTER)
    assert sources.routes_of(sources.AGENT_SERVER, tmp_path) == {
        "GET /agent/api/settings",
        "PUT /agent/api/settings/secrets",
        "WEBSOCKET /agent/api/settings/{}/changes",
    }


def test_kinds_of_events_are_the_classes_that_no_other_builds_on(tmp_path: Path) -> None:
    events = tmp_path / "openhands" / "sdk" / "event"
    events.mkdir(parents=True)
    (events / "message.py").write_text(EVENTS)
    assert sources.event_kinds(tmp_path) == {"MessageEvent"}


def test_a_wheel_and_a_tarball_are_named_by_their_files(tmp_path: Path) -> None:
    for name in ("openhands_sdk-1.58.2-py3-none-any.whl", "openhands-agent-canvas-1.20.0.tgz"):
        assert packages.named(tmp_path / name)[1] in name


def test_a_known_difference_that_is_documented_by_now_is_taken_off_the_list() -> None:
    assert set(documented.known()) & set(documented.rows()) == set()
    assert documented.known() == sorted(set(documented.known()))


def test_each_documented_route_of_http_leads_to_a_view_unless_its_row_says_that_it_is_not_served() -> None:
    for each, row in documented.rows().items():
        method, path = each.split(" ", 1)
        if method != "WEBSOCKET":
            assert _resolves(path) is ("not served" not in row), each


def _resolves(path: str) -> bool:
    try:
        resolve(path.replace("{}", "x"))
    except Resolver404:
        return False
    return True
