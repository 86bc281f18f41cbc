"""The tree of a chat's messages: its trunk, and the branches that leave it.

Each message names the one before it. The first that follows a message continues the conversation; each other
one begins a branch, because the user edited a question, or requested another answer. So a branch is a chain,
and the chains do not change as the chat grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conversations.dialects import columns

LOST = "the message before it is missing"
ROUND = "the messages before it go round in a circle"


@dataclass(kw_only=True, slots=True)
class ChatPlace:
    node_id: str
    number: int  # from 1, in the order of the source
    value: object  # the message as the source has it
    parent: str | None = None  # the one that it says is before it; None if it begins the conversation
    # Its successors by its own account; others may follow, too, and come after them.
    children: Sequence[str] = ()
    # Whether it has no place of its own: unless others refer to it, it belongs to the one above it.
    is_aside: bool = False
    # Whether the source says what is before or after it, or that nothing is. Otherwise it follows the one
    # above it.
    is_linked: bool = True
    # Whether the format has it only to hold the messages together: it is linked, but no record.
    is_frame: bool = False
    skipped: str = ""
    noted: tuple[str, ...] = ()

    @classmethod
    def named(cls, node_id: str, value: object, number: int, *, parent: str, children: str) -> ChatPlace:
        """Return the place of a message that names others in its members with these names."""
        message = columns.fields(value)
        return cls(
            node_id=node_id,
            number=number,
            value=value,
            parent=columns.first_text(message.get(parent)) or None,
            children=columns.texts(message.get(children)),
            is_aside=not message,
            is_linked=parent in message or children in message or not message,
        )


@dataclass(eq=False, slots=True)
class ChatBranch:
    leaves: ChatBranch | None = None  # the branch that it leaves; None for the trunk
    after: str | None = None  # the message after which it leaves; None if it begins anew
    places: list[ChatPlace] = field(default_factory=list)

    @property
    def shared(self) -> list[ChatPlace]:
        """Return the messages before its own, from the first one."""
        chains: list[list[ChatPlace]] = []
        branch = self
        while branch.leaves is not None and branch.after is not None:
            chains.append(_through(branch.leaves.places, branch.after))
            branch = branch.leaves
        return [place for chain in reversed(chains) for place in chain]


def _through(places: list[ChatPlace], node_id: str) -> list[ChatPlace]:
    """Return the places up to this one; messages that belong to it are left out."""
    ends = next(at for at, place in enumerate(places, 1) if place.node_id == node_id)
    return places[:ends]


def branches(places: Sequence[ChatPlace]) -> list[ChatBranch]:
    """Return the branches of a chat, the trunk first, each after the one that it leaves.

    Every place is in one branch, even if the links are contradictory. No two have the same `node_id`.
    """
    links = _Links(places)
    trunk = ChatBranch(places=links.beside[None])
    found = [trunk]
    waiting = deque((ChatBranch(leaves=trunk), root) for root in links.roots[1:])
    if links.roots:
        waiting.extendleft(reversed(_fill(trunk, links.roots[0], links)))
    while waiting:
        branch, first = waiting.popleft()
        found.append(branch)
        waiting.extend(_fill(branch, first, links))
    return found


def _fill(branch: ChatBranch, first: str, links: _Links) -> list[tuple[ChatBranch, str]]:
    """Give a branch its messages; return the branches that leave it, each with its first message."""
    leaving: list[tuple[ChatBranch, str]] = []
    current: str | None = first
    while current is not None:
        branch.places += [links.by_id[current], *links.beside[current]]
        after = links.after[current]
        leaving += [(ChatBranch(leaves=branch, after=current), other) for other in after[1:]]
        current = after[0] if after else None
    return leaving


class _Links:
    """The successors of each message: every message with a place of its own follows one, or is a root."""

    def __init__(self, places: Sequence[ChatPlace]) -> None:
        self.by_id: Mapping[str, ChatPlace] = {place.node_id: place for place in places}
        self.after: dict[str, list[str]] = {place.node_id: [] for place in places}
        # Messages without a place of their own, by the one to which they belong.
        self.beside: dict[str | None, list[ChatPlace]] = {None: [], **{place.node_id: [] for place in places}}
        self.roots: list[str] = []
        self._reached: set[str] = set()
        linked = self._link(places)
        self._go_down(self.roots)
        followed = {each for after in self.after.values() for each in after}
        self._place_lost(linked, [place for place in linked if place.node_id not in followed], LOST)
        self._place_lost(linked, linked, ROUND)

    def _link(self, places: Sequence[ChatPlace]) -> list[ChatPlace]:
        """Link messages that name each other; return all with a place of their own."""
        above = self._above(places)
        named = {parent for parent in above.values() if parent is not None}
        linked: list[ChatPlace] = []
        for place in places:
            parent = above[place.node_id]
            if place.is_aside and parent is None and place.node_id not in named:
                self.beside[linked[-1].node_id if linked else None].append(place)
                continue
            linked.append(place)
            if parent is not None:
                self.after[parent].append(place.node_id)
            elif place.parent is None:
                self.roots.append(place.node_id)
        for place in linked:
            self._sort(place)
        return linked

    def _above(self, places: Sequence[ChatPlace]) -> dict[str, str | None]:
        """Return the message before each message: named by itself, or else by the other one."""
        listed: dict[str, str] = {}
        for place in places:
            for child in place.children:
                listed.setdefault(child, place.node_id)
        above: dict[str, str | None] = {}
        last: str | None = None
        for place in places:
            found = place.parent if place.parent in self.by_id else listed.get(place.node_id)
            above[place.node_id] = found if place.is_linked or place.is_aside else found or last
            last = last if place.is_aside else place.node_id
        return above

    def _sort(self, place: ChatPlace) -> None:
        """Sort the successors of a message by its own account."""
        order: dict[str, int] = {}
        for child in place.children:
            order.setdefault(child, len(order))
        self.after[place.node_id].sort(key=lambda child: order.get(child, len(order)))

    def _go_down(self, firsts: Sequence[str]) -> None:
        """Mark these, and all their successors, as reached; break circles."""
        waiting = list(firsts)
        self._reached.update(firsts)
        while waiting:
            node_id = waiting.pop()
            self.after[node_id] = [each for each in self.after[node_id] if each not in self._reached]
            self._reached.update(self.after[node_id])
            waiting += self.after[node_id]

    def _place_lost(self, linked: Sequence[ChatPlace], lost: Sequence[ChatPlace], why: str) -> None:
        """Put each unreached one of the lost messages after the one above it in the source."""
        ids = {place.node_id for place in lost}
        last: str | None = None
        for place in linked:
            if place.node_id in ids and place.node_id not in self._reached:
                place.noted = (*place.noted, why)
                (self.roots if last is None else self.after[last]).append(place.node_id)
                self._go_down([place.node_id])
            if place.node_id in self._reached:
                last = place.node_id
