"""The metrics, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Max, Q
from django.http import Http404, HttpResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from drf_spectacular.utils import extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from rest_framework.request import Request
from rest_framework.views import APIView

from conversations.models import DamageKind, Occasion, Outcome, VerificationFinding, VerificationRun
from conversations.verification.records import INTERRUPTED
from convserver.api.negotiation import OneRenderer
from convserver.api.schema import Door, NativeRefusal
from convserver.api.scopes import OF_THE_USER
from convserver.web.collectors import OwnNumbers, SharedFigures

METRICS = Door(tag="probes", key_refusals={401: NativeRefusal, 403: NativeRefusal, 404: NativeRefusal})
PERMISSION = "conversations.view_verificationrun"
PREFIX = "convserver_verify"


class Verifications(Collector):
    """The newest verification of each occasion, the running one, and the known damage."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from _finished()
        yield from _running()
        yield _damaged()


def _finished() -> Iterator[GaugeMetricFamily]:
    # An interrupted verification has no result, so that the one before stays the newest of its occasion.
    unended = Q(outcome=Outcome.RUNNING) | Q(outcome=Outcome.FAILED, detail=INTERRUPTED)
    newest = VerificationRun.objects.exclude(unended).order_by()
    pks = newest.values("occasion").annotate(newest=Max("pk")).values("newest")
    families = {
        "end_timestamp_seconds": "When the newest verification ended, in seconds since 1970.",
        "duration_seconds": "How long the newest verification took.",
        "whole": "1 if the newest verification found the store whole, 0 if it found damage or could not run.",
        "failed": "1 if the newest verification could not run to its end.",
        "problems": "How many damaged places the newest verification found.",
        "events": "How many events the newest verification read.",
    }
    made = {
        name: GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=["occasion"])
        for name, text in families.items()
    }
    for run in VerificationRun.objects.filter(pk__in=pks).order_by("occasion"):
        ended_at = run.finished_at or run.updated_at
        values = {
            "end_timestamp_seconds": ended_at.timestamp(),
            "duration_seconds": (ended_at - run.started_at).total_seconds(),
            "whole": run.outcome == Outcome.WHOLE,
            "failed": run.outcome == Outcome.FAILED,
            "problems": run.problems,
            "events": run.events,
        }
        for name, value in values.items():
            made[name].add_metric([Occasion(run.occasion).value], value)
    yield from made.values()


def _running() -> Iterator[GaugeMetricFamily]:
    run = VerificationRun.objects.filter(outcome=Outcome.RUNNING).order_by("-pk").first()
    yield GaugeMetricFamily(f"{PREFIX}_running", "1 while a verification goes on.", value=run is not None)
    seconds = (timezone.now() - run.started_at).total_seconds() if run else 0.0
    yield GaugeMetricFamily(
        f"{PREFIX}_running_seconds", "How long the verification that goes on has taken so far.", value=seconds
    )
    progress = GaugeMetricFamily(
        f"{PREFIX}_progress_ratio",
        "How much of the conversations it has read so far, from 0 to 1, if that is known.",
    )
    if run and run.expected:
        progress.add_metric([], min(1.0, run.conversations / run.expected))
    yield progress


def _damaged() -> GaugeMetricFamily:
    counts = dict(VerificationFinding.objects.order_by().values_list("problem").annotate(places=Count("pk")))
    family = GaugeMetricFamily(
        f"{PREFIX}_damaged_places", "Damaged places that are known and not mended.", labels=["problem"]
    )
    for kind in DamageKind:
        family.add_metric([kind.value], counts.get(kind.value, 0))
    return family


@method_decorator(never_cache, name="dispatch")
class MetricsView(APIView):
    """The address that a monitoring system reads."""

    needs = OF_THE_USER

    door = METRICS
    content_negotiation_class = OneRenderer

    @extend_schema(responses={(200, "text/plain"): str, 503: NativeRefusal})
    def get(self, request: Request) -> HttpResponse:
        """Return the metrics of this process and of all, for staff who may view verifications."""
        if not request.user.is_staff or not request.user.has_perm(PERMISSION):
            raise Http404  # as an address that does not exist: users need not know of it
        # Of its own for each request: that of the library would add figures of Python itself.
        registry = CollectorRegistry(auto_describe=False)
        for collector in (SharedFigures(), Verifications(), OwnNumbers()):
            registry.register(collector)
        ProcessCollector(registry=registry)
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
