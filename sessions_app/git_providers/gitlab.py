"""GitLab, on gitlab.com or a server of one's own: REST v4, and GraphQL for merge requests in trouble."""

from __future__ import annotations

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

ORDERS = {
    "pushed": "last_activity_at",
    "updated": "last_activity_at",
    "created": "created_at",
    "full_name": "path",
    "stars": "star_count",
}

MERGE_REQUESTS = """
query {
  currentUser {
    authoredMergeRequests(state: opened, first: 50, sort: UPDATED_DESC) {
      nodes {
        iid title conflicts
        project { fullPath }
        headPipeline { status }
        resolvableDiscussionsCount resolvedDiscussionsCount
      }
    }
  }
}
"""


class GitLab(GitProvider):
    """GitLab, asked with a personal access token or an OAuth token."""

    provider_type = ProviderType.GITLAB
    label = "GitLab"
    public_host = "gitlab.com"

    def __init__(self, token: ProviderToken) -> None:
        origin = host_of(token.host, public=self.public_host).origin
        self._git_origin = origin
        self._token = token.token.strip()
        authorization = bearer(token.token)
        self._api = Api(label=self.label, root=f"{origin}/api/v4", authorization=authorization)
        self._graphql = Api(label=self.label, root=f"{origin}/api/graphql", authorization=authorization)

    async def user(self) -> GitUserInfo:
        user = (await self._api.get("user")).json
        return {
            "id": user.identity("id"),
            "login": user.text("username"),
            "avatar_url": user.text_or_none("avatar_url") or "",
            "company": user.text_or_none("organization"),
            "name": user.text_or_none("name"),
            "email": user.text_or_none("email"),
        }

    async def repository(self, name: str) -> GitRepository:
        return _repository((await self._api.get("projects", _project(name))).json)

    async def repositories(
        self, page: RequestedPage, *, sort: str, installation_id: str | None
    ) -> list[GitRepository]:
        query: dict[str, str | int] = {
            "membership": "true",
            "order_by": ORDERS.get(sort, "last_activity_at"),
            "sort": "asc" if sort == "full_name" else "desc",
            "page": page.number,
            "per_page": page.size,
        }
        reply = await self._api.get("projects", query=query)
        return linked([_repository(each) for each in reply.json.each()], reply.link_header)

    async def search_repositories(
        self, owner: str | None, text: str, *, count: int, sort: str, is_ascending: bool
    ) -> list[GitRepository]:
        query: dict[str, str | int] = {
            "membership": "true",
            "search": f"{owner}/{text}" if owner else text,
            "search_namespaces": "true" if owner else "false",
            "order_by": ORDERS.get(sort, "last_activity_at"),
            "sort": "asc" if is_ascending else "desc",
            "per_page": count,
        }
        reply = await self._api.get("projects", query=query)
        return [_repository(each) for each in reply.json.each()]

    async def branches(self, repository: str, page: RequestedPage) -> GitBranchPage:
        query = {"page": page.number, "per_page": page.size}
        reply = await self._api.get("projects", _project(repository), "repository", "branches", query=query)
        # GitLab does not count beyond 10,000.
        total = reply.headers.get("x-total", "")
        return {
            "branches": [_branch(each) for each in reply.json.each()],
            "has_next_page": has_next(reply.link_header),
            "current_page": page.number,
            "per_page": page.size,
            "total_count": int(total) if total.isdecimal() else None,
        }

    async def search_branches(self, repository: str, text: str, *, count: int) -> list[GitBranch]:
        query: dict[str, str | int] = {"search": text, "per_page": count}
        reply = await self._api.get("projects", _project(repository), "repository", "branches", query=query)
        return [_branch(each) for each in reply.json.each()]

    async def is_open(self, repository: str, pr_number: int) -> bool:
        reply = await self._api.get("projects", _project(repository), "merge_requests", pr_number)
        return reply.json.text("state") not in ("closed", "merged")

    async def opened(self, repository: str, branch: str, base: str) -> PullRequest | None:
        query = {"state": "opened", "source_branch": branch, "target_branch": base}
        reply = await self._api.get("projects", _project(repository), "merge_requests", query=query)
        found = reply.json.each()
        return _merge_request(found[0]) if found else None

    async def open(self, repository: str, new: NewPullRequest) -> PullRequest:
        body = {
            # GitLab knows a draft by this beginning.
            "title": f"Draft: {new.title}" if new.is_draft else new.title,
            "description": new.body,
            "source_branch": new.branch,
            "target_branch": new.base,
        }
        reply = await self._api.post("projects", _project(repository), "merge_requests", body=body)
        return _merge_request(reply.json)

    async def suggested_tasks(self) -> list[GitTask]:
        data = await self._graphql.graphql(MERGE_REQUESTS)
        # GraphQL answers strangers, too: with 200, and without a user.
        if data.is_null("currentUser"):
            raise GitAuthenticationError(f"The {self.label} token is not valid.")
        requests = data.each("currentUser", "authoredMergeRequests", "nodes")
        query: dict[str, str | int] = {"scope": "assigned_to_me", "state": "opened", "per_page": 50}
        issues = (await self._api.get("issues", query=query)).json.each()
        return [
            *(
                self._task(trouble, each, repo=each.text("project", "fullPath"))
                for each in requests
                if (trouble := _trouble_of(each))
            ),
            *(
                # An issue names its project only in its reference, `group/project#7`.
                self._task(TaskType.OPEN_ISSUE, each, repo=each.text("references", "full").rpartition("#")[0])
                for each in issues
            ),
        ]

    def _task(self, task_type: TaskType, answer: ProviderAnswer, *, repo: str) -> GitTask:
        return self.task(task_type, repo=repo, issue_number=answer.number("iid"), title=answer.text("title"))

    async def folder(self, repository: GitRepository, path: str) -> Folder:
        place = ("projects", _project(repository["full_name"]), "repository")
        tree = await self._api.get(*place, "tree", query={"path": path, "per_page": 100})
        commits = await self._api.get(*place, "commits", query={"path": path, "per_page": 1})
        newest = commits.json.each()[:1]
        return {
            "file_names": [entry.text("name") for entry in tree.json.each() if entry.text("type") == "blob"],
            "changed_at": newest[0].text("committed_date") if newest else "",
        }

    async def file(self, repository: GitRepository, path: str) -> str:
        place = ("projects", _project(repository["full_name"]), "repository", "files", path, "raw")
        return (await self._api.get(*place, query={"ref": repository["main_branch"] or "HEAD"})).text

    def remote(self, repository: GitRepository) -> GitRemote:
        *groups, name = _project(repository["full_name"]).split("/")
        return GitRemote(
            url=git_address(self._git_origin, [*groups, f"{name}.git"]),
            user="oauth2",
            password=self._token,
            main_branch=repository["main_branch"],
        )


