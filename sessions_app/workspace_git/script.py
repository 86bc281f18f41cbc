"""The shell script that runs git in a sandbox: all questions of one request by one start.

Its output is fields that end with a null byte, and an empty field ends a list: no path is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType


class ScriptExit(IntEnum):
    """Exit codes of the script's own."""

    UNKNOWN_REVISION = 3
    """The repository does not have it."""


ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "GIT_CONFIG_NOSYSTEM": "1",
        # The workspace is HOME, and its files are no configuration of the user.
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_PAGER": "cat",
        "GIT_SSH_COMMAND": "false",
        "LC_ALL": "C.UTF-8",
    }
)

# The configuration of a repository can name programs; the sandbox holds those that are not switched off here.
SCRIPT = r"""
g() {
    git --no-pager -c safe.directory='*' -c core.fsmonitor=false -c core.hooksPath=/dev/null \
        -c core.untrackedCache=false -c core.attributesFile=/dev/null -c core.excludesFile=/dev/null \
        -c core.sshCommand=false -c credential.helper= -c protocol.allow=never -c submodule.recurse=false \
        -c log.showSignature=false -c gpg.program=false "$@"
}
different() { g diff --no-ext-diff --no-textconv --no-color --no-renames --ignore-submodules=dirty "$@"; }
commit() { g rev-parse --verify --quiet "$1^{commit}" 2>/dev/null; }
nothing() { g hash-object -t tree /dev/null; }

# Git notes in the index what it has looked at. It has a copy, since the agent's own git would find the file
# locked.
own_index() {
    index=$(g rev-parse --git-path index) || return
    cp -- "$index" /tmp/index 2>/dev/null || rm -f /tmp/index
    export GIT_INDEX_FILE=/tmp/index
}

# Print the commit or tree with which the files are compared.
base() {  # how
    case $1 in
    wire:*) ;;
    *) commit "$1" || { [ "$1" = HEAD ] && nothing; } || exit 3; return ;;
    esac
    head=$(commit HEAD) || { nothing; return; }
    branch=$(g symbolic-ref --quiet --short HEAD)
    if [ -n "$branch" ] && tip=$(commit "refs/remotes/origin/$branch"); then
        # Of a branch that was pushed whole, V1 shows what it adds to the one that it comes from.
        if [ "$1" = wire:v0 ] || [ "$tip" != "$head" ] || ! different --quiet HEAD --; then
            echo "$tip"; return
        fi
    fi
    for each in HEAD main master; do
        tip=$(commit "refs/remotes/origin/$each") || continue
        g merge-base HEAD "$tip" 2>/dev/null || echo "$tip"
        return
    done
    [ "$1" = wire:v0 ] && { nothing; return; }
    for each in main master; do
        tip=$(commit "refs/heads/$each") || continue
        [ "$each" != "$branch" ] && g merge-base --is-ancestor "$tip" HEAD && { echo "$tip"; return; }
        break
    done
    echo "$head"
}

changes() {  # how, then directories
    how=$1; shift
    for each in "$@"; do
        (
            cd -- "./$each" && own_index || exit 0
            against=$(base "$how") || exit
            printf '%s\0' "$each"
            different --name-status -z --relative "$against" -- .
            printf '\0'
            g ls-files -z --others --exclude-standard -- .
            printf '\0'
        ) || exit
    done
}

# Print the size and the content of a file in a commit or tree; an empty size if there is none.
content() {  # tree, path, most bytes
    size=
    if [ "$(g cat-file -t "$1:$2" 2>/dev/null)" = blob ]; then size=$(g cat-file -s "$1:$2"); fi
    printf '%s\0' "$size"
    if [ -n "$size" ] && [ "$size" -le "$3" ]; then g cat-file blob "$1:$2"; fi
}

before() {  # how, directory, path, most bytes
    cd -- "./$2" && own_index || exit
    against=$(base "$1") || exit
    content "$against" "$3" "$4"
}

# The commit that a client names, and the one before it.
named() {
    sha=$(commit "$1") || exit 3
    parent=$(commit "$sha^") || parent=$(nothing)
}

at() {  # commit, directory, path, most bytes, "before" or "after"
    cd -- "./$2" || exit
    named "$1"
    [ "$5" = before ] && sha=$parent
    content "$sha" "$3" "$4"
}

in_commit() {  # commit, directory
    cd -- "./$2" || exit
    named "$1"
    different --name-status -z "$parent" "$sha" --
    printf '\0'
}

commits() {  # directory, most
    cd -- "./$1" || exit
    head=$(commit HEAD) || exit 0
    g log -z --no-show-signature --format='%H%x1f%h%x1f%an%x1f%aI%x1f%s' -n "$2" "$head" --
}

"$@"
"""
