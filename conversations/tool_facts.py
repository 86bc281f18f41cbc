"""Facts about a conversation in a tool's result: the branch that is checked out, a new pull request."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

# The tools that open a pull request (spec V0 §1.12); their results contain its address.
PULL_REQUEST_TOOLS = frozenset(
    {
        *("create_pr", "create_mr", "create_bitbucket_pr", "create_azure_devops_pr"),
        "create_pull_request",  # this server's own, and that of GitHub's tool server
    }
)

_PULL_REQUEST = re.compile(r"/(?:pull|merge_requests|pull-requests|pullrequest)/(\d{1,18})(?!\d)")
_ADDRESS = re.compile(r"https?://[^\s\"'<>\\]+")

# The git commands that may change the branch (spec V0 §4.7).
_MOVING = frozenset({"checkout", "switch", "merge", "rebase", "reset", "branch"})
_SAID = re.compile(
    r"^(?:Switched to (?:a new branch|and reset branch|branch)|Already on|Reset branch) '([^'\n]+)'"
    r"|^Successfully rebased and updated refs/heads/(\S+?)\.?$"
    r"|^\* (?!\()(\S+)$",
    re.MULTILINE,
)
# Options of git itself that are followed by a value.
_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_ENDS = frozenset({";", "&", "&&", "|", "||", "(", ")", "\n"})


def pull_request_in(text: str) -> int | None:
    """Return the number of the first pull request whose address is in the text, None if there is none.

    Recognises the addresses of GitHub, GitLab, Bitbucket and Azure DevOps.
    """
    found = (_PULL_REQUEST.search(address) for address in _ADDRESS.findall(text))
    return next((int(match[1]) for match in found if match), None)


def branch_after(command: str, output: str) -> str | None:
    """Return the branch that is checked out after a successful command; None if it does not show.

    Only git commands that can change the branch count, with the output of git. Renaming a branch prints
    nothing, so its name is read from the command.
    """
    moves = [words for words in _git_commands(command) if words[0] in _MOVING]
    if not moves:
        return None
    said: list[str] = [next(filter(None, match.groups())) for match in _SAID.finditer(output)]
    name = said[-1] if said else next(filter(None, map(_renamed_to, reversed(moves))), None)
    branch_max_length = 250
    if name is None or len(name) > branch_max_length or not name.isprintable() or " " in name:
        return None
    return name


def _git_commands(command: str) -> Iterator[list[str]]:
    """Yield the words after `git` and its own options, for each call of git in a command line."""
    for words in _simple_commands(command):
        while words and re.fullmatch(r"\w+=.*", words[0]):  # VARIABLE=value
            words = words[1:]
        if not words or words[0] != "git":
            continue
        rest = words[1:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in _VALUED else rest[1:]
        if rest:
            yield rest


def _simple_commands(command: str) -> Iterator[list[str]]:
    for line in command.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        try:
            for word in lexer:
                if word in _ENDS:
                    yield words
                    words = []
                else:
                    words.append(word)
        except ValueError:  # a quotation that continues on the next line
            pass
        yield words


def _renamed_to(words: Sequence[str]) -> str | None:
    """Return the name that `git branch -m new` gives the current branch; None for any other command."""
    if words[0] != "branch" or not {"-m", "-M", "--move"}.intersection(words):
        return None
    names = [word for word in words[1:] if not word.startswith("-")]
    return names[0] if len(names) == 1 else None