def _project(name: str) -> str:
    """Return the full name as one piece of an address."""
    # Slashes are quoted later; a project may be in groups of groups, so it has no fixed number of pieces.
    return "/".join(pieces_of(name, least=2))


def _repository(answer: ProviderAnswer) -> GitRepository:
    return {
        "id": answer.identity("id"),
        "full_name": answer.text("path_with_namespace"),
        "git_provider": ProviderType.GITLAB.value,
        "is_public": answer.text_or_none("visibility") == "public",
        "stargazers_count": answer.number_or_none("star_count"),
        "link_header": None,
        "pushed_at": answer.text_or_none("last_activity_at"),
        "owner_type": "organization" if answer.text_or_none("namespace", "kind") == "group" else "user",
        "main_branch": answer.text_or_none("default_branch"),
    }


def _merge_request(answer: ProviderAnswer) -> PullRequest:
    return PullRequest(answer.number("iid"), answer.text("web_url"))


def _branch(answer: ProviderAnswer) -> GitBranch:
    return {
        "name": answer.text("name"),
        "commit_sha": answer.text("commit", "id"),
        "protected": answer.is_true("protected"),
        "last_push_date": answer.text_or_none("commit", "committed_date"),
    }


def _trouble_of(request: ProviderAnswer) -> TaskType | None:
    resolvable = request.number_or_none("resolvableDiscussionsCount") or 0
    return trouble_of(
        conflicts=request.is_true("conflicts"),
        fails=request.text_or_none("headPipeline", "status") == "FAILED",
        is_commented=resolvable > (request.number_or_none("resolvedDiscussionsCount") or 0),
    )
