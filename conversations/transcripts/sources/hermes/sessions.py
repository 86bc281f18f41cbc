"""The conversations of a state directory: finding them, choosing copies, and reading them row by row."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from conversations.dialects import columns
from conversations.events import Metrics
from conversations.transcripts.sources import lines, nodes
from conversations.transcripts.sources.hermes import copies, database, entries, heads, journals
from conversations.transcripts.sources.hermes.copies import BACKUP, FILE, JOURNAL, Copy
from conversations.transcripts.sources.hermes.database import Database
from conversations.transcripts.sources.hermes.entries import Entry
from conversations.transcripts.sources.hermes.heads import Branch, Head
from conversations.transcripts.sources.hermes.rows import moment
from conversations.transcripts.sources.nodes import Leaving, Transcript, Unreadable, unreadable

NAME = "hermes-webui"
SESSIONS = "sessions"
DELETED = "_deleted_webui_sessions.json"
ENDS = (".json", ".json.bak")
UNUSABLE_ID = "its id is none that the program gives"
OLD_NAME = "session_"  # the beginning of files' names in the oldest releases
UNTITLED = frozenset({"", "Untitled", "New Chat"})
TELLING = (b'"messages"', b'"message_count"', b'"active_stream_id"', b'"composer_draft"')


def is_source(path: Path) -> bool:
    """Return whether this is a session's file, or a directory with sessions. Raise Unreadable."""
    return any(_is_session(file) for file in files(path))


