"""The section of the tool servers (MCP), and whether calls of their tools wait for approval."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations import access
from conversations.exceptions import ConversationError
from convserver.web.settings_pages import stored_servers
from convserver.web.settings_pages.forms import ApprovalForm, CommandForm, ServerForm
from convserver.web.settings_pages.page import form_of, not_saved, saved, show
from sessions_app.settings import user_settings


@sensitive_post_parameters()
@form_of("tools")
def add(request: HttpRequest) -> HttpResponse:
    """Store one more: a program if it has a command, else an address."""
    form = (CommandForm if "command" in request.POST else ServerForm)(request.POST)
    if not form.is_valid() or form.server is None:
        return show(request, form)
    try:
        stored_servers.add(access.pk_of(request.user), form.server)
    except ConversationError as error:
        form.add_error(None, str(error))
        return show(request, form)
    return saved(request, "tools", "Tool server added.")


@form_of("tools")
def remove(request: HttpRequest) -> HttpResponse:
    """Take one away, or all."""
    user_id = access.pk_of(request.user)
    if request.POST.get("do") == "all":
        stored_servers.remove_all(user_id)
        return saved(request, "tools", "All tool servers removed.")
    try:
        stored_servers.remove(user_id, request.POST.get("server", ""))
    except ConversationError as error:
        return not_saved(request, "tools", str(error))
    return saved(request, "tools", "Tool server removed.")


@form_of("tools")
def ask_for_approval(request: HttpRequest) -> HttpResponse:
    """Let each call of a tool wait for the user's approval from now on, or none."""
    form = ApprovalForm(request.POST)
    asks = form.is_valid() and form.cleaned_data["asks"]
    user_settings.change_settings(access.pk_of(request.user), {"confirmation_mode": asks}, secrets={})
    told = "Saved. Tool calls wait for your approval." if asks else "Saved. Tool calls run without approval."
    return saved(request, "tools", told)
