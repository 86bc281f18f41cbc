"""A disk as a model: files and folders in memory, and what of them would be left if the power were cut.

What was written to a file is safe once the file was synced, and a name (created, renamed, removed) once its
folder was. Of the rest, chance decides: each write may be there, torn after some of its sectors, or gone;
names change in the order in which they were changed, up to some moment. Rights, owners and times of files are
always safe: no promise depends on them.
"""

from __future__ import annotations

import errno
import random
import stat
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import count

SECTOR_BYTES = 512
"""A disk writes so many bytes whole or not at all."""
KEEP_ALL, KEEP_NONE = 0.2, 0.5
"""The probabilities that a cut keeps all that was not synced of one file, and nothing of it."""


@dataclass(slots=True)
class Change:
    """A change of a file that was not synced: bytes at a place, or a new size."""

    offset: int
    data: bytes | None
    """None for a new size, which is `offset`."""

    def apply(self, content: bytearray) -> None:
        """Make the change."""
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> Change:
        """Return its first sectors, at least none and at most all but one."""
        if self.data is None:
            return self
        first = SECTOR_BYTES - self.offset % SECTOR_BYTES
        ends = [0, *range(first, len(self.data), SECTOR_BYTES)]
        return Change(self.offset, self.data[: rng.choice(ends)])


@dataclass(slots=True, eq=False)
class Node:
    """A file, a folder or a link."""

    mode: int
    uid: int = 0
    gid: int = 0
    accessed_ns: int = field(default_factory=time.time_ns)
    modified_ns: int = field(default_factory=time.time_ns)
    content: bytearray = field(default_factory=bytearray)
    """Of a file: what reads see. Of a link: where it leads."""
    safe_content: bytearray = field(default_factory=bytearray)
    changes: list[Change] = field(default_factory=list)
    """What `content` has and `safe_content` has not, in order."""
    names: dict[str, Node] = field(default_factory=dict)
    """Of a folder."""
    safe_names: dict[str, Node] = field(default_factory=dict)
    number: int = field(default_factory=partial(next, count(1)))
    """Unique: the inode's."""

    @property
    def is_folder(self) -> bool:
        """Whether it has names."""
        return stat.S_ISDIR(self.mode)

    def change(self, change: Change) -> None:
        """Change the file."""
        change.apply(self.content)
        self.changes.append(change)
        self.modified_ns = time.time_ns()

    def sync(self) -> None:
        """Make all that was written safe."""
        for change in self.changes:
            change.apply(self.safe_content)
        self.changes.clear()

    def fail_sync(self, rng: random.Random) -> None:
        """Choose by chance which of the last writes have become safe; the others are never written again.

        So it is on Linux: a later sync succeeds although the pages that this one reported were not written.
        """
        for change in self.changes:
            if rng.random() < 0.5:
                change.apply(self.safe_content)
        self.changes.clear()

    def cut(self, rng: random.Random) -> None:
        """Keep what is safe, and of the rest what chance decides."""
        drawn = rng.random()
        if drawn < KEEP_ALL:
            self.sync()
        elif drawn > KEEP_ALL + KEEP_NONE:
            for change in self.changes:
                if rng.random() < 0.5:
                    change.apply(self.safe_content)
                elif rng.random() < 0.5:
                    change.torn(rng).apply(self.safe_content)
        self.changes.clear()
        self.content = bytearray(self.safe_content)


Naming = list[tuple[Node, str, Node | None]]
"""Names that change together: the folder, the name, and what it stands for from now on."""


