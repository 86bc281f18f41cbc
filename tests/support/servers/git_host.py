"""A git provider on loopback that also serves its repositories to git, for the token alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sessions_app.git_providers.base import ProviderType
from tests.support.servers.git_server import Answer, Asked, GitServer
from tests.support.servers.loopback_server import Request

IDENTITY = {
    f"GIT_{who}_{what}": f"{what.lower()}@example.org"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def git(directory: Path, *arguments: str, stdin: Path | None = None) -> str:
    """Run git in a repository that the test itself has made."""
    options = ("-c", "safe.directory=*", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always")
    run = subprocess.run(
        ["git", *options, *arguments],
        cwd=directory,
        env={**os.environ, **IDENTITY, "GIT_CONFIG_GLOBAL": "/dev/null"},
        input=None if stdin is None else stdin.read_text(),
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout.strip()


class GitHost(GitServer):
    """One provider with repositories."""

    def __init__(self, provider: ProviderType, secret: str, root: Path) -> None:
        super().__init__(provider, secret)
        self.root = root
        self.fetched: list[Mapping[str, str]] = []
        """The headers of what git has asked."""
        self.redirects = ""
        """Where git is sent instead."""
        self.opened: list[Mapping[str, Any]] = []
        """The bodies of requests to open a pull request; the newest one is listed."""
        self.held = threading.Event()
        """Set once git waits for an answer that `holds` keeps back."""
        self.holds: threading.Event | None = None

    def make(self, name: str, files: Mapping[str, str | bytes]) -> Path:
        """Make a repository of acme with one commit on `main`; return a work tree of it."""
        tree = self.root / f"tree-{name}"
        tree.mkdir(parents=True)
        git(tree, "init", "-q")
        for path, content in files.items():
            file = tree / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        git(tree, "add", "-A", "-f")
        git(tree, "commit", "-q", "-m", "First")
        bare = self.bare(name)
        bare.parent.mkdir(exist_ok=True)
        git(self.root, "clone", "-q", "--bare", str(tree), str(bare))
        git(tree, "remote", "add", "origin", str(bare))
        return tree

    def _answer(self, asked: Asked) -> Answer:
        if asked.path[-1] not in ("pulls", "merge_requests", "pullrequests"):
            return super()._answer(asked)
        if asked.headers.get("authorization") not in self._authorizations():
            return Answer({}, 401)
        if asked.method == "POST":
            self.opened.append(asked.body)
        number = len(self.opened)
        shown = {
            **dict.fromkeys(("number", "iid", "id", "pullRequestId"), number),
            "html_url": f"https://git.example/acme/site/pull/{number}",
            "web_url": f"https://git.example/acme/site/-/merge_requests/{number}",
            "links": {"html": {"href": f"https://git.example/acme/site/pull-requests/{number}"}},
        }
        if asked.method == "POST":
            return Answer(shown, 201)
        listed = [shown] if self.opened else []
        in_fields = self.provider in (ProviderType.BITBUCKET, ProviderType.AZURE_DEVOPS)
        return Answer({"values": listed, "value": listed} if in_fields else listed)

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    def bare(self, name: str) -> Path:
        return self.root / "acme" / f"{name}.git"

    def take(self, request: Request) -> None:
        """Answer git, or a question to the provider."""
        parts = urlsplit(request.path)
        path = unquote(parts.path)
        if self.provider is ProviderType.AZURE_DEVOPS:
            path = path.replace("/acme/web/_git/", "/acme/")
            if path.count("/") > 2 and ".git" not in path:
                name, rest = path.removeprefix("/acme/").split("/", 1)
                path = f"/acme/{name}.git/{rest}"
        services = ("/info/refs", "/git-upload-pack", "/git-receive-pack")
        if not path.endswith(services) or "/_apis/" in path:
            super().take(request)
            return
        self.fetched.append(request.header_values())
        if self.redirects:
            request.reply(302, headers={"Location": f"{self.redirects}{request.path}"})
            return
        if not self._is_let_in(request):
            request.reply(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
            return
        if self.holds is not None and path.endswith("/git-upload-pack"):
            self.held.set()
            self.holds.wait()
        status, headers, content = self._answered(request, path, parts.query)
        request.reply(status, content, headers)

    def _is_let_in(self, request: Request) -> bool:
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        return scheme == "Basic" and b64decode(value).decode().partition(":")[2] == self.secret

    def _answered(self, request: Request, path: str, query: str) -> tuple[int, dict[str, str], bytes]:
        """Return what git's own program for this answers."""
        body = _body(request)
        program = shutil.which("git")
        assert program is not None
        run = subprocess.run(
            [program, "-c", "safe.directory=*", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            env={
                **os.environ,
                "GIT_PROJECT_ROOT": str(self.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_GLOBAL": "/dev/null",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "REMOTE_USER": "alice",
                "REMOTE_ADDR": "127.0.0.1",
                "REQUEST_METHOD": request.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": request.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            },
        )
        head, _, content = run.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return status, {**headers, "Content-Length": str(len(content))}, content


def _body(request: Request) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.read()
    body = b""
    while size := int(request.rfile.readline().strip() or b"0", 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return body
