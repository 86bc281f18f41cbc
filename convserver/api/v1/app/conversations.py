"""Conversations of the app face: find, start, change, delete, message, download (spec V1 §1.2, §1.7)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.cursors import ListCursor
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.store import changes, store
from conversations.store.metadata import ConversationMetadata
from convserver.api.addresses import as_asked, origin_of
from convserver.api.idempotency import IDEMPOTENCY_KEY
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.instants import Instant
from convserver.api.openhands.text import StorableText, storable
from convserver.api.openhands.view import Done, body_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v1.app import start_tasks
from convserver.api.v1.app.shapes import (
    AppConversation,
    AppConversationInfo,
    AppConversationPage,
    AppConversationStartTask,
    Name,
    StartRequest,
    conversations_of,
)
from convserver.api.v1.app.view import (
    UNKNOWN,
    UUIDS,
    AppViewSet,
    PageQuery,
    described,
    of_list,
    of_one,
    readable,
    uuids_of,
)
from convserver.event_loop import in_loop
from convserver.pagination import first_page
from convserver.serving.admission import Lane, in_lane
from sessions_app.git_providers.base import ProviderType
from sessions_app.openhands_v1 import archive, sandboxes, steering
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.openhands_v1.sandboxes import SandboxStatus


class CountQuery(BaseModel):
    """Which conversations to return."""

    title__contains: StorableText | None = None
    created_at__gte: Instant | None = None
    created_at__lt: Instant | None = None
    updated_at__gte: Instant | None = None
    updated_at__lt: Instant | None = None
    sandbox_id__eq: StorableText | None = None
    include_sub_conversations: bool = False


class SearchQuery(CountQuery, PageQuery):
    """Which conversations to return, and which page of them."""


class AppConversationChanges(BaseModel):
    """The changes; absent members stay, and unknown ones are ignored."""

    title: (
        Annotated[
            str,
            StringConstraints(strip_whitespace=True, min_length=1, max_length=2000),
            AfterValidator(storable),
        ]
        | None
    ) = None
    selected_repository: Name | None = None
    selected_branch: Name | None = None
    git_provider: ProviderType | None = None


class NewAppMessage(BaseModel):
    """A user's message; with `run` the agent is to answer."""

    role: Literal["user"] = "user"
    content: Annotated[list[dict[str, Any]], Field(min_length=1)]
    run: bool = True


class AppMessageTaken(BaseModel):
    """The message is stored."""

    success: Literal[True]
    sandbox_status: SandboxStatus
    message: str


