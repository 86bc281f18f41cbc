"""The scripts of a repository for its setup: `.openhands/setup.sh`, and a check before each commit.

They are commands for the terminal of the conversation, and run only after the user's approval.
"""

from __future__ import annotations

import re
import shlex
from hashlib import sha256
from typing import NamedTuple

from conversations.events import ConversationRef, Dialect, EventFilter, EventMatch, Kind
from conversations.log import reads
from sessions_app.repository_skills import reading
from sessions_app.workspaces import records
from sessions_app.workspaces.beneath import PathRefused, closing, pieces
from sessions_app.workspaces.tree import Tree

_SETUP = ".openhands/setup.sh"
_CHECK = ".openhands/pre-commit.sh"
_ABOUT = (
    "The repository has a script for its setup. Nothing of it has been run yet, and the server does not know "
    "who has written it. Read it before you allow it to run."
)
_INSTALLS = "The second command makes git run `.openhands/pre-commit.sh` before each commit."
_INSTALLS_ALONE = (
    "The repository has a script for git to run before each commit, and the server does not know who has "
    "written it. Read it before you allow it to be installed."
)
_INSTALLATION = (
    "mkdir -p .git/hooks && test ! -e .git/hooks/pre-commit && "
    "{ echo '#!/bin/bash'; cat .openhands/pre-commit.sh; } > .git/hooks/pre-commit && "
    "chmod +x .git/hooks/pre-commit"
)
_AGENT_ACTS = EventFilter(
    source="agent",
    any_of=frozenset(
        EventMatch(dialect=dialect, kinds=frozenset({Kind.MESSAGE, Kind.TOOL_CALL})) for dialect in Dialect
    ),
)


class SetupRequest(NamedTuple):
    """What to ask the user before the first request to a model."""

    commands: list[str]
    words: str
    """What the user reads beside them: why, and the scripts."""


def request_of(conversation: ConversationRef) -> SetupRequest | None:
    """Return what to ask about the setup of a conversation's repository; None for nothing.

    Only the first turn asks, before all that its agent does. Raise StoreUnavailable.
    """
    with records.opened(conversation) as tree:
        if tree is None:
            return None
        root = reading.roots(tree, conversation)[0]
        setup = _script(tree, root, _SETUP)
        # In a directory of the user's own, the hook would later run for the user, outside of any sandbox.
        has_hooks = _is_repository(tree, root) and not tree.is_users
        check = _script(tree, root, _CHECK) if has_hooks else None
    # Later an agent may have written the script itself, or has run it.
    if not (setup or check) or reads.search_events(conversation, _AGENT_ACTS, limit=1).events:
        return None
    place = f"cd {shlex.quote(root)} && " if root else ""
    commands = [f"{_is_as_shown(setup)} && source {_SETUP}"] if setup else []
    about = [_ABOUT, _shown(setup)] if setup else [_INSTALLS_ALONE]
    if check:
        commands.append(f"{_is_as_shown(check)} && {_INSTALLATION}")
        about += [*([_INSTALLS] if setup else []), _shown(check)]
    # In a shell of its own: `exit` and `set -e` in the script would end the agent's.
    return SetupRequest([f"({place}{each})" for each in commands], "\n\n".join(about))


class _Script(NamedTuple):
    """A script as the user is asked about it."""

    name: str
    digest: str
    """SHA-256 of the whole, in hexadecimal digits."""
    text: str
    """What is shown of it."""


def _script(tree: Tree, root: str, name: str) -> _Script | None:
    """Return a script; None for none, for an empty one, and for one that is too long to be read."""
    most_bytes, shown_most_bytes = 1_000_000, 4_000
    try:
        descriptor, about = tree.file(f"{root}/{name}".strip("/"))
    except PathRefused:
        return None
    # A link is shown as what it leads to, which is what bash would read.
    with closing(descriptor):
        whole = b"".join(pieces(descriptor, min(about.st_size, most_bytes + 1)))
    content = whole[:shown_most_bytes]
    # What cannot be seen could turn a line into another one for its reader.
    text = "".join(
        each if each.isprintable() or each in "\n\t" else f"[U+{ord(each):04X}]"
        for each in content.decode(errors="replace").replace("\r\n", "\n")
    ).rstrip()
    if not text or len(whole) > most_bytes:
        return None
    more = len(whole) - len(content)
    shown = f"{text}\n[{more:,} bytes more]" if more > 0 else text
    return _Script(name, sha256(whole).hexdigest(), shown)


def _is_as_shown(script: _Script) -> str:
    """Return the command that fails if a script is not the one that the user was asked about."""
    return f"echo '{script.digest}  {script.name}' | sha256sum --check --quiet"


def _shown(script: _Script) -> str:
    """Return a script as Markdown that it cannot break out of."""
    ticks = max((len(each) for each in re.findall("`+", script.text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"`{script.name}`:\n\n{fence}sh\n{script.text}\n{fence}"


def _is_repository(tree: Tree, root: str) -> bool:
    try:
        tree.require_directory(f"{root}/.git".strip("/"))
    except PathRefused:
        return False
    return True
