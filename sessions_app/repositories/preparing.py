"""The one door to a conversation's repository: it is cloned on first use."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

import httpx
from django.utils import timezone

from conversations.models import Conversation, ConversationRef
from conversations.store import changes
from sessions_app import astore
from sessions_app.checkpoints import copies
from sessions_app.checkpoints import kept as checkpoints
from sessions_app.git_providers.base import GitProviderError, GitRemote, ProviderType
from sessions_app.git_providers.client import GitProviders
from sessions_app.models import Workspace
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.programs import way_of
from sessions_app.repositories import bare, checkout
from sessions_app.repositories.bare import Bare
from sessions_app.repositories.checkout import Clone
from sessions_app.repositories.own_git import Access
from sessions_app.repositories.progress import CloneReport, reported
from sessions_app.repositories.runs import RepositoryFailed
from sessions_app.sandbox import choice
from sessions_app.settings import user_settings
from sessions_app.workspaces import paths, records

_HEADS = "refs/heads/"


class NamedRepository(NamedTuple):
    """The repository that a conversation names."""

    full_name: str
    branch: str
    """Empty for the main one."""
    provider: ProviderType | None
    name: str
    """That of its directory."""
    directory: str
    """The absolute path of the directory."""
    is_cloned: bool
    note: str = ""
    """What differs from what the conversation names; empty for nothing."""


async def prepare(conversation: ConversationRef, report: CloneReport) -> NamedRepository | None:
    """Clone the repository that a conversation names, unless that was done; None if it names none.

    It may be called again after any failure, and at any time. Raise RepositoryFailed with a sentence for
    people, and ConversationError.
    """
    named = await astore.call(named_by, conversation)
    if named is None or named.is_cloned:
        return named
    if not _is_name(named.name):
        raise RepositoryFailed("The name of the repository cannot be the name of a directory.")
    # Before anything is fetched: the files are made in it.
    await asyncio.to_thread(choice.chosen)
    # Of a branch, the files come first: the clone goes around them.
    await copies.finish(conversation)
    await checkpoints.wait_for_restore(conversation)
    access = await access_to(await providers_of(conversation), named)
    await report("Connecting", done=None, total=None)
    async with bare.opened(conversation, fills=True) as repository:
        # Nothing is in the workspace until all that is to be there is here, and has room.
        clone = await _fetched(repository, named, access, report, conversation)
        await report("Writing files", done=None, total=None)
        await checkout.place(repository.workspace, clone)
    await astore.change(_note_cloned, conversation, clone.branch)
    if clone.branch == (named.branch or clone.branch):
        return named
    note = f"The provider has no branch {named.branch!r}, so that {clone.branch!r} is checked out."
    return named._replace(note=note)


def named_by(conversation: ConversationRef) -> NamedRepository | None:
    """Return the repository that a conversation names; None for none."""
    row = Conversation.objects.values("repository", "branch", "provider").get(pk=conversation.pk)
    if not row["repository"]:
        return None
    name = directory_name(row["repository"])
    # Noted, so that an agent that moves or removes its clone does not get another one.
    known = Workspace.objects.filter(pk=conversation.pk, cloned_at__isnull=False).exists()
    # It may be there without the note, as after a crash or with a restored copy.
    is_cloned = known or (_is_name(name) and records.has_directory(conversation, f"{name}/.git"))
    provider = ProviderType(row["provider"]) if row["provider"] in list(ProviderType) else None
    directory = f"{paths.home_of(conversation).rstrip('/')}/{name}"
    return NamedRepository(row["repository"], row["branch"] or "", provider, name, directory, is_cloned)


def directory_name(full_name: str) -> str:
    """Return the name of the directory into which a repository is cloned."""
    return full_name.rstrip("/").rpartition("/")[2]


async def providers_of(conversation: ConversationRef) -> GitProviders:
    """Return the git providers of the owner of a conversation."""
    return GitProviders(await astore.call(user_settings.provider_tokens, conversation.owner_id))


async def access_to(providers: GitProviders, named: NamedRepository) -> Access:
    """Return what opens a repository. Raise RepositoryFailed."""
    try:
        remote: GitRemote = await providers.remote(named.full_name, named.provider)
        return Access(remote=remote, way=await way_of(httpx.URL(remote.url)))
    except (GitProviderError, HostRefused) as error:
        raise RepositoryFailed(f"{str(error).rstrip('.')}.") from error


async def _fetched(
    repository: Bare,
    named: NamedRepository,
    access: Access,
    report: CloneReport,
    conversation: ConversationRef,
) -> Clone:
    """Fetch everything, and return what is to be in the workspace. Raise RepositoryFailed."""
    # Not HEAD: it would need a second request, and the provider has named the main branch already.
    refs = (f"+{_HEADS}*:{_HEADS}*", "+refs/tags/*:refs/tags/*")
    options = ("--progress", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
    async with reported(report) as progress:
        await repository.git.run(
            "fetch", *options, access.remote.url, *refs, access=access, progress=progress, timeout_s=3_600.0
        )
    listed = (await repository.git.run("for-each-ref", "--format=%(objectname) %(refname)")).decode()
    found = {name: commit for commit, _, name in (line.partition(" ") for line in listed.splitlines())}
    branches = [each.removeprefix(_HEADS) for each in found if each.startswith(_HEADS)]
    likely = (access.remote.main_branch or "", "main", "master", *branches)
    main = next((each for each in likely if each in branches), "main")
    # A branch that an agent has made elsewhere may never have been pushed, as in a fork of the conversation.
    branch = named.branch if named.branch in branches else main
    if branches:
        await _require_room(repository, found[f"{_HEADS}{branch}"])
    return Clone(
        packs=repository.packs(),
        refs={re.sub(f"^{_HEADS}", "refs/remotes/origin/", name): each for name, each in found.items()},
        url=access.remote.url,
        branch=branch,
        main_branch=main,
        name=named.name,
        committer=await astore.call(_committer_of, conversation.owner_id),
        is_branch=await astore.call(_is_branch, conversation),
    )


# Before the files are written: git in the workspace would stop in the middle of a checkout.
async def _require_room(repository: Bare, commit: str) -> None:
    """Raise RepositoryFailed unless the workspace has room for the packs and the files of a commit."""
    listed = await repository.git.run("ls-tree", "-r", "-l", "-z", commit)
    # Submodules have no size, and are not fetched.
    sizes = [int(size) for size in re.findall(rb"(?:^|\0)\d+ \w+ \w+ +(\d+)\t", listed)]
    packs = sum(each.stat().st_size for each in repository.packs())
    most = records.limits()
    held_bytes, held_files = repository.held
    size, files = held_bytes + packs + sum(sizes), held_files + len(sizes)
    if size > most.bytes or files > most.files:
        raise RepositoryFailed(
            f"The repository is too large: with it the workspace would hold {size:,} bytes in "
            f"{files:,} files, and it may hold {most.bytes:,} bytes in {most.files:,} files. The "
            "server's operator can raise the limit (CONVSERVER_WORKSPACE_MAX_MB, "
            "CONVSERVER_WORKSPACE_MAX_FILES)."
        )


def _is_branch(conversation: ConversationRef) -> bool:
    return Conversation.objects.filter(pk=conversation.pk, forked_at__isnull=False).exists()


def _committer_of(user_pk: int) -> tuple[str, str]:
    found = user_settings.settings_of(user_pk)
    return ("", "") if found is None else (found.git_user_name or "", found.git_user_email or "")


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..", ".git") and "\0" not in name and len(name.encode()) <= 255


def _note_cloned(conversation: ConversationRef, branch: str) -> None:
    Workspace.objects.filter(pk=conversation.pk).update(cloned_at=timezone.now())
    changes.note_branch(conversation, branch)
