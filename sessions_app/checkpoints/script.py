"""The script by which git keeps and restores files, in a sandbox that sees the shadow repository.

Nothing that an agent wrote is configuration here: the repository is the server's, and its own attributes
come before those of the workspace, so that no file is converted and no filter runs.
"""

from __future__ import annotations

from enum import IntEnum

from sessions_app.workspaces.excludes import DEFAULT_EXCLUDES


class CheckpointExit(IntEnum):
    """Exit codes of the script's own."""

    BUSY = 65
    """Another run has the repository."""
    UNKNOWN = 66
    """The repository does not have the commit."""
    IN_THE_WAY = 67
    """A file is to be where a directory has something that no checkpoint keeps."""
    CHANGING = 68
    """The files are no longer those of the checkpoint that was made before."""
    TOO_MANY = 69
    """There are more files than a workspace may have."""


def _left_out() -> str:
    """Return the condition of `find` for the directories that no checkpoint has.

    Git keeps no `.git`, in whatever letters; the others are what archives leave out, too.
    """
    directories = [each.rstrip("/") for each in DEFAULT_EXCLUDES if each.endswith("/") and each != ".git/"]
    return r"-iname .git -o -type d \( " + " -o ".join(f"-name {each}" for each in directories) + r" \)"


_FILES_LEFT_OUT = " ".join(f"! -name '{each}'" for each in DEFAULT_EXCLUDES if not each.endswith("/"))
_FIND = rf"""find . -mindepth 1 -maxdepth "$deepest" \( {_left_out()} \) -prune -o \
        \( -type l -o -type f -readable \) {_FILES_LEFT_OUT} \
        ! -name '.convserver-draft-????????????????' -printf '%P\0'"""

SCRIPT = (
    r"""
set -o pipefail
export LC_ALL=C

# Take the repository for this run, and make it if it is not there.
ready() {  # seconds to wait
    exec 9>>"$GIT_DIR/in-use" || exit
    flock -w "$1" 9 || exit 65
    # Left by a run that was killed: no other one is here.
    find "$GIT_DIR" -maxdepth 5 -name '*.lock' -type f -delete
    if [[ ! -e $GIT_DIR/info/attributes ]]; then
        env -u GIT_WORK_TREE git init -q --bare --template= || exit
        mkdir -p "$GIT_DIR/info"
        # Git asks these attributes before those in the files themselves.
        echo '* -text -eol -ident -filter !working-tree-encoding' >"$GIT_DIR/info/attributes.new"
        mv "$GIT_DIR/info/attributes.new" "$GIT_DIR/info/attributes" || exit
    fi
}

has() { git cat-file -e "$1^{commit}" 2>/dev/null; }

# Print the tree of the files as they are. An index from the last time tells which were not touched.
look() {  # most files, most directories
    local deepest=$2
    # A directory that cannot be read is left out.
    """
    + _FIND
    + r""" 2>/dev/null | sort -z >/tmp/found
    # What cannot be read lets find end with 1; a list that is not whole would be a checkpoint without files.
    local ended=("${PIPESTATUS[@]}")
    (( ended[0] <= 1 && ended[1] == 0 )) || exit 70
    # Git cannot open a path that is longer than the kernel takes. The second look is slower.
    if ! tr '\n\0' ' \n' </tmp/found | awk 'length > 4000 { exit 1 }'; then
        while IFS= read -r -d '' each; do
            if (( ${#each} <= 4000 )); then printf '%s\0' "$each"; fi
        done </tmp/found >/tmp/short
        mv /tmp/short /tmp/found
    fi
    [[ $(tr -cd '\0' </tmp/found | wc -c) -le $1 ]] || exit 69
    git ls-files -z | sort -z >/tmp/had || exit
    comm -z -23 /tmp/had /tmp/found >/tmp/gone || exit
    git update-index -z --force-remove --stdin </tmp/gone || exit
    # In parts, so that a run that is killed has not worked in vain.
    split -t '\0' -l 5000 --filter='git update-index -z --add --remove --replace --stdin' /tmp/found || exit
    git write-tree
}

# Print the commit of the files as they are, how many have changed since the last one, and the size in KB.
take() {  # most files, most directories, the last commit or nothing, seconds to wait
    ready "$4"
    local tree last commit count
    tree=$(look "$1" "$2") || exit
    if [[ $3 ]] && has "$3"; then
        last=$(git rev-parse "$3^{tree}") || exit
    else
        last=$(git hash-object -t tree -w --stdin </dev/null) || exit
    fi
    if [[ $3 && $last = "$tree" ]]; then
        commit=$3 count=0
    else
        commit=$(git commit-tree "$tree" </dev/null) || exit
        git update-ref "refs/checkpoints/$commit" "$commit" || exit
        count=$(git diff-tree -r -z --name-only "$last" "$tree" | tr -cd '\0' | wc -c) || exit
    fi
    echo "$commit $count $(du -sk "$GIT_DIR" | cut -f1)"
}

# Print which files differ between two commits, each after how.
changes() {  # the earlier one, the later one
    ready 10
    has "$1" && has "$2" || exit 66
    git diff-tree -r -z --name-status --no-renames "$1" "$2"
}

# Make the files those of a commit. What the checkpoint before does not have stays where it is.
restore() {  # most files, most directories, the checkpoint before, the commit
    ready 10
    has "$4" || exit 66
    local tree
    tree=$(look "$1" "$2") || exit
    [[ $tree = "$(git rev-parse "$3^{tree}")" ]] || exit 68
    git diff-tree -r -z --name-only --diff-filter=AT "$tree" "$4" >/tmp/made || exit
    while IFS= read -r -d '' each; do
        if [[ -d ./$each && ! -L ./$each && $(find "./$each" -iname .git -print -quit) ]]; then
            printf '%s' "$each" >&2
            exit 67
        fi
    done </tmp/made
    git read-tree -m -u "$4"
}

# Bring a commit from another repository, and write its files.
copy() {  # the commit
    ready 10
    # Once: what has changed since then is newer.
    if [[ -e $GIT_DIR/copied-$1 ]]; then exit 0; fi
    if ! has "$1"; then
        GIT_DIR=$SOURCE has "$1" || exit 66
        echo "$1" | GIT_DIR=$SOURCE git pack-objects -q --revs --stdout |
            git index-pack --stdin >/dev/null || exit
    fi
    git update-ref "refs/checkpoints/$1" "$1" || exit
    # What an earlier try has written is in the way, and may not be whole.
    git read-tree --reset -u "$1" && : >"$GIT_DIR/copied-$1"
}

# Forget commits, and those that a killed server has not noted; print the size in KB.
prune() {  # how many to forget, these, all to keep
    ready 10
    local forgotten=" ${*:2:$1} " kept=" ${*:2+$1} "
    git for-each-ref --format='%(objectname) %(committerdate:unix)' refs/checkpoints |
    while read -r each made; do
        if [[ $kept = *" $each "* ]]; then continue; fi
        # A newer one may be about to be noted.
        if [[ $forgotten = *" $each "* ]] || (( made < $(date +%s) - 3600 )); then
            echo "delete refs/checkpoints/$each"
        fi
    done | git update-ref --stdin || exit
    git repack -a -d -q && git prune --expire=now || exit
    du -sk "$GIT_DIR" | cut -f1
}

"$@"
"""
)
