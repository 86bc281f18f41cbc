"""Conversations: create, list, read, rename, delete, start and stop (spec V0 §1.1 to §1.4)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.exceptions import ConversationError, ConversationNotFound
from conversations.log import writes
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from conversations.payloads.limits import limits_of
from conversations.store import ConversationExists, MetadataFilter, changes, creation, store
from convserver.api.addresses import as_asked, origin_of
from convserver.api.authentication import AuthType
from convserver.api.errors import PASSING
from convserver.api.idempotency import answer_again, answer_once
from convserver.api.openhands.errors import Refused
from convserver.api.openhands.view import body_in, body_of, json_of, query_of
from convserver.api.scopes import RUNS, WRITES, requires
from convserver.api.v0 import documented
from convserver.api.v0.bodies import ConversationResponse, NewTitle, ProvidersSet, V0ListQuery
from convserver.api.v0.creation import NewConversation, NewConversationWithId
from convserver.api.v0.info import (
    ConversationInfo,
    ConversationInfoResultSet,
    ConversationStatus,
    infos_of,
    infos_with_ids,
)
from convserver.api.v0.pages import place_of
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop, start_after_commit
from convserver.pagination import Page
from convserver.serving.admission import Lane, in_lane
from sessions_app.agents.chosen import needs_model
from sessions_app.git_providers.base import GitAuthenticationError, GitProviderError, ProviderType
from sessions_app.git_providers.client import GitProviders
from sessions_app.loops import leases
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import steering
from sessions_app.settings import run_options, tool_servers, user_settings

logger = logging.getLogger(__name__)


class V0ConversationViewSet(V0ViewSet):
    """The user's conversations."""

    needs = WRITES
    is_named_by_method = False

    @requires(RUNS.of_lists)
    @in_lane(Lane.ABROAD)
    @extend_schema(**documented.creation)
    def create(self, request: Request) -> Response:
        """Create a conversation and start its agent, without waiting for it."""
        sent = json_of(request)
        may_choose_id = settings.CONFIGURATION.allow_set_conversation_id
        body = body_in(sent, NewConversationWithId if may_choose_id else NewConversation)
        # First: a repeated request must not fail because a provider refuses the token by now.
        if (again := answer_again(request, sent)) is not None:
            return again
        # All checks before anything is stored: a refused request leaves no empty conversation (spec V0 §7.4,
        # P9).
        _require_access(request, body.chosen_repository, body.chosen_provider)
        _require_model(request, body.agent)
        return answer_once(request, sent, partial(_create, request, body))

    @requires(RUNS.of_lists)
    @extend_schema(**documented.conversation_list)
    def list(self, request: Request) -> Response:
        """Return one page of the user's conversations of both versions, the newest first."""
        query = query_of(request, V0ListQuery)
        page_id, skip = place_of(query)
        # By the store of the settings, which an operator may have replaced by another one.
        found = store(str(self.user_id)).search(
            page_id, query.limit, wanted=_wanted(request, query), skip=skip
        )
        infos = infos_with_ids([each.conversation_id for each in found.results], origin=origin_of(request))
        return Response(_page(request, infos, found.next_page_id))

    @extend_schema(**documented.conversation)
    def retrieve(self, request: Request, conversation_id: str) -> Response:
        """Return one conversation; null if the user has no such conversation."""
        info = _info(request, conversation_id)
        # Clients rely on 200 with null or false for an unknown conversation (spec V0 §7.5, A2).
        return Response(info and info.model_dump(mode="json"))

    @extend_schema(**documented.renaming)
    def partial_update(self, request: Request, conversation_id: str) -> Response:
        """Rename."""
        body = body_of(request, NewTitle)
        try:
            conversation = access.writable(request.user, conversation_id)
            changes.retitle(conversation, body.title)
        except ConversationNotFound as error:
            raise _no_conversation_to_rename(request, conversation_id) from error
        # A client may try these again; what is caught below is a 500.
        except PASSING:
            raise
        except Exception as error:
            logger.exception("Conversation %s could not be renamed", conversation_id)
            raise _failed("Failed to update conversation", "CONVERSATION$UPDATE_ERROR") from error
        return Response(True)

    @extend_schema(**documented.deletion)
    def destroy(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and delete the conversation; false if the user has no such conversation.

        A V1 conversation is deleted together with its sub-conversations.
        """
        try:
            conversation = access.writable(request.user, conversation_id)
        except ConversationNotFound:
            return Response(False)
        in_loop(steering.remove, conversation)
        return Response(True)

    @requires(RUNS)
    @extend_schema(**documented.start)
    def start(self, request: Request, conversation_id: str) -> Response:
        """Start the agent; if it is running, report its state."""
        # Checked only: the tokens of the user are stored, and the body has none.
        body_of(request, ProvidersSet)
        try:
            conversation = access.writable(request.user, conversation_id)
        except ConversationNotFound as error:
            raise Refused(404, {"status": "error", "conversation_id": conversation_id}) from error
        _require_model(request, run_options.agent_of(conversation))
        try:
            started = in_loop(lambda: get_manager().maybe_start_agent_loop(conversation))
        except PASSING:
            raise
        except Exception as error:
            raise _not_done("start", conversation_id, error) from error
        return _answer(conversation.public_id, ConversationStatus(started.status.upper()))

    @requires(RUNS)
    @extend_schema(**documented.stop)
    def stop(self, request: Request, conversation_id: str) -> Response:
        """Stop the agent and those of its sub-conversations; returns the previous status."""
        info = _info(request, conversation_id)
        if info is not None:
            try:
                in_loop(steering.pause, access.writable(request.user, conversation_id))
            except PASSING:
                raise
            except Exception as error:
                raise _not_done("stop", conversation_id, error) from error
        # The status before the stop, which this wire answers with (spec V0 §1.4).
        if info is None or info.status not in (ConversationStatus.STARTING, ConversationStatus.RUNNING):
            return _answer(
                conversation_id, ConversationStatus.STOPPED, message="Conversation was not running"
            )
        return _answer(info.conversation_id, info.status, message="Conversation stopped successfully")


def listed(request: Request) -> ConversationQuerySet:
    """Return the user's conversations in the form of this wire's lists, in order."""
    rows = Conversation.objects.visible_to(request.user).newest_first()
    oldest = oldest_change()
    return rows if oldest is None else rows.changed_since(oldest)


def oldest_change() -> datetime | None:
    """Return since when a conversation must have changed to be listed; None if that does not matter."""
    days = settings.CONFIGURATION.max_age_days
    return timezone.now() - timedelta(days=days) if days else None


def _wanted(request: Request, query: V0ListQuery) -> MetadataFilter:
    return MetadataFilter(
        repository=query.selected_repository,
        trigger=query.conversation_trigger,
        changed_since=oldest_change(),
        is_top_level=not query.include_sub_conversations,
        only=limits_of(request.user).only,
    )


def shown_page(request: Request, page: Page) -> dict[str, Any]:
    """Return one page in the form of this wire."""
    return _page(request, infos_of(page.pks, origin=origin_of(request)), page.next_page_id)


def _page(request: Request, infos: Sequence[ConversationInfo], next_page_id: str | None) -> dict[str, Any]:
    results = [as_asked(request, info) for info in infos]
    return ConversationInfoResultSet(results=results, next_page_id=next_page_id).model_dump(mode="json")


def _require_access(request: Request, repository: str | None, provider: ProviderType | None) -> None:
    """Make sure that the user's tokens open the repository. Raise GitAuthenticationError."""
    if repository:
        providers = GitProviders(user_settings.provider_tokens(access.pk_of(request.user)))
        try:
            in_loop(providers.verify_access, repository, provider)
        except GitAuthenticationError:
            raise
        except GitProviderError as error:  # a name that no repository can have
            raise GitAuthenticationError(f"Unable to access repo {repository}") from error


def _require_model(request: Request, agent: str) -> None:
    """Make sure that an agent that needs a model has one. Raise SettingsNotFound or ModelKeyMissing."""
    if needs_model(agent):
        user_settings.require_model_key(access.pk_of(request.user))


@transaction.atomic
def _create(request: Request, body: NewConversation) -> Response:
    conversation = _created(request, body)
    leases.expect(conversation)  # later requests find it starting, as this answer says
    start_after_commit(conversation)
    return _answer(conversation.public_id, ConversationStatus.STARTING)


def _created(request: Request, body: NewConversation) -> ConversationRef:
    """Store the conversation with its first message, or add that to the user's own with the chosen id."""
    user_id = access.pk_of(request.user)
    events = body.first_events(sender_id=user_id)
    try:
        conversation = creation.create(
            request.user,
            conversation_id=body.chosen_id,
            parameters=body.parameters(),
            repository=body.chosen_repository,
            branch=body.selected_branch,
            provider=body.chosen_provider,
            trigger=body.trigger(by_bearer=request.auth == AuthType.BEARER),
        )
    except ConversationExists as taken:
        try:
            conversation = access.writable(request.user, body.chosen_id or "")
        except ConversationError:
            # One answer for every id that is taken: it does not tell whose it is.
            raise taken from None
    else:
        # Only of a new conversation: an existing one keeps its agent and its tool servers.
        if body.agent:
            run_options.change(conversation, {"agent": body.agent})
        if body.tool_servers:  # before the first message, in which their keys are masked as well
            tool_servers.hide_keys(conversation, body.tool_servers)
    if events:
        writes.append(conversation, events)
    return conversation


def _info(request: Request, conversation_id: str) -> ConversationInfo | None:
    try:
        conversation = access.readable(request.user, conversation_id)
    except ConversationNotFound:
        return None
    connections = in_loop(_connections, conversation)
    infos = infos_of([conversation.pk], origin=origin_of(request), connections=connections)
    return as_asked(request, infos[0]) if infos else None


def _answer(conversation_id: str, status: ConversationStatus, *, message: str | None = None) -> Response:
    answer = ConversationResponse(
        status="ok", conversation_id=conversation_id, message=message, conversation_status=status
    )
    return Response(answer.model_dump(mode="json"))


def _no_conversation_to_rename(request: Request, conversation_id: str) -> Refused:
    everybodys = store()
    user_id = str(access.pk_of(request.user))
    if everybodys.exists(conversation_id) and not everybodys.validate_metadata(conversation_id, user_id):
        message = "Permission denied: You can only update your own conversations"
        msg_id = "AUTHORIZATION$PERMISSION_DENIED"
        return Refused(403, {"status": "error", "message": message, "msg_id": msg_id})
    message, msg_id = "Conversation not found", "CONVERSATION$NOT_FOUND"
    return Refused(404, {"status": "error", "message": message, "msg_id": msg_id})


def _failed(what: str, msg_id: str) -> Refused:
    message = f"{what}: the server's log says why."
    return Refused(500, {"status": "error", "message": message, "msg_id": msg_id})


def _not_done(verb: str, conversation_id: str, error: Exception) -> Refused:
    """Return the answer to a failed start or stop; the error's own text only if it is written for users."""
    if isinstance(error, ConversationError):
        reason = str(error)
    else:
        logger.error("Conversation %s: the agent's %s failed", conversation_id, verb, exc_info=error)
        reason = "the server's log says why."
    message = f"Failed to {verb} conversation: {reason}"
    return Refused(500, {"status": "error", "conversation_id": conversation_id, "message": message})


async def _connections(conversation: ConversationRef) -> dict[int, int]:
    """Return how many connections there are, by the conversation's key."""
    owner_id = str(conversation.owner_id)
    present = await get_manager().get_connections(owner_id, [conversation.public_id])
    return {conversation.pk: len(present)}
