"""The metrics: what a monitoring system reads, who may, what it costs, and the alerts on them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from conversations import counts
from conversations.counts import Counted
from conversations.models import ConversationRef, DamageKind, Occasion, Outcome, VerificationRun
from conversations.verification import records
from conversations.verification.damage import Damage
from conversations.verification.store import VerificationStep
from convserver.quotas import Quotas
from convserver.web.collectors import COUNTERS
from convserver.web.metrics import Verifications
from sessions_app import astore
from sessions_app.models import ApiToken, BackupOutcome, BackupRecord, Grant, Scope
from tests.conftest import Join

pytestmark = pytest.mark.one_engine

BEGAN = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
ENDED = datetime(2026, 3, 1, 3, 1, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the process may have filled the tables."""
    monkeypatch.setattr(counts, "_numbers", defaultdict(Counter))
    monkeypatch.setattr(counts, "_durations", defaultdict(lambda: [0.0] * (len(counts.BOUNDS_S) + 2)))


def of_process(**values: object) -> VerificationRun:
    return VerificationRun.objects.create(covers="everything", host="here", pid=1, **values)


async def shown(rest: httpx.AsyncClient) -> dict[str, float]:
    """Return the metrics as a monitoring system reads them: by name and the value of their label."""
    answer = await rest.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        ".".join((sample.name.removeprefix("convserver_verify_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_a_verification_that_ended_is_shown_with_its_result_and_its_time(
    rest: httpx.AsyncClient,
) -> None:
    ended = {"started_at": BEGAN, "finished_at": ENDED}
    await astore.call(of_process, occasion=Occasion.NIGHT, outcome=Outcome.DAMAGED, problems=9, **ended)
    await astore.call(of_process, occasion=Occasion.NIGHT, outcome=Outcome.WHOLE, events=7, **ended)
    await astore.call(of_process, occasion=Occasion.START, outcome=Outcome.FAILED, **ended)
    metrics = await shown(rest)
    assert metrics["end_timestamp_seconds.night"] == ENDED.timestamp()
    assert metrics["duration_seconds.night"] == 90.0
    assert (metrics["whole.night"], metrics["problems.night"], metrics["events.night"]) == (1, 0, 7)
    assert (metrics["whole.start"], metrics["failed.start"], metrics["failed.night"]) == (0, 1, 0)
    assert "whole.command" not in metrics
    assert metrics["running"] == 0


async def test_a_verification_that_goes_on_is_shown_with_its_progress(rest: httpx.AsyncClient) -> None:
    await astore.call(of_process, occasion=Occasion.COMMAND, started_at=BEGAN, conversations=3, expected=12)
    metrics = await shown(rest)
    assert (metrics["running"], metrics["progress_ratio"]) == (1, 0.25)
    assert metrics["running_seconds"] > 0


async def test_a_verification_that_was_interrupted_hides_no_result_of_the_one_before(
    rest: httpx.AsyncClient,
) -> None:
    ended = {"occasion": Occasion.NIGHT, "started_at": BEGAN}
    await astore.call(of_process, outcome=Outcome.WHOLE, finished_at=ENDED, **ended)
    await astore.call(of_process, **ended)
    await astore.call(lambda: records.close(records.unfinished()))
    metrics = await shown(rest)
    assert (metrics["whole.night"], metrics["failed.night"]) == (1, 0)
    assert metrics["end_timestamp_seconds.night"] == ENDED.timestamp()


async def test_the_progress_of_a_verification_of_which_it_is_not_known_is_not_told(
    rest: httpx.AsyncClient,
) -> None:
    await astore.call(of_process, occasion=Occasion.START, started_at=BEGAN)
    metrics = await shown(rest)
    assert metrics["running"] == 1
    assert "progress_ratio" not in metrics


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0", "*/*"])
async def test_metrics_are_text_whatever_is_asked_for_and_kept_by_nobody(
    alice: User, rest: httpx.AsyncClient, accept: str
) -> None:
    answer = await rest.get("/metrics", headers={"accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE_LATEST)
    assert "no-store" in answer.headers["cache-control"]


async def test_damage_is_counted_until_it_is_mended(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    def find() -> None:
        found = [Damage(DamageKind.CHANGED, conversation.pk, "talk", 3, "changed")]
        record = records.begin(Occasion.COMMAND, "everything", host="here", pid=1)
        record.take(VerificationStep(found=found))
        record.end()

    def mend() -> None:
        record = records.begin(Occasion.COMMAND, "everything", host="here", pid=1)
        record.mend({DamageKind.CHANGED})
        record.end()

    await astore.call(find)
    metrics = await shown(rest)
    assert (metrics["damaged_places.changed"], metrics["damaged_places.missing"]) == (1, 0)
    assert metrics["whole.command"] == 0
    await astore.call(mend)
    metrics = await shown(rest)
    assert (metrics["damaged_places.changed"], metrics["whole.command"]) == (0, 1)


async def test_the_process_is_measured_as_well(rest: httpx.AsyncClient) -> None:
    assert (await shown(rest))["process_resident_memory_bytes"] > 0


def test_reading_them_takes_three_statements_however_many_verifications_there_were(alice: User) -> None:
    for _ in range(5):
        of_process(occasion=Occasion.NIGHT, outcome=Outcome.WHOLE, finished_at=ENDED)
    with CaptureQueriesContext(connection) as captured:
        list(Verifications().collect())
    assert len(captured) == 3


async def test_only_staff_who_may_view_verifications_read_metrics(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    async def status(user: User, *scopes: Scope) -> int:
        _, token = await astore.call(ApiToken.issue, user.pk, f"{scopes}", Grant(scopes=frozenset(scopes)))
        return (await rest.get("/metrics", headers={"authorization": f"Bearer {token}"})).status_code

    assert (await rest.get("/metrics")).status_code == 401
    assert await status(bob, *Scope) == 404
    assert await status(alice, Scope.READ) == 403
    assert await status(alice, *Scope) == 200
    await astore.call(User.objects.filter(pk=bob.pk).update, is_staff=True)
    assert await status(bob, Scope.READ, Scope.ADMIN) == 404


# The service

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
NATIVE = "/api/native/conversations"


async def samples(rest: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Return all samples by name and the values of their labels, in the order of the labels' names."""
    families = text_string_to_metric_families((await rest.get("/metrics")).text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def grown(
    rest: httpx.AsyncClient, before: dict[tuple[str, ...], float]
) -> dict[tuple[str, ...], float]:
    """Return by how much each sample has grown."""
    after = await samples(rest)
    return {
        key: value - before.get(key, 0.0) for key, value in after.items() if value != before.get(key, 0.0)
    }


async def test_requests_are_counted_by_route_and_status_with_their_latency_and_never_by_path(
    rest: httpx.AsyncClient, conversation: ConversationRef
) -> None:
    before = await samples(rest)
    event = {"type": "event", "id": "e1", "event": {"action": "message", "source": "user", "args": {}}}
    for _ in range(3):  # the first is answered by its view, later ones directly
        assert (await rest.post(f"{NATIVE}/talk/events", json=event)).status_code == 200
    assert (await rest.get(f"{NATIVE}/never-heard-of")).status_code == 404
    assert (await rest.get("/api/secret-words")).status_code == 404
    assert (await rest.get("/alive")).status_code == 200
    found = await grown(rest, before)
    requests = "convserver_requests_total"
    assert found[requests, "POST", "native-events", "200"] == 3
    assert found[requests, "GET", "native-conversation-detail", "404"] == 1
    assert found[requests, "GET", "unmatched", "404"] == 1
    assert found[requests, "GET", "alive", "200"] == 1
    took = "convserver_request_duration_seconds"
    assert found[f"{took}_bucket", "+Inf", "native-events"] == found[f"{took}_count", "native-events"] == 3
    assert found[f"{took}_sum", "native-events"] > 0
    assert found["convserver_appended_events_total",] == 1
    assert not any("secret-words" in part or "talk" in part for key in found for part in key)


async def test_sockets_are_counted_by_door_and_so_is_what_they_are_sent(
    rest: httpx.AsyncClient, conversation: ConversationRef, join: Join
) -> None:
    before = await samples(rest)
    client = await join(conversation)
    await client.until("replay_complete")
    assert (await grown(rest, before))["convserver_open_sockets", "native"] == 1
    await rest.post(f"{NATIVE}/talk/events", json={"type": "event", "id": "e", "event": {"action": "x"}})
    await client.until("event")
    assert (await grown(rest, before))["convserver_socket_events_total", "native"] == 1
    await client.leave()


async def test_invented_methods_and_many_names_make_no_more_series(rest: httpx.AsyncClient) -> None:
    for number in range(counts.KINDS_MAX + 50):
        counts.add(Counted.MODEL_CALLS, f"model-{number}")
    assert (await rest.request("BREW", "/alive")).status_code == 405
    found = await samples(rest)
    assert sum(key[0] == "convserver_model_calls_total" for key in found) <= counts.KINDS_MAX + 1
    assert found["convserver_model_calls_total", "other"] >= 50
    assert not any("BREW" in key for key in found)


def test_a_request_that_fails_is_counted_as_that_whatever_clients_have_asked_for_before() -> None:
    for number in range(counts.KINDS_MAX):
        counts.add(Counted.REQUESTS, f"route-{number}", "GET", "404")
    for number in range(2):
        counts.add(Counted.REQUESTS, f"late-{number}", "POST", "500")
    assert counts.numbers(Counted.REQUESTS)[counts.OTHER, "POST", "500"] == 2


async def test_refusals_by_quota_are_counted(
    rest: httpx.AsyncClient, configured: Any, conversation: ConversationRef
) -> None:
    configured(quotas=Quotas(messages_per_minute=1))
    before = await samples(rest)
    for number in range(3):
        await rest.post(f"{NATIVE}/talk/events", json={"type": "message", "id": number, "text": "Hello"})
    assert (await grown(rest, before))["convserver_quota_refusals_total", "messages_per_minute"] == 2


async def test_backups_are_shown_with_their_age_and_failures(rest: httpx.AsyncClient) -> None:
    assert (await samples(rest))["convserver_problem", "backup_missing"] == 1
    made = {"began_at": BEGAN, "ended_at": ENDED, "host": "here", "place": "/b"}
    await astore.call(
        BackupRecord.objects.create, **made, size=7, outcome=BackupOutcome.MADE, is_verified=True
    )
    found = await samples(rest)
    assert found["convserver_backup_end_timestamp_seconds",] == ENDED.timestamp()
    assert found["convserver_backup_verified_timestamp_seconds",] == ENDED.timestamp()
    assert (found["convserver_backup_size_bytes",], found["convserver_backup_failed",]) == (7, 0)
    await astore.call(BackupRecord.objects.create, **made, outcome=BackupOutcome.FAILED, detail="full")
    found = await samples(rest)
    assert found["convserver_backup_end_timestamp_seconds",] == ENDED.timestamp()
    assert found["convserver_backup_failed",] == 1


async def test_everything_that_is_counted_is_shown() -> None:
    assert COUNTERS.keys() == set(Counted)


async def test_alerts_name_metrics_that_are_served_and_say_what_to_do(
    rest: httpx.AsyncClient, conversation: ConversationRef, subtests: pytest.Subtests
) -> None:
    ended = {"started_at": BEGAN, "finished_at": ENDED}
    await astore.call(of_process, occasion=Occasion.NIGHT, outcome=Outcome.WHOLE, **ended)
    made = {"began_at": BEGAN, "host": "here", "place": "/b", "outcome": BackupOutcome.MADE}
    await astore.call(BackupRecord.objects.create, **made, is_verified=True)
    await rest.get("/alive")
    served = {key[0] for key in await samples(rest)}
    served |= {"convserver_pool_waiting"}  # on PostgreSQL
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    documented = (ROOT / "docs" / "operation.md").read_text()
    for rule in group["rules"]:
        with subtests.test(rule["alert"]):
            named = set(re.findall(r"\bconvserver_\w+", rule["expr"]))
            assert named
            assert named <= served
            assert rule["labels"]["severity"] in ("page", "ticket")
            for sentence in (rule["annotations"]["summary"], rule["annotations"]["action"]):
                assert sentence.endswith(".")
            assert rule["alert"] in documented


async def test_every_metric_is_documented(rest: httpx.AsyncClient, conversation: ConversationRef) -> None:
    made = {"began_at": BEGAN, "host": "here", "place": "/b", "outcome": BackupOutcome.MADE}
    await astore.call(BackupRecord.objects.create, **made, is_verified=True)
    documented = (ROOT / "docs" / "operation.md").read_text()
    families = {key[0] for key in await samples(rest) if key[0].startswith("convserver_")}
    names = {re.sub("_(bucket|sum|count)$", "", name) for name in families}
    assert {name for name in names if f"`{name}`" not in documented} == set()
