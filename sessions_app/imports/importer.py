"""Storing other programs' conversations as V1 conversations: repeatable, every record accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID, uuid5

from conversations import access
from conversations.access import Visitor
from conversations.events import NewEvent
from conversations.models import SOURCE_TAG, Conversation, ConversationRef, Event, Version
from conversations.store import changes, importing
from conversations.store.importing import Imported
from conversations.store.labels import TAG_MAX_LENGTH, TAG_NAME_MAX_LENGTH
from conversations.transcripts.plain import words
from conversations.transcripts.sources import as_v1
from conversations.transcripts.sources.as_v1 import V1Writer
from conversations.transcripts.sources.nodes import Author, Message, Node, Transcript
from sessions_app.imports.report import ConversationReport
from sessions_app.imports.watching import UNWATCHED, Watch
from sessions_app.live import marks
from sessions_app.models import AgentLoop, ExecutionStatus, default_workspace
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup

NOBODY = "nobody says anything in it"
TITLE_MAX_CHARS = 80
# Of the source, and as many that the user chooses for an import.
LABELS_MAX = 20
SOURCE, SOURCE_ID, DIRECTORY, SHOWN = SOURCE_TAG, "source_id", "directory", "shown_branch"
"""The tags of an imported conversation: its format, its id there, where the agent worked, and `yes` for a
branch that the program showed when it was imported first."""
# Every id is derived from this one: with another, each import would store everything a second time.
_IDS = UUID("0f5c5a0e-7f0a-5c5e-8f38-8f0d3b3f3c11")


@dataclass(frozen=True, kw_only=True, slots=True)
class Importer:
    """Imports the conversations of one format for one user."""

    user: Visitor
    format: str
    labels: tuple[str, ...] = ()
    is_dry: bool = False
    watch: Watch = UNWATCHED

    @property
    def owner_id(self) -> int:
        return access.pk_of(self.user)

    def id_of(self, source_id: str) -> str:
        """Return the id that a conversation has here: the same at every import, another for each user."""
        return uuid5(_IDS, f"{self.owner_id}/{self.format}/{source_id}").hex

    def take(self, transcript: Transcript, stored: set[str] | None = None) -> ConversationReport:
        """Import a conversation, or what is missing of it; return what was done with each of its records.

        `stored` are the ids of nodes that are known to be stored, which are not looked up again; those that
        are stored now are added. Raise ImportRefused, Unreadable, and DoesNotAddUp.
        """
        report = ConversationReport(
            source_id=transcript.source_id,
            title=transcript.title or _as_title(_first_line(transcript)),
            found=transcript.node_count - transcript.shared_count,
            shared=transcript.shared_count,
        )
        if transcript.is_empty:
            own = islice(transcript.nodes(), transcript.shared_count, None)
            report.skipped.update(node.skipped or NOBODY for node in own)
            report.check()
            return report
        taking = _Taking(transcript, report, self.format, stored)
        imported = self._stored(transcript, taking, report.title)
        if imported.refused:
            taking.refuse({event.event_id: reason for event, reason in imported.refused})
        report.events_added, report.events_already_here = imported.added, imported.repeated
        report.events_masked = imported.masked
        if imported.conversation is not None:
            report.conversation_id = imported.conversation.public_id
            self._keep_up(imported, transcript)
        report.check()
        # With a refusal nothing counts as stored, so that a follower tries it again.
        if not imported.refused:
            taking.remember()
        return report

    def _stored(self, transcript: Transcript, taking: _Taking, title: str | None) -> Imported:
        conversation_id = self.id_of(transcript.source_id)
        events = taking.events(self.watch.read)
        if self.is_dry:
            return importing.preview(self.user, events, conversation_id=conversation_id, version=Version.V1)
        metrics = transcript.metrics
        return importing.import_conversation(
            self.user,
            events,
            conversation_id=conversation_id,
            version=Version.V1,
            begin=partial(self._begin, transcript),
            settle=partial(self._settle, is_followed=taking.is_followed),
            admit=self.watch.admit,
            title=title,
            tags=self._tags(transcript),
            repository=transcript.repository,
            branch=transcript.branch,
            llm_model=transcript.model,
            accumulated_cost=metrics.accumulated_cost,
            prompt_tokens=metrics.prompt_tokens,
            completion_tokens=metrics.completion_tokens,
            total_tokens=metrics.prompt_tokens + metrics.completion_tokens,
            **({"created_at": transcript.created_at} if transcript.created_at else {}),
            **self._links(transcript),
        )

    def _begin(self, transcript: Transcript, conversation: ConversationRef) -> None:
        """Give a new conversation its setup and its marks, which later imports leave to the user."""
        agent_setups.add(conversation, _setup(transcript))
        if transcript.is_pinned or transcript.is_archived:
            marks.mark(
                self.owner_id, conversation, pinned=transcript.is_pinned, archived=transcript.is_archived
            )

    def _settle(self, conversation: ConversationRef, *, is_followed: bool) -> None:
        """Mark the agent as finished, and an import as seen."""
        told = {"execution_status": ExecutionStatus.FINISHED}
        AgentLoop.objects.get_or_create(conversation_id=conversation.pk, defaults=told)
        # A followed program works now, so what it brings is news.
        if not is_followed:
            marks.mark_all_seen(self.owner_id, conversation)

    def _keep_up(self, imported: Imported, transcript: Transcript) -> None:
        """Give a conversation that has grown the model, the totals and the title that it has by now."""
        if imported.conversation is None or self.is_dry:
            return
        # Also if nothing was added: an import that was killed may have added it, and done no more.
        importing.keep_up(imported.conversation, transcript.metrics, transcript.model)
        # A title is replaced only if an earlier import made it of the first message.
        if transcript.title and (first := _first_line(transcript)):
            # Earlier releases kept the signs of Markdown.
            for made in dict.fromkeys((_as_title(first), first[:TITLE_MAX_CHARS])):
                changes.retitle(imported.conversation, transcript.title, title_is=made)

    def _tags(self, transcript: Transcript) -> dict[str, str]:
        told = {
            SOURCE: self.format,
            SOURCE_ID: transcript.source_id,
            DIRECTORY: transcript.directory or "",
            SHOWN: "yes" if transcript.leaves is not None and transcript.is_active else "",
        }
        labels = [label[:TAG_NAME_MAX_LENGTH].strip() for label in transcript.labels[:LABELS_MAX]]
        tags = dict.fromkeys(filter(None, labels), "")
        tags |= {name: value[:TAG_MAX_LENGTH] for name, value in told.items() if value}
        return tags | dict.fromkeys(self.labels, "")

    def _links(self, transcript: Transcript) -> dict[str, Any]:
        """Return the columns that link a branch, or the work of a sub-agent, to where it began."""
        links: dict[str, Any] = {}
        if transcript.parent_id is not None:
            links["parent_id"] = self._pk_of(transcript.parent_id)
        if transcript.leaves is not None and (trunk := self._pk_of(transcript.leaves.source_id)) is not None:
            links |= {"forked_from_id": trunk, "forked_at": self._left_at(trunk, transcript)}
        return links

    def _pk_of(self, source_id: str) -> int | None:
        rows = Conversation.objects.with_public_ids([self.id_of(source_id)])
        return rows.filter(owner_id=self.owner_id).values_list("pk", flat=True).first()

    def _left_at(self, trunk: int, transcript: Transcript) -> int:
        """Return the place in the trunk's log after which the branch leaves; -1 if it begins anew."""
        last = None
        for node in islice(transcript.nodes(), transcript.shared_count):
            last = node if node.parts else last
        if last is None:
            return -1
        # Any event of its line: the branch may have fewer of them than the trunk.
        ids = [as_v1.event_id_of(self.format, last.node_id, place) for place in range(len(last.parts))]
        found = Event.objects.filter(conversation_id=trunk, event_id__in=ids).order_by("-seq")
        seq = found.values_list("seq", flat=True).first()
        return -1 if seq is None else seq


