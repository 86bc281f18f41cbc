"""The files of deploy/ and docker-compose.yml, as far as this machine can run them."""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGTERM
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings
from django.db import connection
from websockets.sync.client import connect

from convserver import configuration
from tests.support.people.clients import HTTP, WAIT_S, Server, database_url
from tests.support.runner import forks, migrated
from tests.support.servers.ports import free_port
from tests.support.wires.network import wait_until

ROOT = forks.ROOT
DEPLOY = ROOT / "deploy"
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
CADDY_LEAST = (2, 8)
CONVERSATIONS = "/api/native/conversations"
LONG_HEAD = {"x-long": "x" * 40_000}
LONG_BODY = b"x" * (17 * 1024 * 1024 + 1)

on_one_engine = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the proxies know nothing of engines"
)


# Proxies


class Behind(NamedTuple):
    """A proxy in front of two servers, each with a database of its own."""

    url: str
    ws_url: str
    servers: tuple[Server, Server]


def caddy() -> str:
    """Return the program. Skip where it is missing or too old for deploy/Caddyfile."""
    program = os.environ.get("CADDY") or shutil.which("caddy")
    if program is None:
        pytest.skip("there is no Caddy on this machine")
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < CADDY_LEAST:
        pytest.skip(f"deploy/Caddyfile needs Caddy 2.8, and this machine has {said.split()[0]}")
    return program


def nginx() -> str:
    """Return the program. Skip where it is missing."""
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if program is None:
        pytest.skip("there is no nginx on this machine")
    return program


def certificate(directory: Path) -> tuple[Path, Path]:
    """Write a certificate of its own and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "chat.example.org")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    files = directory / "site.pem", directory / "site.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@contextmanager
def running(command: list[str], port: int, directory: Path, **environment: str) -> Iterator[None]:
    """Run a proxy until the end of the block."""
    log = directory / "proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(SIGTERM)
            process.wait(timeout=WAIT_S)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nginx_files(directory: Path, port: int, servers: tuple[int, ...]) -> Path:
    """Write deploy/nginx.conf for these ports, and what a distribution has around it."""
    pem, key = certificate(directory)
    text = (DEPLOY / "nginx.conf").read_text()
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/chat.example.org.pem": str(pem),
        "/etc/ssl/chat.example.org.key": str(key),
        **{f"127.0.0.1:{8001 + number}": f"127.0.0.1:{each}" for number, each in enumerate(servers)},
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    (directory / "site.conf").write_text(text)
    temporary = " ".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = directory / "nginx.conf"
    main.write_text(
        f"daemon off; pid {directory}/nginx.pid; error_log stderr; worker_processes 1;"
        f"{'user root;' if os.geteuid() == 0 else ''} events {{}}"
        f"http {{ access_log off; {temporary} include {directory}/site.conf; }}"
    )
    return main


@pytest.fixture(scope="module")
def two_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers that know nothing of each other."""
    with ExitStack() as started:
        servers = Server(tmp_path_factory.mktemp("one")), Server(tmp_path_factory.mktemp("two"))
        for server in servers:
            started.callback(server.kill)
            server.start(DATABASE_URL="")
        yield servers


@pytest.fixture(params=["Caddyfile", "nginx.conf"])
def behind(
    request: pytest.FixtureRequest, two_alone: tuple[Server, Server], tmp_path: Path
) -> Iterator[Behind]:
    """The proxy of a file in deploy/."""
    port = free_port()
    ports = tuple(server.port for server in two_alone)
    if request.param == "Caddyfile":
        command = [caddy(), "run", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
        targets = " ".join(f"127.0.0.1:{each}" for each in ports)
        variables = {"CONVSERVER_SERVERS": targets, "CONVSERVER_PROXY_PORT": str(port), "HOME": str(tmp_path)}
        with running(command, port, tmp_path, **variables):
            yield Behind(f"http://127.0.0.1:{port}", f"ws://127.0.0.1:{port}", two_alone)
    else:
        main = nginx_files(tmp_path, port, ports)
        with running([nginx(), "-c", str(main), "-p", str(tmp_path)], port, tmp_path):
            yield Behind(f"https://127.0.0.1:{port}", f"wss://127.0.0.1:{port}", two_alone)


@pytest.fixture
def client(behind: Behind) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=behind.url, verify=False, trust_env=False, timeout=WAIT_S, headers={"host": "localhost"}
    ) as client:
        yield client


