"""docs/compatibility.md has a row for every endpoint and every known defect, and the tests it names exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.urls import Resolver404, resolve

from convserver.api import shared_origin
from convserver.api.v0.urls import urlpatterns as v0_urls
from convserver.api.v1.agent import urls
from convserver.api.v1.app import urls as app_urls

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "compatibility.md").read_text()

V0_PAGE, _, V1_PAGE = PAGE.partition("## V1: app face")

DEFECTS = {
    *(f"L{number}" for number in range(1, 17)),
    *(f"S{number}" for number in range(1, 18)),
    *(f"D{number}" for number in range(1, 17)),
    *(f"P{number}" for number in range(1, 29)),
    *(f"A{number}" for number in range(1, 17)),
}

V1_DEFECTS = {
    *(f"A{number}" for number in range(1, 30)),
    *(f"S{number}" for number in range(1, 8)),
    *(f"G{number}" for number in range(1, 37)),
}

ENDPOINTS_BY_RANK = {"a": 14, "b": 26, "c": 12}
SAMPLES = {
    "{id}": "talk",
    "{secret_id}": "KEY",
    "{name}": "shop",
    "{sha}": "0a1b2c3",
    "{path}": "policy",
    "{event_id}": "one",
}


class Row(NamedTuple):
    """One endpoint's row."""

    method: str
    path: str
    rank: str
    here: str
    shown_by: str


def endpoints(heading: str = "## V0 endpoint by endpoint", end: str = "Beside them") -> list[Row]:
    table = PAGE.partition(heading)[2].partition(end)[0]
    found = re.findall(r"^\| `([A-Z]+) (\S+)` \| (\w) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    return [Row(*cells) for cells in found]


def served_methods(path: str) -> set[str]:
    """Return the methods that the addresses of this server serve at the path; none where there is no view."""
    try:
        view: Any = resolve(_sample(path), urlconf="convserver.urls").func
    except Resolver404:
        return set()
    actions = getattr(view, "actions", None) or dir(view.cls if hasattr(view, "cls") else view.view_class)
    return {name.upper() for name in ("get", "post", "put", "patch", "delete") if name in actions}


def _sample(path: str) -> str:
    for placeholder, sample in SAMPLES.items():
        path = path.replace(placeholder, sample)
    return path


def test_every_endpoint_of_the_wire_has_one_row() -> None:
    rows = endpoints()
    assert len({(row.method, row.path) for row in rows}) == len(rows) == 52
    assert Counter(row.rank for row in rows) == ENDPOINTS_BY_RANK
    assert all("`test_" in row.shown_by for row in rows)


def test_what_the_table_says_is_served_is_what_the_addresses_serve() -> None:
    for row in endpoints():
        is_served = row.method in served_methods(row.path)
        assert is_served is not row.here.startswith("not served"), row
        assert row.here.startswith(("served", "stubbed", "not served")), row


def test_the_v0_door_serves_nothing_that_the_table_leaves_out() -> None:
    told = {(row.method, row.path) for row in endpoints()}
    paths = {path for _, path in told}
    served = {(method, path) for path in paths for method in served_methods(path)}
    assert served - told == set()
    shared = [route for route in shared_origin.urlpatterns if (route.name or "").startswith("v0-")]
    elsewhere = {"/alive", "/health", "/server_info", "/security/{path}", "/mcp/mcp"}
    assert len(paths - elsewhere) == len([*v0_urls, *shared])


FACES = {"### V1 app face": app_urls.urlpatterns, "### V1 agent face": urls.urlpatterns}


@pytest.mark.parametrize("heading", FACES)
def test_every_address_of_a_v1_face_has_its_rows_and_every_row_is_served(heading: str) -> None:
    rows = endpoints(heading, "\n#")
    told = {(row.method, row.path) for row in rows}
    assert len(told) == len(rows)
    assert told == {(method, row.path) for row in rows for method in served_methods(row.path)}
    names = {resolve(_sample(row.path), urlconf="convserver.urls").url_name for row in rows}
    assert {pattern.name for pattern in FACES[heading]} - names == set()


@pytest.mark.parametrize(("page", "defects"), [(V0_PAGE, DEFECTS), (V1_PAGE, V1_DEFECTS)], ids=["V0", "V1"])
def test_every_defect_has_one_row_that_names_a_test_or_says_why_it_cannot_occur(
    page: str, defects: set[str]
) -> None:
    rows = re.findall(r"^\| ([LSDPAG]\d+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(defects)
    unshown = [
        name
        for name, guarantee, shown_by in rows
        if "test_" not in shown_by and not re.search("cannot occur|compared in constant time", guarantee)
    ]
    assert not unshown


def test_every_test_that_the_page_names_exists() -> None:
    files = {path.name: path.read_text() for path in TESTS.rglob("*.py")}
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", "\n".join(files.values()), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", PAGE))
    assert named - defined - files.keys() == set()
