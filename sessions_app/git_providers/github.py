"""GitHub, on github.com or an Enterprise server: REST v3, and GraphQL where REST has no answer."""

from __future__ import annotations

from typing import Literal

from sessions_app.git_providers.base import (
    Folder,
    GitAuthenticationError,
    GitBranch,
    GitBranchPage,
    GitProvider,
    GitRemote,
    GitRepository,
    GitTask,
    GitUserInfo,
    NewPullRequest,
    ProviderToken,
    ProviderType,
    PullRequest,
    RequestedPage,
    TaskType,
    git_address,
    has_next,
    host_of,
    linked,
    pieces_of,
    trouble_of,
)
from sessions_app.git_providers.http import Api, ProviderAnswer, bearer
from sessions_app.outbound.hosts import Host

# JSON would carry the file in base64, and only up to a megabyte.
RAW = "application/vnd.github.raw+json"
LISTED_BY = {"pushed", "updated", "created", "full_name"}
SEARCHED_BY = {"stars", "forks", "updated"}

BRANCHES = """
query ($owner: String!, $name: String!, $text: String!, $count: Int!) {
  repository(owner: $owner, name: $name) {
    refs(refPrefix: "refs/heads/", query: $text, first: $count) {
      nodes { name branchProtectionRule { id } target { oid ... on Commit { committedDate } } }
    }
  }
}
"""
TASKS = """
query {
  viewer {
    pullRequests(states: OPEN, first: 50, orderBy: {field: UPDATED_AT, direction: DESC}) {
      nodes {
        number title mergeable
        repository { nameWithOwner }
        reviewThreads(first: 50) { nodes { isResolved } }
        commits(last: 1) { nodes { commit { statusCheckRollup { state } } } }
      }
    }
  }
  search(type: ISSUE, query: "is:issue is:open archived:false assignee:@me", first: 50) {
    nodes { ... on Issue { number title repository { nameWithOwner } } }
  }
}
"""


class GitHub(GitProvider):
    """GitHub, asked with a personal access token or an app's user token."""

    provider_type = ProviderType.GITHUB
    label = "GitHub"
    public_host = "github.com"

    def __init__(self, token: ProviderToken) -> None:
        host = host_of(token.host, public=self.public_host)
        rest, graphql = _roots(host)
        is_public = host.name == "api.github.com" or host.name.endswith(".ghe.com")
        name = host.name.removeprefix("api.") if is_public else host.name
        self._git_origin = f"{host.scheme}://{name}"
        self._token = token.token.strip()
        authorization = bearer(token.token)
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        self._api = Api(label=self.label, root=rest, authorization=authorization, headers=headers)
        self._graphql = Api(label=self.label, root=graphql, authorization=authorization)

    async def user(self) -> GitUserInfo:
        user = (await self._api.get("user")).json
        return {
            "id": user.identity("id"),
            "login": user.text("login"),
            "avatar_url": user.text("avatar_url"),
            "company": user.text_or_none("company"),
            "name": user.text_or_none("name"),
            "email": user.text_or_none("email"),
        }

    async def installations(self) -> list[str]:
        reply = await self._api.get("user", "installations", query={"per_page": 100})
        return [installation.identity("id") for installation in reply.json.each("installations")]

    async def repository(self, name: str) -> GitRepository:
        return _repository((await self._api.get("repos", *_owner_and_name(name))).json)

    async def repositories(
        self, page: RequestedPage, *, sort: str, installation_id: str | None
    ) -> list[GitRepository]:
        paging: dict[str, str | int] = {"page": page.number, "per_page": page.size}
        if installation_id:
            reply = await self._api.get(
                "user", "installations", installation_id, "repositories", query=paging
            )
            found = reply.json.each("repositories")
        else:
            by = sort if sort in LISTED_BY else "pushed"
            reply = await self._api.get("user", "repos", query={**paging, "sort": by})
            found = reply.json.each()
        return linked([_repository(each) for each in found], reply.link_header)

    async def search_repositories(
        self, owner: str | None, text: str, *, count: int, sort: str, is_ascending: bool
    ) -> list[GitRepository]:
        owners = [f"user:{owner}"] if owner else ["user:@me", *await self._organisations()]
        query: dict[str, str | int] = {
            # Without `fork:true` a search leaves forks out.
            "q": " ".join([text, "in:name", "fork:true", *owners]),
            "per_page": count,
            "order": "asc" if is_ascending else "desc",
        }
        if sort in SEARCHED_BY:
            query["sort"] = sort
        reply = await self._api.get("search", "repositories", query=query)
        return [_repository(each) for each in reply.json.each("items")]

    async def _organisations(self) -> list[str]:
        """Return the search terms for the user's organisations."""
        try:
            reply = await self._api.get("user", "orgs", query={"per_page": 30})
        except GitAuthenticationError:  # a token may open repositories without being allowed to list these
            return []
        return [f"org:{organisation.text('login')}" for organisation in reply.json.each()]

    async def branches(self, repository: str, page: RequestedPage) -> GitBranchPage:
        query = {"page": page.number, "per_page": page.size}
        reply = await self._api.get("repos", *_owner_and_name(repository), "branches", query=query)
        return {
            "branches": [_branch(each) for each in reply.json.each()],
            "has_next_page": has_next(reply.link_header),
            "current_page": page.number,
            "per_page": page.size,
            "total_count": None,
        }

    async def search_branches(self, repository: str, text: str, *, count: int) -> list[GitBranch]:
        owner, name = _owner_and_name(repository)
        # REST lists branches by no text, and without dates.
        data = await self._graphql.graphql(BRANCHES, owner=owner, name=name, text=text, count=count)
        return [
            {
                "name": ref.text("name"),
                "commit_sha": ref.text("target", "oid"),
                "protected": not ref.is_null("branchProtectionRule"),
                "last_push_date": ref.text_or_none("target", "committedDate"),
            }
            for ref in data.each("repository", "refs", "nodes")
        ]

    async def is_open(self, repository: str, pr_number: int) -> bool:
        reply = await self._api.get("repos", *_owner_and_name(repository), "pulls", pr_number)
        return reply.json.text("state") != "closed"

    async def opened(self, repository: str, branch: str, base: str) -> PullRequest | None:
        owner, name = _owner_and_name(repository)
        query = {"head": f"{owner}:{branch}", "base": base, "state": "open"}
        found = (await self._api.get("repos", owner, name, "pulls", query=query)).json.each()
        return _pull_request(found[0]) if found else None

    async def open(self, repository: str, new: NewPullRequest) -> PullRequest:
        body = {
            "title": new.title,
            "body": new.body,
            "head": new.branch,
            "base": new.base,
            "draft": new.is_draft,
        }
        reply = await self._api.post("repos", *_owner_and_name(repository), "pulls", body=body)
        return _pull_request(reply.json)

    async def suggested_tasks(self) -> list[GitTask]:
        data = await self._graphql.graphql(TASKS)
        pulls = data.each("viewer", "pullRequests", "nodes")
        # A search may find what is no issue, without an issue's fields.
        issues = [issue for issue in data.each("search", "nodes") if not issue.is_null("number")]
        return [
            *(self._task(trouble, pull) for pull in pulls if (trouble := _trouble_of(pull))),
            *(self._task(TaskType.OPEN_ISSUE, issue) for issue in issues),
        ]

    def _task(self, task_type: TaskType, answer: ProviderAnswer) -> GitTask:
        return self.task(
            task_type,
            repo=answer.text("repository", "nameWithOwner"),
            issue_number=answer.number("number"),
            title=answer.text("title"),
        )

    async def folder(self, repository: GitRepository, path: str) -> Folder:
        place = ("repos", *_owner_and_name(repository["full_name"]))
        contents = await self._api.get(*place, "contents", *path.split("/"))
        commits = await self._api.get(*place, "commits", query={"path": path, "per_page": 1})
        newest = commits.json.each()[:1]
        return {
            "file_names": [
                entry.text("name") for entry in contents.json.each() if entry.text("type") == "file"
            ],
            "changed_at": newest[0].text("commit", "committer", "date") if newest else "",
        }

    async def file(self, repository: GitRepository, path: str) -> str:
        place = ("repos", *_owner_and_name(repository["full_name"]), "contents", *path.split("/"))
        return (await self._api.get(*place, accept=RAW)).text

    def remote(self, repository: GitRepository) -> GitRemote:
        owner, name = _owner_and_name(repository["full_name"])
        return GitRemote(
            url=git_address(self._git_origin, [owner, f"{name}.git"]),
            user="x-access-token",
            password=self._token,
            main_branch=repository["main_branch"],
        )


