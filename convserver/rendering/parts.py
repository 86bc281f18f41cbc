"""The contexts for the templates of events: clean and bounded text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from conversations.dialects.attached import AttachedFile
from conversations.events import EventEnvelope
from convserver.rendering.arguments import plan
from convserver.rendering.cards import (
    WAITING,
    CallCard,
    CallOutcome,
    Entry,
    ErrorCard,
    MessageCard,
    QuietLine,
    ResultCard,
    Task,
)
from convserver.rendering.diffs import Diff
from convserver.rendering.icons import icon
from convserver.rendering.output import Output, output
from convserver.rendering.plans import Plan, tasks_in
from convserver.rendering.subjects import NAME_MAX_CHARS, subject_of
from convserver.rendering.text import code, visible
from convserver.rendering.text.images import IMAGES_MAX, image, returned
from convserver.rendering.text.markdown import is_long, markdown
from convserver.rendering.text.pieces import PAGE_MAX_CHARS, LongTexts
from convserver.rendering.text.runnable import Origin

_OUTCOMES = {
    CallOutcome.RUNNING: "Running…",
    CallOutcome.WAITING: "Needs your approval",
    CallOutcome.NO_RESULT: "No result",
    CallOutcome.OUTCOME_UNKNOWN: "Outcome unknown",
    CallOutcome.DONE: "Done",
    CallOutcome.FAILED: "Failed",
    CallOutcome.STOPPED: "Stopped",
    CallOutcome.REJECTED: "Rejected",
}
_STATUSES = {"todo": "To do", "in_progress": "In progress", "done": "Done"}
_TIMED_OUT = -1  # the exit code by which OpenHands' terminals say so


def links_of(conversation_id: str) -> dict[str, str]:
    """Return the addresses in an event's menu, up to the seq of the event."""
    names = ("", "-branch", "-again", "-restore-files", "-feedback")
    page, branch, again, restore, rate = (
        reverse(f"conversation{name}", args=[conversation_id]) for name in names
    )
    return {
        "as_of": f"{page}?as_of=",
        "branch": f"{branch}?after=",
        "edit": f"{again}?message=",
        "regenerate": f"{again}?answer=",
        "restore_files": f"{restore}?at=",
        "rate": f"{rate}?seq=",
    }


