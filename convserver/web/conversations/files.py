"""The files of a conversation: directories as lists, one file as text, downloads, and new files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_safe

from conversations import access
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from convserver.api.errors import NATIVE_STATUS, retry_headers, status_of
from convserver.api.openhands import workspace_files
from convserver.api.openhands.workspace_files import NotShown
from convserver.event_loop import in_loop
from convserver.rendering.text import code, visible
from convserver.web.pages import named, page, person
from sessions_app.checkpoints import copies
from sessions_app.storage.attachments import NewFile, Skipped
from sessions_app.workspaces import archives, chosen, paths, records, uploads
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused


class Place(NamedTuple):
    """A file or directory in a link."""

    name: str  # as people read it: a file system takes bytes that are no text
    query: str  # its whole path, as a parameter of an address
    is_directory: bool = True


class Listing(NamedTuple):
    """What a path names: the entries of a directory, or one file."""

    entries: Sequence[Place] = ()
    is_cut: bool = False
    is_file: bool = False
    code: SafeString | None = None
    """The text of a file; None for another one's, and for a directory."""
    is_too_long: bool = False


@require_http_methods(["GET", "HEAD", "POST"])
@person
def files(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show a directory or a file of the workspace, or store the files of a form in it."""
    if request.method == "POST":
        return _take(request, access.writable(request.user, conversation_id))
    conversation = access.readable(request.user, conversation_id)
    return _show(request, conversation, workspace_files.named_in(request, "path") or "")


@require_safe
@person
def download(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Return a file as a download, or the whole workspace as a zip file if none is named."""
    conversation = access.readable(request.user, conversation_id)
    path = workspace_files.named_in(request, "path")
    if not path:
        content = archives.zipped(conversation)
        whole = workspace_files.streamed(
            conversation, content, content_type="application/zip", name="workspace.zip"
        )
        return cast(HttpResponse, whole)
    try:
        return cast(HttpResponse, workspace_files.download(conversation, path))
    except ConversationError as error:
        return _show(request, conversation, "", problem=error)


def _show(
    request: HttpRequest,
    conversation: ConversationRef,
    path: str,
    *,
    said: Sequence[str] = (),
    problem: ConversationError | None = None,
) -> HttpResponse:
    places, listing = _places(""), Listing()
    try:
        plain = paths.relative(conversation, path)
        places, listing = _places(plain), _listed(conversation, plain)
    except ConversationError as error:
        problem = error
    context: dict[str, Any] = {
        "conversation": named(conversation),
        "tab": "files",
        "above": places[:-1],
        "here": places[-1],
        "listing": listing,
        "said": said,
        "directory": chosen.directory_of(conversation),
        "fullness": records.nearly_full(conversation),
        "problem": problem and visible.name(str(problem)),
    }
    status = status_of(problem, NATIVE_STATUS) if problem else 200
    if isinstance(problem, NoSuchFile):
        status = 404
    answer = page(request, "web/files.html", context, status=status)
    for name, value in (retry_headers(problem) if problem else {}).items():
        answer.headers[name] = value
    return answer


def _listed(conversation: ConversationRef, path: str) -> Listing:
    """Return what is at a path. Raise PathRefused, and NoSuchFile for nothing."""
    entries_most = 1_000
    with records.opened(conversation) as tree:
        if tree is None and not path:
            return Listing()
        try:
            names = [] if tree is None else tree.names(path, entries_most + 1)
        except PathRefused:  # no directory
            return _text(conversation, path)
    shown = names[:entries_most]
    return Listing([_place(path, name) for name in shown], is_cut=len(names) > entries_most)


def _text(conversation: ConversationRef, path: str) -> Listing:
    try:
        text = workspace_files.text_of(conversation, path)
    except NotShown:
        return Listing(is_file=True, is_too_long=True)
    if text is None:
        return Listing(is_file=True)
    # Most languages have the ends of their files' names among their own names; others stay without colours.
    suffix = path.rpartition("/")[2].rpartition(".")[2]
    return Listing(is_file=True, code=code.coloured(text, suffix))


def _places(path: str) -> list[Place]:
    """Return a path as links, from the workspace itself to what it names."""
    parts = path.split("/") if path else []
    return [
        Place("Files", ""),
        *(_place("/".join(parts[:count]), f"{name}/") for count, name in enumerate(parts)),
    ]


def _place(above: str, name: str) -> Place:
    # A directory's name comes with a slash at its end.
    plain = name.removesuffix("/")
    whole = f"{above}/{plain}" if above else plain
    readable = plain.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    query = quote(whole.encode("utf-8", "surrogateescape"), safe="/")
    return Place(visible.name(readable), query, is_directory=plain != name)


def _take(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    sent = [NewFile(name=file.name or "", content=file.read()) for file in request.FILES.getlist("file")]
    # A browser sends an empty field, too, which has no name and is no file.
    if not sent:
        return _show(request, conversation, "", problem=ConversationError("Choose a file."))
    try:
        in_loop(copies.require, conversation)
        outcomes = uploads.put_all(conversation, sent)
    except ConversationError as error:
        return _show(request, conversation, "", problem=error)
    said = [
        f"{each.name} was left out. {each.reason}" if isinstance(each, Skipped) else f"Added {each.name}."
        for each in outcomes
    ]
    return _show(request, conversation, "", said=said)
