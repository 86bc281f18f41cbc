"""The formats that can be imported, and recognising the format of a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from conversations.transcripts.sources import archives, claude_code, codex, hermes
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.chats import chatgpt, claude_ai, exports, open_webui
from conversations.transcripts.sources.chats.exports import ExportKind
from conversations.transcripts.sources.nodes import Empty, Transcript, Unreadable


class Transcripts(Protocol):
    def __call__(self, path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
        """Yield the conversations, each before those that refer to it. Raise Unreadable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    name: str
    described: str  # for the help: what the path is
    # The program's directory of conversations; None if its user chooses a place for each export.
    default_path: str | None
    is_source: Callable[[Path], bool]  # whether the path has conversations in this format; raises Unreadable
    transcripts: Transcripts
    # Yields the files of a path that may have conversations; None for a format that cannot be followed.
    files: Callable[[Path], Iterator[Path]] | None = None
    # Returns whether an open archive has conversations; None for a format that is not read in zip files.
    holds: Callable[[Archive], bool] | None = None


def _of_export(kind: ExportKind, described: str) -> Format:
    return Format(
        name=kind.name,
        described=described,
        default_path=None,
        is_source=kind.is_source,
        transcripts=kind.transcripts,
        holds=kind.holds,
    )


_ALL = (
    Format(
        name=claude_code.NAME,
        described="the sessions of Claude Code",
        default_path="~/.claude/projects",
        is_source=claude_code.is_source,
        transcripts=claude_code.transcripts,
        files=claude_code.files,
    ),
    Format(
        name=codex.NAME,
        described="the sessions of OpenAI Codex",
        default_path="~/.codex/sessions",
        is_source=codex.is_source,
        transcripts=codex.transcripts,
        files=codex.files,
    ),
    _of_export(chatgpt.EXPORT, "ChatGPT's data export: its zip file, or what was in it"),
    _of_export(claude_ai.EXPORT, "Claude.ai's data export: its zip file, or what was in it"),
    _of_export(open_webui.EXPORT, "the chats that Open WebUI exports as JSON: the file"),
    Format(
        name=hermes.NAME,
        described="the sessions of hermes-webui, with their backups and journals",
        default_path="~/.hermes/webui",
        is_source=hermes.is_source,
        transcripts=hermes.transcripts,
        files=hermes.files,
    ),
)
FORMATS: Mapping[str, Format] = {format.name: format for format in _ALL}


def guessed(path: Path) -> Format:
    """Return the format of a path. Raise Empty, and Unreadable if no format fits."""
    for format in _ALL:
        if format.is_source(path):
            return format
    if exports.is_empty(archives.opened(path)):
        raise Empty
    raise Unreadable(f"{path} is in no format that is known: name one, such as {_ALL[0].name}")