class _Taking:
    """The events of a conversation on their way, each record counted as it passes."""

    def __init__(
        self, transcript: Transcript, report: ConversationReport, format: str, stored: set[str] | None
    ) -> None:
        self._transcript = transcript
        self._report = report
        self._format = format
        self._stored = stored
        self._new: list[str] = []

    @property
    def is_followed(self) -> bool:
        """Return whether the source is followed: what it brings is news."""
        return self._stored is not None

    def events(self, read: Callable[[], None]) -> Iterator[NewEvent]:
        """Yield the events, and call `read` for each record. Raise Unreadable."""
        writer = V1Writer(self._format, self._transcript.created_at)
        for place, node in enumerate(self._transcript.nodes()):
            read()
            if place >= self._transcript.shared_count:
                self._report.take(node)
            if self._stored is not None and node.node_id in self._stored:
                writer.pass_over(node)  # a later result belongs to a call that is stored
                continue
            if self._stored is not None:
                self._new.append(node.node_id)
            yield from writer.events_of(node)

    def remember(self) -> None:
        """Note that all nodes are stored."""
        if self._stored is not None:
            self._stored.update(self._new)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Count the records whose events, by their ids, could not be stored. Raise Unreadable."""
        for node in islice(self._transcript.nodes(), self._transcript.shared_count, None):
            ids = (as_v1.event_id_of(self._format, node.node_id, place) for place in range(len(node.parts)))
            if found := next((reasons[event_id] for event_id in ids if event_id in reasons), None):
                self._report.refuse(found)


def _setup(transcript: Transcript) -> NewSetup:
    workspace = default_workspace()
    if transcript.directory:
        workspace["working_dir"] = transcript.directory
    return NewSetup(workspace=workspace)


def _as_title(line: str) -> str | None:
    return (words(line) or line)[:TITLE_MAX_CHARS] or None


def _first_line(transcript: Transcript) -> str:
    """Return the first line that the user wrote; empty if there is none."""
    for node in _own(transcript):
        for part in node.parts:
            if isinstance(part, Message) and part.author is Author.USER and part.text.strip():
                return part.text.strip().splitlines()[0]
    return ""


def _own(transcript: Transcript) -> Iterable[Node]:
    return () if transcript.is_empty else transcript.nodes()
