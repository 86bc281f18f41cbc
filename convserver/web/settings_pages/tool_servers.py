"""The section of the tool servers (MCP)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations import access
from conversations.exceptions import ConversationError
from convserver.web.settings_pages import stored_servers
from convserver.web.settings_pages.forms import CommandForm, ServerForm
from convserver.web.settings_pages.page import form_of, not_saved, saved, show


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
