"""An experiment's configuration, and instructions to remember (spec V0 §1.6)."""

from __future__ import annotations

import logging
from contextlib import suppress

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.events import ConversationRef
from conversations.exceptions import LoopUnavailable
from conversations.store import changes
from convserver.api.errors import PASSING
from convserver.api.openhands.errors import Refused
from convserver.api.openhands.view import body_of, query_of
from convserver.api.scopes import WRITES
from convserver.api.v0 import documented, prompts
from convserver.api.v0.bodies import ExperimentBody, PromptQuery
from convserver.api.v0.view import V0View
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.agents.chosen import ConversationAgent, conversation_needs_model
from sessions_app.loops.manager import get_manager
from sessions_app.settings import user_settings

logger = logging.getLogger(__name__)


class ExperimentView(V0View):
    """The experiment of a conversation."""

    needs = WRITES

    @extend_schema(**documented.experiment)
    def post(self, request: Request, conversation_id: str) -> Response:
        """Store the experiment's configuration, once; true if it was stored now."""
        body = body_of(request, ExperimentBody)
        conversation = access.writable(request.user, conversation_id)
        # The reference answers the other way round (spec V0 §7.5, A1).
        is_new = changes.set_parameter_once(conversation, "experiment_config", body.config)
        return Response(is_new)


@in_lane(Lane.ABROAD)
class RememberPromptView(V0View):
    """Something to remember from a conversation."""

    needs = WRITES

    @extend_schema(**documented.remember_prompt)
    def get(self, request: Request, conversation_id: str) -> Response:
        """Ask the agent for an instruction to remember what happened around an event."""
        query = query_of(request, PromptQuery)
        conversation = access.readable(request.user, conversation_id)
        if conversation_needs_model(conversation):
            user_settings.require_model_key(self.user_id)
        events = prompts.events_around(conversation, query.event_id)
        try:
            answer = in_loop(_asked, conversation, prompts.question_about(events))
        except PASSING:
            raise
        except Exception as error:
            logger.exception("The agent of conversation %s could not be asked", conversation.public_id)
            raise Refused(502, {"detail": "The agent could not be asked. Try again."}) from error
        instruction = prompts.instruction_in(answer)
        if instruction is None:
            raise Refused(502, {"detail": "The agent's answer contains no instruction. Try again."})
        return Response({"status": "success", "prompt": instruction})


async def _asked(conversation: ConversationRef, messages: list[dict[str, str]]) -> str:
    """Ask the loop's agent, or a new instance: this starts no loop."""
    manager, public_id = get_manager(), conversation.public_id
    if await manager.is_agent_loop_running(public_id):
        with suppress(LoopUnavailable):  # it runs in another process, or has ended since
            return await manager.request_llm_completion(public_id, prompts.SERVICE_ID, None, messages)
    # Events are stored, so a stopped conversation can be asked as well (spec V0 §7.4, P17).
    return await ConversationAgent(conversation).complete(messages)