class Parts:
    """Prepares the events of one page, which share a bound on costly rendering."""

    def __init__(
        self, conversation_id: str, *, whole: bool = False, rated: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self.conversation_id = conversation_id
        self._whole = whole
        self._rated = rated
        self.links = {} if whole else links_of(conversation_id)  # a file of its own has no addresses
        self._markdown_left = PAGE_MAX_CHARS
        self._long_texts = LongTexts()

    def message(self, event: EventEnvelope, card: MessageCard) -> dict[str, Any]:
        author = name(card.author)
        return {
            "author": author,
            "label": f"{author}, message {event['seq']}",
            "side": "user" if card.is_users else "agent",
            "body": self._body(event, card.text, breaks=card.is_users),
            "reasoning": self._text(event, card.reasoning),
            "images": [image(url) for url in card.images[:IMAGES_MAX]],
            "files": [self._file(file) for file in card.files],
            "interrupted": card.interrupted,
            "is_users": card.is_users,
            "rated": self._rated.get(event["seq"], ""),
        }

    def call(self, event: EventEnvelope, card: CallCard) -> dict[str, Any]:
        """Return what `call.html` shows without results; of a call that waits, all its arguments."""
        label, summary = name(card.tool.label), name(card.summary)
        if waits := card.outcome in WAITING:
            # `subject` shows them whole and exactly; cut or coloured ones beside it would only mislead.
            card = replace(card, arguments="", diff=None, tasks=())
        outcome = "waiting untold" if card.outcome is CallOutcome.OUTCOME_UNKNOWN else card.outcome.value
        return {
            "icon": icon(card.tool.icon),
            "tool": card.tool.icon,
            "tool_label": label,
            "tool_name": name(card.tool.name),
            "label": f"{label}: {summary}" if summary else label,
            "summary": "" if waits else summary,
            "subject": self._subject(event, card) if waits else {},
            "thought": self._body(event, card.thought),
            "reasoning": self._text(event, card.reasoning),
            "arguments": self._arguments(event, card),
            "diff": card.diff and shown_diff(card.diff),
            "tasks": _tasks(card.tasks),
            "risk": _risk(card.risk, is_asked=waits),
            "outcome": outcome,
            "is_allowable": waits and card.is_allowable,
            "state": "" if card.tool.icon == "think" else _OUTCOMES[card.outcome],
        }

    def plan(self, shown: Plan) -> dict[str, Any]:
        """Return what `plan.html` shows at the place of its first state."""
        *earlier, now = (self._plan_state(each) for each in shown.states)
        first = shown.states[0]
        return {
            "event": first.event,
            "moment": first.moment,
            "links": self.links,
            "icon": icon("tasks"),
            "now": now,
            "earlier": earlier,
            "is_newest": shown.is_newest,
        }

    def _plan_state(self, entry: Entry) -> dict[str, Any]:
        tasks = tasks_in(entry)
        state = {"event": entry.event, "moment": entry.moment, "tasks": _tasks(tasks)}
        said = (entry.card.thought, entry.card.reasoning) if isinstance(entry.card, CallCard) else ("", "")
        return {
            **state,
            "words": plan(tasks) or "No tasks",
            "thought": self._body(entry.event, said[0]),
            "reasoning": self._text(entry.event, said[1]),
        }

    def result(self, event: EventEnvelope, card: ResultCard) -> dict[str, Any]:
        timed_out = card.timed_out or card.exit_code == _TIMED_OUT
        # "Timed out" says more than the code, and 0 is no news.
        failed_code = card.exit_code if card.exit_code not in (None, 0, _TIMED_OUT) else None
        return {
            "event": event,
            "icon": icon(card.tool.icon),
            "tool_label": name(card.tool.label),
            "output": output(card.output, visible.output, whole=self._whole),
            "outcome": card.outcome.value,
            "state": "Timed out" if timed_out else _OUTCOMES[card.outcome],
            "exit_code": failed_code,
            "diff": card.diff and shown_diff(card.diff),
            "images": [returned(url) for url in card.images[:IMAGES_MAX]],
            "tasks": _tasks(card.tasks),
            "download": self.download(event),
        }

    def quiet(self, event: EventEnvelope, card: QuietLine) -> dict[str, Any]:
        folded = [(name(each.label), self._text(event, each.text)) for each in card.folded]
        return {"words": name(card.words), "folded": folded}

    def error(self, event: EventEnvelope, card: ErrorCard) -> dict[str, Any]:
        return {
            "icon": icon("error"),
            "words": name(card.words),
            "cause": name(card.cause),
            "next_step": card.next_step,
            "settings": f"{reverse('settings')}#model" if card.is_models and not self._whole else "",
            "code": name(card.code),
            "detail": self._text(event, card.detail),
        }

    def download(self, event: EventEnvelope) -> str:
        """Return the address that downloads all of an event's text; empty if the page has all of it."""
        if self._whole:
            return ""
        return reverse("event-output", args=[self.conversation_id, event["seq"]])

    def _subject(self, event: EventEnvelope, card: CallCard) -> dict[str, Any]:
        subject = subject_of(card)
        events = reverse("native-events", args=[self.conversation_id])
        counts = ((subject.lines, "line"), (subject.characters, "character"))
        return {
            "sections": [
                {"name": each.name, "is_line": each.is_line, "code": code.coloured(each.text, each.language)}
                for each in subject.sections
            ],
            "diff": subject.diff and shown_diff(subject.diff, visible.exact),
            "size": ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts),
            "is_whole": subject.is_whole,
            "shown": subject.shown,
            # the address of the event as it was received
            "raw": "" if self._whole else f"{events}?after={event['seq'] - 1}&limit=1",
        }

    def _body(self, event: EventEnvelope, text: str, *, breaks: bool = False) -> dict[str, Any]:
        """Return Markdown as HTML, or as plain text if it is too long."""
        html: SafeString | None = None
        if len(text) <= self._markdown_left:
            html = markdown(text, breaks=breaks, origin=self._origin(event))
        if html is None:
            parts = self._long_body(event, text, breaks=breaks) if is_long(text) else []
            return {"parts": parts} if parts else {"html": "", **self._text(event, text)}
        self._markdown_left -= len(text)
        return {"html": html, "output": None, "download": ""}

    def _origin(self, event: EventEnvelope) -> Origin:
        if self._whole:
            return Origin(event["seq"])
        arguments = [self.conversation_id, event["seq"], ""]
        return Origin(event["seq"], reverse("event-preview", args=arguments))

    def _long_body(self, event: EventEnvelope, text: str, *, breaks: bool) -> list[dict[str, Any]]:
        """Return long Markdown in parts up to the page's bound; empty if no part can be rendered."""
        pieces, rest = self._long_texts.rendered(text, breaks=breaks, origin=self._origin(event))
        parts = [
            {"html": each.html} if each.html is not None else {"html": "", **self._text(event, each.text)}
            for each in pieces
        ]
        if not any(part["html"] for part in parts):
            return []  # then one text to unfold is easier to read than many
        return [*parts, {"html": "", **self._text(event, rest)}] if rest.strip() else parts

    def _file(self, file: AttachedFile) -> dict[str, Any]:
        """Return what `message.html` shows of an attached file, with only the beginning of its text."""
        shown_chars = len(file.text) if self._whole else 2_000
        href = ""
        if file.is_kept and not self._whole:
            place = reverse("conversation-file", args=[self.conversation_id])
            href = f"{place}?{urlencode({'path': file.name})}"
        return {
            "name": name(file.name),
            "size": file.size,
            "pages": file.pages,
            "note": name(file.note),
            "text": visible.prose(file.text[:shown_chars]),
            "is_cut": len(file.text) > shown_chars,
            "href": href,
        }

    def _text(self, event: EventEnvelope, text: str) -> dict[str, Any]:
        shown: Output | None = output(text, visible.prose, whole=self._whole) if text else None
        return {"output": shown, "download": self.download(event)}

    def _arguments(self, event: EventEnvelope, card: CallCard) -> dict[str, Any]:
        text = card.arguments
        if not text or text.strip() == card.summary:  # the card's first line is all of it
            return {}
        if len(text) <= code.COLOURED_MAX_CHARS:
            return {"code": code.block(text, card.language), "language": card.language}
        return {"language": card.language, **self._text(event, text)}


