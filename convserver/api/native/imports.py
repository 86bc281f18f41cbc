"""Imports: a file is uploaded in pieces, imported in the background, and accounted for in a report."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import BigIntegerField
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.native.shapes import refusals
from convserver.api.native.shapes.imports import (
    NativeImport,
    NativeImportChoice,
    NativeImportedPage,
    NativeImports,
    NativeReceived,
    NativeWrongOffset,
    NewNativeImport,
)
from convserver.api.native.view import Body, NativeView, Text, checked
from convserver.api.scopes import WRITES
from convserver.pagination import PAGE_MAX
from sessions_app.identity import scopes
from sessions_app.imports.importer import LABELS_MAX
from sessions_app.imports.uploads import pieces, runs
from sessions_app.imports.uploads.pieces import PIECE_MAX_BYTES
from sessions_app.imports.uploads.problems import FileTooLarge, InvalidImport, WrongOffset
from sessions_app.imports.uploads.runs import Chosen, NewImport
from sessions_app.models import ImportedConversation, ImportRun, ImportState, Scope

LARGEST = BigIntegerField.MAX_BIGINT
ADD_IMPORTS = "sessions_app.add_importrun"
"""The permission of staff to import for others."""


class NewImportSerializer(Body):
    """The body that begins an import."""

    file_name = Text(max_length=1000)
    size = serializers.IntegerField(min_value=0, max_value=LARGEST)
    format = Text(allow_blank=True, default="", max_length=100)
    labels = serializers.ListField(child=Text(max_length=100), default=list, max_length=LABELS_MAX)
    timezone = Text(default="UTC", max_length=100)
    owner = Text(allow_null=True, default=None, max_length=150)


class StartSerializer(Body):
    """The body that starts one: the changed options of the import."""

    format = Text(allow_blank=True, required=False, max_length=100)
    labels = serializers.ListField(child=Text(max_length=100), required=False, max_length=LABELS_MAX)
    timezone = Text(required=False, max_length=100)


class OffsetSerializer(serializers.Serializer[Any]):
    """The query of a piece."""

    offset = serializers.IntegerField(min_value=0, max_value=LARGEST, help_text="Its place in the file.")


class ReportPageSerializer(serializers.Serializer[Any]):
    """The query of a page of a report."""

    after = serializers.IntegerField(
        min_value=0, max_value=LARGEST, default=0, help_text="The number of the last line that is known."
    )
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=PAGE_MAX)


class BytesParser(BaseParser):
    """Returns the body as bytes, for any content type."""

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raise FileTooLarge."""
        # One byte more tells that there is more.
        content: bytes = stream.read(PIECE_MAX_BYTES + 1)
        if len(content) > PIECE_MAX_BYTES:
            raise FileTooLarge(f"The piece is too large: the limit is {PIECE_MAX_BYTES} bytes.")
        return content


class ImportsView(NativeView):
    """The user's imports."""

    needs = WRITES

    @extend_schema(operation_id="native_imports_list", responses={200: NativeImports})
    def get(self, request: Request) -> Response:
        """Return the user's imports, the newest first."""
        rows = ImportRun.objects.of(self.user_id).select_related("user").order_by("-pk")
        # No user has more: older reports are removed, and no import beyond those begins.
        return Response({"imports": [shown(row) for row in rows[: runs.KEPT_MAX + runs.OPEN_MAX]]})

    @extend_schema(request=NewNativeImport, responses={201: NativeImport, **refusals(403, 409, 413)})
    def post(self, request: Request) -> Response:
        """Begin an import, whose file is then sent in pieces."""
        given = self.checked_body(NewImportSerializer)
        new = NewImport(
            file_name=given["file_name"],
            size=given["size"],
            format=given["format"],
            labels=given["labels"],
            zone=given["timezone"],
        )
        if given["owner"] is None:
            run = runs.begin(self.user_id, new)
        else:
            run = runs.begin(_owner(request, given["owner"]).pk, new, by=self.user_id)
        return Response(shown(run), status=201)


class ImportView(NativeView):
    """One import."""

    needs = WRITES

    @extend_schema(responses={200: NativeImport, **refusals(404)})
    def get(self, request: Request, import_id: str) -> Response:
        """Return how far the import is."""
        return Response(shown(runs.found(self.user_id, import_id)))

    @extend_schema(responses={204: None, **refusals(404)})
    def delete(self, request: Request, import_id: str) -> Response:
        """Cancel an import that waits or runs, or forget one that has ended or whose file is being sent.

        One that runs ends after the conversation that it is at. What was imported stays.
        """
        run = runs.found(self.user_id, import_id)
        if run.state in (ImportState.WAITING, ImportState.RUNNING):
            runs.cancel(run)
        else:
            runs.forget(run)
        return Response(status=204)


