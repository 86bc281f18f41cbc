"""The tree of a session's lines: its trunk, its branches, and the sub-agents beside it.

Each line names the one before it. A line with new words continues a branch if no other words followed there
since its predecessor; otherwise the user went back, and it begins a branch. This is decided for each line
when it arrives, so the branches of earlier lines do not change as the file grows.

Not every line with siblings begins a branch: the results of simultaneous calls, and the program's own lines,
stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conversations.transcripts.sources.session_lines import LinePlace

TRUNK = ""


@dataclass(kw_only=True, slots=True)
class Place(LinePlace):
    """The place of one line in the tree; its `node_id` is its `uuid`, or else a digest of the line."""

    is_in_tree: bool = False  # whether it has a `uuid`
    parent: str | None = None
    is_prompt: bool = False
    message_id: str = ""  # not empty for a part of an answer
    agent: str | None = None  # not None for the line of a sub-agent: its id, empty if the line does not say
    is_repeated: bool = False  # whether an earlier line has the same `uuid`


class Unread:
    """Records in one line that the program could not read; it continued after the one before them."""

    def __init__(self) -> None:
        # By the record that the program could still read: the last one after it that it could not.
        self._last: dict[str, str] = {}
        self._read_before: dict[str, str] = {}
        self._has_read = False  # whether a record came that the program could read

    def place(self, place: Place, *, is_unread: bool) -> None:
        """Put the next record after the unread records that follow its parent."""
        # At the beginning of a file, the first record that it could read names no other one.
        if place.parent is None and self._has_read:
            return
        self._has_read = self._has_read or not is_unread
        parent = place.parent or ""
        read = self._read_before.get(parent, parent)
        last = self._last.pop(read, None)
        if last is not None:
            place.parent = last
            del self._read_before[last]
        if is_unread:
            self._last[read] = place.node_id
            self._read_before[place.node_id] = read


@dataclass(slots=True)
class SessionBranch:
    """Lines in the order of the file."""

    places: list[Place] = field(default_factory=list)
    leaves: str = TRUNK  # the branch that it leaves
    after: str | None = None  # the line after which it leaves; None if it begins anew
    is_agent: bool = False


class Tree:
    """The branches of a file, by the id of their first line; that of the trunk is empty."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.branches: dict[str, SessionBranch] = {TRUNK: SessionBranch()}
        self.active = TRUNK  # the branch of the last line with words
        self._of: dict[str, str] = {}
        self._said: dict[str, str | None] = {}  # by line: the last one at or above it with new words
        self._tips: dict[str, str] = {}  # by branch: its last line with new words
        self._by_id = {place.node_id: place for place in reversed(places) if place.is_in_tree}
        current = TRUNK
        late: list[Place] = []
        for place in places:
            if place.agent is not None:
                self._put(place, self._agents(place))
            elif not place.is_in_tree:
                self._put(place, current)
            elif (name := self._branch_of(place)) is None:
                late.append(place)  # its parent comes after it
            else:
                self._put(place, name)
                if place.is_prompt or place.message_id:
                    current = self.active = name
        for place in late:
            self._put(place, self._branch_of(place) or TRUNK)
        for branch in self.branches.values():
            branch.places.sort(key=lambda place: place.number)

    def shared(self, name: str) -> list[Place]:
        """Return the lines that a branch shares with those that it leaves, from the first one."""
        way: list[SessionBranch] = []
        while name != TRUNK and not self.branches[name].is_agent:
            way.append(self.branches[name])
            name = way[-1].leaves
        shared: list[Place] = []
        for branch in reversed(way):
            above = [*shared, *self.branches[branch.leaves].places]
            ends = next((at for at, place in enumerate(above) if place.node_id == branch.after), -1)
            shared = above[: ends + 1]
        return shared

    def _put(self, place: Place, name: str) -> None:
        self.branches[name].places.append(place)
        if place.is_in_tree:
            self._of.setdefault(place.node_id, name)

    def _branch_of(self, place: Place) -> str | None:
        """Return the branch of a line, begun now if it is the first; None if its parent has none yet."""
        above = place.parent if place.parent in self._by_id else None
        if above is not None and above not in self._of:
            return None
        name, said = (self._of[above], self._said.get(above)) if above is not None else (TRUNK, None)
        before = self._by_id[above].message_id if above is not None else ""
        # The lines of one answer share its id: only the first of them is new.
        if not place.is_prompt and place.message_id in ("", before):
            self._said[place.node_id] = said
            return name
        if self._tips.get(name) != said:
            self.branches.setdefault(place.node_id, SessionBranch(leaves=name, after=above))
            name = place.node_id
        self._tips[name] = self._said[place.node_id] = place.node_id
        return name

    def _agents(self, place: Place) -> str:
        """Return the branch of a sub-agent's line: by its id, or else that of the line before it."""
        above = self._of.get(place.parent or "")
        name = f"agent {place.agent}" if place.agent else above or f"agent {place.node_id}"
        self.branches.setdefault(name, SessionBranch(is_agent=True))
        return name
