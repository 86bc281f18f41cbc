"""Bitbucket Cloud: REST 2.0, workspace by workspace, since it no longer lists across them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sessions_app.git_providers.base import (
    SEARCHED_MAX,
    Folder,
    GitAuthenticationError,
    GitBranch,
    GitBranchPage,
    GitNotFound,
    GitProvider,
    GitProviderError,
    GitRemote,
    GitRepository,
    GitTask,
    GitUserInfo,
    NewPullRequest,
    ProviderToken,
    ProviderType,
    PullRequest,
    RequestedPage,
    git_address,
    host_of,
    linked,
    outcomes,
    pieces_of,
    trouble_of,
)
from sessions_app.git_providers.http import Api, ProviderAnswer, Query, basic, bearer
from sessions_app.outbound.hosts import Host

T = TypeVar("T")

ORDERS = {"created": "-created_on", "full_name": "name"}
CLOSED = ("MERGED", "DECLINED", "SUPERSEDED")


class Bitbucket(GitProvider):
    """Bitbucket Cloud, asked with `user:token` (an app password or an API token) or an access token."""

    provider_type = ProviderType.BITBUCKET
    label = "Bitbucket"
    public_host = "bitbucket.org"

    def __init__(self, token: ProviderToken) -> None:
        authorization = basic(token.token) if ":" in token.token else bearer(token.token)
        host = host_of(token.host, public=self.public_host)
        name = "bitbucket.org" if host.name == "api.bitbucket.org" else host.name
        self._git_origin = f"{host.scheme}://{name}"
        self._token = token.token.strip()
        self._api = Api(label=self.label, root=_root(host), authorization=authorization)

    async def user(self) -> GitUserInfo:
        user = (await self._api.get("user")).json
        return {
            "id": user.text_or_none("account_id") or user.text("uuid"),
            "login": user.text_or_none("username") or user.text("nickname"),
            "avatar_url": user.text_or_none("links", "avatar", "href") or "",
            "company": None,
            "name": user.text_or_none("display_name"),
            "email": None,
        }

    async def installations(self) -> list[str]:
        reply = await self._api.get("user", "workspaces", query={"pagelen": 20})
        return [access.text("workspace", "slug") for access in reply.json.each("values")]

    async def repository(self, name: str) -> GitRepository:
        return _repository((await self._api.get("repositories", *_workspace_and_slug(name))).json)

    async def repositories(
        self, page: RequestedPage, *, sort: str, installation_id: str | None
    ) -> list[GitRepository]:
        """Return a page of each workspace, or of the one that `installation_id` names."""
        query: Query = {
            "role": "member",
            "sort": ORDERS.get(sort, "-updated_on"),
            "page": page.number,
            "pagelen": page.size,
        }
        workspaces = [installation_id] if installation_id else await self.installations()
        answers = await self._from_each(workspaces, lambda each: self._listed(each, query))
        found = [_repository(each) for answer in answers for each in answer.each("values")]
        if any(not answer.is_null("next") for answer in answers):
            return linked(found, f'<{self._api.root}/repositories?page={page.number + 1}>; rel="next"')
        return found

    async def _listed(self, workspace: str, query: Query) -> ProviderAnswer:
        return (await self._api.get("repositories", workspace, query=query)).json

    async def search_repositories(
        self, owner: str | None, text: str, *, count: int, sort: str, is_ascending: bool
    ) -> list[GitRepository]:
        query: Query = {
            "q": f"name ~ {_quoted(text)}",
            "sort": "updated_on" if is_ascending else "-updated_on",
            "pagelen": count,
        }
        workspaces = [owner] if owner else await self.installations()
        answers = await self._from_each(workspaces, lambda each: self._listed(each, query))
        return [_repository(each) for answer in answers for each in answer.each("values")][:count]

    async def _from_each(self, workspaces: list[str], ask: Callable[[str], Awaitable[T]]) -> list[T]:
        """Ask every workspace; one that refuses this token is passed over, unless all do."""
        found: list[T] = []
        refusals: list[GitProviderError] = []
        for outcome in await outcomes(ask(workspace) for workspace in workspaces):
            match outcome:
                case GitAuthenticationError() | GitNotFound():
                    refusals.append(outcome)
                case GitProviderError():
                    raise outcome
                case _:
                    found.append(outcome)
        if refusals and not found:
            raise refusals[0]
        return found

    async def branches(self, repository: str, page: RequestedPage) -> GitBranchPage:
        answer = await self._branches(
            repository, {"sort": "-target.date", "page": page.number, "pagelen": page.size}
        )
        return {
            "branches": [_branch(each) for each in answer.each("values")],
            "has_next_page": not answer.is_null("next"),
            "current_page": page.number,
            "per_page": page.size,
            "total_count": answer.number_or_none("size"),
        }

    async def search_branches(self, repository: str, text: str, *, count: int) -> list[GitBranch]:
        query: Query = {"q": f"name ~ {_quoted(text)}", "sort": "-target.date", "pagelen": count}
        return [_branch(each) for each in (await self._branches(repository, query)).each("values")]

    async def _branches(self, repository: str, query: Query) -> ProviderAnswer:
        place = ("repositories", *_workspace_and_slug(repository), "refs", "branches")
        return (await self._api.get(*place, query=query)).json

    async def is_open(self, repository: str, pr_number: int) -> bool:
        place = ("repositories", *_workspace_and_slug(repository), "pullrequests", pr_number)
        return (await self._api.get(*place)).json.text("state") not in CLOSED

    async def opened(self, repository: str, branch: str, base: str) -> PullRequest | None:
        place = ("repositories", *_workspace_and_slug(repository), "pullrequests")
        wanted = (
            f"source.branch.name = {_quoted(branch)}",
            f"destination.branch.name = {_quoted(base)}",
            'state = "OPEN"',
        )
        found = (await self._api.get(*place, query={"q": " AND ".join(wanted)})).json.each("values")
        return _pull_request(found[0]) if found else None

    async def open(self, repository: str, new: NewPullRequest) -> PullRequest:
        body = {
            "title": new.title,
            "description": new.body,
            "source": {"branch": {"name": new.branch}},
            "destination": {"branch": {"name": new.base}},
            "draft": new.is_draft,
        }
        place = ("repositories", *_workspace_and_slug(repository), "pullrequests")
        return _pull_request((await self._api.post(*place, body=body)).json)

    async def suggested_tasks(self) -> list[GitTask]:
        # Without conflicts and assigned issues: Bitbucket lists neither.
        uuid = (await self._api.get("user")).json.text("uuid")
        query: Query = {"state": "OPEN", "sort": "-updated_on", "pagelen": SEARCHED_MAX}
        replies = await self._from_each(
            await self.installations(),
            lambda each: self._api.get("workspaces", each, "pullrequests", uuid, query=query),
        )
        pulls = [pull for reply in replies for pull in reply.json.each("values")]
        tasks = await outcomes(map(self._task, pulls))
        return [task for task in tasks if task is not None and not isinstance(task, GitProviderError)]

    async def _task(self, pull: ProviderAnswer) -> GitTask | None:
        repo = pull.text("destination", "repository", "full_name")
        number = pull.number("id")
        place = ("repositories", *_workspace_and_slug(repo), "pullrequests", number, "statuses")
        statuses = (await self._api.get(*place, query={"pagelen": 100})).json.each("values")
        trouble = trouble_of(
            conflicts=False,  # a list of pull requests does not have them
            fails=any(status.text_or_none("state") == "FAILED" for status in statuses),
            is_commented=(pull.number_or_none("task_count") or 0) > 0,
        )
        return (
            self.task(trouble, repo=repo, issue_number=number, title=pull.text("title")) if trouble else None
        )

    async def folder(self, repository: GitRepository, path: str) -> Folder:
        place = ("repositories", *_workspace_and_slug(repository["full_name"]))
        commit = await self._main_commit(repository)
        listing = await self._api.get(*place, "src", commit, *path.split("/"), query={"pagelen": 100})
        commits = await self._api.get(*place, "commits", commit, query={"path": path, "pagelen": 1})
        newest = commits.json.each("values")[:1]
        return {
            "file_names": [
                entry.text("path").rpartition("/")[2]
                for entry in listing.json.each("values")
                if entry.text("type") == "commit_file"
            ],
            "changed_at": newest[0].text("date") if newest else "",
        }

    async def file(self, repository: GitRepository, path: str) -> str:
        place = ("repositories", *_workspace_and_slug(repository["full_name"]))
        return (
            await self._api.get(
                *place, "src", await self._main_commit(repository), *path.split("/"), accept="*/*"
            )
        ).text

    def remote(self, repository: GitRepository) -> GitRemote:
        workspace, slug = _workspace_and_slug(repository["full_name"])
        user, has_user, password = self._token.partition(":")
        if not has_user:
            user, password = "x-token-auth", self._token
        elif "@" in user:  # an API token, whose user is an address at Atlassian's other services
            user = "x-bitbucket-api-token-auth"
        return GitRemote(
            url=git_address(self._git_origin, [workspace, f"{slug}.git"]),
            user=user,
            password=password,
            main_branch=repository["main_branch"],
        )

    async def _main_commit(self, repository: GitRepository) -> str:
        # A branch with a slash in its name cannot stand in a file's address.
        if repository["main_branch"] is None:
            raise GitNotFound("An empty repository has no files.")
        place = ("repositories", *_workspace_and_slug(repository["full_name"]), "refs", "branches")
        return (await self._api.get(*place, *repository["main_branch"].split("/"))).json.text(
            "target", "hash"
        )


def _root(host: Host) -> str:
    if host.name in ("bitbucket.org", "api.bitbucket.org"):
        return "https://api.bitbucket.org/2.0"
    return f"{host.origin}/2.0"


def _workspace_and_slug(repository: str) -> tuple[str, str]:
    workspace, slug = pieces_of(repository, least=2, most=2)
    return workspace, slug


def _quoted(text: str) -> str:
    """Return a text as Bitbucket's query language writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _repository(answer: ProviderAnswer) -> GitRepository:
    return {
        "id": answer.text("uuid"),
        "full_name": answer.text("full_name"),
        "git_provider": ProviderType.BITBUCKET.value,
        "is_public": not answer.is_true("is_private"),
        "stargazers_count": None,
        "link_header": None,
        "pushed_at": answer.text_or_none("updated_on"),
        "owner_type": "user" if answer.text_or_none("owner", "type") == "user" else "organization",
        "main_branch": answer.text_or_none("mainbranch", "name"),
    }


def _pull_request(answer: ProviderAnswer) -> PullRequest:
    return PullRequest(answer.number("id"), answer.text("links", "html", "href"))


def _branch(answer: ProviderAnswer) -> GitBranch:
    return {
        "name": answer.text("name"),
        "commit_sha": answer.text("target", "hash"),
        "protected": False,
        "last_push_date": answer.text_or_none("target", "date"),
    }
