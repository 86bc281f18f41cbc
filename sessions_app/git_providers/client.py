"""The git providers of one user, asked with the user's tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from sessions_app.git_providers import microagents
from sessions_app.git_providers.azure_devops import AzureDevOps
from sessions_app.git_providers.base import (
    GitAuthenticationError,
    GitBranch,
    GitBranchPage,
    GitMicroagent,
    GitMicroagentContent,
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
    encodable,
    has_next,
    host_of,
    linked,
    outcomes,
    search_text,
)
from sessions_app.git_providers.bitbucket import Bitbucket
from sessions_app.git_providers.cached import cached
from sessions_app.git_providers.github import GitHub
from sessions_app.git_providers.gitlab import GitLab

T = TypeVar("T")

logger = logging.getLogger(__name__)

NO_TOKEN = "Git provider token required. (such as GitHub)."  # noqa: S105
# Shorter than other answers are cached: a user who has just got access tries again.
NO_ACCESS_S = 10.0
LIST_S = 30.0

WITH_INSTALLATIONS = frozenset({ProviderType.GITHUB, ProviderType.BITBUCKET, ProviderType.AZURE_DEVOPS})
PROVIDERS: dict[ProviderType, type[GitProvider]] = {
    each.provider_type: each for each in (GitHub, GitLab, Bitbucket, AzureDevOps)
}


class GitProviders:
    """The git providers of one user, by their tokens.

    Every method raises GitAuthenticationError if no token opens the object, and GitProviderError if a
    provider does not answer as it should; neither contains a token. An answer of several providers leaves
    out those that failed, unless all did.
    """

    def __init__(self, tokens: Mapping[ProviderType, ProviderToken]) -> None:
        """Keep the tokens in the order in which their providers are asked; empty ones are ignored."""
        self._tokens = {
            provider: token
            for provider, token in tokens.items()
            if provider in PROVIDERS and token.token.strip()
        }

    async def verify_access(self, repository: str, provider: ProviderType | None) -> GitRepository:
        """Return a repository that a token opens, asking `provider` first and then all others.

        Raise GitAuthenticationError if none does.
        """
        repository = encodable(repository)
        # The sort is stable: the others keep their order.
        for asked in sorted(self._asked(None), key=lambda each: each != provider):
            try:
                if found := await self._found(asked, repository):
                    return found
            except GitProviderError as error:
                _log(asked, error)
        raise GitAuthenticationError(f"Unable to access repo {repository}")

    async def remote(self, repository: str, provider: ProviderType | None) -> GitRemote:
        """Return where git finds a repository, at the provider that has it; `provider` is asked first."""
        found = await self.verify_access(repository, provider)
        return self._provider(ProviderType(found["git_provider"])).remote(found)

    async def open(self, repository: str, provider: ProviderType | None, new: NewPullRequest) -> PullRequest:
        """Open a pull request, unless there is an open one between these branches. Return it."""
        asked, name = _place(await self.verify_access(repository, provider))
        at = self._provider(asked)
        # A call whose outcome is unknown may be repeated.
        if (found := await at.opened(name, new.branch, new.base)) is not None:
            return found
        try:
            return await at.open(name, new)
        except GitNotFound as error:
            raise GitProviderError(
                f"{at.label} refused the pull request. The branch may have no commits that {new.base!r} "
                f"lacks, there may be no branch {new.base!r}, or the token may not open pull requests."
            ) from error

    async def is_open(self, repository: str, provider: ProviderType, pr_number: int) -> bool:
        # What cannot be determined counts as open (spec V0 §1.6), so its conversation stays in the list.
        if provider not in self._tokens:
            return True

        async def ask(asked: GitProvider) -> bool:
            try:
                return await asked.is_open(repository, pr_number)
            except GitNotFound:
                return True

        try:
            return await self._cached(provider, ["is_open", repository, pr_number], ask, lifetime_s=60.0)
        except GitProviderError as error:
            _log(provider, error)
            return True

    async def user(self) -> GitUserInfo:
        """Return the user's profile at the first provider that answers."""
        errors: list[GitProviderError] = []
        for asked in self._asked(None):
            try:
                return await self._cached(asked, ["user"], lambda each: each.user(), lifetime_s=LIST_S)
            except GitProviderError as error:
                _log(asked, error)
                errors.append(error)
        raise _gravest(errors)

    async def installations(self, provider: ProviderType) -> list[str]:
        """Return the groups by which repositories of GitHub, Bitbucket or Azure DevOps can be listed.

        Raise NotOffered for another provider.
        """
        [asked] = self._asked(provider)
        return await self._cached(
            asked, ["installations"], lambda each: each.installations(), lifetime_s=LIST_S
        )

    async def repositories(
        self,
        *,
        sort: str = "pushed",
        provider: ProviderType | None = None,
        page: int | None = None,
        per_page: int | None = None,
        installation_id: str | None = None,
    ) -> list[GitRepository]:
        """Return a page of the user's repositories of one provider, or that page of every provider.

        `sort` is pushed, updated, created or full_name, as far as a provider knows it. The first one's
        `link_header` has `rel="next"` while any provider has more.
        """
        part = RequestedPage.of(page, per_page)
        pages = await self._from_each(
            provider,
            ["repositories", sort, part, installation_id],
            lambda each: each.repositories(part, sort=sort, installation_id=installation_id),
        )
        links = [page[0]["link_header"] for page in pages if page]
        # Every provider returned the same page, so any one's next page is the next of all.
        link = next((link for link in links if has_next(link)), links[0] if links else None)
        found: list[GitRepository] = [{**each, "link_header": None} for page in pages for each in page]
        return linked(found, link)

    async def search_repositories(
        self,
        query: str,
        *,
        per_page: int = 5,
        sort: str = "stars",
        order: str = "desc",
        provider: ProviderType | None = None,
    ) -> list[GitRepository]:
        """Return at most `per_page` repositories of each provider that fit a name or a web address.

        A full name finds that repository if the token may see it. Otherwise the repositories of the user,
        their organisations or the owner that `query` names are searched. `order` is asc or desc.
        """
        wanted = search_text(query)
        count = RequestedPage.of(None, per_page).size

        async def search(asked: GitProvider) -> list[GitRepository]:
            if wanted.host not in (None, self._host_of(asked.provider_type)):
                return []
            name = wanted.full_name
            if name and (found := await self._found(asked.provider_type, name)):
                return [found]
            try:
                return await asked.search_repositories(
                    wanted.owner, wanted.text, count=count, sort=sort, is_ascending=order == "asc"
                )
            except (GitNotFound, InvalidName):
                return []  # the owner does not exist

        found = await self._from_each(provider, ["search", wanted, count, sort, order], search)
        return [repository for repositories in found for repository in repositories]

    async def branches(
        self, repository: str, *, page: int = 1, per_page: int = 30, provider: ProviderType | None = None
    ) -> GitBranchPage:
        """Return a page of the branches of a repository, at the provider that has it; `provider` first."""
        part = RequestedPage.of(page, per_page)
        asked, name = _place(await self.verify_access(repository, provider))
        return await self._cached(
            asked, ["branches", name, part], lambda each: each.branches(name, part), lifetime_s=LIST_S
        )

    async def search_branches(
        self, repository: str, query: str, *, per_page: int = 30, provider: ProviderType | None = None
    ) -> list[GitBranch]:
        """Return at most `per_page` branches with `query` in their names."""
        text = encodable(query)
        count = RequestedPage.of(None, per_page).size
        asked, name = _place(await self.verify_access(repository, provider))
        return await self._cached(
            asked,
            ["search_branches", name, text, count],
            lambda each: each.search_branches(name, text, count=count),
            lifetime_s=LIST_S,
        )

    async def suggested_tasks(self) -> list[GitTask]:
        found = await self._from_each(None, ["suggested_tasks"], lambda each: each.suggested_tasks())
        return [task for tasks in found for task in tasks]

    async def microagents(self, repository: str) -> list[GitMicroagent]:
        """Return the files of a repository that instruct agents; none if it has no folder for them."""
        home = await self.verify_access(repository, None)
        asked, name = _place(home)
        path = microagents.folder_of(home)

        async def ask(provider: GitProvider) -> list[GitMicroagent]:
            try:
                return microagents.listed(await provider.folder(home, path), path)
            except GitNotFound:
                return []

        return await self._cached(asked, ["microagents", name], ask, lifetime_s=LIST_S)

    async def microagent_content(self, repository: str, file_path: str) -> GitMicroagentContent:
        """Return one of these files, read. Raise InvalidName for another path, GitNotFound if it is gone."""
        home = await self.verify_access(repository, None)
        asked, _ = _place(home)
        path = microagents.checked_path(home, file_path)
        text = await self._provider(asked).file(home, path)
        # Hostile front matter can take the better part of a second.
        content, triggers = await asyncio.to_thread(microagents.read, text)
        return {"content": content, "path": path, "triggers": triggers, "git_provider": asked.value}

    def _asked(self, provider: ProviderType | None) -> list[ProviderType]:
        """Return the provider given, or all. Raise GitAuthenticationError if there is no token for it."""
        asked = [each for each in self._tokens if provider in (None, each)]
        if not asked:
            raise GitAuthenticationError(NO_TOKEN)
        return asked

    def _provider(self, provider: ProviderType) -> GitProvider:
        return PROVIDERS[provider](self._tokens[provider])

    def _host_of(self, provider: ProviderType) -> str:
        public = PROVIDERS[provider].public_host
        return host_of(self._tokens[provider].host, public=public, takes_path=True).name

    async def _found(self, provider: ProviderType, name: str) -> GitRepository | None:
        """Return the repository if this provider shows it. Raise GitProviderError if it cannot be asked."""

        async def ask(asked: GitProvider) -> GitRepository | None:
            try:
                return await asked.repository(name)
            except (GitAuthenticationError, GitNotFound, InvalidName):
                return None

        return await self._cached(
            provider, ["repository", name], ask, lifetime_s=lambda found: 60.0 if found else NO_ACCESS_S
        )

    async def _from_each(
        self,
        provider: ProviderType | None,
        question: Sequence[object],
        ask: Callable[[GitProvider], Awaitable[T]],
    ) -> list[T]:
        """Ask one or all concurrently; failed ones are passed over, unless all fail."""
        asked = self._asked(provider)
        answers = await outcomes(self._cached(each, question, ask, lifetime_s=LIST_S) for each in asked)
        errors = [answer for answer in answers if isinstance(answer, GitProviderError)]
        if len(errors) == len(answers):
            raise _gravest(errors)
        for each, answer in zip(asked, answers, strict=True):
            if isinstance(answer, GitProviderError):
                _log(each, answer)
        return [answer for answer in answers if not isinstance(answer, GitProviderError)]

    async def _cached(
        self,
        provider: ProviderType,
        question: Sequence[object],
        ask: Callable[[GitProvider], Awaitable[T]],
        *,
        lifetime_s: float | Callable[[T], float],
    ) -> T:
        token = self._tokens[provider]
        asked = self._provider(provider)
        return await cached(
            [provider, token.host, token.token, *question],
            lambda: ask(asked),
            lifetime_s=lifetime_s if callable(lifetime_s) else lambda _: lifetime_s,
        )


def _place(repository: GitRepository) -> tuple[ProviderType, str]:
    """Return the provider of a repository, and its name there."""
    return ProviderType(repository["git_provider"]), repository["full_name"]


def _gravest(errors: Sequence[GitProviderError]) -> GitProviderError:
    """Return the error to raise if all failed."""
    # A user who is shown that a token is wrong replaces it, which does not help while a provider is away.
    away = (error for error in errors if not isinstance(error, GitAuthenticationError))
    return next(away, errors[0])


def _log(provider: ProviderType, error: GitProviderError) -> None:
    logger.warning("%s: %s", provider, error)
