"""What opens files beneath a directory: no link, race, device or name leads out of it, and all is bounded."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from conversations.exceptions import ConversationBusy, StoreUnavailable
from sessions_app.workspaces import beneath
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused
from sessions_app.workspaces.tree import FilesHeld, Tree, WorkspaceLimits, is_draft
from tests.support.data.descriptors import descriptors_in

SECRET = b"secret"
TRIES = 20_000
"""Of the race; 100,000 of each kind were made by hand."""

OPENERS: dict[str, Callable[[int, bytes, int], int]] = {
    "openat2": beneath.by_kernel,
    "by hand": beneath.by_hand,
}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open everything in one of the two ways."""
    if request.param == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr(beneath, "has_openat2", lambda: request.param == "openat2")


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory with a file that no path may reach, and a workspace beside it; in memory if possible."""
    memory = Path("/dev/shm")  # a race that waits for a disk tries little
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as above:
        found = Path(above) / "outside"
        found.mkdir()
        (found / "file").write_bytes(SECRET)
        (found.parent / "workspace").mkdir()
        yield found


@pytest.fixture
def workspace(outside: Path) -> Path:
    return outside.parent / "workspace"


@pytest.fixture
def tree(workspace: Path, opener: None) -> Iterator[Tree]:
    with tree_of(workspace) as found:
        yield found


@contextmanager
def tree_of(workspace: Path, *, files: int = 10_000, depth: int = 8) -> Iterator[Tree]:
    root = os.open(workspace, beneath.DIRECTORY)
    try:
        yield Tree(root, WorkspaceLimits(1_000_000, files, depth))
    finally:
        os.close(root)


def read(tree: Tree, path: str) -> bytes:
    descriptor, found = tree.file(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(found.st_size)


def written(tree: Tree, path: str, content: bytes = b"new") -> FilesHeld:
    draft = tree.draft(path, content)
    try:
        draft.keep()
    finally:
        draft.discard()
    return draft.added


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


# What a path may name


def test_links_that_stay_inside_are_followed(tree: Tree, workspace: Path) -> None:
    (workspace / "node_modules" / ".bin").mkdir(parents=True)
    (workspace / "node_modules" / "tool.js").write_bytes(b"tool")
    (workspace / "node_modules" / ".bin" / "tool").symlink_to("../tool.js")
    (workspace / "bin").symlink_to("node_modules/.bin")
    (workspace / "up").symlink_to("bin/../tool.js")
    (workspace / "here").symlink_to(".")
    for path in ("node_modules/.bin/tool", "bin/tool", "up", "here/here/bin/tool", "./bin//tool"):
        assert read(tree, path) == b"tool"


LEADING_OUT = (
    "..",
    "../outside",
    "{outside}",
    "/",
    "inner/../../outside",
    "/proc/self/cwd",
    "/proc/self/root",
)


@pytest.mark.parametrize("target", LEADING_OUT)
def test_a_link_that_leads_out_is_refused(tree: Tree, workspace: Path, outside: Path, target: str) -> None:
    (workspace / "inner").mkdir()
    (workspace / "link").symlink_to(target.format(outside=outside))
    (workspace / "behind").symlink_to("inner/../link")
    before = descriptors_in(workspace.parent)
    for path in ("link", "link/file", "behind/file"):
        with pytest.raises(PathRefused):
            read(tree, path)
        with pytest.raises(PathRefused):
            written(tree, f"{path}/new")
    with pytest.raises(PathRefused):
        tree.make_directory("link/new")
    assert list(tree.walk()) != []
    assert [each.path for each in tree.walk()] == ["inner"]
    assert tree.names("", 10) == ["inner/", "behind", "link"]
    assert descriptors_in(workspace.parent) == before
    assert names_in(outside) == ["file"]


def test_a_path_that_leads_out_is_refused(tree: Tree, workspace: Path, outside: Path) -> None:
    (workspace / "inner").mkdir()
    for path in ("../outside/file", str(outside / "file"), "inner/../../outside/file", "..", "/"):
        with pytest.raises(PathRefused):
            read(tree, path)
        with pytest.raises(PathRefused):
            written(tree, path)


def test_links_in_a_circle_are_refused(tree: Tree, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    (workspace / "self").symlink_to("self/self")
    for path in ("a", "b/c", "self"):
        with pytest.raises(PathRefused):
            read(tree, path)
        with pytest.raises(PathRefused):
            written(tree, path)


def test_what_is_no_file_is_refused_without_waiting_for_it(tree: Tree, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "directory").mkdir()
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(workspace)  # the path of a socket has at most 108 bytes
            listening.bind("socket")
        finally:
            os.chdir(here)
            os.close(here)
    names = ["fifo", "directory", "socket"]
    with suppress(PermissionError):  # only root may make a device
        os.mknod(workspace / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        names.append("null")
    before = descriptors_in(workspace.parent)
    for name in names:
        with pytest.raises(PathRefused):
            read(tree, name)
    assert [each.path for each in tree.walk()] == ["directory"]
    assert descriptors_in(workspace.parent) == before


def test_a_name_may_have_any_byte(tree: Tree, workspace: Path) -> None:
    for name in (b"\xff\xfe", b"a\nb", "größe \u202e.txt".encode(), b"-rf", b"x" * 255):
        (workspace / os.fsdecode(name)).write_bytes(name)
        assert read(tree, os.fsdecode(name)) == name
    assert len(tree.names("", 10)) == 5
    assert sorted(os.fsencode(each.path) for each in tree.walk()) == sorted(
        map(os.fsencode, names_in(workspace))
    )


def test_what_cannot_be_a_name_is_refused_in_words_that_can_be_printed(tree: Tree) -> None:
    for path in ("a\0b", "x" * 256, "x/" * 3000, "\ud83d"):
        for use in (read, written, Tree.require_directory):
            with pytest.raises((PathRefused, NoSuchFile)) as refused:
                use(tree, path)
            assert str(refused.value).isprintable()
            str(refused.value).encode()
            assert len(str(refused.value)) < 400


def test_what_is_not_there_is_told_apart(tree: Tree, workspace: Path) -> None:
    (workspace / "file").touch()
    (workspace / "dangling").symlink_to("nowhere")
    for path in ("none", "none/none", "file/none", "dangling"):
        with pytest.raises(NoSuchFile):
            read(tree, path)
    with pytest.raises(PathRefused, match="not a directory"):
        tree.require_directory("file")
    with pytest.raises(NoSuchFile):
        tree.require_directory("none")
    tree.require_directory("")


# Races

LINKS: list[Callable[[Path], None]] = [
    lambda path: path.symlink_to("../outside"),
    lambda path: path.symlink_to(path.parent.parent / "outside"),
    lambda path: path.symlink_to("real"),
    lambda path: path.symlink_to("real/../../outside"),
]


@contextmanager
def swapping(workspace: Path) -> Iterator[None]:
    """Replace `way`, a directory on many paths, by links to the outside and back, all the time."""
    is_over = threading.Event()

    def swap() -> None:
        way, real, deep = workspace / "way", workspace / "real", workspace / "deep"
        for number in count():
            if is_over.is_set():
                return
            with suppress(OSError):  # what is written meanwhile makes `way` a directory of its own
                way.rename(workspace / f"before{number}")
            steps: list[Callable[[], object]] = [
                lambda: LINKS[number % len(LINKS)](way),  # noqa: B023
                way.unlink,
                lambda: real.rename(way),
                lambda: (way / "deep").rename(deep),
                lambda: deep.rename(way / "deep"),
                lambda: way.rename(real),
            ]
            for step in steps:
                with suppress(OSError):
                    step()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def reached(tree: Tree, number: int) -> bytes:
    """Try one path, which may lead anywhere while links are swapped; return what was read."""
    path = ("way/file", "way/deep/../file", "way/../way/file", "real/deep/../../way/file")[number % 4]
    with suppress(PathRefused, StoreUnavailable):
        if number % 3 == 0:
            written(tree, f"way/new{number % 7}", b"new")
        elif number % 11 == 0:
            tree.make_directory(f"way/made{number % 7}/more").keep()
        else:
            return read(tree, path)
    return b""


@pytest.mark.timeout(300)
def test_nothing_outside_is_touched_while_links_are_swapped(
    tree: Tree, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # which would only make the race slow
    (workspace / "real" / "deep").mkdir(parents=True)
    (workspace / "real" / "file").write_bytes(b"inside")
    (outside / "deep").mkdir()
    before = descriptors_in(workspace.parent)
    with swapping(workspace):
        found = Counter(reached(tree, number) for number in range(TRIES // len(OPENERS)))
    assert found.keys() == {b"", b"inside"}
    assert names_in(outside) == ["deep", "file"]
    assert (outside / "file").read_bytes() == SECRET
    assert list((outside / "deep").iterdir()) == []
    assert descriptors_in(workspace.parent) == before


NAMES = some.sampled_from(["a", "b", "c", "..", ".", ""])
PATHS = some.lists(NAMES, max_size=6).map("/".join)
LINKED = some.dictionaries(
    some.tuples(some.sampled_from(["", "a/", "a/b/", "c/"]), some.sampled_from(["x", "y", "c"])),
    PATHS,
    max_size=5,
)
WAYS = some.lists(some.sampled_from(["a", "b", "c", "x", "y", "..", "."]), min_size=1, max_size=6).map(
    "/".join
)


@given(links=LINKED, way=WAYS)
def test_both_ways_to_open_agree_on_any_links_and_path(links: dict[tuple[str, str], str], way: str) -> None:
    if not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    with TemporaryDirectory() as above:
        workspace = Path(above) / "workspace"
        (workspace / "a" / "b").mkdir(parents=True)
        (workspace / "a" / "c").touch()
        for (folder, name), target in links.items():
            with suppress(OSError):
                (workspace / folder / name).symlink_to(target)
        with tree_of(workspace) as tree:
            assert outcome(beneath.by_kernel, tree, way) == outcome(beneath.by_hand, tree, way)


def outcome(opener: Callable[[int, bytes, int], int], tree: Tree, path: str) -> object:
    try:
        opened = opener(tree.root, path.encode(), beneath.READ)
    except PathRefused:
        return "leads out"
    except OSError as error:
        return error.errno
    found = os.fstat(opened)
    os.close(opened)
    return found.st_dev, found.st_ino


# What is written


def test_a_file_is_written_whole_for_its_owner_alone(tree: Tree, workspace: Path) -> None:
    assert written(tree, "a/b/file", b"12345") == FilesHeld(5, 3)
    assert (workspace / "a" / "b" / "file").read_bytes() == b"12345"
    modes = [stat.S_IMODE((workspace / path).stat().st_mode) for path in ("a", "a/b", "a/b/file")]
    assert modes == [0o700, 0o700, 0o600]
    (workspace / "a" / "b" / "file").chmod(0o755)
    assert written(tree, "a/b/file", b"12") == FilesHeld(-3, 0)
    assert stat.S_IMODE((workspace / "a" / "b" / "file").stat().st_mode) == 0o700
    assert names_in(workspace / "a" / "b") == ["file"]


def test_a_file_whose_name_cannot_be_synced_is_there_and_counted(
    tree: Tree, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors_in(workspace.parent)
    draft = tree.draft("a/file", b"new")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnavailable):
        draft.keep()
    assert not draft.is_open
    draft.discard()
    assert (workspace / "a" / "file").read_bytes() == b"new"
    assert descriptors_in(workspace.parent) == before


def test_a_link_is_written_through_if_it_stays_inside(tree: Tree, workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "link").symlink_to("real/file")
    written(tree, "link", b"by the link")
    assert (workspace / "link").is_symlink()
    assert (workspace / "real" / "file").read_bytes() == b"by the link"


def test_a_file_of_others_is_not_written_through_a_second_name(
    tree: Tree, workspace: Path, outside: Path
) -> None:
    (workspace / "same").hardlink_to(outside / "file")
    written(tree, "same")
    assert (outside / "file").read_bytes() == SECRET


def test_a_draft_is_seen_by_no_client_and_leaves_nothing(tree: Tree, workspace: Path) -> None:
    (workspace / "file").write_bytes(b"old")
    before = descriptors_in(workspace.parent)
    drafts = [tree.draft("file", b"new"), tree.draft("a/b/c", b"new")]
    assert (tree.names("", 9), tree.names("a/b", 9)) == (["a/", "file"], [])
    assert [each.path for each in tree.walk()] == ["file", "a", "a/b"]
    assert any(map(is_draft, names_in(workspace)))
    for draft in drafts:
        draft.discard()
    assert names_in(workspace) == ["file"]
    assert (workspace / "file").read_bytes() == b"old"
    assert descriptors_in(workspace.parent) == before


def test_a_directory_is_not_replaced_by_a_file(tree: Tree, workspace: Path) -> None:
    (workspace / "directory").mkdir()
    (workspace / "link").symlink_to("directory")
    before = descriptors_in(workspace.parent)
    for path in ("directory", "link", "", "directory/."):
        with pytest.raises(PathRefused):
            written(tree, path)
    draft = tree.draft("later", b"")
    (workspace / "later").mkdir()
    with pytest.raises(PathRefused):
        draft.keep()
    draft.discard()
    assert descriptors_in(workspace.parent) == before
    assert names_in(workspace) == ["directory", "later", "link"]


def test_a_disk_that_takes_nothing_is_not_the_clients_fault(
    tree: Tree, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="No space left"):
        tree.draft("file", b"new")
    with pytest.raises(StoreUnavailable):
        tree.draft("a/file", b"new")
    assert names_in(workspace) == []


def test_a_workspace_is_only_so_deep_also_by_links(tree: Tree, workspace: Path) -> None:
    written(tree, "1/2/3/4/5/6/7/8/file")
    with pytest.raises(PathRefused, match="too deep"):
        written(tree, "1/2/3/4/5/6/7/8/9/file")
    (workspace / "short").symlink_to("1/2/3/4/5/6/7/8")
    with pytest.raises(PathRefused, match="too deep"):
        written(tree, "short/9/file")
    with pytest.raises(PathRefused, match="too deep"):
        tree.make_directory("short/9/10")
    assert names_in(workspace / "short") == ["file"]


def test_a_change_waits_for_another_one_and_not_without_end(tree: Tree, workspace: Path) -> None:
    with (
        tree_of(workspace) as other,
        tree.changed_alone(),
        pytest.raises(ConversationBusy),
        other.changed_alone(0),
    ):
        pass
    with tree.changed_alone(0):
        pass


# Many files, and files that change


def test_many_files_are_listed_in_a_bounded_part(workspace: Path, opener: None) -> None:
    for number in range(3_000):
        (workspace / f"{number:04}").touch()
    (workspace / "Zebra").mkdir()
    (workspace / "link").symlink_to("Zebra")
    with tree_of(workspace) as tree:
        assert tree.names("", 3) == ["link/", "Zebra/", "0000"]
        assert tree.measured() == FilesHeld(0, 3_002)
    with tree_of(workspace, files=100) as tree:
        assert len(tree.names("", 1_000)) <= 100
        assert len(list(tree.walk())) == 101


def test_a_walk_gives_files_with_their_directories_in_order(tree: Tree, workspace: Path) -> None:
    for path in ("b/2", "b/1", "a", "c/d/e"):
        written(tree, path, path.encode())
    before = descriptors_in(workspace.parent)
    found = []
    for each in tree.walk():
        content = b""
        if not each.is_directory:
            descriptor, about = each.opened()
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(about.st_size)
        found.append((each.path, content))
    assert found == [
        *(("a", b"a"), ("b", b""), ("b/1", b"b/1"), ("b/2", b"b/2")),
        *(("c", b""), ("c/d", b""), ("c/d/e", b"c/d/e")),
    ]
    assert [each.path for each in tree.walk("b")] == ["1", "2"]
    assert descriptors_in(workspace.parent) == before


def make_deep(workspace: Path, names: Sequence[str]) -> None:
    """Make directories in one another, a file in each; their path may be longer than a system call takes."""
    at = os.open(workspace, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=at)
        deeper = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
        with os.fdopen(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at), "wb") as file:
            file.write(b"12")
    os.close(at)


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_a_walk_needs_few_descriptors_however_deep_and_long_its_paths_are(
    workspace: Path, opener: None, name: str
) -> None:
    make_deep(workspace, [name] * 60)
    with tree_of(workspace, depth=100) as tree:
        before = descriptors_in(workspace.parent)
        found = 0
        for each in tree.walk():
            found += 1
            assert descriptors_in(workspace.parent) <= before + 2
            if not each.is_directory:
                os.close(each.opened()[0])
        assert found == 120
        assert tree.measured() == FilesHeld(120, 120)
        assert descriptors_in(workspace.parent) == before


def test_a_directory_that_becomes_a_link_on_a_walk_is_not_followed(tree: Tree, workspace: Path) -> None:
    for path in ("a/b/file", "a/c/file", "real/b/of others", "real/c/of others"):
        written(tree, path)
    found = []
    for each in tree.walk():
        found.append(each.path)
        if each.path == "a/b":
            (workspace / "a").rename(workspace / "moved")
            (workspace / "a").symlink_to("real")
    of_real = ["real", "real/b", "real/b/of others", "real/c", "real/c/of others"]
    assert found == ["a", "a/b", "a/c", *of_real]


def test_a_walk_looks_at_nothing_in_a_directory_that_is_left_out(tree: Tree) -> None:
    for path in ("a/b/c", "node_modules/x/y", "z"):
        written(tree, path)
    asked = []

    def is_left_out(path: str, is_directory: bool) -> bool:
        asked.append((path, is_directory))
        return path in ("node_modules", "a/b/c")

    found = [(each.path, each.is_left_out) for each in tree.walk("", is_left_out)]
    assert found == [
        *(("z", False), ("a", False), ("a/b", False), ("a/b/c", True), ("node_modules", True)),
    ]
    assert asked[1:] == [("z", False), ("a", True), ("a/b", True), ("a/b/c", False), ("node_modules", True)]


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_what_cannot_be_looked_at_for_the_servers_reasons_is_not_taken_for_gone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    written(tree, "a/b/file")
    listed = os.scandir

    def fail_below(directory: int) -> Any:
        if names_in(Path(f"/proc/self/fd/{directory}")) == ["file"]:
            raise OSError(code, os.strerror(code))
        return listed(directory)

    with monkeypatch.context() as broken:
        broken.setattr(os, "scandir", fail_below)
        with pytest.raises(OSError, match=os.strerror(code)):
            list(tree.walk())
        with pytest.raises(StoreUnavailable, match=os.strerror(code)):
            tree.measured()


def test_a_file_that_becomes_a_link_on_a_walk_is_not_followed_out(
    tree: Tree, workspace: Path, outside: Path
) -> None:
    written(tree, "file")
    (each,) = tree.walk()
    (workspace / "file").unlink()
    (workspace / "file").symlink_to(outside / "file")
    with tree_of(workspace) as still, pytest.raises((PathRefused, OSError)):
        each._replace(above=still.root).opened()


def test_drafts_of_a_crash_are_removed_once_they_are_old(tree: Tree, workspace: Path) -> None:
    written(tree, "file", b"12345")
    names = [f".convserver-draft-{number:016}" for number in range(2)]
    for name in names:
        (workspace / name).write_bytes(b"123")
    os.utime(workspace / names[0], (time.time() - 90_000,) * 2)
    assert tree.measured() == FilesHeld(5, 1)
    assert names_in(workspace) == [names[1], "file"]


def test_a_tree_of_any_depth_is_removed_in_steps_without_following_a_link(
    workspace: Path, outside: Path, opener: None
) -> None:
    make_deep(workspace, ["d"] * 300)
    (workspace / "link").symlink_to(outside)
    with tree_of(workspace) as tree:
        before = descriptors_in(workspace.parent)
        removed = []
        while (step := tree.remove_some(20)) is not None:
            assert step.files <= 20
            removed.append(step.bytes)
        assert descriptors_in(workspace.parent) == before
    assert sum(removed) >= 600
    assert names_in(workspace) == []
    assert (outside / "file").read_bytes() == SECRET


MOUNTED = """
import os, subprocess, sys
from sessions_app.workspaces import beneath
from sessions_app.workspaces.tree import Tree, WorkspaceLimits

