"""Many conversations as a zip file that is made while it is sent: JSON lines, and attachments."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import StreamingHttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from zipstream import ZIP_DEFLATED, ZipStream

from conversations import access
from conversations.access import Visitor
from conversations.models import Conversation, ConversationQuerySet
from convserver.exports import openhands
from convserver.exports.conversation import Format, file_name, in_threads, json_lines, safe_name, source
from convserver.exports.openhands import Layout
from sessions_app.models import Attachment, Workspace
from sessions_app.workspaces import archives


def download(
    user: Visitor,
    chosen: ConversationQuerySet | None = None,
    *,
    layout: Layout | None = None,
    name: str | None = None,
    with_workspaces: bool = False,
) -> StreamingHttpResponse:
    """Return the conversations that the visitor may read, without deleted ones, as a zip file.

    `chosen` are those that are wanted; None for all. `layout` is that of the files, None for JSON lines.
    `with_workspaces` adds the files of each workspace, as a zip file in this one.
    """
    name = name or f"conversations-{timezone.now():%Y-%m-%d}.zip"
    return StreamingHttpResponse(
        in_threads(access.pk_of(user), pieces(user, chosen, layout, with_workspaces=with_workspaces)),
        content_type="application/zip",
        headers={
            "Content-Disposition": content_disposition_header(True, name),
            "X-Content-Type-Options": "nosniff",
        },
    )


def in_layout(
    user: Visitor, row: Conversation, layout: Layout | None, *, with_workspaces: bool = False
) -> StreamingHttpResponse:
    """Return one conversation as a zip file in a layout, or as JSON lines, named after its title."""
    title = file_name(row.shown_title) or f"conversation-{safe_name(row.public_id)}"
    chosen = Conversation.objects.open_to(user).filter(pk=row.pk)
    name = f"{title}.{layout or Format.JSONL}.zip"
    return download(user, chosen, layout=layout, name=name, with_workspaces=with_workspaces)


def pieces(
    user: Visitor,
    chosen: ConversationQuerySet | None = None,
    layout: Layout | None = None,
    *,
    with_workspaces: bool = False,
) -> Iterator[bytes]:
    """Yield the zip file piece by piece; each step reads at most one page of a log, or one attachment.

    Some pieces are empty. A conversation that is deleted meanwhile is left out.
    """
    zipped = ZipStream(compress_type=ZIP_DEFLATED)
    for path, content in files(user, chosen, layout, with_workspaces=with_workspaces):
        zipped.add(content, path)
        yield from zipped.all_files()
    yield from zipped.finalize()


def files(
    user: Visitor,
    chosen: ConversationQuerySet | None = None,
    layout: Layout | None = None,
    *,
    with_workspaces: bool = False,
) -> Iterator[tuple[str, bytes | Iterator[bytes]]]:
    """Yield the path and the content of each file of an export; read a content before the next file."""
    for row in rows(user, chosen):
        folder = f"{safe_name(row.public_id)}-{row.pk}"  # two ids may differ in nothing but unsafe signs
        if layout is None:
            texts = json_lines(source(row))
            yield f"conversations/{folder}.jsonl", (text.encode(errors="replace") for text in texts)
        else:
            for file in openhands.files(row, layout):
                yield file.path, file.text.encode(errors="replace")
        attachments = Attachment.objects.of(row.ref)
        # The names at once and the contents one by one: only one attachment is in memory.
        for name in list(attachments.values_list("name", flat=True)):
            yield f"attachments/{folder}/{name}", attachments.content_of(name) or b""
        own = Workspace.objects.filter(conversation_id=row.pk, users_directory="")
        if with_workspaces and own.exists():
            # A zip file of its own: an import passes over it, whatever the names and contents in it are.
            yield f"workspaces/{folder}.zip", archives.zipped(row.ref)


def rows(user: Visitor, chosen: ConversationQuerySet | None = None) -> Iterator[Conversation]:
    """Yield the conversations of an export, without those that were deleted meanwhile."""
    open_now = Conversation.objects.open_to(user)
    # In the order of their keys, so that parents come before those they have started.
    wanted = (Conversation.objects.visible_to(user) if chosen is None else chosen).order_by("pk")
    last = 0
    while page := list(wanted.filter(pk__gt=last).values_list("pk", flat=True)[:100]):
        for last in page:
            if (row := open_now.filter(pk=last).first()) is not None:
                yield row