def name(text: str) -> str:
    """Return a bounded name on one line, without characters that change its direction."""
    # Cut twice: before the work, and after it, since a hidden character is shown by eight others.
    return " ".join(visible.name(text[: NAME_MAX_CHARS * 2]).split())[: NAME_MAX_CHARS * 2]


def _risk(risk: str, *, is_asked: bool) -> str:
    # A low or unknown risk is shown only where the user decides.
    known = risk if risk in ("low", "medium", "high") else "unknown"
    return known if is_asked or known in ("medium", "high") else ""


def shown_diff(diff: Diff, clean: Callable[[str], str] = visible.name) -> dict[str, Any]:
    """Return a diff for its template."""
    lines = [line._replace(text=clean(line.text)) for line in diff.lines]
    return {
        "lines": lines,
        "added": diff.added,
        "removed": diff.removed,
        "is_numbered": diff.is_numbered,
        "is_cut": diff.is_cut,
        "is_open": len(lines) <= 20,
    }


def _tasks(tasks: tuple[Task, ...]) -> list[dict[str, str]]:
    return [
        {
            "title": name(task.title),
            "notes": name(task.notes),
            "status": task.status if task.status in _STATUSES else "other",
            "status_words": _STATUSES.get(task.status) or name(task.status),
        }
        for task in tasks
    ]
