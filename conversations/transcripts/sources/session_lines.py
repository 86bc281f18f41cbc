"""What formats with a file of JSON lines for each session share: its files, and the nodes of its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self, TypeVar

from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.lines import Damaged, FoundRecord, IsRecord
from conversations.transcripts.sources.nodes import Kept, Node, Part, Record, Unreadable


@dataclass(kw_only=True, slots=True)
class LinePlace:
    """The place of one record in a file: all that is kept of it until its node is read."""

    number: int
    where: str  # for people
    offset: int
    size: int
    hash: int  # of its text, in this process
    node_id: str = ""
    at: str = ""  # its time, where that is known before it is read
    skipped: str = ""
    noted: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: FoundRecord) -> Self:
        return cls(
            number=found.number,
            where=found.place,
            offset=found.offset,
            size=len(found.text),
            hash=hash(found.text),
            skipped=found.skipped,
            noted=found.noted,
        )

    def node(self, parts: tuple[Part, ...] = (), noted: tuple[str, ...] = (), *, at: object = None) -> Node:
        """Return the node with these parts, and these notes beside its own."""
        return Node(
            node_id=self.node_id,
            place=self.where,
            at=columns.instant(at or self.at),
            parts=parts,
            skipped=self.skipped,
            # What is skipped is counted by its reason alone.
            noted=() if self.skipped else (*self.noted, *noted),
        )


AnyPlace = TypeVar("AnyPlace", bound=LinePlace)


def files(
    path: Path, endings: Sequence[str], chosen: Callable[[list[Path]], Iterable[Path]]
) -> Iterator[Path]:
    """Yield a file, or the chosen ones of those below a directory with these endings. Raise Unreadable."""
    try:
        if path.is_file():
            found: Iterable[Path] = [path]
        elif path.is_dir():
            found = chosen([each for ending in endings for each in lines.below(path, ending)])
        else:
            raise Unreadable(f"{path} does not exist")
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    yield from found


def begins_with(file: Path, is_record: IsRecord, *, within: int) -> bool:
    """Return whether one of the first records is one of a session. Raise Unreadable."""
    found = islice(lines.records(file, is_record), within)
    return any(each.value is not None and is_record(each.value) for each in found)


def nodes(
    file: Path, places: Sequence[AnyPlace], read: Callable[[AnyPlace, Mapping[str, object]], Node]
) -> Iterator[Node]:
    """Yield the nodes of these places; what `read` cannot get, because it is damaged, unchanged.

    Raise Unreadable.
    """
    whole = [place for place in places if not place.skipped]  # half a line may be complete by now
    texts = lines.texts_at(file, ((each.offset, each.size, each.hash) for each in whole))
    for place in places:
        if place.skipped:
            yield place.node()
            continue
        text = next(texts)
        try:
            record = lines.record(text)
        except Damaged as error:
            damaged = Record(name="line", value=lines.kept(text), why=Kept.DAMAGED)
            yield place.node((damaged,), (str(error),))
        else:
            yield read(place, record)
