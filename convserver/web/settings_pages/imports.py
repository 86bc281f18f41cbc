"""The pages of imports: the upload of a file, the progress of its import, and the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django import forms
from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from conversations.exceptions import ConversationError
from conversations.models import Conversation
from convserver.web.pages import number_in, page, person, takes_form, user_id_of
from sessions_app.imports.followers import programs
from sessions_app.imports.uploads import pieces, runs
from sessions_app.imports.uploads.runs import NewImport
from sessions_app.imports.ways import WAYS
from sessions_app.models import ImportedConversation, ImportRun, ImportState

LINES_SHOWN = 100
TITLES = {
    "convserver": "Another server like this one",
    "openhands-v0": "OpenHands V0",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "chatgpt": "ChatGPT",
    "claude-ai": "Claude.ai",
    "open-webui": "Open WebUI",
    "hermes-webui": "hermes-webui",
}
"""The names of the formats for people."""


class ReportLine(NamedTuple):
    """One line of a report: a number and what it counts."""

    what: str
    number: int
    is_part: bool = False  # whether it is a part of the line above


class UploadForm(forms.Form):
    format = forms.ChoiceField(required=False)
    labels = forms.CharField(required=False, max_length=1_000)
    timezone = forms.CharField(required=False, max_length=64)

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.fields["format"].choices = formats()  # type: ignore[attr-defined]


def formats() -> list[tuple[str, str]]:
    """Return the formats to choose from with their names for people."""
    known = [(name, TITLES.get(name, name)) for name in WAYS]
    return [("", "Detect automatically"), *sorted(known, key=lambda each: each[1].lower())]


@require_http_methods(["GET", "HEAD", "POST"])
@person
def imports(request: HttpRequest) -> HttpResponse:
    """Show the form and all imports; or import a small file from a browser without scripts."""
    return _take(request) if request.method == "POST" else _show(request)


@require_safe
@person
def import_run(request: HttpRequest, import_id: str) -> HttpResponse:
    """Show the progress of an import, and its report."""
    run = runs.found(user_id_of(request), import_id)
    number = number_in(request.GET.get("after")) or 0
    found = list(ImportedConversation.objects.of(run.pk, after=number)[: LINES_SHOWN + 1])
    here = _here(request, found)  # a link to a conversation that was deleted since leads nowhere
    context = {
        "run": run,
        "title": TITLES.get(run.format, run.format),
        "state_words": state_words(run),
        "counts": list(counts_of(run)),
        "lines": [(line, line.conversation in here) for line in found[:LINES_SHOWN]],
        "next": found[LINES_SHOWN - 1].number if len(found) > LINES_SHOWN else None,
        "is_first": number == 0,
        "is_own": run.user_id == user_id_of(request),
    }
    return page(request, "web/import_run.html", context)


@takes_form(lambda request, import_id: redirect("settings-import"))
def remove(request: HttpRequest, import_id: str) -> HttpResponse:
    """Cancel an import, or remove its report from the list, as the button says."""
    run = runs.found(user_id_of(request), import_id)
    if request.POST.get("do") == "forget":
        runs.forget(run)
    else:
        runs.cancel(run)
    if ImportRun.objects.filter(pk=run.pk).exists():
        return redirect("settings-import-run", run.public_id)
    messages.success(request, f"{run.file_name} was removed from your imports.")
    return redirect("settings-import")


@takes_form(lambda request: redirect("settings-import"))
def follow(request: HttpRequest) -> HttpResponse:
    """Switch following a program on or off."""
    is_on = request.POST.get("do") == "on"
    name = request.POST.get("program", "")
    try:
        programs.switch(user_id_of(request), name, is_on=is_on)
    except programs.NotFollowed as error:
        messages.error(request, str(error))
    return redirect(f"{reverse('settings-import')}#follow")


def state_words(run: ImportRun) -> str:
    """Return the progress of an import in a few words."""
    if run.is_cancelled and run.state == ImportState.RUNNING:
        return "Cancelling after this conversation"
    if run.state == ImportState.DONE and run.failed:
        return "Finished, with problems"
    return {
        ImportState.UPLOADING: "Upload not finished",
        ImportState.WAITING: "Waiting to begin",
        ImportState.RUNNING: "Importing",
        ImportState.DONE: "Finished",
        ImportState.FAILED: "Failed",
        ImportState.CANCELLED: "Cancelled",
    }[ImportState(run.state)]


def _show(request: HttpRequest, problem: str = "") -> HttpResponse:
    user_id = user_id_of(request)
    runs_shown = 50
    rows = ImportRun.objects.of(user_id).order_by("-pk")[:runs_shown]
    context = {
        "runs": [(run, state_words(run), run.received * 100 // run.size) for run in rows],
        "formats": formats(),
        "piece_bytes": pieces.PIECE_MAX_BYTES,
        "max_bytes": runs.max_bytes(),
        "programs": programs.of_user(user_id),
        "problem": problem,
    }
    return page(request, "web/import.html", context, status=400 if problem else 200)


def _take(request: HttpRequest) -> HttpResponse:
    form = UploadForm(request.POST)
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return _show(request, "Choose a file.")
    if not form.is_valid():
        return _show(request, "Choose a format from the list, and shorten the labels or the time zone.")
    new = NewImport(
        file_name=file.name or "file",
        size=file.size or 0,
        format=form.cleaned_data["format"],
        labels=[label.strip() for label in form.cleaned_data["labels"].split(",") if label.strip()],
        zone=form.cleaned_data["timezone"] or "UTC",
    )
    try:
        run = runs.begin(user_id_of(request), new)
        # In pieces as scripts send it: each is bounded, counted and stored in a transaction of its own.
        for chunk in file.chunks(pieces.PIECE_MAX_BYTES):
            pieces.put(run, run.received, chunk)
            run.refresh_from_db()
        runs.start(run)
    except ConversationError as error:
        return _show(request, str(error))
    return redirect("settings-import-run", run.public_id)


def _here(request: HttpRequest, lines: list[ImportedConversation]) -> set[str]:
    """Return the ids of the imported conversations that the person may read."""
    ids = [line.conversation for line in lines if line.conversation]
    rows = Conversation.objects.visible_to(request.user).with_public_ids(ids)
    return set(rows.values_list("public_id", flat=True))


def counts_of(run: ImportRun) -> Iterator[ReportLine]:
    """Yield the lines of the report's table."""
    yield ReportLine("Conversations in the file", run.conversations)
    if run.failed:
        yield ReportLine("Failed", run.failed, is_part=True)
    if not run.totals:
        return
    records, events = run.totals["records"], run.totals["events"]
    yield ReportLine("Records in the file", records["found"])
    yield ReportLine("Stored", records["stored"], is_part=True)
    for what in ("skipped", "refused"):
        for reason, count in sorted(records[what].items()):
            yield ReportLine(f"{what.capitalize()}: {reason}", count, is_part=True)
    if records["shared"]:
        yield ReportLine("Records shared by branches, counted once", records["shared"])
    yield ReportLine("Events imported", events["added"])
    if events["masked"]:
        yield ReportLine("Containing your secrets, now masked", events["masked"], is_part=True)
    yield ReportLine("Events that were here already", events["already_here"])
    for why, count in sorted(run.totals["kept_as_they_were"].items()):
        yield ReportLine(f"Kept as they were: {why}", count)
    for what, count in sorted(run.totals["noted"].items()):
        yield ReportLine(f"Note: {what}", count)
