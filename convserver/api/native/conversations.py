"""Conversations: list, create, read, rename, delete, restore, and steer the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSetMixin

from conversations import access, provisional_titles
from conversations.events import SEQ_MAX
from conversations.exceptions import ConversationNotFound, ForkUnfinished
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef, Version, normal_id
from conversations.store import changes, copying, creation, delete, deletion, temporary
from conversations.store.copying import Progress
from conversations.store.labels import TAG_MAX_LENGTH, TAG_NAME_MAX_LENGTH, TAGS_MAX
from convserver.api.idempotency import IDEMPOTENCY_KEY, answer_once
from convserver.api.native import etags, lists
from convserver.api.native.shapes import (
    NativeBranches,
    NativeConversation,
    NativeConversationChanged,
    NativeConversationPage,
    NativeFork,
    NativePendingCalls,
    NativeSteeredConversation,
    refusals,
)
from convserver.api.native.shapes.decisions import DecisionSerializer
from convserver.api.native.view import Body, ChoiceField, Flag, NativeView, Text
from convserver.api.scopes import OF_THE_USER, RUNS, WRITES, requires
from convserver.event_loop import in_loop
from convserver.pagination import list_page
from sessions_app.checkpoints import copies
from sessions_app.identity import conversation_keys, scopes
from sessions_app.live import branches, marks
from sessions_app.live.status import ListedConversation, listed
from sessions_app.loops import decisions
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.manager import get_manager
from sessions_app.models import AllowedFor, UnknownAnswer
from sessions_app.openhands_v1 import steering
from sessions_app.workspaces import chosen
from sessions_app.workspaces.beneath import PathRefused

# The framework's field checks the values by its child, and the names not at all.
_TAG_NAME = Text(max_length=TAG_NAME_MAX_LENGTH, trim_whitespace=False)


STEERED = {
    200: NativeConversation,
    202: NativeSteeredConversation,
    **refusals(400, 404, 409, 503),
}


class TagsField(serializers.DictField):
    """Names and values that the user chooses."""

    default_error_messages = {"not_a_dict": "This must be an object of names and strings."}
    child = Text(allow_blank=True, max_length=TAG_MAX_LENGTH)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        """Return the tags. Raise ValidationError for too many, or for an invalid name."""
        tags: dict[str, str] = super().to_internal_value(data)
        if len(tags) > TAGS_MAX:
            raise serializers.ValidationError(f"A conversation has at most {TAGS_MAX} tags.")
        for name in tags:
            _TAG_NAME.run_validation(name)
        return tags


@extend_schema_serializer(component_name="NewNativeConversation")
class NewConversationSerializer(Body):
    """The body that creates a conversation; all members are optional, and unknown ones are ignored."""

    id = Text(default=None, allow_null=True, max_length=100, trim_whitespace=False)
    version = ChoiceField(Version.choices, default=Version.V0)
    title = Text(default=None, allow_null=True, max_length=200)
    repository = Text(default=None, allow_null=True, max_length=500)
    branch = Text(default=None, allow_null=True, max_length=500)
    tags = TagsField(default=dict)
    directory = Text(default=None, allow_null=True, max_length=4096, trim_whitespace=False)
    temporary = Flag(
        default=False,
        help_text="In no list, search or export of everything, and purged after a day; it has no tags.",
    )

    def validate_directory(self, value: str | None) -> str | None:
        """Return the path of a directory of the user's own. Raise ValidationError for another one."""
        try:
            return value and str(chosen.found(value))
        except PathRefused as error:
            raise serializers.ValidationError(str(error)) from error

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse tags of a temporary conversation."""
        if attrs["temporary"] and attrs["tags"]:
            raise serializers.ValidationError({"tags": [temporary.NO_LABELS]})
        return attrs


@extend_schema_serializer(component_name="ChangedNativeConversation")
class ChangeSerializer(Body):
    """The body of a change: the title (null for the default one), all tags, or the user's own marks."""

    title = Text(max_length=200, allow_null=True, required=False)
    tags = TagsField(required=False)
    pinned = Flag(required=False)
    archived = Flag(required=False)
    temporary = Flag(
        required=False, help_text="`false` keeps a temporary conversation; none can become temporary."
    )
    seen_through = serializers.IntegerField(
        required=False,
        min_value=-1,
        max_value=SEQ_MAX,
        help_text="The seq of the last event that the user has seen; it never goes back.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a body without changes."""
        if not attrs:
            names = ", ".join(f"`{name}`" for name in self.fields)
            raise serializers.ValidationError(f"Give one of: {names}.")
        if attrs.get("temporary"):
            detail = "Only a new conversation can be temporary. Send `false` to keep one that is."
            raise serializers.ValidationError({"temporary": [detail]})
        return attrs


@extend_schema_serializer(component_name="NewNativeFork")
class ForkSerializer(Body):
    """The body that forks a conversation; all members are optional."""

    id = Text(default=None, allow_null=True, max_length=100, trim_whitespace=False)
    through = serializers.IntegerField(
        default=None,
        allow_null=True,
        min_value=-1,
        max_value=SEQ_MAX,
        help_text="The seq of the last event of the copy; -1 for none, by default all.",
    )
    title = Text(default=None, allow_null=True, max_length=200, help_text="By default the same.")
    tags = TagsField(default=dict)


class ConversationViewSet(ViewSetMixin, NativeView):
    """The user's conversations; ids in any spelling."""

    needs = WRITES
    lookup_field = "conversation_id"
    # The framework's own pattern refuses dots, which ids may have.
    lookup_value_regex = "[^/]+"

    @requires(WRITES.of_lists)
    @extend_schema(
        parameters=[lists.PageSerializer], responses={200: NativeConversationPage, **refusals(400)}
    )
    def list(self, request: Request) -> Response:
        """Return one page, the last used first unless another `order` is asked for."""
        query = self.checked_query(lists.PageSerializer)
        user_pk = access.pk_of(request.user)
        page = list_page(
            lists.wanted(request.user, query),
            query["limit"],
            order=query["order"],
            page_id=query["page_id"],
            label=lists.leading_label(user_pk, query),
            is_narrow=lists.is_narrow(query),
        )
        found = listed(Conversation.objects.with_pks(page.pks), user_pk)
        return Response(
            {
                # A row may be gone since the keys of the page were read.
                "conversations": [found[pk] for pk in page.pks if pk in found],
                "next_page_id": page.next_page_id,
            }
        )

    @requires(WRITES.of_lists)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY, etags.ETAG],
        request=NewConversationSerializer,
        responses={201: NativeConversation, **refusals(409, 503)},
        examples=[OpenApiExample("with an id", value={"id": "my-first"}, request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """Create a conversation; 409 if the id is taken."""
        body = self.checked_body(NewConversationSerializer)
        response = answer_once(request, request.data, partial(_create, request, body))
        response["ETag"] = etags.etag_of(response.data, is_title_made=False)  # as it was created
        return response

    @extend_schema(parameters=[etags.ETAG], responses={200: NativeConversation, **refusals(400, 404)})
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """Return one conversation."""
        return _tagged(request.user, access.readable(request.user, conversation_id))

    @extend_schema(
        parameters=[etags.IF_MATCH, etags.ETAG],
        request=ChangeSerializer,
        responses={200: NativeConversation, 412: NativeConversationChanged, **refusals(400, 404, 503)},
    )
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename, tag, keep, pin, archive or mark as seen.

        Pins, archives and what is seen are this user's own.

        With `If-Match`, only if the conversation still has one of these ETags; otherwise 412 and its state.
        """
        conversation = access.writable(request.user, conversation_id)
        body = self.checked_body(ChangeSerializer)
        wanted = etags.wanted(request)
        with transaction.atomic():
            if changed := _changed_since(request.user, conversation, wanted):
                return changed
            _change(request.user, conversation, body)
            return _tagged(request.user, conversation)

    @extend_schema(
        parameters=[etags.IF_MATCH],
        responses={204: None, 412: NativeConversationChanged, **refusals(400, 404, 409, 503)},
    )
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and those of its sub-conversations, and delete it; it can be restored.

        With `If-Match`, only if the conversation has one of these ETags; otherwise 412 and its state.
        """
        conversation = access.writable(request.user, conversation_id)
        wanted = etags.wanted(request)
        with transaction.atomic():  # so that an agent is not stopped for nothing
            if changed := _changed_since(request.user, conversation, wanted):
                return changed
        in_loop(steering.stop_to_delete, conversation)
        with transaction.atomic():  # no lock can be held while the agent, which writes, is being stopped
            if changed := _changed_since(request.user, conversation, wanted, detail=NOT_DELETED):
                return changed
            delete(conversation)
        return Response(status=204)

    @extend_schema(request=None, responses={200: NativeConversation, **refusals(400, 404)})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, conversation_id: str) -> Response:
        """Restore a deleted conversation."""
        conversation = access.restorable(request.user, conversation_id)
        deletion.restore(conversation)
        return Response(_state(request.user, conversation))

    @requires(RUNS)
    @extend_schema(request=None, responses=STEERED)
    @action(detail=True, methods=["post"])
    def run(self, request: Request, conversation_id: str) -> Response:
        """Start the agent, or resume it if it is paused; 202 if its process has not answered within 8 s."""
        conversation = access.writable(request.user, conversation_id)
        return _steered(request, conversation, lambda: get_manager().run(conversation))

    @requires(RUNS)
    @extend_schema(request=None, responses=STEERED)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, conversation_id: str) -> Response:
        """Pause the agent after its current step; 202 if its process has not answered within 8 s."""
        conversation = access.writable(request.user, conversation_id)
        return _steered(request, conversation, lambda: get_manager().pause(conversation))

    @requires(RUNS)
    @extend_schema(request=None, responses=STEERED)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and those of its sub-conversations; everything they said is kept.

        202 if one has not let go within 8 s: it stops as soon as it does.
        """
        conversation = access.writable(request.user, conversation_id)
        return _steered(request, conversation, lambda: get_manager().close_session(conversation.public_id))

    @requires(RUNS)
    @extend_schema(
        request=DecisionSerializer, responses={200: NativeConversation, **refusals(400, 404, 409, 503)}
    )
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, conversation_id: str) -> Response:
        """Approve or reject the pending calls, or say what became of one whose outcome is unknown.

        409 if none is pending, or one other than `seq`.
        """
        conversation = access.writable(request.user, conversation_id)
        body = self.checked_body(DecisionSerializer)
        if body["always"] == AllowedFor.USER:
            scopes.require_user_wide(request.user)
        in_loop(_confirm, conversation, body)
        return Response(_state(request.user, conversation))

    @extend_schema(responses={200: NativePendingCalls, **refusals(400, 404)})
    @action(detail=True, methods=["get"], url_path="pending-calls")
    def pending_calls(self, request: Request, conversation_id: str) -> Response:
        """Return the calls that wait for the user's next decision, and what they wait for."""
        conversation = access.readable(request.user, conversation_id)
        return Response({"calls": [call._asdict() for call in decisions.pending(conversation)]})

    @requires(WRITES.of_all)
    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=ForkSerializer,
        responses={201: NativeConversation, 202: NativeFork, **refusals(400, 404, 409, 503)},
    )
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, conversation_id: str) -> Response:
        """Begin a conversation with a copy of this one's events; 404 if there is none at `through`.

        Nothing in the copy asks for an answer. A message that is sent to it is another way on from there.
        202 if there are many events: the conversation is there once all are copied (`fork-progress`).
        """
        source = access.readable(request.user, conversation_id)
        body = self.checked_body(ForkSerializer)
        return answer_once(request, request.data, partial(_fork, request, source, body))

    @extend_schema(responses={200: NativeFork, **refusals(400, 404)})
    @action(detail=True, methods=["get"], url_path="fork-progress")
    def fork_progress(self, request: Request, conversation_id: str) -> Response:
        """Return how many of this fork's events are copied; 404 if it is no fork."""
        try:
            row = access.readable_row(request.user, conversation_id)
        except ForkUnfinished as error:
            return Response(_fork_state(conversation_id, Progress(error.copied, error.events)))
        if row.forked_at is None:
            raise ConversationNotFound("The conversation is not a fork.")
        events = row.forked_at + 1
        return Response(_fork_state(row.public_id, Progress(events, events)))

    @extend_schema(responses={204: None, **refusals(400, 404)})
    @fork_progress.mapping.delete
    def cancel_fork(self, request: Request, conversation_id: str) -> Response:
        """Cancel a fork whose events are still being copied: it is removed for good; 404 if it is whole."""
        # Access to a fork that is still being copied fails with this, and for its owner only.
        with suppress(ForkUnfinished):
            access.writable(request.user, conversation_id)
            raise ConversationNotFound("No fork with this id is being copied.")
        user_pk, name = access.pk_of(request.user), request.user.get_username()
        if not copying.cancel(user_pk, normal_id(conversation_id), requested_by=name):
            raise ConversationNotFound("The fork is whole by now.")
        return Response(status=204)

    @extend_schema(responses={200: NativeBranches, **refusals(400, 404)})
    @action(detail=True, methods=["get"])
    def branches(self, request: Request, conversation_id: str) -> Response:
        """Return what the conversation is a fork of, and its first 100 forks."""
        return Response(branches.described(request.user, access.readable(request.user, conversation_id)))

    @requires(OF_THE_USER)
    @extend_schema(request=None, responses={204: None, **refusals(400, 404, 503)})
    @action(detail=True, methods=["post"], url_path="rotate-key")
    def rotate_key(self, request: Request, conversation_id: str) -> Response:
        """Rotate the conversation's key (`session_api_key` on the OpenHands wires).

        The present key opens nothing from now on, and sockets that it opened close. The new one comes
        with the conversation on those wires.
        """
        conversation_keys.rotate(access.writable(request.user, conversation_id))
        return Response(status=204)


