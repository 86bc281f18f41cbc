"""The files of sessions: finding them, dividing them into conversations, and reading them line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from conversations.dialects import columns
from conversations.events import Metrics
from conversations.transcripts.sources import lines, nodes, session_lines
from conversations.transcripts.sources.claude_code import copies, records
from conversations.transcripts.sources.claude_code.copies import Earlier
from conversations.transcripts.sources.claude_code.tree import TRUNK, Place, Tree, Unread
from conversations.transcripts.sources.lines import Damaged, Digests, FoundRecord
from conversations.transcripts.sources.nodes import (
    Kept,
    Leaving,
    Node,
    Record,
    Rests,
    Transcript,
    Unreadable,
    unreadable,
)

NAME = "claude-code"
SUBAGENTS = "subagents"
# Files of JSON lines beside the sessions that are no sessions.
NO_SESSIONS = frozenset({"history.jsonl", "journal.jsonl"})
REPEATED = "an earlier line has the same uuid"
CHANGED = "an earlier line has the same uuid, and says something else"
RELINKED = "the line before it is missing, so it follows the one above it"
# The lines with a title, the best first, and the member that holds it.
TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
PROBED_LINES = 1000
# Lines of a session have at least one of these members beside their type.
OF_SESSIONS = frozenset({"sessionId", "leafUuid", "messageId"})


@dataclass(slots=True)
class _Facts:
    model: str | None = None
    directory: str | None = None
    branch: str | None = None
    created_at: str = ""
    # By the id that the lines of one answer share: each of them repeats the usage of all.
    calls: dict[str, Metrics] = field(default_factory=dict)
    is_said: bool = False

    @property
    def metrics(self) -> Metrics:
        each = self.calls.values()
        return Metrics(
            accumulated_cost=sum(call.accumulated_cost for call in each),
            prompt_tokens=sum(call.prompt_tokens for call in each),
            completion_tokens=sum(call.completion_tokens for call in each),
        )


def is_source(path: Path) -> bool:
    """Return whether this is a session, or a directory with sessions. Raise Unreadable for the path."""
    for file in files(path):
        with suppress(Unreadable):  # another file may be a session
            if _is_session(file):
                return True
    return False


def transcripts(path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
    """Yield the conversations of a session's file, or of all files below a directory. Raise Unreadable.

    Each session comes before its branches, copies and sub-agents. With `is_growing` half a line at the end
    of a file is left for later, as the program still writes it.
    """
    found = files(path)
    for group in [[path]] if path.is_file() else copies.grouped(found, _is_of_session, _is_sub_agents):
        earlier = Earlier() if len(group) > 1 else None
        for file in group:
            try:
                if path == file or _is_session(file):
                    yield from _of_file(file, earlier, is_growing=is_growing or lines.is_fresh(file))
            except Unreadable as error:
                yield unreadable(file.stem, str(error))


def files(path: Path) -> Iterator[Path]:
    """Yield a file, or those below a directory, sessions before their sub-agents. Raise Unreadable."""

    def chosen(found: list[Path]) -> list[Path]:
        # A session on the web is one document; any other one is no session.
        sessions = [
            file
            for file in found
            if (lines.has_loglines(file) if file.suffix == ".json" else file.name not in NO_SESSIONS)
        ]
        return sorted(sessions, key=lambda file: (_is_sub_agents(file), file))

    yield from session_lines.files(path, (".jsonl", ".json"), chosen)


def _is_sub_agents(file: Path) -> bool:
    return SUBAGENTS in file.parts or file.name.startswith("agent-")


def _is_session(file: Path) -> bool:
    """Return whether a line at the beginning is one of a session. Raise Unreadable."""
    # The lines of a session on the web may not name it.
    return lines.has_loglines(file) or session_lines.begins_with(file, _is_of_session, within=PROBED_LINES)


def _is_of_session(record: Mapping[str, object]) -> bool:
    return isinstance(record.get("type"), str) and bool(OF_SESSIONS & record.keys())


def _of_file(file: Path, earlier: Earlier | None, *, is_growing: bool) -> Iterator[Transcript]:
    index = _Index(file, is_growing=is_growing)
    tree = Tree(index.places)
    title = _agents_title(file) or index.title
    session = index.parent_session if _is_sub_agents(file) else file.stem
    for name, branch in tree.branches.items():
        shared, own = tree.shared(name), branch.places
        source_id = _source_id(file, session, name)
        leaves = (
            Leaving(source_id=_source_id(file, session, branch.leaves), after=branch.after)
            if name != TRUNK and not branch.is_agent
            else None
        )
        copied = earlier.copied(shared, own) if earlier is not None else None
        if copied is not None:
            shared, own = copied.shared, copied.own
            leaves = Leaving(source_id=copied.source_id, after=copied.after)
        if earlier is not None:
            earlier.add(source_id, shared, own)
        facts, own_facts = index.facts([*shared, *own]), index.facts(own)
        is_agents = branch.is_agent or (name == TRUNK and _is_sub_agents(file))
        known = {"sessionId": session, "cwd": facts.directory, "isSidechain": is_agents}
        yield Transcript(
            source_id=source_id,
            nodes=partial(_nodes, file, [*shared, *own], known),
            node_count=len(shared) + len(own),
            shared_count=len(shared),
            title=None if branch.is_agent else title,
            created_at=columns.instant(facts.created_at),
            model=facts.model,
            directory=facts.directory,
            branch=facts.branch,
            metrics=own_facts.metrics,
            leaves=leaves,
            parent_id=session if is_agents and session != source_id else None,
            is_active=name == tree.active and copied is None,  # the program lists a copy and its original
            is_empty=not (facts if copied is None else own_facts).is_said,
        )


def _source_id(file: Path, session: str, branch: str) -> str:
    whole = f"{session}/{file.stem}" if _is_sub_agents(file) else session
    return f"{whole}/{branch}" if branch else whole


def _agents_title(file: Path) -> str | None:
    """Return the purpose of a sub-agent, from the file beside its own."""
    if not _is_sub_agents(file):
        return None
    try:
        told = lines.record(file.with_suffix(".meta.json").read_bytes())
    except (OSError, Damaged):
        return None
    return columns.first_text(told.get("description"))[: nodes.TITLE_MAX_CHARS] or None


class _Index:
    """The places of a file's lines, and the facts of all of them that are needed before the first is read."""

    def __init__(self, file: Path, *, is_growing: bool) -> None:
        self.places: list[Place] = []
        # The file of a sub-agent is in the directory of its session.
        at = file.parts.index(SUBAGENTS) if SUBAGENTS in file.parts[1:] else 0
        self.parent_session = file.parts[at - 1] if at else file.stem
        self._titles: dict[str, str] = {}
        self._told: dict[int, Mapping[str, object]] = {}
        self._is_agents_own = _is_sub_agents(file)
        self._digests = Digests()
        self._ids: dict[str, int] = {}  # by `uuid`: the hash of the first line that has it
        for found in lines.records(file, _is_of_session, is_growing=is_growing):
            self._add(found)
        self._relink()

    @property
    def title(self) -> str | None:
        """Return the title that the user gave the session, or else the program's."""
        return columns.first_text(*map(self._titles.get, TITLES))[: nodes.TITLE_MAX_CHARS] or None

    def facts(self, places: list[Place]) -> _Facts:
        facts = _Facts()
        for place in places:
            told = self._told.get(place.number, {})
            facts.model = columns.first_text(told.get("model")) or facts.model
            facts.directory = facts.directory or columns.first_text(told.get("directory")) or None
            facts.branch = columns.first_text(told.get("branch")) or facts.branch
            facts.created_at = facts.created_at or place.at
            if isinstance(usage := told.get("usage"), Metrics):
                facts.calls[place.message_id or place.node_id] = usage
            facts.is_said = facts.is_said or place.is_prompt or bool(place.message_id)
        return facts

    def _add(self, found: FoundRecord) -> None:
        place = Place.of(found)
        self.places.append(place)
        if found.value is None:
            place.node_id = self._digests.id_of(found.text)
        else:
            self._learn(place, found.text, found.value)

    def _learn(self, place: Place, text: bytes, record: Mapping[str, object]) -> None:
        self._told[place.number] = _told(record)
        kind = columns.first_text(record.get("type"))
        if kind in TITLES and (title := columns.first_text(record.get(TITLES[kind]))):
            self._titles[kind] = title
        node_id = columns.event_id(record.get("uuid"))
        is_agents = record.get("isSidechain") is True and not self._is_agents_own
        if self._is_agents_own and self.parent_session.startswith("agent-"):
            self.parent_session = columns.first_text(record.get("sessionId")) or self.parent_session
        place.is_prompt, place.message_id = records.is_prompt(record), records.message_id(record)
        place.agent = columns.first_text(record.get("agentId")) if is_agents else None
        place.at = columns.first_text(record.get("timestamp"))
        place.node_id = node_id if node_id and node_id not in self._ids else self._digests.id_of(text)
        if node_id in self._ids:
            place.is_prompt, place.message_id, place.is_repeated = False, "", True
            if self._ids[node_id] == place.hash:
                place.skipped = REPEATED
            else:
                place.noted = (*place.noted, CHANGED)
        elif node_id is not None:
            self._ids[node_id], place.is_in_tree = place.hash, True
            above = (columns.event_id(record.get(name)) for name in ("parentUuid", "logicalParentUuid"))
            place.parent = next(filter(None, above), None)

    def _relink(self) -> None:
        """Give each line without its parent the one above it as parent; a prompt may begin anew."""
        last: str | None = None
        unread = Unread()
        for place in self.places:
            if not place.is_in_tree or place.agent is not None:
                continue
            is_lost = place.parent is not None and place.parent not in self._ids
            if last is not None and (is_lost or (place.parent is None and not place.is_prompt)):
                place.parent = last
                place.noted = (*place.noted, RELINKED) if is_lost else place.noted
            unread.place(place, is_unread=lines.SPLICED in place.noted)
            last = place.node_id


def _told(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return the few facts of a line that are kept for all lines."""
    told: dict[str, object] = {
        "model": records.model(record),
        "directory": record.get("cwd"),
        "branch": record.get("gitBranch"),
        "usage": records.usage(record) if record.get("type") == "assistant" else None,
    }
    return {name: value for name, value in told.items() if value}


def _nodes(file: Path, places: list[Place], known: Mapping[str, object]) -> Iterator[Node]:
    rest_of = Rests(known)

    def read(place: Place, record: Mapping[str, object]) -> Node:
        left_out: tuple[str, ...] = ()
        if records.LEFT_OUT in record:
            left_out = (f"{records.LEFT_OUT} left out",)
            record = {key: value for key, value in record.items() if key != records.LEFT_OUT}
        if place.is_repeated:
            return place.node((Record(name="repeated line", value=record, why=Kept.BOOKKEEPING),), left_out)
        told = records.read(record)
        return place.node((*told.parts, *rest_of.parts(told.name, told.rest)), left_out)

    return session_lines.nodes(file, places, read)
