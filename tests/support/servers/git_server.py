"""A git provider on loopback: any of the four, with one account on it and the faults that one can have."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from sessions_app.git_providers.base import ProviderToken, ProviderType
from tests.support.servers.loopback_server import LoopbackServer, Request

MOMENT_S = 0.2
DATE = "2025-11-20T08:49:31Z"
OPEN, MERGED, CLOSED = 1, 2, 3
"""The numbers of the pull requests of `site`, by what became of them."""
MICROAGENT = "---\nname: deploy\ntriggers:\n- deploy\n- release\n---\n\nAsk before you deploy.\n"


@dataclass(frozen=True, kw_only=True)
class Repo:
    """A repository of the organisation acme."""

    name: str
    is_public: bool = False
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ref:
    """A branch of `site`."""

    name: str
    sha: str
    protected: bool = False


REPOS = (
    Repo(name=".openhands", files={"microagents/team.md": "Be kind."}),
    Repo(name="docs", is_public=True),
    Repo(
        name="site",
        files={
            ".openhands/microagents/deploy.md": MICROAGENT,
            ".openhands/microagents/README.md": "About this folder.",
            ".openhands/microagents/notes.txt": "Nothing for an agent.",
            ".openhands/microagents/repo.md": "What this is.",
            "secrets.md": "Not for everyone.",
        },
    ),
    Repo(name="tools"),
)
REFS = (
    Ref(name="main", sha="a" * 40, protected=True),
    Ref(name="feature/login", sha="b" * 40),
    Ref(name="feature/search", sha="c" * 40),
)


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    target: str
    """The request line's own text for path and query."""


class Answer(NamedTuple):
    """What goes back: a JSON value, or bytes."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


NOT_FOUND = Answer({"message": "Not Found"}, 404)
Routes = Callable[["GitServer", Asked], Answer]


class GitServer(LoopbackServer):
    """One provider."""

    def __init__(self, provider: ProviderType, secret: str) -> None:
        """Let whoever brings `secret`, in this provider's way, in."""
        super().__init__()
        self.provider = provider
        self.secret = secret
        self.asked: list[Asked] = []
        self.moved: dict[tuple[str, ...], str] = {}
        """Paths that are redirected, and where to."""
        self.most_at_once = 0
        self._at_once = 0
        self._counting = threading.Condition()
        self._crowd: int | None = None
        self._fault: Callable[[Request], None] | None = None

    @property
    def host(self) -> str:
        """Return the host as a user of this provider gives it."""
        return f"{self.address}/acme" if self.provider is ProviderType.AZURE_DEVOPS else self.address

    @property
    def token(self) -> ProviderToken:
        text = f"alice:{self.secret}" if self.provider is ProviderType.BITBUCKET else self.secret
        return ProviderToken(token=text, host=self.host)

    def full_name(self, name: str) -> str:
        """Return a repository's whole name."""
        return f"acme/web/{name}" if self.provider is ProviderType.AZURE_DEVOPS else f"acme/{name}"

    def answer_all(self, status: int, body: Any = b"{}", **headers: str) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self._fault = lambda request: _reply(request, Answer(body, status, names))

    def never_answer(self) -> None:
        """Take requests and stay silent."""

        def wait(request: Request) -> None:
            self.stopped.wait()

        self._fault = wait

    def answer_without_end(self) -> None:
        """Send a byte now and then, for ever."""

        def drip(request: Request) -> None:
            request.start(200, {"Content-Type": "application/json"})
            with suppress(ConnectionError):
                while not self.stopped.wait(0.005):
                    request.wfile.write(b" ")

        self._fault = drip

    def wait_for_a_crowd(self, size: int) -> None:
        """Hold every request until so many are here at once, for a moment at most."""
        self._crowd = size

    def recover(self) -> None:
        """Answer as it should again."""
        self._fault = None

    def take(self, request: Request) -> None:
        """Record a request and answer it."""
        asked = _asked(request)
        self.asked.append(asked)
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._counting.notify_all()
            crowd = self._crowd
            if crowd is not None:
                self._counting.wait_for(lambda: self.most_at_once >= crowd, MOMENT_S)
            self._at_once -= 1
        if self._fault:
            self._fault(request)
        else:
            _reply(request, self._answer(asked))

    def _answer(self, asked: Asked) -> Answer:
        if asked.path in self.moved:
            return Answer({}, 301, {"Location": self.moved[asked.path]})
        if asked.headers.get("authorization") not in self._authorizations():
            return Answer({"message": "Bad credentials"}, 401)
        return ROUTES[self.provider](self, asked)

    def _authorizations(self) -> list[str]:
        match self.provider:
            case ProviderType.BITBUCKET:
                return [_basic(f"alice:{self.secret}"), f"Bearer {self.secret}"]
            case ProviderType.AZURE_DEVOPS:
                return [_basic(f":{self.secret}")]
        return [f"Bearer {self.secret}"]


