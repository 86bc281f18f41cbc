"""The questions to every git provider, the names in them, and their errors (spec V0 §1.11)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple, Self, TypeVar
from urllib.parse import quote, urlsplit

from typing_extensions import TypedDict

from sessions_app.outbound.hosts import Host, HostRefused, parse_host

T = TypeVar("T")

# Projects, or newest pull requests of a workspace, that are searched for trouble: each is a request.
SEARCHED_MAX = 20


class ProviderType(StrEnum):
    """The git providers that the wires name (spec V0 §3.5)."""

    GITHUB = "github"
    GITLAB = "gitlab"
    BITBUCKET = "bitbucket"
    AZURE_DEVOPS = "azure_devops"
    ENTERPRISE_SSO = "enterprise_sso"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderToken:
    """One user's access to one provider."""

    token: str = field(repr=False)
    host: str | None = None
    """The provider's own host if it is not the public one, with or without a scheme."""
    user_id: str | None = None


class GitProviderError(Exception):
    """The provider could not be asked, or did not answer as expected."""


class GitAuthenticationError(GitProviderError):
    """The token is missing or invalid, or does not open the repository."""


class GitNotFound(GitProviderError):
    """The provider does not have this, or does not show it to this token."""


class InvalidName(GitProviderError):
    """This cannot be a host, a repository or a path; no provider was asked."""


class NotOffered(GitProviderError):
    """This provider does not have this kind of object."""


class GitUserInfo(TypedDict):
    """The holder of a token."""

    id: str
    login: str
    avatar_url: str
    company: str | None
    name: str | None
    email: str | None


class GitRepository(TypedDict):
    """A repository; the first of a list has the `link_header`, with `rel="next"` if there is a next page."""

    id: str
    full_name: str
    git_provider: str
    is_public: bool
    stargazers_count: int | None
    link_header: str | None
    pushed_at: str | None
    owner_type: Literal["user", "organization"] | None
    main_branch: str | None


class GitBranch(TypedDict):
    """A branch and its newest commit."""

    name: str
    commit_sha: str
    protected: bool
    last_push_date: str | None


class GitBranchPage(TypedDict):
    """A page of a repository's branches; pages count from 1."""

    branches: list[GitBranch]
    has_next_page: bool
    current_page: int
    per_page: int
    total_count: int | None


class TaskType(StrEnum):
    """The kinds of suggestions; the first that fits a pull request is taken."""

    MERGE_CONFLICTS = "MERGE_CONFLICTS"
    FAILING_CHECKS = "FAILING_CHECKS"
    UNRESOLVED_COMMENTS = "UNRESOLVED_COMMENTS"
    OPEN_ISSUE = "OPEN_ISSUE"


class GitTask(TypedDict):
    """A task that waits for the user; `issue_number` is the number of an issue or a pull request."""

    git_provider: str
    task_type: str
    repo: str
    issue_number: int
    title: str


class GitMicroagent(TypedDict):
    """A file of instructions for agents; `created_at` is when its folder last changed."""

    name: str
    path: str
    created_at: str


class GitMicroagentContent(TypedDict):
    """Such a file without its front matter, and the triggers in that."""

    content: str
    path: str
    triggers: list[str]
    git_provider: str | None


class Folder(TypedDict):
    """The names of the files in a folder of a repository, and its last change (ISO 8601)."""

    file_names: list[str]
    changed_at: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GitRemote:
    """Where git finds a repository, and what opens it there."""

    url: str
    """Without a user and a token."""
    user: str
    password: str = field(repr=False)
    main_branch: str | None = None
    """As the provider names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPullRequest:
    """A pull request to open: between two branches of one repository."""

    branch: str
    base: str
    title: str
    body: str = ""
    is_draft: bool = False


class PullRequest(NamedTuple):
    """A pull request that is open."""

    number: int
    url: str
    """Its page."""


class RequestedPage(NamedTuple):
    """The requested part of a list; pages count from 1."""

    number: int
    size: int

    @classmethod
    def of(cls, number: int | None, size: int | None) -> Self:
        """Return the page; missing and out-of-bounds values are corrected."""
        per_page = 30
        # The greatest page of all four providers.
        per_page_max = 100
        return cls(max(number or 1, 1), min(max(size or per_page, 1), per_page_max))

    @property
    def part(self) -> slice:
        """The slice of a whole list, for providers without pages."""
        return slice((self.number - 1) * self.size, self.number * self.size)


class GitProvider(ABC):
    """One provider, asked with one user's token.

    Every method may raise GitProviderError, GitAuthenticationError if the token does not open the object,
    and GitNotFound if there is none. Repositories are named as in `full_name`.
    """

    provider_type: ClassVar[ProviderType]
    label: ClassVar[str]
    public_host: ClassVar[str]

    @abstractmethod
    def __init__(self, token: ProviderToken) -> None:
        """Ask nothing yet. Raise InvalidName for an invalid host."""

    @abstractmethod
    async def user(self) -> GitUserInfo:
        """Return whose token it is."""

    async def installations(self) -> list[str]:
        """Return the groups by which repositories can be listed: installations, workspaces, organisations."""
        raise NotOffered(f"{self.label} has no installations.")

    @abstractmethod
    async def repository(self, name: str) -> GitRepository:
        """Return one repository."""

    @abstractmethod
    async def repositories(
        self, page: RequestedPage, *, sort: str, installation_id: str | None
    ) -> list[GitRepository]:
        """Return a page of the user's repositories, of one installation if it is given."""

    @abstractmethod
    async def search_repositories(
        self, owner: str | None, text: str, *, count: int, sort: str, is_ascending: bool
    ) -> list[GitRepository]:
        """Return at most `count` repositories with `text` in their name, of this owner if one is given."""

    @abstractmethod
    async def branches(self, repository: str, page: RequestedPage) -> GitBranchPage:
        """Return a page of a repository's branches."""

    @abstractmethod
    async def search_branches(self, repository: str, text: str, *, count: int) -> list[GitBranch]:
        """Return at most `count` branches with `text` in their name."""

    @abstractmethod
    async def is_open(self, repository: str, pr_number: int) -> bool:
        """Return whether a pull request is neither merged nor closed."""

    @abstractmethod
    async def suggested_tasks(self) -> list[GitTask]:
        """Return the user's tasks: their pull requests in trouble, and issues assigned to them."""

    @abstractmethod
    async def folder(self, repository: GitRepository, path: str) -> Folder:
        """Return what is in a folder of the main branch."""

    @abstractmethod
    async def file(self, repository: GitRepository, path: str) -> str:
        """Return the text of a file of the main branch."""

    @abstractmethod
    async def opened(self, repository: str, branch: str, base: str) -> PullRequest | None:
        """Return the open pull request between two branches; None for none."""

    @abstractmethod
    async def open(self, repository: str, new: NewPullRequest) -> PullRequest:
        """Open a pull request."""

    @abstractmethod
    def remote(self, repository: GitRepository) -> GitRemote:
        """Return where git finds a repository; no provider is asked."""

    def task(self, task_type: TaskType, *, repo: str, issue_number: int, title: str) -> GitTask:
        return {
            "git_provider": self.provider_type.value,
            "task_type": task_type.value,
            "repo": repo,
            "issue_number": issue_number,
            "title": title,
        }


