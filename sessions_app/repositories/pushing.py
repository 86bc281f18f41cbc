"""A branch of a workspace, pushed to its provider, and a pull request for it.

Git in the workspace writes objects, in the sandbox; a repository of the server's own pushes them.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import NamedTuple

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.git_providers.base import GitProviderError, NewPullRequest, PullRequest
from sessions_app.repositories import bare, checkout
from sessions_app.repositories.bare import Bare
from sessions_app.repositories.own_git import STRICT, Access
from sessions_app.repositories.preparing import NamedRepository, access_to, named_by, providers_of
from sessions_app.repositories.runs import RepositoryFailed
from sessions_app.sandbox import choice

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class BranchWanted(NamedTuple):
    """What is to be pushed, and the words of the pull request."""

    title: str
    body: str = ""
    branch: str = ""
    """Empty for the one that is checked out."""
    base: str = ""
    """Empty for the main one."""
    is_draft: bool = False


def is_possible(conversation: ConversationRef) -> bool:
    """Return whether a conversation has a repository, and a sandbox from which to push."""
    named = named_by(conversation)
    return named is not None and choice.state().works and not choice.chosen().asks_first


async def open_pull_request(conversation: ConversationRef, wanted: BranchWanted) -> PullRequest:
    """Push a branch of the conversation's repository, and open a pull request for it, unless there is one.

    Raise RepositoryFailed with a sentence, and ConversationError.
    """
    named = await astore.call(named_by, conversation)
    if named is None or not named.is_cloned:
        raise RepositoryFailed("This conversation has no repository in its workspace.")
    if choice.chosen().asks_first:
        raise RepositoryFailed(
            "Nothing is pushed without a sandbox, because a repository can name programs that git runs."
        )
    providers = await providers_of(conversation)
    access = await access_to(providers, named)
    base = wanted.base or access.remote.main_branch or "main"
    branch = await _pushed(conversation, named, access, wanted.branch, base)
    new = NewPullRequest(
        branch=branch, base=base, title=wanted.title, body=wanted.body, is_draft=wanted.is_draft
    )
    try:
        return await providers.open(named.full_name, named.provider, new)
    except GitProviderError as error:
        raise RepositoryFailed(
            f"The branch {branch!r} was pushed, but no pull request was opened. {str(error).rstrip('.')}."
        ) from error


async def _pushed(
    conversation: ConversationRef, named: NamedRepository, access: Access, branch: str, base: str
) -> str:
    """Push a branch, by default the one that is checked out; return its name. Raise RepositoryFailed."""
    async with bare.opened(conversation, fills=False) as repository:
        _require_text(branch)
        branch, commit = await checkout.tip(repository.workspace, named.name, branch)
        _require_text(branch)
        # Programs that the agent has left in its repository may have written both.
        await repository.git.run("check-ref-format", f"refs/heads/{branch}")
        if not _COMMIT.fullmatch(commit):
            raise RepositoryFailed(f"The branch {branch!r} has no commit.")
        # The model names both, so that the main branch is none of its to push, whatever the base.
        if branch in (base, access.remote.main_branch or "main"):
            raise RepositoryFailed(
                f"The branch {branch!r} is the main one, or the one to merge into. Make another branch for "
                "these commits."
            )
        # Whole, with the commits that the provider has: only so can every object be checked.
        await _taken_over(repository, named, commit)
        arguments = ("push", "--no-signed", access.remote.url, f"{commit}:refs/heads/{branch}")
        try:
            await repository.git.run(*arguments, access=access, timeout_s=900.0)
        except RepositoryFailed as error:
            raise _refused(error, branch) from error
        await checkout.note_pushed(repository.workspace, named.name, branch, commit)
    return branch


def _require_text(branch: str) -> None:
    """Raise RepositoryFailed for what no program can be given."""
    if "\0" in branch:
        raise RepositoryFailed("The name of the branch has a null character. Name another one.")


async def _taken_over(repository: Bare, named: NamedRepository, commit: str) -> None:
    """Take a commit and all before it from the workspace, and check every object."""
    with tempfile.TemporaryFile(dir=repository.path) as pack:
        with checkout.in_memory(f"{commit}\n".encode()) as wanted:
            await checkout.write_pack(repository.workspace, named.name, wanted, pack.fileno())
        # The sandbox has moved the place, which is one for all who have the file.
        os.lseek(pack.fileno(), 0, os.SEEK_SET)
        await repository.git.run("index-pack", "--stdin", STRICT, stdin=pack.fileno(), timeout_s=900.0)


def _refused(error: RepositoryFailed, branch: str) -> RepositoryFailed:
    """Return the same in better words, if the provider has refused a push."""
    if "failed to push some refs" not in str(error):
        return error
    return RepositoryFailed(
        f"The provider refused the push of {branch!r}: it has commits there that this branch lacks, or a "
        "rule protects the branch. Push to a branch with another name."
    )
