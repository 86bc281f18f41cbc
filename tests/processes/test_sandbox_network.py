"""The network of a sandbox: what programs reach through the proxy, and what is refused or out of reach."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.outbound.internal import parse_all
from tests.support.people.commands import OTHER, Commander, commander, wait_for
from tests.support.servers.loopback_server import LoopbackServer, Request

pytestmark = pytest.mark.one_engine

# Without the list of what is not behind the proxy, so that requests for loopback addresses go to it, too.
CURL = "curl --silent --show-error --noproxy '' --max-time 60"
TUNNEL = f"{CURL} --proxytunnel"
STATUS = "--output /dev/null --write-out '%{http_code} %{http_connect}\\n'"
NOT_ALLOWED = "No public address was found for this host."


class Web(LoopbackServer):
    """The internet of a test: it keeps what was asked, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, str], bytes]] = []

    def take(self, request: Request) -> None:
        headers = request.header_values()
        body = chunks(request) if headers.get("transfer-encoding") == "chunked" else request.read()
        self.asked.append((request.path, headers, body))
        if request.path == "/held":
            request.start(200, {"Content-Length": "10"})
            request.wfile.write(b"held\n")
            request.wfile.flush()
            self.stopped.wait(60)
        elif request.path == "/long":
            request.reply(200, b"x" * 20_000_000)
        else:
            request.reply(200, b"this is the web\n")


def chunks(request: Request) -> bytes:
    """Read a body that comes in chunks."""
    body = b""
    while size := int(request.rfile.readline(), 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return body


@pytest.fixture(params=["started_by_root", "started_by_another"])
def agent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commander]:
    """Who runs commands for a server that root has started, and for one of another account."""
    of_root = request.param == "started_by_root"
    if os.geteuid() != 0 and of_root:
        pytest.skip("only root can start a server as root")
    if os.geteuid() == 0 and not of_root:
        # This Python may be in a directory that only root enters.
        monkeypatch.setattr(sys, "executable", shutil.which("python3", path="/usr/bin") or sys.executable)
    with commander(OTHER if os.geteuid() == 0 and not of_root else None) as found:
        yield found


@pytest.fixture
def own_agent() -> Iterator[Commander]:
    """Who runs commands for a server of this account, in this process."""
    with commander(None) as found:
        yield found


@pytest.fixture
def web(configured: Callable[..., None]) -> Iterator[Web]:
    with Web() as server:
        configured(internal_addresses=parse_all([server.address]))
        yield server


