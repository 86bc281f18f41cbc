"""The shapes of `git_providers.base` for the API document (spec V0 §1.11)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel


class GitUserInfo(BaseModel):
    """The holder of a token."""

    id: str
    login: str
    avatar_url: str
    company: str | None
    name: str | None
    email: str | None


class GitRepository(BaseModel):
    """A repository."""

    id: str
    full_name: str
    git_provider: str
    is_public: bool
    stargazers_count: int | None
    link_header: str | None
    """In the first repository of a list: it contains `rel="next"` while there is a next page."""
    pushed_at: str | None
    owner_type: Literal["user", "organization"] | None
    main_branch: str | None


class GitBranch(BaseModel):
    """A branch and its newest commit."""

    name: str
    commit_sha: str
    protected: bool
    last_push_date: str | None


class GitBranchPage(BaseModel):
    """A page of a repository's branches; pages count from 1."""

    branches: list[GitBranch]
    has_next_page: bool
    current_page: int
    per_page: int
    total_count: int | None


class GitTask(BaseModel):
    """A task that waits for the user; `issue_number` is the number of an issue or a pull request."""

    git_provider: str
    task_type: str
    repo: str
    issue_number: int
    title: str


class GitMicroagent(BaseModel):
    """A file of instructions for agents."""

    name: str
    path: str
    created_at: str


class GitMicroagentContent(BaseModel):
    """Such a file without its front matter, and the triggers in that."""

    content: str
    path: str
    triggers: list[str]
    git_provider: str | None
