"""Azure DevOps: one organisation, which is part of the host (dev.azure.com/ORG); REST 7.1."""

from __future__ import annotations

from sessions_app.git_providers.base import (
    SEARCHED_MAX,
    Folder,
    GitBranch,
    GitBranchPage,
    GitNotFound,
    GitProvider,
    GitProviderError,
    GitRemote,
    GitRepository,
    GitTask,
    GitUserInfo,
    InvalidName,
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
from sessions_app.git_providers.http import Api, ProviderAnswer, ProviderReply, Query, basic

VERSION = "7.1"
HEADS = "refs/heads/"


class AzureDevOps(GitProvider):
    """Azure DevOps, asked with a personal access token; repositories are `organisation/project/name`."""

    provider_type = ProviderType.AZURE_DEVOPS
    label = "Azure DevOps"
    public_host = "dev.azure.com"

    def __init__(self, token: ProviderToken) -> None:
        host = host_of(token.host, public=self.public_host, takes_path=True)
        if not host.path:
            raise InvalidName("Azure DevOps needs its organisation in the host: dev.azure.com/ORGANISATION.")
        self._organisation = host.path.rpartition("/")[2]
        self._token = token.token.strip()
        self._api = Api(
            label=self.label,
            root=f"{host.origin}/{host.path}",
            # A personal access token is a password without a user.
            authorization=basic(f":{token.token.strip()}"),
            # Otherwise an invalid token is redirected to a login page.
            headers={"x-tfs-fedauthredirect": "Suppress"},
        )

    async def _get(
        self, *pieces: str | int, query: Query | None = None, version: str = VERSION
    ) -> ProviderReply:
        return await self._api.get(*pieces, query={"api-version": version, **(query or {})})

    async def user(self) -> GitUserInfo:
        # This resource exists as a preview only.
        answer = await self._get("_apis", "connectionData", version="7.1-preview")
        user = answer.json.at("authenticatedUser")
        account = user.text_or_none("properties", "Account", "$value")
        name = user.text_or_none("customDisplayName") or user.text_or_none("providerDisplayName")
        number = user.text("id")
        descriptor = user.text_or_none("subjectDescriptor")
        picture = f"{self._api.root}/_apis/GraphProfile/MemberAvatars/{descriptor}" if descriptor else ""
        return {
            "id": number,
            "login": account or name or number,
            "avatar_url": picture,
            "company": None,
            "name": name,
            "email": account if account and "@" in account else None,
        }

    async def installations(self) -> list[str]:
        # The name alone does not tell whether the token opens it.
        await self._get("_apis", "projects", query={"$top": 1})
        return [self._organisation]

    async def repository(self, name: str) -> GitRepository:
        return self._repository((await self._get(*self._place(name))).json)

    async def repositories(
        self, page: RequestedPage, *, sort: str, installation_id: str | None
    ) -> list[GitRepository]:
        if installation_id and installation_id.casefold() != self._organisation.casefold():
            raise GitNotFound(f"{self.label} does not show this.")
        every = await self._all_repositories()
        found = every[page.part]
        # The list has no pages of its own, so the link that frontends look for is made here.
        if page.part.stop < len(every):
            link = f'<{self._api.root}/_apis/git/repositories?page={page.number + 1}>; rel="next"'
            return linked(found, link)
        return found

    async def search_repositories(
        self, owner: str | None, text: str, *, count: int, sort: str, is_ascending: bool
    ) -> list[GitRepository]:
        wanted = f"{owner or ''}/{text}".removeprefix("/").casefold()
        every = await self._all_repositories()
        return [each for each in every if wanted in each["full_name"].casefold()][:count]

    async def _all_repositories(self) -> list[GitRepository]:
        answer = (await self._get("_apis", "git", "repositories")).json
        found = [self._repository(each) for each in answer.each("value") if not each.is_true("isDisabled")]
        # By name, since the list does not have the time of the last push.
        return sorted(found, key=lambda each: each["full_name"].casefold())

    async def branches(self, repository: str, page: RequestedPage) -> GitBranchPage:
        every = await self._branches(repository, "")
        return {
            "branches": every[page.part],
            "has_next_page": page.part.stop < len(every),
            "current_page": page.number,
            "per_page": page.size,
            "total_count": len(every),
        }

    async def search_branches(self, repository: str, text: str, *, count: int) -> list[GitBranch]:
        return (await self._branches(repository, text))[:count]

    async def _branches(self, repository: str, text: str) -> list[GitBranch]:
        query = {"filter": "heads/", **({"filterContains": text} if text else {})}
        answer = (await self._get(*self._place(repository), "refs", query=query)).json
        return [_branch(each) for each in answer.each("value")]

    async def is_open(self, repository: str, pr_number: int) -> bool:
        reply = await self._get(*self._place(repository), "pullrequests", pr_number)
        return reply.json.text("status") not in ("completed", "abandoned")

    async def opened(self, repository: str, branch: str, base: str) -> PullRequest | None:
        query = {
            "searchCriteria.sourceRefName": f"{HEADS}{branch}",
            "searchCriteria.targetRefName": f"{HEADS}{base}",
            "searchCriteria.status": "active",
        }
        reply = await self._get(*self._place(repository), "pullrequests", query=query)
        found = reply.json.each("value")
        return self._pull_request(repository, found[0]) if found else None

    async def open(self, repository: str, new: NewPullRequest) -> PullRequest:
        body = {
            "sourceRefName": f"{HEADS}{new.branch}",
            "targetRefName": f"{HEADS}{new.base}",
            "title": new.title,
            "description": new.body,
            "isDraft": new.is_draft,
        }
        place = (*self._place(repository), "pullrequests")
        reply = await self._api.post(*place, body=body, query={"api-version": VERSION})
        return self._pull_request(repository, reply.json)

    def _pull_request(self, repository: str, answer: ProviderAnswer) -> PullRequest:
        # Its `url` is that of the API.
        number = answer.number("pullRequestId")
        project, *_, name = self._place(repository)
        page = git_address(self._api.root, [project, "_git", name, "pullrequest", str(number)])
        return PullRequest(number, page)

    async def suggested_tasks(self) -> list[GitTask]:
        # Pull requests alone: work items belong to no repository.
        user = await self.user()
        projects = (await self._get("_apis", "projects", query={"$top": SEARCHED_MAX})).json.each("value")
        found = await outcomes(self._tasks(project.text("name"), user["id"]) for project in projects)
        return [task for tasks in found if not isinstance(tasks, GitProviderError) for task in tasks]

    async def _tasks(self, project: str, user_id: str) -> list[GitTask]:
        query = {"searchCriteria.creatorId": user_id, "searchCriteria.status": "active"}
        pulls = (await self._get(project, "_apis", "git", "pullrequests", query=query)).json.each("value")
        return [task for pull in pulls if (task := self._task(pull))]

    def _task(self, pull: ProviderAnswer) -> GitTask | None:
        trouble = trouble_of(
            conflicts=pull.text_or_none("mergeStatus") == "conflicts", fails=False, is_commented=False
        )
        if trouble is None:
            return None
        return self.task(
            trouble,
            repo=self._full_name(pull.at("repository")),
            issue_number=pull.number("pullRequestId"),
            title=pull.text("title"),
        )

    async def folder(self, repository: GitRepository, path: str) -> Folder:
        query = {"scopePath": f"/{path}", "recursionLevel": "OneLevel", "latestProcessedChange": "true"}
        items = (await self._get(*self._place(repository["full_name"]), "items", query=query)).json.each(
            "value"
        )
        dates = [item.text_or_none("latestProcessedChange", "committer", "date") or "" for item in items]
        return {
            "file_names": [
                item.text("path").rpartition("/")[2] for item in items if not item.is_true("isFolder")
            ],
            "changed_at": max(dates, default=""),
        }

    async def file(self, repository: GitRepository, path: str) -> str:
        query = {"path": f"/{path}", "includeContent": "true", "$format": "json"}
        return (await self._get(*self._place(repository["full_name"]), "items", query=query)).json.text(
            "content"
        )

    def remote(self, repository: GitRepository) -> GitRemote:
        project, *_, name = self._place(repository["full_name"])
        return GitRemote(
            url=git_address(self._api.root, [project, "_git", name]),
            user="token",
            password=self._token,
            main_branch=repository["main_branch"],
        )

    def _place(self, repository: str) -> list[str]:
        """Return the place of a repository. Raise GitNotFound if it is another organisation's."""
        *organisation, project, name = pieces_of(repository, least=2, most=3)
        # The token belongs to one organisation, whose name has no case.
        if organisation and organisation[0].casefold() != self._organisation.casefold():
            raise GitNotFound(f"{self.label} does not show this.")
        return [project, "_apis", "git", "repositories", name]

    def _repository(self, answer: ProviderAnswer) -> GitRepository:
        main_branch = answer.text_or_none("defaultBranch")
        return {
            "id": answer.text("id"),
            "full_name": self._full_name(answer),
            "git_provider": self.provider_type.value,
            "is_public": answer.text_or_none("project", "visibility") == "public",
            "stargazers_count": None,
            "link_header": None,
            "pushed_at": None,
            "owner_type": "organization",
            "main_branch": main_branch.removeprefix(HEADS) if main_branch else None,
        }

    def _full_name(self, repository: ProviderAnswer) -> str:
        return f"{self._organisation}/{repository.text('project', 'name')}/{repository.text('name')}"


def _branch(answer: ProviderAnswer) -> GitBranch:
    return {
        "name": answer.text("name").removeprefix(HEADS),
        "commit_sha": answer.text("objectId"),
        "protected": False,
        "last_push_date": None,
    }
