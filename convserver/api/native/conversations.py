"""Conversations: list, create, look at, rename, hide, restore, and steer the agent."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from conversations import access
from conversations.cursors import ListCursor
from conversations.models import Conversation, ConversationQuerySet, ConversationRef, Version, normal_id
from conversations.store import store
from convserver.api.event_loop import in_loop
from convserver.api.native.shapes import NATIVE, NativeConversation, NativeConversationPage, refusals
from convserver.api.pagination import PAGE_MAX, first_page
from sessions_app import marks
from sessions_app.manager import get_manager
from sessions_app.models import ExecutionStatus
from sessions_app.status import ListedConversation, in_status, listed

TAGS_MAX = 50
TAG_NAME_MAX_LENGTH = 100
TAG_MAX_LENGTH = 500


_TAG_NAME = serializers.CharField(max_length=TAG_NAME_MAX_LENGTH, trim_whitespace=False)


class PageSerializer(serializers.Serializer[Any]):
    """The query of a list."""

    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=20)
    page_id = serializers.CharField(default=None)
    title = serializers.CharField(default=None)
    repository = serializers.CharField(default=None)
    trigger = serializers.CharField(default=None)
    version = serializers.ChoiceField(Version.choices, default=None)
    status = serializers.MultipleChoiceField(
        choices=ExecutionStatus.choices, default=set, help_text="What the agent does; any of these."
    )
    parent = serializers.CharField(  # type: ignore[assignment] # the class has no field left of this name
        default=None, help_text="Only those that this conversation has started."
    )
    top_level = serializers.BooleanField(
        default=False, help_text="Only those that no other conversation has started."
    )
    pinned = serializers.BooleanField(default=None, allow_null=True)
    archived = serializers.BooleanField(default=None, allow_null=True)
    deleted = serializers.BooleanField(default=False)


class TagsField(serializers.DictField):
    """Names and values of the user's own choice."""

    child = serializers.CharField(allow_blank=True, max_length=TAG_MAX_LENGTH)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        """Return the tags. Raise ValidationError for too many, or for a name that is none."""
        tags: dict[str, str] = super().to_internal_value(data)
        if len(tags) > TAGS_MAX:
            raise serializers.ValidationError(f"A conversation has at most {TAGS_MAX} tags.")
        for name in tags:
            _TAG_NAME.run_validation(name)
        return tags


@extend_schema_serializer(component_name="NewNativeConversation")
class NewConversationSerializer(serializers.Serializer[Any]):
    """The body that creates a conversation; all of it may be left out, and what is not here is ignored."""

    id = serializers.CharField(default=None, allow_null=True, max_length=100, trim_whitespace=False)
    version = serializers.ChoiceField(Version.choices, default=Version.V0)
    title = serializers.CharField(default=None, allow_null=True, max_length=200)
    repository = serializers.CharField(default=None, allow_null=True, max_length=500)
    branch = serializers.CharField(default=None, allow_null=True, max_length=500)
    tags = TagsField(default=dict)