def _basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


def _asked(request: Request) -> Asked:
    parts = urlsplit(request.path)
    content = request.read()
    return Asked(
        method=request.command,
        path=tuple(unquote(piece) for piece in parts.path.split("/")[1:]),
        query=dict(parse_qsl(parts.query)),
        headers=request.header_values(),
        body=json.loads(content) if content else None,
        target=request.path,
    )


def _reply(request: Request, answer: Answer) -> None:
    content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    request.reply(answer.status, content, answer.headers)


def github(server: GitServer, asked: Asked) -> Answer:
    """Answer as GitHub Enterprise does; github.com has the same without the prefix."""
    match asked.path:
        case ("api", "graphql"):
            return _github_graphql(asked)
        case ("api", "v3", *rest):
            return _github_rest(server, asked, rest)
    return NOT_FOUND


def _github_rest(server: GitServer, asked: Asked, path: Sequence[str]) -> Answer:
    match path:
        case ["user"]:
            return Answer(
                {
                    "id": 7,
                    "login": "alice",
                    "avatar_url": "https://avatars.example/7",
                    "company": "Acme",
                    "name": "Alice",
                    "email": None,
                }
            )
        case ["user", "orgs"]:
            return Answer([{"login": "acme", "id": 1}])
        case ["user", "installations"]:
            return Answer({"total_count": 1, "installations": [{"id": 41}]})
        case ["user", "installations", "41", "repositories"]:
            found, headers = _page(server, asked, REPOS, "per_page")
            return Answer({"repositories": [_github_repo(each) for each in found]}, headers=headers)
        case ["user", "repos"]:
            found, headers = _page(server, asked, REPOS, "per_page")
            return Answer([_github_repo(each) for each in found], headers=headers)
        case ["search", "repositories"]:
            text, *qualifiers = asked.query["q"].split()
            if "in:name" not in qualifiers or not {"org:acme", "user:acme"} & set(qualifiers):
                return Answer({"message": "Validation Failed"}, 422)
            found = [each for each in REPOS if text in each.name]
            return Answer({"items": [_github_repo(each) for each in found[: int(asked.query["per_page"])]]})
        case ["repos", "acme", name, *rest]:
            return _of_repo(name, lambda repo: _github_of_repo(server, asked, repo, rest))
    return NOT_FOUND


def _github_of_repo(server: GitServer, asked: Asked, repo: Repo, path: Sequence[str]) -> Answer:
    match path:
        case []:
            return Answer(_github_repo(repo))
        case ["branches"]:
            found, headers = _page(server, asked, REFS, "per_page")
            return Answer(
                [
                    {"name": each.name, "commit": {"sha": each.sha}, "protected": each.protected}
                    for each in found
                ],
                headers=headers,
            )
        case ["pulls", number]:
            return _of_pull(number, {OPEN: "open", MERGED: "closed", CLOSED: "closed"})
        case ["commits"]:
            return Answer([{"commit": {"committer": {"date": DATE}}}])
        case ["contents", *pieces]:
            text = repo.files.get("/".join(pieces))
            if text is not None and "raw" in asked.headers["accept"]:
                return Answer(text.encode())
            names = _names_in(repo, "/".join(pieces))
            entries = [{"name": name, "type": "file"} for name in names]
            return Answer([*entries, {"name": "more.md", "type": "dir"}]) if names else NOT_FOUND
    return NOT_FOUND


def _github_repo(repo: Repo) -> dict[str, Any]:
    return {
        "id": REPOS.index(repo),
        "full_name": f"acme/{repo.name}",
        "private": not repo.is_public,
        "stargazers_count": 3,
        "pushed_at": DATE,
        "owner": {"login": "acme", "type": "Organization"},
        "default_branch": "main",
    }


