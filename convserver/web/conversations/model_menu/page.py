"""The page that chooses a conversation's model; scripts show it over the composer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.exceptions import ConversationError
from conversations.models import ConversationRef
from convserver.serving.admission import Lane, in_lane
from convserver.web.conversations.limits import COST_MAX
from convserver.web.conversations.model_menu import shown
from convserver.web.pages import named, page, person
from sessions_app.models import (
    OPTION_MODEL_MAX_LENGTH,
    ReasoningEffort,
)
from sessions_app.settings import chosen_models, model_notes, run_options
from sessions_app.settings.chosen_models import ChosenModel
from sessions_app.settings.model_notes import ModelName, ModelPrice

NOT_PRICED = "Choose a model of the list, and enter both prices, or none to forget them."


class ModelMenuForm(forms.Form):
    """A model, how it is asked, and its price."""

    choice = forms.CharField(required=False, max_length=2 * OPTION_MODEL_MAX_LENGTH)
    reasoning_effort = forms.ChoiceField(
        required=False,
        label="Reasoning effort",
        choices=[("", "The model's default"), *ReasoningEffort.choices],
    )
    temperature = forms.FloatField(
        required=False,
        min_value=0,
        max_value=2,
        label="Temperature",
        widget=forms.NumberInput(attrs={"step": "any", "placeholder": "The model's default"}),
    )
    read = forms.FloatField(
        required=False,
        min_value=0,
        max_value=COST_MAX,
        label="Read",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )
    written = forms.FloatField(
        required=False,
        min_value=0,
        max_value=COST_MAX,
        label="Written",
        widget=forms.NumberInput(attrs={"step": "any"}),
    )

    def __init__(
        self, data: Mapping[str, Any] | None = None, *, initial: dict[str, Any] | None = None
    ) -> None:
        super().__init__(data, initial=initial, auto_id="model-%s")

    def clean_choice(self) -> str:
        """Return the value. Raise ValidationError for one that is not of a menu."""
        value: str = self.cleaned_data["choice"]
        provider, model = shown.name_in(value)
        if len(provider) > 64 or len(model) > OPTION_MODEL_MAX_LENGTH:
            raise forms.ValidationError(f"A model's name has at most {OPTION_MODEL_MAX_LENGTH} characters.")
        if value and not model:
            raise forms.ValidationError("Choose a model of the list.")
        return value

    @property
    def name(self) -> ModelName:
        """Return the chosen model."""
        return shown.name_in(self.cleaned_data["choice"])

    def chosen(self) -> ChosenModel:
        """Return the choice with how the model is asked."""
        given = self.cleaned_data
        return ChosenModel(
            self.name.model, self.name.provider, given["reasoning_effort"], given["temperature"]
        )


@in_lane(Lane.ABROAD)
@require_http_methods(["GET", "HEAD", "POST"])
@person
def models(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the models of the user's servers, or choose one."""
    if request.method != "POST":
        return _page(request, access.readable(request.user, conversation_id))
    conversation = access.writable(request.user, conversation_id)
    form = ModelMenuForm(request.POST)
    try:
        said = _done(conversation, form, request.POST)
    except ConversationError as error:
        form.add_error(None, str(error))
    if form.errors:
        return _page(request, conversation, form)
    messages.success(request, said, extra_tags="models")
    query = request.POST.get("q", "")[:OPTION_MODEL_MAX_LENGTH]
    address = reverse("conversation-models", args=[conversation.public_id])
    return redirect(f"{address}?{urlencode({'q': query})}" if query else address)


def _done(conversation: ConversationRef, form: ModelMenuForm, given: Any) -> str:
    """Do what the pressed button says, and return it in words; add what is wrong to the form.

    Raise ConversationError.
    """
    owner, favourite = conversation.owner_id, given.get("favourite", "")
    if not form.is_valid():
        return ""
    if favourite:
        name = shown.name_in(favourite[: 2 * OPTION_MODEL_MAX_LENGTH])
        model_notes.toggle_favourite(owner, name)
        return "Favourites saved."
    match given.get("do"):
        case "price":
            return _priced(owner, form)
        case "next":
            chosen_models.choose(conversation, form.chosen(), is_for_next=True)
            return f"Your next message is answered by {form.name.model or 'the default model'}."
        case "no-next":
            chosen_models.forget_next(conversation)
            return "Your next message is answered by the conversation's model."
        case _:
            chosen_models.choose(conversation, form.chosen())
            return f"{form.name.model or 'The default model'} answers from the next message on."


def _priced(user_id: int, form: ModelMenuForm) -> str:
    """Store the price of the chosen model, or forget it without one."""
    name, read, written = form.name, form.cleaned_data["read"], form.cleaned_data["written"]
    if not name.model or (read is None) != (written is None):
        form.add_error("read", NOT_PRICED)
        return ""
    if read is None or written is None:
        model_notes.set_price(user_id, name, None)
        return f"The price of {name.model} was forgotten."
    known = shown.known_price(user_id, name)
    if known is not None:
        text = "The price of {} is known: ${:,.2f} for a million tokens read, ${:,.2f} for those written."
        form.add_error("read", text.format(name.model, *known))
        return ""
    model_notes.set_price(user_id, name, ModelPrice(read, written))
    return f"Price of {name.model} saved. It counts for its answers from now on."


def _page(
    request: HttpRequest, conversation: ConversationRef, refused: ModelMenuForm | None = None
) -> HttpResponse:
    options = run_options.options_of(conversation)
    chosen, for_next = chosen_models.of_options(options), chosen_models.next_of(options)
    form = refused or ModelMenuForm(initial=chosen._asdict())
    marked = chosen
    if refused is not None and refused.is_bound:
        name = shown.name_in(str(refused.data.get("choice", "")))
        marked = chosen._replace(provider=name.provider, model=name.model)
    query = request.GET.get("q", "")[:OPTION_MODEL_MAX_LENGTH]
    context = {
        "conversation": named(conversation),
        "form": form,
        "menu": shown.menu_of(conversation.owner_id, marked, query=query, is_fresh="fresh" in request.GET),
        "chosen": chosen,
        "marked": marked,
        "for_next": for_next,
        "query": query,
    }
    return page(request, "web/models.html", context, status=400 if refused else 200)
