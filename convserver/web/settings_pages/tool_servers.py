"""The section of the tool servers (MCP) and of the approval of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from conversations.exceptions import ConversationError
from convserver.event_loop import in_loop
from convserver.rendering.text import visible
from convserver.serving.admission import Lane, in_lane
from convserver.web.pages import number_in
from convserver.web.settings_pages import stored_servers
from convserver.web.settings_pages.forms import ApprovalForm, CommandForm, ServerForm
from convserver.web.settings_pages.page import busy, not_saved, saved, show, users_form_of
from sessions_app.agents.llm.tools.trial import ToolTrial, try_server
from sessions_app.outbound.model_trial import TrialUnderWay
from sessions_app.settings import allowed_tools, user_settings

GONE = "This tool server was removed meanwhile."
TOOLS_SHOWN = 50
DESCRIPTION_MAX_CHARS = 300


@sensitive_post_parameters()
@users_form_of("tools")
def add(request: HttpRequest, user_id: int) -> HttpResponse:
    """Add a tool server: a program if the form has a command, otherwise an address."""
    form = (CommandForm if "command" in request.POST else ServerForm)(request.POST)
    if not form.is_valid() or form.server is None:
        return show(request, form)
    try:
        stored_servers.add(user_id, form.server)
    except ConversationError as error:
        form.add_error(None, str(error))
        return show(request, form)
    return saved(request, "tools", "Tool server added.")


@in_lane(Lane.ABROAD)
@users_form_of("tools")
def try_connection(request: HttpRequest, user_id: int) -> HttpResponse:
    """Connect a tool server, and show its tools or its problems."""
    reference = request.POST.get("server", "")
    try:
        server = stored_servers.tool_server(user_id, reference)
    except ConversationError as error:
        return not_saved(request, "tools", str(error))
    if server is None:
        return not_saved(request, "tools", GONE)
    try:
        trial = in_loop(try_server, user_id, server)
    except TrialUnderWay as error:
        return busy(request, "tools", str(error), error.code)
    return show(request, trial=ShownTrial.of(trial, reference))


class ShownTrial(NamedTuple):
    """The result of a trial as the page shows it."""

    reference: str
    tools: Sequence[tuple[str, str]]
    more: int  # the number of tools that are not shown
    problems: Sequence[tuple[str, str]]  # each with the last lines of the program's output, if any

    @classmethod
    def of(cls, trial: ToolTrial, reference: str) -> ShownTrial:
        """Return a trial of the server with this reference, bounded and without changes of direction."""
        # Names and descriptions are a stranger's: as long as it likes, and with any characters.
        tools = [(name, visible.prose(text)[:DESCRIPTION_MAX_CHARS]) for name, text in trial.tools]
        problems = [problem.partition("\n") for problem in trial.problems]
        return cls(
            reference,
            tools[:TOOLS_SHOWN],
            max(0, len(tools) - TOOLS_SHOWN),
            [(visible.name(words), visible.prose(lines.strip())) for words, _, lines in problems],
        )


@users_form_of("tools")
def remove(request: HttpRequest, user_id: int) -> HttpResponse:
    if request.POST.get("do") == "all":
        stored_servers.remove_all(user_id)
        return saved(request, "tools", "All tool servers removed.")
    try:
        stored_servers.remove(user_id, request.POST.get("server", ""))
    except ConversationError as error:
        return not_saved(request, "tools", str(error))
    return saved(request, "tools", "Tool server removed.")


@users_form_of("tools")
def ask_again(request: HttpRequest, user_id: int) -> HttpResponse:
    """Withdraw that the calls of a tool run without approval."""
    pk = number_in(request.POST.get("tool"))
    if pk is None or not allowed_tools.withdraw(user_id, pk):
        return not_saved(request, "tools", "This tool was withdrawn already.")
    return saved(request, "tools", "From its next turn on, the agent asks before it uses the tool.")


@users_form_of("tools")
def ask_for_approval(request: HttpRequest, user_id: int) -> HttpResponse:
    """Store whether calls of tools wait for the user's approval."""
    form = ApprovalForm(request.POST)
    asks = form.is_valid() and form.cleaned_data["asks"]
    user_settings.change_settings(user_id, {"confirmation_mode": asks}, secrets={})
    told = "Saved. Tool calls wait for your approval." if asks else "Saved. Tool calls run without approval."
    return saved(request, "tools", told)
