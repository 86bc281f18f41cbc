"""What the server's own git does in a workspace, inside the sandbox and without network.

A clone is made beside its place and takes its name at the end, so that a part of one is never used.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sessions_app.repositories.runs import RepositoryFailed, ended
from sessions_app.sandbox import roots
from sessions_app.shell_commands.piped import PipedProgram
from sessions_app.workspaces.paths import HOME

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_NOSYSTEM": "1",
        # The workspace is HOME, and its files are no configuration of the user.
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_SSH_COMMAND": "false",
        "LC_ALL": "C.UTF-8",
    }
)
_G = """
g() { git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 "$@"; }
"""
# What an earlier try has left has such a name. Without templates there are no hooks.
_CLEAN = "rm -rf -- .convserver-clone-*"
_BEGIN = f"""{_G}
{{ [ "$2" ] || {_CLEAN}; }} && g init -q --template= "$1"
"""
# One thread, as all other programs of the sandbox may use the processor too.
_UNPACK = f"""{_G}
cd -- "$1" && g -c pack.threads=1 -c core.bigFileThreshold=16m index-pack --stdin >/dev/null
"""
# The place may be taken meanwhile, and then stays as it is.
_END = f"""{_G}
cd -- "$1" && g update-ref --stdin || exit
[ -z "$6" ] || g config user.name "$6" || exit
[ -z "$7" ] || g config user.email "$7" || exit
g config remote.origin.url "$3" && g config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || exit
if g rev-parse --verify --quiet "refs/remotes/origin/$4" >/dev/null; then
    g symbolic-ref refs/remotes/origin/HEAD "refs/remotes/origin/$5" && \
        g checkout -q -b "$4" --track "origin/$4" || exit
else
    g symbolic-ref HEAD "refs/heads/$4" || exit
fi
cd .. || exit
if [ "$8" ] && [ -d "$2" ] && [ ! -e "$2/.git" ]; then
    # The files of a branch are there already, and newer than the commit: only what git keeps is missing.
    mv -T -- "$1/.git" "$2/.git" && rm -rf -- "$1"
else
    rmdir -- "$2" 2>/dev/null
    mv -T -- "$1" "$2"
fi
"""

# From here on the agent may have written the configuration, so that this runs whatever it names.
_TIP = f"""{_G}
cd -- "$1" || exit
fail() {{ echo "$1" >&2; exit 1; }}
branch=$2
[ -n "$branch" ] || branch=$(g symbolic-ref --quiet --short HEAD) || fail "no branch is checked out"
commit=$(g rev-parse --verify --quiet "refs/heads/$branch^{{commit}}") || fail "there is no branch $branch"
printf '%s\\n%s\\n' "$branch" "$commit"
"""
_PACK = f"""{_G}
cd -- "$1" && g pack-objects --revs --stdout --quiet --threads=1
"""
_PUSHED = f"""{_G}
cd -- "$1" && g update-ref "refs/remotes/origin/$2" "$3"
"""


class Clone(NamedTuple):
    """What is to be in a workspace."""

    packs: Sequence[Path]
    refs: Mapping[str, str]
    """The commits by the names of refs."""
    url: str
    branch: str
    main_branch: str
    name: str
    """That of the directory."""
    committer: tuple[str, str]
    """The name and the address of the user's settings, each empty if it is not set."""
    is_branch: bool
    """Whether it is for a branch of a conversation, which has its files from there."""


async def place(workspace: Path, clone: Clone) -> None:
    """Make a clone in a workspace; a failure leaves nothing. Raise NoSandbox or RepositoryFailed."""
    try:
        await _place(workspace, clone)
    except BaseException:
        await _run(workspace, _CLEAN)
        raise


async def _place(workspace: Path, clone: Clone) -> None:
    draft = f".convserver-clone-{secrets.token_hex(8)}"
    # In a directory of the user's own, another conversation may be making its clone.
    await _run(workspace, _BEGIN, draft, "shared" if roots.root_of(workspace) else "")
    for pack in clone.packs:
        with pack.open("rb") as file:
            await _run(workspace, _UNPACK, draft, stdin=file.fileno())
    # By a stream: a repository may have more branches than a command line has room for.
    lines = "".join(f"create {name} {commit}\n" for name, commit in clone.refs.items())
    with in_memory(lines.encode()) as refs:
        names = (
            clone.name,
            clone.url,
            clone.branch,
            clone.main_branch,
            *clone.committer,
            "branch" if clone.is_branch else "",
        )
        await _run(workspace, _END, draft, *names, stdin=refs)


@contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """Give a descriptor from which this can be read."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


async def tip(workspace: Path, name: str, branch: str) -> tuple[str, str]:
    """Return a branch, by default the one that is checked out, and its commit.

    Both are what the repository says. Raise RepositoryFailed if it has no such branch.
    """
    most = 1_000
    with tempfile.TemporaryFile() as file:
        await _run(workspace, _TIP, name, branch, stdout=file.fileno())
        file.seek(0)
        found, _, commit = file.read(most).decode(errors="replace").strip().partition("\n")
    return found, commit


async def write_pack(workspace: Path, name: str, wanted: int, pack: int) -> None:
    """Write the commits that one descriptor names, with all before them, to another one."""
    await _run(workspace, _PACK, name, stdin=wanted, stdout=pack)


async def note_pushed(workspace: Path, name: str, branch: str, commit: str) -> None:
    """Note in the workspace that the provider has a branch."""
    await _run(workspace, _PUSHED, name, branch, commit)


async def _run(
    workspace: Path, script: str, *arguments: str, stdin: int | None = None, stdout: int | None = None
) -> None:
    """Run a script to its end. Raise RepositoryFailed."""

    async def start() -> PipedProgram:
        argv = ["sh", "-c", script, "sh", *arguments]
        return await PipedProgram.started(
            argv, workspace, home=HOME, environment=ENVIRONMENT, stdin=stdin, stdout=stdout
        )

    end = await ended(start, timeout_s=900.0)
    if end.exit_code:
        words = end.reason or end.said.strip()[:300] or f"exit code {end.exit_code}"
        raise RepositoryFailed(f"Git failed in the workspace: {words}")