def has_next(link_header: str | None) -> bool:
    """Return whether a `Link` header names a next page."""
    return link_header is not None and 'rel="next"' in link_header


def linked(repositories: list[GitRepository], link_header: str | None) -> list[GitRepository]:
    """Return the repositories with the `Link` header in the first."""
    # Frontends read it there (spec V0 §1.11), so an empty page cannot have any.
    if not repositories:
        return []
    return [{**repositories[0], "link_header": link_header}, *repositories[1:]]


def trouble_of(*, conflicts: bool, fails: bool, is_commented: bool) -> TaskType | None:
    """Return the gravest trouble of a pull request, as a kind of task."""
    if conflicts:
        return TaskType.MERGE_CONFLICTS
    if fails:
        return TaskType.FAILING_CHECKS
    return TaskType.UNRESOLVED_COMMENTS if is_commented else None


async def outcomes(questions: Iterable[Awaitable[T]]) -> list[T | GitProviderError]:
    """Ask concurrently; return each answer or error, in the order of the questions."""

    async def outcome(question: Awaitable[T]) -> T | GitProviderError:
        try:
            return await question
        except GitProviderError as error:
            return error

    return await asyncio.gather(*(outcome(question) for question in questions))


def host_of(text: str | None, *, public: str, takes_path: bool = False) -> Host:
    try:
        return parse_host(text, public=public, takes_path=takes_path)
    except HostRefused as error:
        raise InvalidName(str(error)) from error


def pieces_of(path: str, *, least: int, most: int = 30) -> list[str]:
    """Split a repository's name or a path at its slashes. Raise InvalidName for an invalid one."""
    pieces = path.split("/")
    if not least <= len(pieces) <= most or not all(is_piece(piece) for piece in pieces):
        raise InvalidName("This is not the name of a repository or a path in one.")
    return pieces


def is_piece(text: str) -> bool:
    """Return whether it can be between two slashes of an address without a special meaning."""
    return (
        0 < len(text) <= 255
        and text not in (".", "..")
        and text.isprintable()
        and "/" not in text
        and "\\" not in text
    )


def git_address(origin: str, pieces: Iterable[str]) -> str:
    """Return the address of a repository below an origin."""
    return "/".join([origin, *(quote(piece, safe="") for piece in pieces)])


def encodable(text: str) -> str:
    """Return the text with half surrogate pairs, which UTF-8 cannot encode, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


class SearchText(NamedTuple):
    """A user's search: text in names, of one owner, as an address on one host."""

    text: str
    owner: str | None = None
    host: str | None = None

    @property
    def full_name(self) -> str | None:
        return f"{self.owner}/{self.text}" if self.owner and self.text else None


def search_text(query: str) -> SearchText:
    """Parse what was typed or pasted: text, `owner/text` or a repository's web address."""
    query = encodable(query).strip()
    if query.startswith(("https://", "http://")):
        return _of_address(query)
    owner, _, text = query.rpartition("/")
    return SearchText(text, owner or None)


def _of_address(query: str) -> SearchText:
    try:
        address = urlsplit(query)
        host = f"{address.hostname}:{address.port}" if address.port else address.hostname
    except ValueError:
        return SearchText(query)
    # GitLab's pages are below `/-/`, Azure DevOps' repositories below `_git`, and clones end in `.git`.
    name = address.path.split("/-/")[0].replace("/_git/", "/").strip("/").removesuffix(".git")
    owner, _, text = name.rpartition("/")
    return SearchText(text, owner or None, host)