def transcripts(path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
    """Yield the conversations of a state directory, of its directory of sessions, or of a session's file.

    Those that a conversation continues come before it, also if only its file is named. With `is_growing`
    what changes until a turn has ended is left for later. Raise Unreadable.
    """
    is_file = path.is_file()
    folder = path.parent if is_file else _sessions_of(path)
    yield from _Directory(folder, is_growing=is_growing).transcripts(path if is_file else None)


def files(path: Path) -> Iterator[Path]:
    """Yield the files of sessions in a path, with their backups. Raise Unreadable."""
    yield from [path] if path.is_file() else _documents(_sessions_of(path))


def _sessions_of(path: Path) -> Path:
    if not path.is_dir():
        raise Unreadable(f"{path} does not exist")
    return path / SESSIONS if (path / SESSIONS).is_dir() else path


def _documents(folder: Path) -> list[Path]:
    """Return the files of sessions and their backups. Raise Unreadable."""
    try:
        found = [file for end in ENDS for file in folder.glob(f"*{end}") if file.is_file()]
    except OSError as error:
        raise Unreadable(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(file for file in found if not file.name.startswith("_") and not file.is_symlink())


def _is_session(file: Path) -> bool:
    if not file.name.endswith(ENDS):
        return False
    probed_bytes = 64 * 1024
    try:
        with file.open("rb") as opened:
            begins = opened.read(probed_bytes)
    except OSError:
        return False
    return b'"session_id"' in begins and any(name in begins for name in TELLING)


@dataclass(kw_only=True, slots=True)
class _Source:
    """The places of the copies of one conversation."""

    files: list[Path]  # the newest first; empty if there is only a backup or the database
    backup: Path | None = None
    stored: int | None = None  # its place in the database
    parent: str | None = None


@dataclass(kw_only=True, slots=True)
class _Read:
    """A conversation whose copies are chosen."""

    head: Head
    shared: list[Entry]
    own: list[Entry]
    repeated: int = 0  # the number of its rows that repeat shared ones
    leaves: Leaving | None = None
    parent_id: str | None = None

    @property
    def every(self) -> list[Entry]:
        return [*self.shared, *self.own]


class _Directory:
    def __init__(self, folder: Path, *, is_growing: bool) -> None:
        self._folder = folder
        self._is_growing = is_growing
        self._sources: dict[str, _Source] = {}
        self._deleted = _deleted(folder)
        self._database: Database | None = None
        # The conversations that were read, and which one each continues.
        self._links: dict[str, str | None] = {}
        self._trunks: OrderedDict[str, _Read] = OrderedDict()

    def transcripts(self, only: Path | None) -> Iterator[Transcript]:
        """Yield all, or those of one file. Raise Unreadable."""
        if only is None:
            for file in _documents(self._folder):
                self._add(file)
            yield from self._add_stored()
        else:
            self._add_with_older(only)
        for source_id in _ordered({name: each.parent for name, each in self._sources.items()}):
            try:
                yield from self._of_session(source_id)
            except Unreadable as error:
                self._links.pop(source_id, None)  # its continuations are read alone
                yield unreadable(source_id, str(error))

    def _add_with_older(self, file: Path) -> None:
        """Add the conversation of a file, and those that it continues."""
        name: str | None = self._add(file)
        done: set[str] = set()
        while name is not None and name not in done:
            done.add(name)
            beside = [self._folder / f"{name}{end}" for end in ENDS]
            old = [
                each for each in self._folder.glob(f"{OLD_NAME}*.json") if _name(each, _told(each)) == name
            ]
            for each in (*beside, *sorted(old)):
                if each.is_file() and not each.is_symlink():
                    self._add(each)
            name = self._sources[name].parent if name in self._sources else None

    def _add(self, file: Path) -> str:
        is_backup = file.name.endswith(".bak")
        told = _told(file)
        name = _name(file, told)
        source = self._sources.setdefault(name, _Source(files=[]))
        if is_backup:
            source.backup = source.backup or file
        elif file not in source.files:
            source.files.append(file)
            source.files.sort(key=lambda each: each.name != f"{name}.json")
        source.parent = copies.session_id(told.get("parent_session_id")) or source.parent
        return name

    def _add_stored(self) -> Iterator[Transcript]:
        """Add the conversations that only the database has."""
        place = self._folder.parent if self._folder.name == SESSIONS else self._folder
        found = [each / database.NAME for each in (place, place.parent)]
        path = next((each for each in found if each.is_file()), None)
        if path is None:
            return
        try:
            self._database = Database(path)
            for begins, told in self._database.sessions():
                source_id = copies.session_id(told.get("id"))
                if source_id is None:
                    yield unreadable(f"{path.name} {told.get('id')!r}"[: nodes.TITLE_MAX_CHARS], UNUSABLE_ID)
                elif source_id not in self._sources:
                    parent = copies.session_id(told.get("parent_session_id"))
                    self._sources[source_id] = _Source(files=[], stored=begins, parent=parent)
        except Unreadable as error:
            yield unreadable(path.name, str(error))

    def _of_session(self, source_id: str) -> Iterator[Transcript]:
        parent = self._sources[source_id].parent
        self._links[source_id] = parent if parent in self._links and parent != source_id else None
        read = self._read(source_id)
        if read is None:
            return
        self._trunks[source_id] = read
        # Conversations that are remembered for their continuations
        trunks_max = 8
        if len(self._trunks) > trunks_max:
            self._trunks.popitem(last=False)
        told = read.head.told
        is_empty = not any(entry.is_said or entry.is_damaged for entry in read.every if not entry.skipped)
        trunk = _transcript(source_id, read.shared, read.own, told, is_empty=is_empty)
        trunk = replace(trunk, metrics=_metrics(told), leaves=read.leaves, parent_id=read.parent_id)
        yield replace(trunk, is_active=told.get("pre_compression_snapshot") is not True)
        for branch in read.head.branches:
            yield self._branch(source_id, read, branch)

    def _branch(self, source_id: str, read: _Read, branch: Branch) -> Transcript:
        above = sum(entry.is_row for entry in read.shared) - read.repeated
        shared = _through(read.every, above + branch.shared)
        own = entries.of_branch(branch, is_growing=self._is_growing)
        entries.number(own, shared)
        after = shared[-1].node_id if shared else None
        begins = next(entry.node_id for entry in own if entry.is_row)
        transcript = _transcript(f"{source_id}/{begins}", shared, own, branch.copy.told, is_empty=False)
        return replace(transcript, leaves=Leaving(source_id=source_id, after=after), is_active=False)

    def _read(self, source_id: str) -> _Read | None:
        """Return a conversation, with the same decision as before. Raise Unreadable."""
        if source_id in self._trunks:
            return self._trunks[source_id]
        head = self._decided(source_id)
        if head is None:
            return None
        own = entries.of_head(head, self._answer(source_id, head.told), is_growing=self._is_growing)
        if self._sources[source_id].stored is None:
            prompts = list(journals.unfinished_prompts(self._folder, source_id))
            own += entries.of_prompts(prompts, head, is_growing=self._is_growing)
        read = _Read(head=head, shared=[], own=own)
        self._link(read, self._links[source_id])
        entries.number(read.own, read.shared)
        return read

    def _decided(self, source_id: str) -> Head | None:
        source = self._sources[source_id]
        is_deleted = source_id in self._deleted
        if source.stored is not None and self._database is not None:
            stored = self._database.copy(source.stored)
            return heads.decided(None, stored, journal=None, is_deleted=is_deleted) if stored.rows else None
        found = [copies.read(file, source_id, FILE) for file in source.files]
        # Of two files with one id the longer one counts.
        found.sort(key=lambda copy: (copy.is_good, len(copy.rows)), reverse=True)
        backup = self._backup(source, source_id)
        journal = None
        if found and not found[0].is_good and (last := journals.last_transcript(self._folder, source_id)):
            journal = copies.in_memory(last, JOURNAL)
        head = heads.decided(found[0] if found else None, backup, journal=journal, is_deleted=is_deleted)
        for older in found[1:]:
            if head is not None:
                heads.joined(head, older)
        return head

    def _backup(self, source: _Source, source_id: str) -> Copy | None:
        """Return the backup; beside a file, an unreadable one only counts as bad. Raise Unreadable."""
        if source.backup is None:
            return None
        try:
            return copies.read(source.backup, source_id, BACKUP)
        except Unreadable:
            if not source.files:
                raise
            return Copy(origin=BACKUP, is_good=False)

    def _answer(self, source_id: str, told: Mapping[str, object]) -> journals.Run | None:
        """Return the agent's words at the time when the file was written. Raise Unreadable."""
        if not told.get("pending_user_message"):
            return None
        return journals.run(self._folder, source_id, told.get("active_stream_id"))

    def _link(self, read: _Read, parent_id: str | None) -> None:
        """Link a conversation to the one that it continues, was forked from, or works for."""
        parent = self._read(parent_id) if parent_id is not None else None
        if parent_id is None or parent is None:
            return
        is_fork = read.head.told.get("session_source") == "fork"
        if not is_fork and parent.head.told.get("pre_compression_snapshot") is not True:
            read.parent_id = parent_id
            return
        above = [entry for entry in parent.every if entry.is_row]
        rows = [entry for entry in read.own if entry.is_row]
        through, read.repeated = entries.overlap(
            [entry.digest for entry in above], [entry.digest for entry in rows], is_fork=is_fork
        )
        read.shared = _until(parent.every, above[through - 1] if through else None)
        dropped = {id(entry) for entry in rows[: read.repeated]}
        read.own = [entry for entry in read.own if id(entry) not in dropped]
        after = read.shared[-1].node_id if read.shared else None
        read.leaves = Leaving(source_id=parent_id, after=after)


def _told(file: Path) -> Mapping[str, object]:
    """Return the members before the rows; nothing if the file cannot be read, which is reported later."""
    with suppress(Unreadable):
        return copies.head_of(file)
    return {}


def _name(file: Path, told: Mapping[str, object]) -> str:
    """Return the id of a file's conversation, which differs from an old file's name."""
    stem = file.name.removesuffix(".bak").removesuffix(".json")
    inside = copies.session_id(told.get("session_id"))
    return inside if inside and stem.startswith(OLD_NAME) else stem


def _through(own: Sequence[Entry], count: int) -> list[Entry]:
    """Return the entries up to this many rows of the copy."""
    ends = [place for place, entry in enumerate(own) if entry.is_row][:count]
    return list(own[: ends[-1] + 1]) if ends else []


def _until(every: list[Entry], last: Entry | None) -> list[Entry]:
    return every[: next(place for place, entry in enumerate(every) if entry is last) + 1] if last else []


def _ordered(parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the names, each after those that it continues, as far as there is no circle."""
    done: set[str] = set()
    for first in parents:
        way: list[str] = []
        name: str | None = first
        while name is not None and name in parents and name not in done:
            done.add(name)
            way.append(name)
            name = parents[name]
        yield from reversed(way)


def _deleted(folder: Path) -> frozenset[str]:
    try:
        told = lines.record((folder / DELETED).read_bytes())
    except (OSError, lines.Damaged):
        return frozenset()
    return frozenset(columns.texts(told.get("ids")))


def _transcript(
    source_id: str, shared: list[Entry], own: list[Entry], told: Mapping[str, object], *, is_empty: bool
) -> Transcript:
    title = columns.first_text(told.get("title")).strip()
    every = [*shared, *own]
    return Transcript(
        source_id=source_id,
        nodes=lambda: (entry.node() for entry in every),
        node_count=len(every),
        shared_count=len(shared),
        title=None if title in UNTITLED else title[: nodes.TITLE_MAX_CHARS],
        created_at=moment(told.get("created_at")) or moment(told.get("started_at")),
        model=columns.first_text(told.get("model")) or None,
        directory=columns.first_text(told.get("workspace"), told.get("created_workspace"), told.get("cwd"))
        or None,
        branch=columns.first_text(told.get("worktree_branch")) or None,
        is_empty=is_empty,
    )


def _metrics(told: Mapping[str, object]) -> Metrics:
    cost = told.get("estimated_cost", told.get("estimated_cost_usd"))
    return Metrics(
        accumulated_cost=columns.amount(cost, below=1e9),
        prompt_tokens=columns.wire_id(told.get("input_tokens")) or 0,
        completion_tokens=columns.wire_id(told.get("output_tokens")) or 0,
    )
