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
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import store
from convserver.api.event_loop import in_loop
from convserver.api.native.shapes import NATIVE, NativeConversation, NativeConversationPage, refusals
from convserver.api.pagination import PAGE_MAX, first_page
from sessions_app.manager import get_manager
from sessions_app.status import ConversationState, states_of

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
    """The body that renames, null standing for the default title, or sets all tags."""

    title = serializers.CharField(max_length=200, allow_null=True, required=False)
    tags = TagsField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a body that changes nothing."""
        if not attrs:
            raise serializers.ValidationError("Give a `title`, `tags` or both.")
        return attrs


class DecisionSerializer(serializers.Serializer[Any]):
    """The body that decides about a call that waits."""

    accept = serializers.BooleanField()
    reason = serializers.CharField(default="", allow_blank=True)


class ConversationViewSet(ViewSet):
    """The user's conversations; ids in any spelling."""

    door = NATIVE
    lookup_field = "conversation_id"
    lookup_value_regex = "[^/]+"

    @extend_schema(parameters=[PageSerializer], responses={200: NativeConversationPage, **refusals(400)})
    def list(self, request: Request) -> Response:
        """Return one page, the newest first."""
        query = _valid(PageSerializer(data=request.query_params))
        visible = Conversation.objects.visible_to(request.user)
        if query["deleted"]:
            visible = Conversation.objects.deleted().owned_by(access.pk_of(request.user))
        rows = visible.matching(
            title=query["title"], repository=query["repository"], trigger=query["trigger"]
        ).newest_first()
        if query["page_id"]:
            rows = rows.older_than(*ListCursor.decode(query["page_id"]))
        page = first_page(rows, query["limit"])
        found = states_of(page.pks)
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
        return Response(_state(conversation), status=201)

    @extend_schema(responses={200: NativeConversation, **refusals(400, 404)})
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """Return one conversation."""
        return Response(_state(access.readable(request.user, conversation_id)))

    @extend_schema(request=ChangeSerializer, responses={200: NativeConversation, **refusals(400, 404)})
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename, or set the tags."""
        conversation = access.writable(request.user, conversation_id)
        body = _valid(ChangeSerializer(data=request.data))
        with transaction.atomic():
            if "title" in body:
                store(str(request.user.pk)).retitle(conversation, body["title"])
            if "tags" in body:
                store(str(request.user.pk)).retag(conversation, body["tags"])
        return Response(_state(conversation))

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
        return Response(_state(conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, conversation_id: str) -> Response:
        """Start the agent, or let a paused one go on."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_run, conversation)
        return Response(_state(conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, conversation_id: str) -> Response:
        """Pause the agent after its current step."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_pause, conversation)
        return Response(_state(conversation))

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404, 409, 503)})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent; what it has said is kept."""
        conversation = access.writable(request.user, conversation_id)
        in_loop(_close, conversation)
        return Response(_state(conversation))

    @extend_schema(
        request=DecisionSerializer, responses={200: NativeConversation, **refusals(400, 404, 409, 503)}
    )
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, conversation_id: str) -> Response:
        """Accept or reject the call that waits; 409 if none does."""
        conversation = access.writable(request.user, conversation_id)
        body = _valid(DecisionSerializer(data=request.data))
        in_loop(_confirm, conversation, body["accept"], body["reason"])
        return Response(_state(conversation))


def _valid(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _state(conversation: ConversationRef) -> ConversationState:
    return states_of([conversation.pk])[conversation.pk]


async def _run(conversation: ConversationRef) -> None:
    await get_manager().run(conversation)


async def _pause(conversation: ConversationRef) -> None:
    await get_manager().pause(conversation)


async def _close(conversation: ConversationRef) -> None:
    await get_manager().close_session(conversation.public_id)


async def _confirm(conversation: ConversationRef, accept: bool, reason: str) -> None:
    await get_manager().confirm(conversation, accept=accept, reason=reason)
