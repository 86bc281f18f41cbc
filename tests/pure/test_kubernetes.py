"""deploy/kubernetes: what Kubernetes takes, and what the server can be started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from convserver import configuration
from convserver.cli import SHUTDOWN_WAIT_S
from sessions_app import background
from sessions_app.loops import manager

pytestmark = pytest.mark.one_engine

RELEASE = "1.31"
"""Newer ones take what this one takes."""
FILE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "convserver.yaml"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
SECRET = {
    "SECRET_KEY": "k" * 60,
    "DATABASE_URL": "postgresql://convserver:lettersand123@postgres:5432/convserver",
    "REDIS_URL": "redis://:lettersand123@redis:6379/0",
}


def named(document: dict[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in DOCUMENTS if each["kind"] == kind]


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_a_manifest_is_valid_and_has_no_unknown_member(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, RELEASE, strict=True)


def test_a_server_can_be_started_with_what_the_manifests_say(tmp_path: Path) -> None:
    [settings] = of_kind("ConfigMap")
    found = configuration.read({**settings["data"], **SECRET, "CONVSERVER_DATA_DIR": str(tmp_path)})
    assert found.is_clustered


def test_no_process_is_given_less_time_to_end_than_it_takes() -> None:
    for deployment in of_kind("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"])[-1]
        takes_s = int(before) + SHUTDOWN_WAIT_S + background.STOP_WAIT_S + manager.STOP_WAIT_S
        assert pod["terminationGracePeriodSeconds"] > takes_s


def test_the_service_and_the_budgets_choose_pods_that_there_are() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment")]
    [service] = of_kind("Service")
    chosen = [each["spec"]["selector"]["matchLabels"] for each in of_kind("PodDisruptionBudget")]
    assert service["spec"]["selector"] in pods
    assert all(labels in pods for labels in chosen)
