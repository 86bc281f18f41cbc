"""The agent and the model of one conversation: the form that chooses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from conversations.events import ConversationRef
from convserver.api.openhands.model_names import MODEL_NAMES
from convserver.web.conversations.options import options_page
from convserver.web.pages import person
from sessions_app.agents import registry
from sessions_app.agents.registry import AgentKind, AgentUnusable
from sessions_app.agents.remote.listing import kinds_for
from sessions_app.agents.remote.names import name_in
from sessions_app.models import AGENT_NAME_MAX_LENGTH, OPTION_MODEL_MAX_LENGTH, RunOptions
from sessions_app.settings import user_settings

MODEL_HELP = (
    "The provider, a slash, and the model's name, for example openai/gpt-5. It is asked with the key that "
    "you have entered for its provider. Leave it empty for the model of your settings."
)


class AgentForm(forms.Form):
    """The agent and the model of a conversation; empty for the defaults."""

    agent = forms.CharField(required=False, max_length=AGENT_NAME_MAX_LENGTH)
    model = forms.CharField(
        required=False,
        max_length=OPTION_MODEL_MAX_LENGTH,
        label="Model",
        help_text=MODEL_HELP,
        widget=forms.TextInput(attrs={"list": "model-names", "autocomplete": "off", "spellcheck": "false"}),
    )

    instructions = forms.CharField(
        required=False,
        max_length=RunOptions.INSTRUCTIONS_MAX_LENGTH,
        label="Instructions",
        help_text="What the model should know in this conversation. Branches of it begin with them.",
        widget=forms.Textarea(attrs={"rows": 5, "dir": "auto"}),
    )

    names = MODEL_NAMES

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        user_id: int,
        conversation: ConversationRef | None = None,
        initial: dict[str, Any] | None = None,
    ) -> None:
        """Offer the remote agents of `user_id`; `conversation` is None for a new one."""
        super().__init__(data, initial=initial)
        self._user_id = user_id
        self._conversation = conversation

    def clean_agent(self) -> str:
        """Return the name, empty for the default. Raise ValidationError if the agent cannot be chosen."""
        name: str = self.cleaned_data["agent"]
        if name:
            try:
                registry.require_offered(name)
            except AgentUnusable as error:
                raise forms.ValidationError(str(error)) from error
        return name

    def kinds(self) -> list[AgentKind]:
        """Return the agents, the default first under an empty name, and the user's remote ones last."""
        # An empty name follows the operator's default, also when that changes.
        own = [kind._replace(name="") if kind.is_default else kind for kind in registry.kinds()]
        return [*own, *kinds_for(self._user_id, self._conversation, chosen=self.chosen_agent)]

    @property
    def own_instructions(self) -> str:
        """Return the user's own instructions, which models get before those of a conversation."""
        stored = user_settings.settings_of(self._user_id)
        return (stored and stored.instructions) or ""

    @property
    def chosen_agent(self) -> str:
        name = str(self["agent"].value() or "")
        return "" if name == registry.default_name() else name


def words_of(options: RunOptions) -> str:
    """Return a conversation's choices in words; empty without one."""
    agent = name_in(options.agent)
    if agent is None:
        titles = {kind.name: kind.title for kind in registry.kinds()} if options.agent else {}
        agent = titles.get(options.agent, options.agent)
    model = f"{options.model} ({options.provider})" if options.provider else options.model
    return " · ".join(filter(None, [agent, model, options.instructions and "With instructions"]))


@require_http_methods(["GET", "HEAD", "POST"])
@person
def agent(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the agents that can be chosen, or choose one."""
    return options_page(
        request,
        conversation_id,
        name="agent",
        options=("agent", "model", "instructions"),
        form_of=lambda conversation, **values: AgentForm(
            user_id=conversation.owner_id, conversation=conversation, **values
        ),
        saved="Saved. It counts from the next message on.",
    )
