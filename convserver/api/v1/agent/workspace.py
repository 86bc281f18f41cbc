"""Requests about the workspace of a conversation: its files, and what there is none of (spec V1 §2.5, c)."""

from __future__ import annotations

import mimetypes
import posixpath
from typing import Any, Literal

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands import workspace_files
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.forms import FormParser
from convserver.api.openhands.view import Done, query_of
from convserver.api.scopes import WRITES
from convserver.api.v1.agent import meant
from convserver.api.v1.agent.meant import PATH, given_path, named_path
from convserver.api.v1.agent.pages import missing
from convserver.api.v1.agent.view import AgentViewSet, described, done
from convserver.api.v1.authentication import conversation_of
from convserver.event_loop import in_loop
from sessions_app.checkpoints import copies
from sessions_app.models import ATTACHMENT_NAME_MAX_LENGTH
from sessions_app.openhands_v1 import information
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import SandboxName
from sessions_app.workspaces import archives, paths, records, uploads
from sessions_app.workspaces.beneath import NoSuchFile, shown
from sessions_app.workspaces.excludes import DEFAULT_EXCLUDES

EXCLUDE = OpenApiParameter("exclude", str, many=True, description="Patterns of what is left out, too.")
FIELD = "file"
_REFUSED: dict[Any, Any] = {400: Detail, 404: Detail, 422: ValidationProblems, 503: Detail}


class NoAddress(BaseModel):
    """An editor that there is none of."""

    url: None


class UploadedFile(BaseModel):
    """The form: one file."""

    file: bytes


class UploadedSize(Done):
    """The file is stored."""

    file_size: int


class NamedDirectory(BaseModel):
    """A directory for a list."""

    label: str
    path: str


class HomeDirectory(BaseModel):
    """Where a client begins to look: the workspace, its directories, and no others."""

    home: str
    favorites: list[NamedDirectory]
    locations: list[NamedDirectory]


class Subdirectory(BaseModel):
    """A directory in another one."""

    name: str
    path: str


class SubdirectoryPage(BaseModel):
    """One page of directories."""

    items: list[Subdirectory]
    next_page_id: str | None


class SubdirectoryQuery(BaseModel):
    """Which directories to list."""

    path: str
    page_id: str | None = None
    limit: int = Field(default=100, ge=1, le=100)
    include_hidden: bool = False


class ArchiveQuery(BaseModel):
    """Which directory to return, and in which format."""

    path: str
    format: Literal["git-delta", "tar.gz"] = "git-delta"
    use_default_excludes: bool = True


class AgentWorkspaceViewSet(AgentViewSet):
    """What agents elsewhere have beside files: tools, an editor."""

    needs = WRITES

    @extend_schema(responses={200: list[str]})
    def tools(self, request: Request) -> Response:
        """Return the tools of workspaces that a start may name for its agent."""
        state = choice.state()
        tools = [] if state.name == SandboxName.OFF else ["file_editor", "glob", "grep"]
        return Response([*tools, "terminal"] if state.works else tools)

    @extend_schema(responses={200: NoAddress})
    def editor(self, request: Request) -> Response:
        """Return that there is none."""
        return Response({"url": None})


