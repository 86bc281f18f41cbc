"""Shows a disk that forgets as a filesystem: `python -m faults.power.mount DIRECTORY [--syncs-names]`.

It obeys lines on its standard input and answers each with a line, `ready` first: `sync` makes everything
safe, `fail SEED` lets syncs of files fail until `mend`, and `cut SEED` cuts the power when no program has a
file open there, and shows what is left of it. It ends with its input.
"""

from __future__ import annotations

import argparse
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import mfusepy

from faults.power.disk import Change, Disk, Node

BLOCK_BYTES = 4096
FREE_BLOCKS = 1_000_000
BUSY_WAIT_S = 60.0
LOOK_S = 0.02


class Files(mfusepy.Operations):  # type: ignore[misc]  # has no types
    """The disk's operations, as FUSE calls them: one after the other."""

    use_ns = True

    def __init__(self, disk: Disk, mounted: threading.Event) -> None:
        """`mounted` is set when the filesystem is there."""
        self._disk = disk
        self._mounted = mounted
        self._open: dict[int, Node] = {}
        self._last = 0

    def init(self, path: str) -> None:
        """Say that the filesystem is there."""
        self._mounted.set()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        """Describe a node."""
        node = self._node(path, fh)
        return {
            "st_mode": node.mode,
            "st_ino": node.number,
            "st_nlink": 2 if node.is_folder else 1,
            "st_uid": node.uid,
            "st_gid": node.gid,
            "st_size": len(node.content),
            "st_atime": node.accessed_ns,
            "st_mtime": node.modified_ns,
            "st_ctime": node.modified_ns,
        }

    def readdir(self, path: str, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        """List a folder: names, and what little a listing shows of each node."""
        folder = self._disk.node(path)
        for name, node in ((".", folder), ("..", folder), *folder.names.items()):
            yield name, {"st_mode": node.mode, "st_ino": node.number}, 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        """Make a file and open it."""
        return self._opened(self._disk.add(path, self._new(stat.S_IFREG | stat.S_IMODE(mode))))

    def mknod(self, path: str, mode: int, dev: int) -> int:
        """Make a file, or a socket."""
        self._disk.add(path, self._new(mode))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        """Make a folder."""
        self._disk.add(path, self._new(stat.S_IFDIR | stat.S_IMODE(mode)))
        return 0

    def symlink(self, target: str, source: str) -> int:
        """Make a link."""
        node = self._new(stat.S_IFLNK | 0o777)
        node.change(Change(0, source.encode()))
        node.sync()
        self._disk.add(target, node)
        return 0

    def link(self, target: str, source: str) -> int:
        """Give a file one more name."""
        self._disk.add(target, self._disk.node(source))
        return 0

    def readlink(self, path: str) -> str:
        """Say where a link leads."""
        return self._disk.node(path).content.decode()

    def open(self, path: str, flags: int) -> int:
        """Open a file."""
        node = self._disk.node(path)
        if flags & os.O_TRUNC and node.content:
            node.change(Change(0, None))
        return self._opened(node)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        """Read a part of a file."""
        return bytes(self._node(path, fh).content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """Write into a file."""
        self._node(path, fh).change(Change(offset, bytes(data)))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Change the size of a file."""
        self._node(path, fh).change(Change(length, None))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        """Make a file safe."""
        self._disk.sync_file(self._node(path, fh))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        """Make the names of a folder safe."""
        self._disk.sync_folder(self._disk.node(path))
        return 0

    def release(self, path: str, fh: int) -> int:
        """Forget that a file was open."""
        self._open.pop(fh, None)
        return 0

    def unlink(self, path: str) -> int:
        """Remove the name of a file."""
        self._disk.remove(path, is_folder=False)
        return 0

    def rmdir(self, path: str) -> int:
        """Remove a folder."""
        self._disk.remove(path, is_folder=True)
        return 0

    def rename(self, old: str, new: str) -> int:
        """Move a name."""
        self._disk.rename(old, new)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        """Change rights."""
        node = self._disk.node(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        """Change the owner; an id of -1 stays."""
        node = self._disk.node(path)
        node.uid = uid if 0 <= uid < 2**32 - 1 else node.uid
        node.gid = gid if 0 <= gid < 2**32 - 1 else node.gid
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        """Change times."""
        node = self._disk.node(path)
        node.accessed_ns, node.modified_ns = times or (node.accessed_ns, node.modified_ns)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        """Describe a large disk."""
        return {
            "f_bsize": BLOCK_BYTES,
            "f_frsize": BLOCK_BYTES,
            "f_blocks": FREE_BLOCKS,
            "f_bfree": FREE_BLOCKS,
            "f_bavail": FREE_BLOCKS,
            "f_files": FREE_BLOCKS,
            "f_ffree": FREE_BLOCKS,
            "f_favail": FREE_BLOCKS,
            "f_namemax": 255,
        }

    def _node(self, path: str | None, fh: int | None) -> Node:
        """Return an open file, which may have no name any more, or what a path names."""
        node = self._open.get(fh) if fh else None
        return node if node is not None else self._disk.node(path or "")

    def _opened(self, node: Node) -> int:
        self._last += 1
        self._open[self._last] = node
        return self._last

    def _new(self, mode: int) -> Node:
        uid, gid, _ = mfusepy.fuse_get_context()
        return Node(mode, uid=uid, gid=gid)


class Commands:
    """Obeys the lines of the standard input while the main thread shows the disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._mounted = threading.Event()
        self._seed = 0
        self._is_over = False

    def run(self) -> None:
        """Show the disk, again after each cut, until the input ends."""
        threading.Thread(target=self._obey, daemon=True).start()
        while not self._is_over:
            mfusepy.FUSE(
                Files(self._disk, self._mounted),
                self._directory,
                foreground=True,
                nothreads=True,
                allow_other=True,
                default_permissions=True,
                hard_remove=True,
                kernel_cache=True,
                use_ino=True,
            )
            self._disk.cut(random.Random(self._seed))

    def _obey(self) -> None:
        self._mounted.wait()
        print("ready", flush=True)
        for line in sys.stdin:
            word, _, seed = line.strip().partition(" ")
            if word == "sync":
                self._disk.sync_all()
            elif word == "fail":
                self._disk.fail_syncs(random.Random(int(seed)))
            elif word == "mend":
                self._disk.fail_syncs(None)
            else:
                self._seed = int(seed)
                self._mounted.clear()
                self._unmount()
                self._mounted.wait()
            print("ready", flush=True)
        self._is_over = True
        self._unmount()

    def _unmount(self) -> None:
        """Take the filesystem away as soon as the last of the processes that were killed has let go of it."""
        give_up_at = time.monotonic() + BUSY_WAIT_S
        while subprocess.run(["umount", self._directory], check=False, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > give_up_at:
                subprocess.run(["umount", "--lazy", self._directory], check=True)
                return
            time.sleep(LOOK_S)


def main() -> None:
    """Show an empty disk in a directory."""
    parser = argparse.ArgumentParser(prog="python -m faults.power.mount")
    parser.add_argument("directory")
    parser.add_argument("--syncs-names", action="store_true")
    asked = parser.parse_args()
    Commands(Disk(syncs_names=asked.syncs_names), asked.directory).run()


if __name__ == "__main__":
    main()
