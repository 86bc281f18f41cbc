"""The disk on which power is cut: what was synced is safe, and of the rest chance decides."""

from __future__ import annotations

import random
import stat

import pytest

from faults.power.disk import SECTOR_BYTES, Change, Disk, Node

SEEDS = range(50)


def file() -> Node:
    """Return a new file without a name."""
    return Node(stat.S_IFREG | 0o600)


def folder() -> Node:
    """Return a new folder without a name."""
    return Node(stat.S_IFDIR | 0o700)


def left(disk: Disk, seed: int, path: str) -> bytes | None:
    """Cut the power; return what a file holds then, None if it is gone."""
    disk.cut(random.Random(seed))
    try:
        return bytes(disk.node(path).content)
    except FileNotFoundError:
        return None


def test_what_was_synced_is_safe(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            disk = Disk()
            node = disk.add("/log", file())
            node.change(Change(0, b"one"))
            disk.sync_file(node)
            disk.sync_folder(disk.root)
            assert left(disk, seed, "/log") == b"one"


def test_what_was_not_synced_may_be_there_or_gone_or_torn_between_sectors() -> None:
    found = set()
    for seed in range(1_000):
        disk = Disk()
        node = disk.add("/log", file())
        node.change(Change(0, bytes(4 * SECTOR_BYTES)))
        disk.sync_all()
        node.change(Change(0, b"x" * 4 * SECTOR_BYTES))
        content = left(disk, seed, "/log")
        assert content is not None
        found.add(content.count(b"x"))
    assert found == {count * SECTOR_BYTES for count in range(5)}


def test_a_sync_that_fails_says_so_and_what_it_has_left_is_not_made_safe_by_the_next_one() -> None:
    found = set()
    for seed in SEEDS:
        disk = Disk()
        node = disk.add("/log", file())
        disk.sync_all()
        node.change(Change(0, b"one"))
        disk.fail_syncs(random.Random(seed))
        with pytest.raises(OSError, match="sync"):
            disk.sync_file(node)
        assert bytes(node.content) == b"one"
        disk.fail_syncs(None)
        node.change(Change(3, b"two"))
        disk.sync_file(node)
        found.add(left(disk, seed, "/log"))
    assert found == {b"onetwo", bytes(3) + b"two"}


def test_a_new_name_is_lost_unless_its_folder_was_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = Disk()
        node = disk.add("/log", file())
        node.change(Change(0, b"one"))
        disk.sync_file(node)
        found.add(left(disk, seed, "/log"))
    assert found == {None, b"one"}


def test_where_names_are_synced_with_files_a_new_file_is_safe_once_it_was_synced(
    subtests: pytest.Subtests,
) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            disk = Disk(syncs_names=True)
            node = disk.add("/log", file())
            node.change(Change(0, b"one"))
            disk.sync_file(node)
            assert left(disk, seed, "/log") == b"one"


def test_a_rename_is_there_or_not_and_never_half(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            disk = Disk()
            disk.add("/a", folder())
            disk.add("/b", folder())
            for path, text in (("/a/new", b"new"), ("/b/old", b"old")):
                disk.add(path, file()).change(Change(0, text))
            disk.sync_all()
            disk.rename("/a/new", "/b/old")
            content = left(disk, seed, "/b/old")
            assert content in (b"new", b"old")
            assert ("new" in disk.node("/a").names) == (content == b"old")


def test_a_rename_is_safe_once_either_folder_was_synced(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            disk = Disk()
            disk.add("/a", folder())
            disk.add("/b", folder())
            disk.add("/a/new", file()).change(Change(0, b"new"))
            disk.sync_all()
            disk.rename("/a/new", "/b/new")
            disk.sync_folder(disk.node("/a"))
            assert left(disk, seed, "/b/new") == b"new"


def test_a_file_that_was_removed_may_come_back() -> None:
    found = set()
    for seed in SEEDS:
        disk = Disk()
        disk.add("/log", file()).change(Change(0, b"one"))
        disk.sync_all()
        disk.remove("/log", is_folder=False)
        found.add(left(disk, seed, "/log"))
    assert found == {None, b"one"}
