"""The first page, where a conversation begins."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_safe

from conversations.exceptions import ConversationError
from conversations.store import ConversationExists, creation, temporary
from convserver.quickstart import example_id
from convserver.web.conversations.agent import AgentForm
from convserver.web.conversations.messages import message_id, say, text_of
from convserver.web.conversations.page import not_said
from convserver.web.listing import remember_order
from convserver.web.login import takes_key_alone
from convserver.web.pages import page, person, takes_form, user_id_of
from sessions_app.agents.chosen import cues, uses_model
from sessions_app.settings import run_options
from sessions_app.workspaces import chosen


@require_safe
@person
def home(request: HttpRequest) -> HttpResponse:
    """Show the form for a new conversation, and how programs connect."""
    answer = page(request, "web/home.html", {"body_class": "at-list", **_beginning(request)})
    return remember_order(request, answer)


@require_safe
@person
def new(request: HttpRequest) -> HttpResponse:
    """Show the same form; a narrow screen shows it in front of the list. Other apps share texts with it."""
    parts = (request.GET.get(name, "").strip() for name in ("title", "text", "url"))
    shared = "\n".join(filter(None, parts))
    return page(request, "web/home.html", {"typed": shared, **_beginning(request)})


@takes_form(lambda request: redirect("new"))
def begin(request: HttpRequest) -> HttpResponse:
    """Begin the conversation with the id in the form; a form sent twice begins one."""
    text = text_of(request)
    if not text:
        return redirect("new")
    choices = AgentForm(request.POST, user_id=user_id_of(request))
    if not choices.is_valid():
        return _refused(request, choices, text)
    directory = request.POST.get("directory", "")
    try:
        if directory:
            chosen.found(directory)
    except ConversationError as error:
        return _refused(request, choices, text, str(error))
    said = message_id(request)
    conversation_id = UUID(said).hex  # derived, so that the form needs no second id
    # A form that is sent again finds its conversation and its message.
    with suppress(ConversationExists), transaction.atomic():
        expires_at = temporary.expiry(is_temporary="temporary" in request.POST)
        conversation = creation.create(request.user, conversation_id=conversation_id, expires_at=expires_at)
        if any(choices.cleaned_data.values()):
            run_options.change(conversation, choices.cleaned_data)
        if directory:
            chosen.choose(conversation, directory)
    try:
        say(request, conversation_id, text=text, message_id=said)
    except ConversationError as error:
        return not_said(request, conversation_id, text=text, error=error)
    return redirect("conversation", conversation_id)


def _refused(request: HttpRequest, choices: AgentForm, text: str, problem: str = "") -> HttpResponse:
    """Show the page again with the text, and why this agent, model or directory was refused."""
    problem = problem or str(next(iter(choices.errors.values()))[0])
    context = _beginning(request, choices) | {"typed": text, "problem": problem}
    return page(request, "web/home.html", context, status=400)


def _beginning(request: HttpRequest, choices: AgentForm | None = None) -> dict[str, object]:
    origin = request.build_absolute_uri("/").removesuffix("/")
    return {
        "new_id": uuid4().hex,
        "example_id": example_id(),
        "origin": origin,
        "socket_origin": origin.replace("http", "ws", 1),
        "begin": reverse("begin"),
        "cues": cues(user_id_of(request)).items(),
        "asks_model": uses_model(),
        "credential": _credential(),
        "is_temporary": "temporary" in request.POST,
        "directories": chosen.offered(),
        "chosen_directory": request.POST.get("directory", ""),
        "choices": choices or AgentForm(user_id=user_id_of(request)),
    }


def _credential() -> str:
    """Return the variable with the credential that programs send; empty if they need none."""
    if settings.CONFIGURATION.auth == "accounts":
        return "TOKEN"
    return "SESSION_API_KEY" if takes_key_alone() else ""