class AppConversationViewSet(AppViewSet):
    """The user's conversations of this wire."""

    needs = WRITES

    @requires(WRITES.of_lists)
    @extend_schema(parameters=described(SearchQuery), responses={200: AppConversationPage, **of_list})
    def search(self, request: Request) -> Response:
        """Return one page, the newest first."""
        query = query_of(request, SearchQuery)
        rows = self._matching(request, query).newest_first()
        if query.page_id:
            rows = rows.older_than(*ListCursor.decode(query.page_id))
        page = first_page(rows, query.limit)
        found = conversations_of(page.pks, origin=origin_of(request))
        # One may have been deleted since the page's keys were read.
        items = [as_asked(request, found[pk]) for pk in page.pks if pk in found]
        shown = AppConversationPage(items=items, next_page_id=page.next_page_id)
        return Response(shown.model_dump(mode="json"))

    @requires(WRITES.of_lists)
    @extend_schema(parameters=described(CountQuery), responses={200: int, **of_list})
    def count(self, request: Request) -> Response:
        """Count what a search would return."""
        return Response(self._matching(request, query_of(request, CountQuery)).count())

    @requires(RUNS.of_lists)
    @extend_schema(parameters=[UUIDS], responses={200: list[AppConversation | None], **of_list})
    def batch(self, request: Request) -> Response:
        """Return them in the requested order, null for an unknown id."""
        ids = uuids_of(request, "ids")
        rows = Conversation.objects.open_to(request.user).known_to_v1().with_public_ids(ids)
        shown = conversations_of(list(rows.values_list("pk", flat=True)), origin=origin_of(request))
        found = {each.id: as_asked(request, each).model_dump(mode="json") for each in shown.values()}
        return Response([found.get(public_id) for public_id in ids])

    @requires(RUNS.of_lists)
    @in_lane(Lane.ABROAD)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=StartRequest,
        responses={200: AppConversationStartTask, 400: Detail, 404: Detail, 409: Detail, 503: Detail},
    )
    def create(self, request: Request) -> Response:
        """Start a conversation; poll its progress with the returned id."""
        return start_tasks.start(request)

    @extend_schema(request=AppConversationChanges, responses={200: AppConversation, 400: Detail, **of_one})
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename, or set the repository."""
        body = body_of(request, AppConversationChanges)
        conversation = readable(request, conversation_id)
        _change(request, conversation, body)
        return Response(_shown(request, conversation).model_dump(mode="json"))

    @extend_schema(responses={200: Done, **of_one})
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Stop its agent and delete it with its sub-conversations; all can be restored."""
        in_loop(steering.remove, readable(request, conversation_id))
        return Response({"success": True})

    @requires(RUNS)
    @extend_schema(
        request=NewAppMessage,
        responses={200: AppMessageTaken, 400: Detail, 409: Detail, 503: Detail, **of_one},
    )
    def send_message(self, request: Request, conversation_id: str) -> Response:
        """Store a message, also if the agent is stopped; the agent starts if it should answer."""
        body = body_of(request, NewAppMessage)
        conversation = readable(request, conversation_id)
        sender_id = self.user_id
        in_loop(v1_input.say, conversation, body.model_dump(), sender_id=sender_id, run=body.run)
        status = _shown(request, conversation).sandbox_status
        return Response({"success": True, "sandbox_status": status, "message": "The message is stored."})

    @extend_schema(
        responses={(200, "application/zip"): OpenApiTypes.BINARY, **of_one},
    )
    def download(self, request: Request, conversation_id: str) -> StreamingHttpResponse:
        """Return a zip archive: `meta.json`, and a file for each event in order."""
        conversation = readable(request, conversation_id)
        # As it is stored: the archive is of the conversation, and not of the state of its agent.
        info = AppConversationInfo.model_validate(_shown(request, conversation).model_dump())
        parts = archive.archive(conversation, info.model_dump_json())
        name = f"conversation_{conversation.public_id}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingHttpResponse(parts, content_type="application/zip", headers=headers)

    def _matching(self, request: Request, query: CountQuery) -> ConversationQuerySet:
        rows = Conversation.objects.visible_to(request.user).known_to_v1()
        rows = rows.matching(title=query.title__contains or None).within(
            created_from=query.created_at__gte,
            created_before=query.created_at__lt,
            updated_from=query.updated_at__gte,
            updated_before=query.updated_at__lt,
        )
        if query.sandbox_id__eq is not None:
            rows = rows.with_pks(sandboxes.members_of(self.user_id, query.sandbox_id__eq))
        return rows if query.include_sub_conversations else rows.top_level()


def _shown(request: Request, conversation: ConversationRef) -> AppConversation:
    found = conversations_of([conversation.pk], origin=origin_of(request)).get(conversation.pk)
    if found is None:  # it was deleted meanwhile
        raise Refused(404, {"detail": UNKNOWN})
    return as_asked(request, found)


def _change(request: Request, conversation: ConversationRef, body: AppConversationChanges) -> None:
    # Absent leaves a title, and null gives the default one.
    if "title" in body.model_fields_set:
        changes.retitle(conversation, body.title)
    columns = body.model_dump(mode="json", exclude={"title"}, exclude_unset=True)
    if columns:
        metadata = ConversationMetadata(conversation_id=conversation.public_id, **columns)
        # By the store of the settings, which an operator may have replaced by another one.
        store(str(request.user.pk)).save_metadata(metadata, set(columns))