def _github_graphql(asked: Asked) -> Answer:
    if "refs(" in asked.body["query"]:
        given = asked.body["variables"]
        found = [each for each in REFS if given["text"] in each.name][: given["count"]]
        nodes = [
            {
                "name": each.name,
                "branchProtectionRule": {"id": "1"} if each.protected else None,
                "target": {"oid": each.sha, "committedDate": DATE},
            }
            for each in found
        ]
        return Answer({"data": {"repository": {"refs": {"nodes": nodes}}}})
    pulls = [
        _github_pull(1, "In conflict", mergeable="CONFLICTING"),
        _github_pull(2, "Fails", state="FAILURE"),
        _github_pull(3, "Commented", is_resolved=False),
        _github_pull(4, "In order"),
    ]
    issue = {"number": 5, "title": "Broken", "repository": {"nameWithOwner": "acme/site"}}
    return Answer(
        {"data": {"viewer": {"pullRequests": {"nodes": pulls}}, "search": {"nodes": [issue, {}, None]}}}
    )


def _github_pull(
    number: int, title: str, *, mergeable: str = "MERGEABLE", state: str = "SUCCESS", is_resolved: bool = True
) -> dict[str, Any]:
    return {
        "number": number,
        "title": title,
        "mergeable": mergeable,
        "repository": {"nameWithOwner": "acme/site"},
        "reviewThreads": {"nodes": [{"isResolved": is_resolved}]},
        "commits": {"nodes": [{"commit": {"statusCheckRollup": {"state": state}}}]},
    }


def gitlab(server: GitServer, asked: Asked) -> Answer:
    match asked.path:
        case ("api", "graphql"):
            return _gitlab_graphql()
        case ("api", "v4", "user"):
            return Answer(
                {
                    "id": 7,
                    "username": "alice",
                    "avatar_url": None,
                    "organization": "",
                    "name": "Alice",
                    "email": "alice@example.com",
                }
            )
        case ("api", "v4", "issues"):
            return Answer([{"iid": 5, "title": "Broken", "references": {"full": "acme/site#5"}}])
        case ("api", "v4", "projects"):
            wanted = [each for each in REPOS if asked.query.get("search", "") in f"acme/{each.name}"]
            found, headers = _page(server, asked, wanted, "per_page")
            return Answer([_gitlab_repo(each) for each in found], headers=headers)
        case ("api", "v4", "projects", name, *rest) if name.startswith("acme/"):
            return _of_repo(
                name.removeprefix("acme/"), lambda repo: _gitlab_of_repo(server, asked, repo, rest)
            )
    return NOT_FOUND


def _gitlab_of_repo(server: GitServer, asked: Asked, repo: Repo, path: Sequence[str]) -> Answer:
    match path:
        case []:
            return Answer(_gitlab_repo(repo))
        case ["repository", "branches"]:
            wanted = [each for each in REFS if asked.query.get("search", "") in each.name]
            found, headers = _page(server, asked, wanted, "per_page")
            branches = [
                {
                    "name": each.name,
                    "commit": {"id": each.sha, "committed_date": DATE},
                    "protected": each.protected,
                }
                for each in found
            ]
            return Answer(branches, headers={**headers, "X-Total": str(len(wanted))})
        case ["merge_requests", number]:
            return _of_pull(number, {OPEN: "opened", MERGED: "merged", CLOSED: "closed"})
        case ["repository", "commits"]:
            return Answer([{"committed_date": DATE}])
        case ["repository", "tree"]:
            names = _names_in(repo, asked.query["path"])
            entries = [{"name": name, "type": "blob"} for name in names]
            return Answer([*entries, {"name": "more.md", "type": "tree"}]) if names else NOT_FOUND
        case ["repository", "files", name, "raw"] if asked.query["ref"] == "main":
            text = repo.files.get(name)
            return NOT_FOUND if text is None else Answer(text.encode())
    return NOT_FOUND


def _gitlab_repo(repo: Repo) -> dict[str, Any]:
    return {
        "id": REPOS.index(repo),
        "path_with_namespace": f"acme/{repo.name}",
        "visibility": "public" if repo.is_public else "private",
        "star_count": 3,
        "last_activity_at": DATE,
        "namespace": {"kind": "group"},
        "default_branch": "main",
    }


def _gitlab_graphql() -> Answer:
    requests = [
        _gitlab_request(1, "In conflict", conflicts=True),
        _gitlab_request(2, "Fails", status="FAILED"),
        _gitlab_request(3, "Commented", resolved=0),
        _gitlab_request(4, "In order"),
    ]
    return Answer({"data": {"currentUser": {"authoredMergeRequests": {"nodes": requests}}}})


