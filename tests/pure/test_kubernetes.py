"""deploy/kubernetes: what Kubernetes takes, and what the server can be started with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from convserver import __version__, configuration
from convserver.asgi import CLOSING_S
from convserver.commands.serving import SHUTDOWN_WAIT_S
from convserver.variables import ConfigurationError

pytestmark = pytest.mark.one_engine

RELEASE = "1.31"
"""Newer ones take what this one takes."""
DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "kubernetes" / "convserver.yaml"
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


def pods() -> dict[str, Any]:
    """Return the pods that the manifests make, by the names of what makes them."""
    made = {named(each): each["spec"]["template"]["spec"] for each in of_kind("Deployment")}
    jobs = {
        named(each): each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in of_kind("CronJob")
    }
    return made | jobs


def test_a_server_can_be_started_with_what_the_manifests_say(tmp_path: Path) -> None:
    [settings] = of_kind("ConfigMap")
    variables = {**settings["data"], **SECRET, "CONVSERVER_DATA_DIR": str(tmp_path)}
    found = configuration.read({**variables, "CONVSERVER_TRUSTED_PROXIES": "10.42.7.0/28"})
    assert found.is_clustered


def test_no_server_starts_before_the_network_of_the_ingress_is_named(tmp_path: Path) -> None:
    [settings] = of_kind("ConfigMap")
    with pytest.raises(ConfigurationError, match="CONVSERVER_TRUSTED_PROXIES names"):
        configuration.read({**settings["data"], **SECRET, "CONVSERVER_DATA_DIR": str(tmp_path)})


def test_no_process_can_write_to_its_image_or_become_more_than_it_is(subtests: pytest.Subtests) -> None:
    assert len(pods()) == 3
    for name, pod in pods().items():
        [container] = pod["containers"]
        with subtests.test(name):
            assert pod["automountServiceAccountToken"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["runAsUser"] > 0
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
            assert container["image"].endswith(f":{__version__}")


def test_what_a_process_writes_to_is_a_volume(subtests: pytest.Subtests) -> None:
    claims = {each["metadata"]["name"] for each in of_kind("PersistentVolumeClaim")}
    for name, pod in pods().items():
        [container] = pod["containers"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        mounted = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
        with subtests.test(name):
            assert {"/var/lib/convserver", "/tmp"} <= mounted.keys()
            if container["args"][0] == "backup":
                assert mounted[container["args"][1]]["persistentVolumeClaim"]["claimName"] in claims


def test_a_backup_is_verified_each_night_and_the_old_ones_go() -> None:
    [job] = of_kind("CronJob")
    [container] = pods()[named(job)]["containers"]
    assert {"--verify", "--keep"} <= set(container["args"])
    assert job["spec"]["concurrencyPolicy"] == "Forbid"


ENDING_S = SHUTDOWN_WAIT_S + CLOSING_S
"""A process has ended by then, or ends itself."""


def test_no_process_is_given_less_time_to_end_than_it_takes() -> None:
    for deployment in of_kind("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["0"])[-1]
        assert pod["terminationGracePeriodSeconds"] > int(before) + ENDING_S


def test_systemd_and_docker_give_a_process_as_much_time_to_end() -> None:
    units = [*DEPLOY.glob("systemd/convserver-w*@.service")]
    limits = [re.search(r"TimeoutStopSec=(\d+)", unit.read_text()) for unit in units]
    limits.append(re.search(r"stop_grace_period: (\d+)s", (DEPLOY.parent / "docker-compose.yml").read_text()))
    assert len(limits) == 3
    assert all(limit is not None and int(limit[1]) > ENDING_S for limit in limits)


def test_the_service_and_the_budgets_choose_pods_that_there_are() -> None:
    pods = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind("Deployment")]
    [service] = of_kind("Service")
    chosen = [each["spec"]["selector"]["matchLabels"] for each in of_kind("PodDisruptionBudget")]
    assert service["spec"]["selector"] in pods
    assert all(labels in pods for labels in chosen)