def _roots(host: Host) -> tuple[str, str]:
    """Return the roots of REST and GraphQL."""
    # A host is typed as in the browser; each kind of GitHub has its API at another place.
    if host.name in ("github.com", "api.github.com"):
        return "https://api.github.com", "https://api.github.com/graphql"
    if host.name.endswith(".ghe.com"):
        root = f"https://api.{host.name.removeprefix('api.')}"
        return root, f"{root}/graphql"
    return f"{host.origin}/api/v3", f"{host.origin}/api/graphql"


def _owner_and_name(repository: str) -> tuple[str, str]:
    owner, name = pieces_of(repository, least=2, most=2)
    return owner, name


def _repository(answer: ProviderAnswer) -> GitRepository:
    owner_types: dict[str | None, Literal["user", "organization"]] = {
        "User": "user",
        "Organization": "organization",
    }
    return {
        "id": answer.identity("id"),
        "full_name": answer.text("full_name"),
        "git_provider": ProviderType.GITHUB.value,
        "is_public": not answer.is_true("private"),
        "stargazers_count": answer.number_or_none("stargazers_count"),
        "link_header": None,
        "pushed_at": answer.text_or_none("pushed_at"),
        "owner_type": owner_types.get(answer.text_or_none("owner", "type")),
        "main_branch": answer.text_or_none("default_branch"),
    }


def _pull_request(answer: ProviderAnswer) -> PullRequest:
    return PullRequest(answer.number("number"), answer.text("html_url"))


def _branch(answer: ProviderAnswer) -> GitBranch:
    return {
        "name": answer.text("name"),
        "commit_sha": answer.text("commit", "sha"),
        "protected": answer.is_true("protected"),
        "last_push_date": None,
    }


def _trouble_of(pull: ProviderAnswer) -> TaskType | None:
    last_commit = pull.each("commits", "nodes")[-1:]
    return trouble_of(
        conflicts=pull.text_or_none("mergeable") == "CONFLICTING",
        fails=any(
            commit.text_or_none("commit", "statusCheckRollup", "state") in ("FAILURE", "ERROR")
            for commit in last_commit
        ),
        is_commented=any(not thread.is_true("isResolved") for thread in pull.each("reviewThreads", "nodes")),
    )