def _gitlab_request(
    number: int, title: str, *, conflicts: bool = False, status: str = "SUCCESS", resolved: int = 1
) -> dict[str, Any]:
    return {
        "iid": str(number),
        "title": title,
        "conflicts": conflicts,
        "project": {"fullPath": "acme/site"},
        "headPipeline": {"status": status},
        "resolvableDiscussionsCount": 1,
        "resolvedDiscussionsCount": resolved,
    }


def bitbucket(server: GitServer, asked: Asked) -> Answer:
    """Answer as Bitbucket Cloud does; `locked` is a workspace that keeps the token out."""
    match asked.path:
        case ("2.0", "user"):
            return Answer(
                {
                    "account_id": "7:alice",
                    "uuid": "{7}",
                    "nickname": "alice",
                    "display_name": "Alice",
                    "links": {"avatar": {"href": "https://avatars.example/7"}},
                }
            )
        case ("2.0", "user", "workspaces"):
            slugs = ("acme", "locked")
            return Answer(
                {"values": [{"type": "workspace_access", "workspace": {"slug": slug}} for slug in slugs]}
            )
        case ("2.0", _, "locked", *_):
            return Answer({"type": "error"}, 403)
        case ("2.0", "workspaces", "acme", "pullrequests", "{7}"):
            pulls = [
                _bitbucket_pull(2, "Fails"),
                _bitbucket_pull(3, "Commented", 1),
                _bitbucket_pull(4, "In order"),
            ]
            return Answer({"values": pulls})
        case ("2.0", "repositories", "acme"):
            return Answer(_bitbucket_page(asked, [_bitbucket_repo(each) for each in REPOS]))
        case ("2.0", "repositories", "acme", name, *rest):
            return _of_repo(name, lambda repo: _bitbucket_of_repo(asked, repo, rest))
    return NOT_FOUND


def _bitbucket_of_repo(asked: Asked, repo: Repo, path: Sequence[str]) -> Answer:
    main = REFS[0]
    match path:
        case []:
            return Answer(_bitbucket_repo(repo))
        case ["refs", "branches"]:
            branches = [{"name": each.name, "target": {"hash": each.sha, "date": DATE}} for each in REFS]
            return Answer(_bitbucket_page(asked, branches))
        case ["refs", "branches", main.name]:
            return Answer({"name": main.name, "target": {"hash": main.sha}})
        case ["pullrequests", number, "statuses"]:
            return Answer({"values": [{"state": "FAILED" if number == "2" else "SUCCESSFUL"}]})
        case ["pullrequests", number]:
            return _of_pull(number, {OPEN: "OPEN", MERGED: "MERGED", CLOSED: "DECLINED"})
        case ["commits", main.sha]:
            return Answer({"values": [{"date": DATE}]})
        case ["src", main.sha, *pieces]:
            place = "/".join(pieces)
            if (text := repo.files.get(place)) is not None:
                return Answer(text.encode())
            names = _names_in(repo, place)
            entries = [{"path": f"{place}/{name}", "type": "commit_file"} for name in names]
            more = {"path": f"{place}/more.md", "type": "commit_directory"}
            return Answer({"values": [*entries, more]}) if names else NOT_FOUND
    return NOT_FOUND


def _bitbucket_page(asked: Asked, every: Sequence[dict[str, Any]]) -> dict[str, Any]:
    wanted = asked.query.get("q", 'name ~ ""').removeprefix('name ~ "').removesuffix('"')
    named = [each for each in every if wanted in each["name"]]
    part, has_more = _part(asked, named, "pagelen")
    more = {"next": "https://api.bitbucket.org/2.0/more"} if has_more else {}
    return {"values": part, "size": len(named), **more}


def _bitbucket_repo(repo: Repo) -> dict[str, Any]:
    return {
        "uuid": f"{{{REPOS.index(repo)}}}",
        "name": repo.name,
        "full_name": f"acme/{repo.name}",
        "is_private": not repo.is_public,
        "updated_on": DATE,
        "owner": {"type": "team"},
        "mainbranch": {"name": "main"},
    }


def _bitbucket_pull(number: int, title: str, task_count: int = 0) -> dict[str, Any]:
    return {
        "id": number,
        "title": title,
        "task_count": task_count,
        "destination": {"repository": {"full_name": "acme/site"}},
    }