class CancelView(NativeView):
    """The end of one import."""

    needs = WRITES

    @extend_schema(request=None, responses={200: NativeImport, **refusals(404)})
    def post(self, request: Request, import_id: str) -> Response:
        """Cancel the import; one that has ended stays as it is, with its report."""
        run = runs.found(self.user_id, import_id)
        runs.cancel(run)
        run.refresh_from_db()
        return Response(shown(run))


class PiecesView(NativeView):
    """The file of one import."""

    needs = WRITES
    parser_classes = (BytesParser,)

    @extend_schema(
        parameters=[OffsetSerializer],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: NativeReceived, 409: NativeWrongOffset, **refusals(403, 404, 413, 507)},
    )
    def put(self, request: Request, import_id: str) -> Response:
        """Store the next piece of the file, of at most 4 MiB.

        A piece that is here already is acknowledged again. One that leaves a gap is refused with 409, and
        `received` says where the next one begins.
        """
        run = runs.found_by_sender(self.user_id, import_id)
        query = self.checked_query(OffsetSerializer)
        # Without a body the framework asks no parser, and gives an empty form.
        content = request.data if isinstance(request.data, bytes) else b""
        try:
            return Response({"received": pieces.put(run, query["offset"], content)})
        except WrongOffset as error:
            refusal = {"code": error.code, "detail": str(error), "received": error.received}
            return Response(refusal, status=409)


class StartView(NativeView):
    """The beginning of one import."""

    needs = WRITES

    @extend_schema(request=NativeImportChoice, responses={202: NativeImport, **refusals(400, 403, 404, 409)})
    def post(self, request: Request, import_id: str) -> Response:
        """Import the file, once all of it is here; may be repeated.

        What the body has of `format`, `labels` and `timezone` replaces what was said when it was begun.
        """
        run = runs.found_by_sender(self.user_id, import_id)
        given = checked(StartSerializer(data=request.data or {}))
        chosen = Chosen(
            format=given.get("format", run.format),
            labels=given.get("labels", run.labels),
            zone=given.get("timezone", run.zone),
        )
        runs.start(run, chosen)
        run.refresh_from_db()
        return Response(shown(run), status=202)


class ImportedView(NativeView):
    """The lines of one import's report."""

    needs = WRITES

    @extend_schema(
        parameters=[ReportPageSerializer], responses={200: NativeImportedPage, **refusals(400, 404)}
    )
    def get(self, request: Request, import_id: str) -> Response:
        """Return what became of each conversation of the file, in its order."""
        run = runs.found(self.user_id, import_id)
        query = self.checked_query(ReportPageSerializer)
        after, limit = query["after"], query["limit"]
        # One line more tells that there is another page.
        lines = list(ImportedConversation.objects.of(run.pk, after=after)[: limit + 1])
        following = lines[limit - 1].number if len(lines) > limit else None
        return Response({"conversations": [_line(line) for line in lines[:limit]], "next": following})


def shown(run: ImportRun) -> dict[str, Any]:
    """Return an import as its user sees it."""
    return {
        "id": run.public_id,
        "owner": run.user.get_username(),
        "file_name": run.file_name,
        "size": run.size,
        "received": run.received,
        "format": run.format,
        "labels": run.labels,
        "timezone": run.zone,
        "state": run.state,
        "cancelling": run.is_cancelled and run.is_open,
        "records": run.records,
        "conversations": run.conversations,
        "failed": run.failed,
        "problem": run.problem,
        "totals": run.totals or None,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }


def _line(line: ImportedConversation) -> dict[str, Any]:
    return {
        "number": line.number,
        "source_id": line.source_id,
        "conversation": line.conversation or None,
        "title": line.title,
        "problem": line.problem,
        "totals": line.report or None,
    }


def _owner(request: Request, name: str) -> User:
    """Return for whom a member of staff imports. Raise PermissionDenied and InvalidImport."""
    # A token for imports alone must not act for other users.
    if scopes.token_of(request.user) is not None:
        scopes.require(request.user, Scope.ADMIN)
    staff = request.user
    if not (isinstance(staff, User) and staff.is_staff and staff.has_perm(ADD_IMPORTS)):
        raise PermissionDenied("Only staff who may add imports can import for somebody else.")
    owner = User.objects.filter(username=name, is_active=True).first()
    # One answer for both: it does not tell which names staff have.
    if owner is None or (owner.is_staff and not staff.is_superuser and owner.pk != staff.pk):
        raise InvalidImport(f"There is no active user {name!r}.")
    return owner