@transaction.atomic
def _create(request: Request, body: dict[str, Any]) -> Response:
    conversation = creation.create(
        request.user,
        conversation_id=body["id"],
        version=body["version"],
        title=body["title"],
        repository=body["repository"],
        branch=body["branch"],
        tags=body["tags"],
        expires_at=temporary.expiry(is_temporary=body["temporary"]),
    )
    if body["directory"]:
        chosen.choose(conversation, body["directory"])
    return Response(_state(request.user, conversation), status=201)


def _fork(request: Request, source: ConversationRef, body: dict[str, Any]) -> Response:
    # None is not passed on: it would mean the default title of a new conversation.
    title = body["title"] or Conversation.objects.values_list("title", flat=True).get(pk=source.pk)
    made = copies.fork(
        request.user,
        source,
        conversation_id=body["id"],
        through=body["through"],
        title=title,
        tags=body["tags"],
    )
    # A long log is copied in the background, in short transactions that hold up no other writer.
    if (progress := copying.progress(made)) is not None:
        return Response(_fork_state(made.public_id, progress), status=202)
    return Response(_state(request.user, made), status=201)


def _fork_state(public_id: str, progress: Progress) -> dict[str, Any]:
    return {"id": public_id, **progress._asdict(), "is_whole": progress.copied == progress.events}