@on_one_engine
def test_long_polling_stays_at_one_process_and_other_requests_reach_both(
    behind: Behind, client: httpx.Client
) -> None:
    HTTP.post(f"{behind.servers[0].url}{CONVERSATIONS}", json={"id": f"here-{secrets.token_hex(4)}"})
    seen = {client.get("/api/conversations").text for _ in range(6)}
    assert len(seen) == 2, "each of the two has another list"
    for _ in range(6):
        opened = client.get("/socket.io/?EIO=4&transport=polling").text
        sid = json.loads(opened[1:])["sid"]
        query = f"/socket.io/?EIO=4&transport=polling&sid={sid}"
        assert client.post(query, content="40").text.lower() == "ok"
        assert client.get(query).status_code == 200


@on_one_engine
def test_a_socket_is_opened_through_the_proxy(behind: Behind) -> None:
    context = ssl.create_default_context() if behind.ws_url.startswith("wss") else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    talk = f"talk-{secrets.token_hex(4)}"
    with connect(f"{behind.ws_url}/ws/conversations/{talk}?after=-1", ssl=context, proxy=None) as opened:
        assert json.loads(opened.recv(timeout=WAIT_S))["type"]


@on_one_engine
def test_the_proxy_bounds_heads_and_bodies(client: httpx.Client) -> None:
    refused = client.get("/alive", headers=LONG_HEAD)
    assert refused.status_code in (400, 431, 494)
    assert "via" not in refused.headers, "the proxy has passed it on to the server"
    # By the proxy or by the server, which refuses by the length that is announced.
    assert client.post("/api/conversations", content=LONG_BODY).status_code == 413


# systemd


UNITS = sorted((DEPLOY / "systemd").iterdir())


def unit(path: Path) -> dict[str, list[str]]:
    """Return the settings of the section `Service`, each with all of its values."""
    found: dict[str, list[str]] = {}
    section = path.read_text().partition("[Service]\n")[2].partition("\n[")[0]
    for line in section.splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@on_one_engine