class FileViewSet(AgentViewSet):
    """The files of one conversation: that of the address, or whose key is given, or whose page asks."""

    needs = WRITES

    parser_classes = (FormParser,)

    @extend_schema(
        parameters=[PATH],
        request={"multipart/form-data": UploadedFile},
        responses={200: UploadedSize, **_REFUSED},
    )
    def upload(self, request: Request, path: str = "", conversation_id: str = "") -> Response:
        """Store the file in the workspace, in the place of one that is there; 404 without a conversation."""
        named = path or given_path(request)
        conversation = meant.required(request, conversation_id, named)
        file = request.FILES.get(FIELD)
        if file is None:
            raise missing("body", FIELD)
        name = named or file.name or ""
        content = file.read()
        in_loop(copies.require, conversation)
        uploads.put(conversation, name, content)
        return Response(UploadedSize(success=True, file_size=len(content)).model_dump())

    @extend_schema(
        parameters=[PATH], responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, **_REFUSED}
    )
    def download(self, request: Request, path: str = "", conversation_id: str = "") -> StreamingHttpResponse:
        """Return a file for saving, as long as it is now."""
        conversation = meant.required(request, conversation_id, path or given_path(request))
        return workspace_files.download(conversation, path or named_path(request))

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, **_REFUSED})
    def show(self, request: Request, conversation_id: str, path: str) -> StreamingHttpResponse:
        """Return a file below the working directory that clients are shown; pictures with their type."""
        conversation = conversation_of(request, conversation_id)
        whole = posixpath.join(information.working_directory(conversation), path)
        answer = workspace_files.download(conversation, whole)
        media_type = mimetypes.guess_type(path)[0]
        # No type that could contain a script: the pages of this server have the same origin.
        if media_type in ("image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"):
            answer.headers["Content-Type"] = media_type
        return answer

    @extend_schema(request=None, parameters=[PATH], responses={200: Done, **_REFUSED})
    def create_directory(self, request: Request, conversation_id: str = "") -> Response:
        """Make a directory with those above it; one that is there stays as it is."""
        conversation = meant.required(request, conversation_id, given_path(request))
        in_loop(copies.require, conversation)
        uploads.make_directory(conversation, named_path(request))
        return done()

    @extend_schema(
        parameters=described(ArchiveQuery, EXCLUDE),
        responses={(200, "application/gzip"): OpenApiTypes.BINARY, **_REFUSED},
    )
    def archive(self, request: Request, conversation_id: str = "") -> StreamingHttpResponse:
        """Return a directory as a compressed tar file, without links and, by default, what can be made again.

        The other format of the wire is one of git repositories, which workspaces are not.
        """
        conversation = meant.required(request, conversation_id, given_path(request))
        query = query_of(request, ArchiveQuery)
        path = named_path(request)
        target = paths.relative(conversation, path)
        with records.opened(conversation) as tree:
            if tree is not None:
                tree.require_directory(target)
            elif target:
                raise NoSuchFile(f"There is no {shown(path)}.")
        if query.format != "tar.gz":
            raise Refused(400, {"detail": "Not a git repository: ask for the format tar.gz."})
        name = posixpath.basename(target or paths.home_of(conversation)) or "workspace"
        # A start may name any working directory; the name is that of a file at the client.
        name = name if len(name) <= ATTACHMENT_NAME_MAX_LENGTH else "workspace"
        excludes = [*(DEFAULT_EXCLUDES if query.use_default_excludes else ()), *_excluded(request)]
        return workspace_files.streamed(
            conversation,
            archives.tar_gz(conversation, target, name, excludes),
            content_type="application/gzip",
            name=f"{name}.tar.gz",
        )

    @extend_schema(responses={200: HomeDirectory, 503: Detail})
    def home(self, request: Request) -> Response:
        """Return the workspace of the conversation that the request means, with its directories."""
        conversation = meant.by_credentials(request)
        home = paths.HOME if conversation is None else paths.home_of(conversation)
        with_hidden = request.query_params.get("include_hidden") == "true"
        names = [] if conversation is None else _directories(conversation, "", with_hidden=with_hidden)
        favorites = [NamedDirectory(label=name, path=posixpath.join(home, name)) for name in names[:50]]
        return Response(HomeDirectory(home=home, favorites=favorites, locations=[]).model_dump())

    @extend_schema(
        parameters=described(SubdirectoryQuery),
        responses={200: SubdirectoryPage, 400: Detail, 422: ValidationProblems, 503: Detail},
    )
    def subdirectories(self, request: Request) -> Response:
        """Return one page of the directories in a directory, without links; none without a conversation."""
        query = query_of(request, SubdirectoryQuery)
        conversation = meant.by_credentials(request)
        names: list[str] = []
        if conversation is not None:
            target = paths.relative(conversation, named_path(request))
            names = _directories(conversation, target, with_hidden=query.include_hidden)
        start = names.index(query.page_id) if query.page_id in names else 0
        end = start + query.limit
        path = query.path.rstrip("/")
        items = [Subdirectory(name=name, path=f"{path}/{name}") for name in names[start:end]]
        next_page_id = names[end] if end < len(names) else None
        return Response(SubdirectoryPage(items=items, next_page_id=next_page_id).model_dump())


def _directories(conversation: ConversationRef, target: str, *, with_hidden: bool) -> list[str]:
    """Return the names of the directories in one, in order. Raise PathRefused or NoSuchFile."""
    with records.opened(conversation) as tree:
        names = [] if tree is None else tree.names(target, tree.limits.files)
    found = (name.rstrip("/") for name in names if name.endswith("/"))
    return [name for name in found if with_hidden or not name.startswith(".")]


def _excluded(request: Request) -> list[str]:
    """Return the patterns of a request, of which there may be a hundred. Raise Refused."""
    patterns_most = 100
    found = request.query_params.getlist(EXCLUDE.name)
    if len(found) > patterns_most:
        raise Refused(400, {"detail": f"At most {patterns_most} patterns may be excluded."})
    return found