@extend_schema_serializer(component_name="ChangedNativeConversation")
class ChangeSerializer(serializers.Serializer[Any]):
    """The body that renames, null standing for the default title, sets all tags, or marks for the user."""

    title = serializers.CharField(max_length=200, allow_null=True, required=False)
    tags = TagsField(required=False)
    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a body that changes nothing."""
        if not attrs:
            raise serializers.ValidationError("Give a `title`, `tags`, `pinned` or `archived`.")
        return attrs


class DecisionSerializer(serializers.Serializer[Any]):
    """The body that decides about a call that waits."""

    accept = serializers.BooleanField()
    reason = serializers.CharField(default="", allow_blank=True)
    seq = serializers.IntegerField(
        default=None, allow_null=True, help_text="That of the call which this is about; 409 if another waits."
    )


class ConversationViewSet(ViewSet):
    """The user's conversations; ids in any spelling."""

    door = NATIVE
    lookup_field = "conversation_id"
    lookup_value_regex = "[^/]+"

    @extend_schema(parameters=[PageSerializer], responses={200: NativeConversationPage, **refusals(400)})
    def list(self, request: Request) -> Response:
        """Return one page, the newest first."""
        query = _valid(PageSerializer(data=request.query_params))
        user_pk = access.pk_of(request.user)
        rows = _wanted(request.user, query).newest_first()
        if query["page_id"]:
            rows = rows.older_than(*ListCursor.decode(query["page_id"]))
        page = first_page(rows, query["limit"])
        found = listed(Conversation.objects.with_pks(page.pks), user_pk)
        return Response(
            {
                "conversations": [found[pk] for pk in page.pks if pk in found],
                "next_page_id": page.next_page_id,
            }
        )

    @extend_schema(
        request=NewConversationSerializer,
        responses={201: NativeConversation, **refusals(409)},
        examples=[OpenApiExample("with an id", value={"id": "my-first"}, request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """Create a conversation; 409 if the id is taken."""
        body = _valid(NewConversationSerializer(data=request.data))
        conversation = store(str(request.user.pk)).create(
            request.user,
            conversation_id=body["id"],
            version=body["version"],
            title=body["title"],
            repository=body["repository"],
            branch=body["branch"],
            tags=body["tags"],
        )
        return Response(_state(request.user, conversation), status=201)

    @extend_schema(responses={200: NativeConversation, **refusals(400, 404)})
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """Return one conversation."""
        return Response(_state(request.user, access.readable(request.user, conversation_id)))

    @extend_schema(request=ChangeSerializer, responses={200: NativeConversation, **refusals(400, 404)})
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename, set the tags, or mark: what is pinned or archived is so for this user alone."""
        conversation = access.writable(request.user, conversation_id)
        body = _valid(ChangeSerializer(data=request.data))
        with transaction.atomic():
            if "title" in body:
                store(str(request.user.pk)).retitle(conversation, body["title"])
            if "tags" in body:
                store(str(request.user.pk)).retag(conversation, body["tags"])
            if "pinned" in body or "archived" in body:
                marks.mark(
                    access.pk_of(request.user),
                    conversation,
                    pinned=body.get("pinned"),
                    archived=body.get("archived"),
                )
        return Response(_state(request.user, conversation))

    @extend_schema(responses={204: None, **refusals(400, 404, 409, 503)})
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and hide the conversation; it can be restored."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_close, conversation)
        store(str(request.user.pk)).hide(conversation)
        return Response(status=204)

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404)})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, conversation_id: str) -> Response:
        """Bring a hidden conversation back."""
        conversation = access.restorable(request.user, conversation_id)
        store(str(request.user.pk)).restore(conversation)
        return Response(_state(request.user, conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, conversation_id: str) -> Response:
        """Start the agent, or let a paused one go on."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_run, conversation)
        return Response(_state(request.user, conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, conversation_id: str) -> Response:
        """Pause the agent after its current step."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_pause, conversation)
        return Response(_state(request.user, conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent; what it has said is kept."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_close, conversation)
        return Response(_state(request.user, conversation))

    @extend_schema(
        request=DecisionSerializer, responses={200: NativeConversation, **refusals(400, 404, 409, 503)}
    )
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, conversation_id: str) -> Response:
        """Accept or reject the call that waits; 409 if none does, or another one than `seq`."""
        conversation = access.writable(request.user, conversation_id)
        body = _valid(DecisionSerializer(data=request.data))
        in_loop(_confirm, conversation, body["accept"], body["reason"], body["seq"])
        return Response(_state(request.user, conversation))


def _valid(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _wanted(user: access.Visitor, query: dict[str, Any]) -> ConversationQuerySet:
    """Return the rows of a list that its query asks for."""
    user_pk = access.pk_of(user)
    rows = Conversation.objects.visible_to(user)
    if query["deleted"]:
        rows = Conversation.objects.deleted().owned_by(user_pk)
    rows = rows.matching(title=query["title"], repository=query["repository"], trigger=query["trigger"])
    if query["version"] is not None:
        rows = rows.of_version(query["version"])
    if query["status"]:
        rows = in_status(rows, query["status"])
    if query["parent"] is not None:
        rows = rows.started_by(normal_id(query["parent"]))
    if query["top_level"]:
        rows = rows.heads()
    if query["pinned"] is not None:
        rows = marks.kept_on_top(rows, user_pk, pinned=query["pinned"])
    if query["archived"] is not None:
        rows = marks.put_away(rows, user_pk, archived=query["archived"])
    return rows


def _state(user: access.Visitor, conversation: ConversationRef) -> ListedConversation:
    found = listed(Conversation.objects.with_pks([conversation.pk]), access.pk_of(user))
    return found[conversation.pk]


async def _run(conversation: ConversationRef) -> None:
    await get_manager().run(conversation)


async def _pause(conversation: ConversationRef) -> None:
    await get_manager().pause(conversation)


async def _close(conversation: ConversationRef) -> None:
    await get_manager().close_session(conversation.public_id)


async def _confirm(conversation: ConversationRef, accept: bool, reason: str, call_seq: int | None) -> None:
    await get_manager().confirm(conversation, accept=accept, reason=reason, call_seq=call_seq)
