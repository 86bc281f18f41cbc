"""The agent that makes a plan for the conversation from which its own was started."""

from __future__ import annotations

from conversations.events import ConversationRef
from sessions_app.agents.auto import AutoAgent
from sessions_app.agents.llm import prompts
from sessions_app.agents.llm.agent import LlmAgent


class PlanningModel(LlmAgent):
    """A model that plans, with only those tools that change nothing."""

    task = prompts.PLAN
    only_reads = True


class PlanAgent(AutoAgent):
    """Plans with a model, if one is set."""

    title = "Plan"
    description = "A model makes a plan and changes nothing: it gets only tools that read."

    def __init__(self, conversation: ConversationRef) -> None:
        super().__init__(conversation)
        self._llm = PlanningModel(conversation)