def test_systemd_takes_the_units_and_finds_little_that_they_may_do(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze on this machine")
    for each in UNITS:
        text = each.read_text().replace("/opt/convserver/.venv/bin/convserver", "/bin/true")
        (tmp_path / each.name.replace("@", "@8001")).write_text(text)
    files = sorted(str(each) for each in tmp_path.iterdir())
    verified = subprocess.run([program, "verify", *files], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "convserver" in line]
    assert (verified.returncode, complaints) == (0, [])
    for file in files:
        if file.endswith(".service"):
            with subtests.test(file):
                looked = [program, "security", "--offline=yes", "--threshold=40", file]
                assert subprocess.run(looked, capture_output=True, check=False).returncode == 0


@on_one_engine
def test_a_unit_writes_to_the_directory_that_systemd_makes_for_it(subtests: pytest.Subtests) -> None:
    secret = {"CONVSERVER_AUTH": "accounts", "CONVSERVER_ALLOWED_HOSTS": "x.example", "SECRET_KEY": "k" * 40}
    for each in UNITS:
        if each.suffix != ".service":
            continue
        with subtests.test(each.name):
            settings_of = unit(each)
            variables = dict(line.split("=", 1) for line in settings_of["Environment"])
            variables = {name: value.replace("%i", "8001") for name, value in variables.items()}
            found = configuration.read({**secret, **variables})
            assert settings_of["ProtectSystem"] == ["strict"]
            assert str(found.data_dir) == f"/var/lib/{settings_of['StateDirectory'][0]}"
            command = settings_of["ExecStart"][0].split()
            if command[1] == "backup":
                assert settings_of["ReadWritePaths"] == [command[2]]


# docker-compose.yml


VARIABLES = {"POSTGRES_PASSWORD": "unused", "REDIS_PASSWORD": "unused", "SECRET_KEY": "k" * 60}
REFERENCE = re.compile(r"(?<!\$)\$\{(\w+)(?:(:?[-?])([^${}]*))?\}")


def filled_in(value: Any, variables: Mapping[str, str]) -> Any:
    """Return what Docker makes of a text with `${NAME:-default}`, from the inside out."""
    if isinstance(value, list):
        return [filled_in(each, variables) for each in value]
    if isinstance(value, dict):
        return {name: filled_in(each, variables) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    while found := REFERENCE.search(value):
        name, operator, otherwise = found.groups()
        assert name in variables or operator != ":?", otherwise
        value = value.replace(found[0], variables.get(name) or (otherwise or ""))
    return value.replace("$$", "$")


class ComposeService(Server):
    """A service of docker-compose.yml as a process of this machine."""

    def __init__(self, name: str, directory: Path) -> None:
        directory.mkdir()
        super().__init__(directory)
        service = filled_in(SERVICES[name], VARIABLES)
        said = [part.replace("8000", str(self.port)) for part in service.get("command", ["serve"])]
        self.command = ("convserver", *said)
        # The names of the services are those of Docker's network; this machine has others.
        theirs = {key: value for key, value in service["environment"].items() if not key.endswith("_URL")}
        self.variables = {**theirs, "HOST": "127.0.0.1", "CONVSERVER_TRUSTED_PROXIES": "127.0.0.1"}


@pytest.fixture
def database(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    if connection.vendor != "postgresql":
        pytest.skip("docker-compose.yml has PostgreSQL")
    with django_db_blocker.unblock():
        name = f"compose_{secrets.token_hex(6)}"
        migrated.make(name)
        try:
            yield urlunsplit(urlsplit(database_url())._replace(path=f"/{name}"))
        finally:
            with psycopg.connect(database_url(), autocommit=True) as outside:
                outside.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_each_service_of_docker_compose_starts_with_its_command_and_its_variables(
    database: str, tmp_path: Path
) -> None:
    urls = {"DATABASE_URL": database, "CONVSERVER_TEST_RUN": secrets.token_hex(6)}
    if settings.CONFIGURATION.redis_url:
        urls["REDIS_URL"] = settings.CONFIGURATION.redis_url
    with ExitStack() as started:
        for name in ("web", "web-2", "worker", "worker-2"):
            service = ComposeService(name, tmp_path / name)
            started.callback(service.kill)
            service.start(constants=None, **service.variables, **urls)  # it waits until /health answers
            if name.startswith("web"):
                answer = HTTP.get(f"{service.url}/api/conversations", headers={"host": "localhost"})
                assert answer.status_code == 401, "accounts mode"


def test_the_backup_service_writes_a_verified_backup_and_ends_when_it_is_asked(
    database: str, tmp_path: Path
) -> None:
    if shutil.which("pg_dump") is None:
        pytest.skip("backups of PostgreSQL need the package postgresql-client")
    service = filled_in(SERVICES["backup"], VARIABLES)
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "convserver"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m convserver "$@"\n')
    program.chmod(0o755)
    backups = tmp_path / "backups"
    [script] = service["command"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        **service["environment"],
        "DATABASE_URL": database,
        "REDIS_URL": "",
        "CONVSERVER_DATA_DIR": str(tmp_path / "data"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    command = [*service["entrypoint"], script.replace("/backups", str(backups))]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: "verified" in (tmp_path / "log").read_text(), within_s=5 * WAIT_S)
        finally:
            process.send_signal(SIGTERM)
            assert process.wait(timeout=WAIT_S) == 0
    assert [each.name for each in backups.glob("convserver-*")], (tmp_path / "log").read_text()