def azure_devops(server: GitServer, asked: Asked) -> Answer:
    """Answer as Azure DevOps does for the organisation acme, which has one project, web."""
    if not asked.query.get("api-version", "").startswith("7.1"):
        return Answer({"message": "No api-version was supplied."}, 400)
    match asked.path:
        case ("acme", "_apis", "connectionData"):
            return Answer(
                {
                    "authenticatedUser": {
                        "id": "7",
                        "subjectDescriptor": "aad.7",
                        "providerDisplayName": "Alice",
                        "properties": {"Account": {"$value": "alice@example.com"}},
                    }
                }
            )
        case ("acme", "_apis", "projects"):
            return Answer({"value": [{"id": "1", "name": "web"}]})
        case ("acme", "_apis", "git", "repositories"):
            return Answer({"value": [_azure_repo(each) for each in reversed(REPOS)]})
        case ("acme", "web", "_apis", "git", "pullrequests"):
            pulls = [_azure_pull(1, "In conflict", "conflicts"), _azure_pull(4, "In order", "succeeded")]
            return Answer({"value": pulls if asked.query["searchCriteria.creatorId"] == "7" else []})
        case ("acme", "web", "_apis", "git", "repositories", name, *rest):
            return _of_repo(name, lambda repo: _azure_of_repo(asked, repo, rest))
    return NOT_FOUND


def _azure_of_repo(asked: Asked, repo: Repo, path: Sequence[str]) -> Answer:
    match path:
        case []:
            return Answer(_azure_repo(repo))
        case ["refs"]:
            wanted = asked.query.get("filterContains", "")
            found = [each for each in REFS if wanted in each.name]
            return Answer(
                {"value": [{"name": f"refs/heads/{each.name}", "objectId": each.sha} for each in found]}
            )
        case ["pullrequests", number]:
            states = {OPEN: "active", MERGED: "completed", CLOSED: "abandoned"}
            return _of_pull(number, states, field="status")
        case ["items"] if "path" in asked.query:
            text = repo.files.get(asked.query["path"].removeprefix("/"))
            return NOT_FOUND if text is None else Answer({"content": text})
        case ["items"]:
            place = asked.query["scopePath"]
            names = _names_in(repo, place.removeprefix("/"))
            entries = [{"path": f"{place}/{name}", "gitObjectType": "blob"} for name in names]
            change = {"latestProcessedChange": {"committer": {"date": DATE}}}
            itself = {"path": place, "isFolder": True, **change}
            return Answer({"value": [itself, *entries]}) if names else NOT_FOUND
    return NOT_FOUND


def _azure_repo(repo: Repo) -> dict[str, Any]:
    return {
        "id": str(REPOS.index(repo)),
        "name": repo.name,
        "project": {"name": "web", "visibility": "public" if repo.is_public else "private"},
        "defaultBranch": "refs/heads/main",
    }


def _azure_pull(number: int, title: str, merge_status: str) -> dict[str, Any]:
    return {
        "pullRequestId": number,
        "title": title,
        "mergeStatus": merge_status,
        "repository": {"name": "site", "project": {"name": "web"}},
    }


ROUTES: dict[ProviderType, Routes] = {
    ProviderType.GITHUB: github,
    ProviderType.GITLAB: gitlab,
    ProviderType.BITBUCKET: bitbucket,
    ProviderType.AZURE_DEVOPS: azure_devops,
}


def _of_repo(name: str, answer: Callable[[Repo], Answer]) -> Answer:
    found = next((repo for repo in REPOS if repo.name == name), None)
    return answer(found) if found else NOT_FOUND


def _of_pull(number: str, states: Mapping[int, str], *, field: str = "state") -> Answer:
    state = states.get(int(number))
    return Answer({field: state}) if state else NOT_FOUND


def _names_in(repo: Repo, folder: str) -> list[str]:
    places = [path.rpartition("/") for path in repo.files]
    return [name for place, _, name in places if place == folder]


def _part(asked: Asked, every: Sequence[Any], size_name: str) -> tuple[list[Any], bool]:
    size = int(asked.query.get(size_name, 30))
    end = int(asked.query.get("page", 1)) * size
    return list(every[end - size : end]), end < len(every)


def _page(
    server: GitServer, asked: Asked, every: Sequence[Any], size_name: str
) -> tuple[list[Any], dict[str, str]]:
    """Return a page, and the header that names its neighbours."""
    part, has_more = _part(asked, every, size_name)
    number = int(asked.query.get("page", 1))
    place = f"http://{server.address}/{'/'.join(asked.path)}?{size_name}={asked.query.get(size_name)}"
    links = [f'<{place}&page=1>; rel="first"']
    if has_more:
        links.append(f'<{place}&page={number + 1}>; rel="next"')
    return part, {"Link": ", ".join(links)}