class Disk:
    """The whole disk. Methods raise OSError as the system calls of their names do."""

    def __init__(self, *, syncs_names: bool = False) -> None:
        """With `syncs_names` a new file is safe under its name once it was synced, as on Linux' filesystems.

        Without, its folder must be synced, too, as POSIX says.
        """
        self.root = Node(stat.S_IFDIR | 0o755)
        self._syncs_names = syncs_names
        self._failing: random.Random | None = None
        self._namings: list[Naming] = []
        """Changed names that are not safe, in order."""

    def node(self, path: str) -> Node:
        """Return what a path names. Raise OSError if it names nothing."""
        node = self.root
        for name in path.split("/"):
            if name:
                if not node.is_folder:
                    raise OSError(errno.ENOTDIR, path)
                if name not in node.names:
                    raise OSError(errno.ENOENT, path)
                node = node.names[name]
        return node

    def add(self, path: str, node: Node) -> Node:
        """Give a new node its name, or one that has a name another one."""
        folder, name = self._place(path)
        if name in folder.names:
            raise OSError(errno.EEXIST, path)
        self._name([(folder, name, node)])
        return node

    def remove(self, path: str, *, is_folder: bool) -> None:
        """Remove a name; whoever has the file open goes on with it."""
        node = self.node(path)
        folder, name = self._place(path)
        if node.is_folder != is_folder:
            raise OSError(errno.ENOTDIR if is_folder else errno.EISDIR, path)
        if node.names:
            raise OSError(errno.ENOTEMPTY, path)
        self._name([(folder, name, None)])

    def rename(self, old: str, new: str) -> None:
        """Move a name, in place of another if there is one, in one step."""
        node = self.node(old)
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        replaced = target.names.get(new_name)
        if replaced is node:
            return
        if replaced is not None and replaced.names:
            raise OSError(errno.ENOTEMPTY, new)
        self._name([(source, old_name, None), (target, new_name, node)])

    def sync_file(self, node: Node) -> None:
        """Make a file safe."""
        if self._failing is not None:
            node.fail_sync(self._failing)
            raise OSError(errno.EIO, "sync")
        node.sync()
        if self._syncs_names:
            self._settle({id(folder) for naming in self._namings for folder, _, to in naming if to is node})

    def fail_syncs(self, rng: random.Random | None) -> None:
        """Make syncs of files fail with this chance from now on; without a chance they succeed again."""
        self._failing = rng

    def sync_folder(self, node: Node) -> None:
        """Make the names of a folder safe."""
        self._settle({id(node)})

    def sync_all(self) -> None:
        """Make everything safe."""
        for naming in self._namings:
            _apply(naming)
        self._namings.clear()
        for node in _below(self.root):
            node.sync()

    def cut(self, rng: random.Random) -> None:
        """Cut the power: what is left is what the disk holds from now on."""
        count = rng.choice([0, len(self._namings), rng.randint(0, len(self._namings))])
        for naming in self._namings[:count]:
            _apply(naming)
        self._namings.clear()
        for node in _below(self.root, is_safe=True):
            node.names = dict(node.safe_names)
            node.cut(rng)

    def _place(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        node = self.node(folder)
        if not node.is_folder:
            raise OSError(errno.ENOTDIR, path)
        return node, name

    def _name(self, naming: Naming) -> None:
        for folder, name, node in naming:
            if node is None:
                del folder.names[name]
            else:
                folder.names[name] = node
            folder.modified_ns = time.time_ns()
        self._namings.append(naming)

    def _settle(self, folders: set[int]) -> None:
        """Make the names of these folders safe, with all that changed together with them."""
        left: list[Naming] = []
        chosen: list[Naming] = []
        for naming in reversed(self._namings):
            own = {id(folder) for folder, _, _ in naming}
            if own & folders:
                folders |= own
                chosen.append(naming)
            else:
                left.append(naming)
        for naming in reversed(chosen):
            _apply(naming)
        self._namings = left[::-1]


def _apply(naming: Naming) -> None:
    for folder, name, node in naming:
        if node is None:
            folder.safe_names.pop(name, None)
        else:
            folder.safe_names[name] = node


def _below(root: Node, *, is_safe: bool = False) -> list[Node]:
    """Return a folder and all that is in it, by the names of now or by those that are safe."""
    found, seen = [root], {id(root)}
    for node in found:
        for child in (node.safe_names if is_safe else node.names).values():
            if id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found