workspace, other, mount, opener = sys.argv[1:]
way = ["--bind", other] if mount == "bound" else ["-t", "tmpfs", "none"]
subprocess.run(["mount", *way, f"{workspace}/a/mounted"], check=True)
open(f"{workspace}/a/mounted/file", "w").close()
if opener != "openat2":
    beneath.has_openat2 = lambda: False
tree = Tree(os.open(workspace, beneath.DIRECTORY), WorkspaceLimits(1_000, 1_000, 8))
try:
    tree.remove_some(100)
except OSError as error:
    print(error.strerror)
print(os.listdir(f"{workspace}/a/mounted"))
"""
"""A program that removes a workspace in which it has mounted another file system, for itself alone."""


@pytest.mark.parametrize(
    ("mount", "opener"), [("tmpfs", "openat2"), ("tmpfs", "by hand"), ("bound", "openat2")]
)
def test_a_file_system_that_is_mounted_in_a_workspace_is_not_emptied(
    workspace: Path, outside: Path, mount: str, opener: str
) -> None:
    if opener == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel has no openat2")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this account cannot mount a file system")
    (workspace / "a" / "mounted").mkdir(parents=True)
    program = ["unshare", "--mount", sys.executable, "-c", MOUNTED]
    done = subprocess.run(
        [*program, str(workspace), str(outside), mount, opener],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    told, left = done.stdout.splitlines()
    assert told == "another file system is mounted in the workspace: unmount it"
    assert "'file'" in left
