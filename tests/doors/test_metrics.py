"""The metrics of verifications: what a monitoring system reads, and who may."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from conversations.models import ConversationRef, DamageKind, Occasion, Outcome, VerificationRun
from conversations.verification import records
from conversations.verification.damage import Damage
from conversations.verification.store import Step
from convserver.web.metrics import Verifications
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope

pytestmark = pytest.mark.one_engine

BEGAN = datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC)
ENDED = datetime(2026, 3, 1, 3, 1, 30, tzinfo=UTC)


def of_process(**values: object) -> VerificationRun:
    """Record a verification."""
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
        record.take(Step(found=found))
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