def resolved(monkeypatch: pytest.MonkeyPatch, address_of: Callable[[str], str]) -> list[str]:
    """Answer for the resolver of this machine; return the names that are looked up."""
    looked_up: list[str] = []
    look_up = socket.getaddrinfo

    def answered(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        address = address_of(name)
        looked_up.append(name)
        return look_up(address, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    return looked_up


def test_a_program_reaches_an_allowed_server_by_a_tunnel_and_by_a_plain_request(
    agent: Commander, web: Web
) -> None:
    said = agent.run(f"{CURL} http://{web.address}/a; {TUNNEL} http://{web.address}/b", has_network=True)
    assert said.output == "this is the web\nthis is the web\n"
    said = agent.run(
        f"head -c 3000000 /dev/zero >body; {CURL} --data-binary @body http://{web.address}/c; "
        f"{CURL} --header 'Transfer-Encoding: chunked' --header 'Content-Length:' --data-binary chunks "
        f"http://{web.address}/long | wc -c",
        has_network=True,
    )
    assert said.output == "this is the web\n20000000\n"
    assert [path for path, _, _ in web.asked] == ["/a", "/b", "/c", "/long"]
    assert (len(web.asked[2][2]), web.asked[3][2]) == (3_000_000, b"chunks")


def test_only_what_the_program_sends_goes_out(
    own_agent: Commander, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a key of the server's")
    hop = (
        "--proxy-header 'Proxy-Authorization: Basic eA==' --header 'Connection: x-mine' --header 'X-Mine: 1'"
    )
    own_agent.run(f"{CURL} {hop} --header 'Cookie: mine=1' http://{web.address}/path?q=1", has_network=True)
    (path, headers, _) = web.asked[0]
    assert path == "/path?q=1"
    agent_of = headers.pop("user-agent")
    assert agent_of.startswith("curl/")
    assert headers == {"host": web.address, "accept": "*/*", "cookie": "mine=1", "connection": "close"}


def test_what_the_guard_refuses_is_answered_with_a_sentence(
    agent: Commander, web: Web, subtests: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = {"inside.example.org": "127.0.0.1", "cloud.example.org": "169.254.169.254"}
    looked_up = resolved(monkeypatch, lambda name: hidden.get(name, name))
    hosts = [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0", "10.0.0.1", "192.168.1.1"),
        *("169.254.169.254", "168.63.129.16", "100.64.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fd00:ec2::254]"),
        *("[fe80::1]", "[64:ff9b::7f00:1]", *hidden),
    ]
    asked = "; ".join(
        f"{CURL} {STATUS} 'http://{host}/'; {TUNNEL} {STATUS} 'http://{host}/' 2>/dev/null" for host in hosts
    )
    lines = agent.run(asked, has_network=True).output.splitlines()
    assert len(lines) == 2 * len(hosts)
    for host, plain, tunnel in zip(hosts, lines[::2], lines[1::2], strict=True):
        with subtests.test(host):
            assert (plain, tunnel) == ("403 000", "000 403")
    said = agent.run(f"{CURL} http://inside.example.org/", has_network=True)
    assert said.output.startswith(NOT_ALLOWED)
    assert web.asked == []
    # Of a server that root has not started, the proxy is in a process of its own here.
    assert agent.server or set(hidden) < set(looked_up)


def test_servers_of_this_machine_and_other_ports_are_out_of_reach(agent: Commander, web: Web) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = [other.getsockname()[1], 5432, 6379, 22, 25]
        asked = "; ".join(f"{CURL} {STATUS} http://127.0.0.1:{port}/" for port in ports)
        asked += "; " + "; ".join(f"{TUNNEL} {STATUS} http://8.8.8.8:{port}/ 2>/dev/null" for port in ports)
        lines = agent.run(asked, has_network=True).output.splitlines()
        assert lines == ["403 000"] * len(ports) + ["000 403"] * len(ports)
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()
    said = agent.run(f"{CURL} http://8.8.8.8:25/", has_network=True)
    assert said.output.startswith("Port 25 is not allowed")
    # By no way but the proxy, and not to the proxy of another sandbox.
    host, _, port = web.address.partition(":")
    said = agent.run(
        f"for each in {host}/{port} 8.8.8.8/443; do (exec 3<>/dev/tcp/$each) 2>/dev/null || echo none; done; "
        "tail -n +3 /proc/net/dev | cut -d: -f1",
        has_network=True,
    )
    assert said.output.split() == ["none", "none", "lo"]


def test_a_name_is_looked_up_once_and_its_checked_address_is_asked(
    own_agent: Commander, web: Web, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, port = web.address.partition(":")
    looked_up = resolved(monkeypatch, lambda name: "127.0.0.2" if name in looked_up else "127.0.0.1")
    configured(internal_addresses=parse_all([f"moving.example.org:{port}"]))
    said = own_agent.run(f"{CURL} http://moving.example.org:{port}/", has_network=True)
    assert (said.output, looked_up) == ("this is the web\n", ["moving.example.org"])


def test_without_network_there_is_no_connection_and_no_proxy(agent: Commander, web: Web) -> None:
    said = agent.run(
        f"env | grep -ic _proxy; {CURL} --proxy http://127.0.0.1:3128 http://{web.address}/; echo $?; "
        f"{CURL} http://{web.address}/; echo $?"
    )
    assert [line for line in said.output.splitlines() if line.isdecimal()] == ["0", "7", "7"]
    assert web.asked == []


def test_sockets_of_the_machine_are_out_of_reach_with_network_too(agent: Commander, web: Web) -> None:
    path, abstract = Path(tempfile.mkdtemp()) / "socket", f"\0convserver-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as unnamed:
        named.bind(str(path))
        unnamed.bind(abstract)
        named.listen()
        unnamed.listen()
        tried = "import socket, sys; socket.socket(socket.AF_UNIX).connect(eval(sys.argv[1]))"
        for has_network in (False, True):
            said = agent.run(
                f'for each in "{str(path)!r}" "{abstract!r}" "\'/var/run/postgresql/.s.PGSQL.5432\'"; do '
                f'python3 -c "{tried}" "$each" 2>&1 | tail -1; done; find / -type s 2>/dev/null; '
                "tail -n +2 /proc/net/unix; ls -A /root /home /run /var /tmp; ls -d ~/.ssh",
                has_network=has_network,
            )
            words = said.output.splitlines()
            assert [each.partition(":")[0] for each in words[:3]] == [
                "FileNotFoundError",
                "ConnectionRefusedError",
                "FileNotFoundError",
            ]
            assert [each for each in words[3:] if each and not each.endswith(":")] == [
                "ls: cannot access '/workspace/.ssh': No such file or directory"
            ]
    shutil.rmtree(path.parent)


def gates() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("sandbox-network")]


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_the_end_of_a_sandbox_closes_its_connections_and_its_listener(own_agent: Commander, web: Web) -> None:
    before = descriptors()
    said = own_agent.run(
        f"{TUNNEL} -N http://{web.address}/held & {CURL} -N http://{web.address}/held & wait",
        kill_at="held\nheld\n",
        has_network=True,
    )
    assert said.exit_code == -9
    assert gates() == []
    web.stopped.set()
    wait_for(lambda: descriptors() == before)


def test_many_starts_leave_no_descriptor_and_no_thread(own_agent: Commander, web: Web) -> None:
    own_agent.run("true", has_network=True)
    before = len(descriptors())
    for _ in range(30):
        said = own_agent.run(f"{CURL} http://{web.address}/", has_network=True)
        assert said.output == "this is the web\n"
    wait_for(lambda: len(descriptors()) <= before)
    assert gates() == []


def test_a_program_that_holds_connections_holds_up_no_other_sandbox(own_agent: Commander, web: Web) -> None:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as more:
        silent = 'for n in {10..209}; do eval "exec $n<>/dev/tcp/127.0.0.1/3128"; done; echo all; sleep 600'
        greedy = own_agent.started(silent, output.fileno(), has_network=True)
        # A reader that does not read fills no memory.
        lazy = own_agent.started(
            f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://{web.address}/long HTTP/1.1\\r\\nHost: x"
            "\\r\\n\\r\\n' >&3; echo asked; sleep 600",
            more.fileno(),
            has_network=True,
        )
        try:
            wait_for(lambda: os.pread(more.fileno(), 100, 0) == b"asked\n")
            wait_for(lambda: len(os.pread(output.fileno(), 100, 0)) > 0 or len(descriptors()) > 60)
            began = time.monotonic()
            said = own_agent.run(f"{CURL} http://{web.address}/", has_network=True)
            assert said.output == "this is the web\n"
            assert time.monotonic() - began < 30
        finally:
            greedy.kill()
            lazy.kill()
            asyncio.run(both_ended(greedy, lazy))
    assert gates() == []


async def both_ended(*programs: Any) -> None:
    for each in programs:
        await each.wait()


def test_what_is_no_request_to_a_proxy_is_refused_with_a_sentence(own_agent: Commander, web: Web) -> None:
    for request, status, sentence in (
        ("GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", 400, "This is an HTTP proxy."),
        ("CONNECT example.org HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", 400, "CONNECT needs a host and a port"),
        ("CONNECT user@example.org:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", 400, "CONNECT needs a host"),
        ("GET https://example.org/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", 400, "This is an HTTP proxy."),
        ("nonsense\\r\\n\\r\\n", 400, "The request is not valid"),
        (
            "GET http://example.org/ HTTP/1.1\\r\\nX: $(head -c 70000 /dev/zero | tr '\\0' x)",
            431,
            "The request",
        ),
    ):
        said = own_agent.run(
            f'exec 3<>/dev/tcp/127.0.0.1/3128; printf "{request}" >&3; cat <&3', has_network=True
        )
        assert f"HTTP/1.1 {status} " in said.output, request
        assert sentence in said.output


def test_a_tunnel_goes_through_the_operators_proxy(
    own_agent: Commander, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []
    host, _, port = web.address.partition(":")

    def serve_one(proxy: socket.socket) -> None:
        client, _ = proxy.accept()
        with client, socket.create_connection((host, int(port))) as server:
            heads.append(client.recv(4096))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            server.sendall(client.recv(4096))
            while piece := server.recv(4096):
                client.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:a%20secret@127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        serving = threading.Thread(target=serve_one, args=(proxy,))
        serving.start()
        said = own_agent.run(f"{TUNNEL} --header 'Connection: close' http://{web.address}/", has_network=True)
        serving.join(30)
        assert said.output == "this is the web\n"
        assert heads[0].startswith(f"CONNECT {web.address} HTTP/1.1\r\n".encode())
        assert b"Proxy-Authorization: Basic bWU6YSBzZWNyZXQ=" in heads[0]
        assert "proxy-authorization" not in web.asked[0][1]
        # What is inside is refused before the proxy is asked.
        said = own_agent.run(f"{TUNNEL} {STATUS} http://10.0.0.1:443/ 2>/dev/null", has_network=True)
        assert said.output == "000 403\n"
