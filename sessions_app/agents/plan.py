"""The agent that plans, for the conversation that its own was started from."""

from __future__ import annotations

from conversations.models import ConversationRef
from sessions_app.agents.auto import AutoAgent
from sessions_app.agents.llm import prompts
from sessions_app.agents.llm.agent import LlmAgent


class PlanningModel(LlmAgent):
    """A model that is told to plan, and gets only the tools that change nothing."""

    task = prompts.PLAN
    only_reads = True


class PlanAgent(AutoAgent):
    """Plans with a model, where one is set."""

    title = "Plan"
    description = "A model makes a plan and changes nothing: it gets only tools that read."

    def __init__(self, conversation: ConversationRef) -> None:
        super().__init__(conversation)
        self._llm = PlanningModel(conversation)