def _change(user: access.Visitor, conversation: ConversationRef, body: dict[str, Any]) -> None:
    if "temporary" in body:
        temporary.keep(conversation)
    if "title" in body:
        changes.retitle(conversation, body["title"])
    if "tags" in body:
        changes.retag(conversation, body["tags"])
    if "pinned" in body or "archived" in body:
        marks.mark(access.pk_of(user), conversation, pinned=body.get("pinned"), archived=body.get("archived"))
    if "seen_through" in body:
        marks.mark_seen(access.pk_of(user), conversation, body["seen_through"])


def _tagged(user: access.Visitor, conversation: ConversationRef) -> Response:
    state = _state(user, conversation)
    is_title_made = provisional_titles.is_made(conversation.pk)
    return Response(state, headers={"ETag": etags.etag_of(state, is_title_made=is_title_made)})


NOT_CHANGED = (
    "Nothing was changed, because the conversation has been changed since you read it. "
    "Look at `conversation`, and send your change again with the ETag of this answer."
)
NOT_DELETED = (
    "The conversation was not deleted, because it was changed while its agent was being stopped. "
    "Look at `conversation`, and send your request again with the ETag of this answer."
)


def _changed_since(
    user: access.Visitor,
    conversation: ConversationRef,
    wanted: Collection[str] | None,
    *,
    detail: str = NOT_CHANGED,
) -> Response | None:
    """Return the 412 for a conversation that has none of the wanted ETags; None if the change may be made.

    Call it in a transaction: all changes are made under the lock that it takes, so none comes between this
    check and the caller's write. Raise ConversationNotFound.
    """
    if wanted is None:
        return None
    # It may have been deleted since the access was checked, without a lock.
    if lock(Conversation.objects.active(), conversation) is None:
        raise ConversationNotFound("Conversation not found.")
    current = _tagged(user, conversation)
    if etags.matches(wanted, current["ETag"]):
        return None
    body = {"code": "precondition_failed", "detail": detail, "conversation": current.data}
    return Response(body, status=412, headers={"ETag": current["ETag"]})


def _state(user: access.Visitor, conversation: ConversationRef) -> ListedConversation:
    found = listed(Conversation.objects.with_pks([conversation.pk]), access.pk_of(user))
    return found[conversation.pk]


def _steered(request: Request, conversation: ConversationRef, act: Callable[[], Awaitable[None]]) -> Response:
    """Steer the agent, and return the conversation afterwards, or as it is meanwhile."""
    try:
        in_loop(act)
    except CommandPending as pending:
        return Response({**_state(request.user, conversation), "status": pending.state}, status=202)
    return Response(_state(request.user, conversation))


async def _confirm(conversation: ConversationRef, body: dict[str, Any]) -> None:
    outcome = body["outcome"]
    if outcome is None:
        await get_manager().confirm(
            conversation,
            accept=body["accept"],
            reason=body["reason"],
            call_seq=body["seq"],
            always=body["always"] and AllowedFor(body["always"]),
        )
        return
    await get_manager().confirm(
        conversation,
        accept=outcome != UnknownAnswer.SKIP,
        reason=body["text"] or body["reason"],
        call_seq=body["seq"],
        outcome=UnknownAnswer(outcome),
    )
