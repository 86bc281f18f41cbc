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
from convserver.exports.conversation import in_threads, json_lines, safe_name, source
from sessions_app.models import Attachment

PAGE = 100
"""The list of conversations is read so many at a time."""


def download(user: Visitor, chosen: ConversationQuerySet | None = None) -> StreamingHttpResponse:
    """Return the conversations that the visitor may read, without deleted ones, as a zip file.

    `chosen` are those that are wanted; None for all. No others are in it.
    """
    name = f"conversations-{timezone.now():%Y-%m-%d}.zip"
    return StreamingHttpResponse(
        in_threads(access.pk_of(user), pieces(user, chosen)),
        content_type="application/zip",
        headers={
            "Content-Disposition": content_disposition_header(True, name),
            "X-Content-Type-Options": "nosniff",
        },
    )


def pieces(user: Visitor, chosen: ConversationQuerySet | None = None) -> Iterator[bytes]:
    """Yield the zip file piece by piece; each step reads at most one page of a log, or one attachment.

    Some pieces are empty. A conversation that is deleted meanwhile is left out.
    """
    zipped = ZipStream(compress_type=ZIP_DEFLATED)
    for pk in _pks(Conversation.objects.visible_to(user) if chosen is None else chosen):
        row = Conversation.objects.visible_to(user).filter(pk=pk).first()
        if row is None:  # deleted meanwhile
            continue
        folder = f"{safe_name(row.public_id)}-{row.pk}"
        texts = json_lines(source(row))
        zipped.add((text.encode(errors="replace") for text in texts), f"conversations/{folder}.jsonl")
        yield from zipped.all_files()
        attachments = Attachment.objects.of(row.ref)
        for name in list(attachments.values_list("name", flat=True)):
            zipped.add(attachments.content_of(name) or b"", f"attachments/{folder}/{name}")
            yield from zipped.all_files()
    yield from zipped.finalize()


def _pks(wanted: ConversationQuerySet) -> Iterator[int]:
    """Yield the keys in order, so that parents come before those they have started."""
    last = 0
    while True:
        rows = wanted.filter(pk__gt=last).order_by("pk")
        page = list(rows.values_list("pk", flat=True)[:PAGE])
        if not page:
            return
        yield from page
        last = page[-1]
