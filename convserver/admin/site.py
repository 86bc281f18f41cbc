"""The admin as a whole: its sidebar, its login and its first page."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.text import capfirst

from conversations.access import pk_of
from conversations.models import Conversation, VerificationFinding
from convserver.admin import cells, overview, repairs
from convserver.admin.widgets import AdminAuthenticationForm
from convserver.web.login import CountedForm, key_address, takes_key_alone, tell_when_to_return
from convserver.web.pages import can_log_out
from sessions_app.models import AgentLoop
from sessions_app.operation import figures

# The site is Django's own, which unfold sets up: its views are wrapped here instead of overridden.
search_everywhere = admin.site.search  # type: ignore[attr-defined]


def search(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Search with the framework's view, which fails on a page that is no number: refuse that one."""
    if not request.GET.get("page", "1").isdecimal():
        return HttpResponseBadRequest("`page` is a number.")
    found: HttpResponse = search_everywhere(request, extra_context)
    return found


admin.site.search = search  # type: ignore[attr-defined]

log_in_by_password = admin.site.login


class StaffForm(CountedForm, AdminAuthenticationForm):
    """A name and its password, for staff alone; wrong ones count with those of the other pages."""


def log_in(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Show the framework's login page, or that for the server's key where only the key lets in.

    The status is 429 after too many wrong passwords.
    """
    if takes_key_alone() and not request.user.is_authenticated:
        return redirect(key_address(request.GET.get("next", reverse("admin:index"))))
    answer = log_in_by_password(request, extra_context)
    if isinstance(answer, TemplateResponse):
        tell_when_to_return(answer, (answer.context_data or {})["form"])
    return answer


admin.site.login = log_in  # type: ignore[method-assign]

change_password = admin.site.password_change
log_out_of_all = admin.site.logout
context_of_each = admin.site.each_context


def password_change(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """Show the form for a new password to staff who have one: it asks for the present password."""
    if not (isinstance(request.user, User) and request.user.has_usable_password()):
        messages.info(request, "Your account has no password that could be changed.")
        return redirect("admin:index")
    return change_password(request, extra_context)


def log_out(request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
    """End the login; a server without logins has none to end."""
    if not can_log_out(request):
        return redirect("admin:index")
    return log_out_of_all(request, extra_context)


def each_context(request: HttpRequest) -> dict[str, Any]:
    """Add to each page whether there is a login to end."""
    return {**context_of_each(request), "can_log_out": can_log_out(request)}


admin.site.password_change = password_change  # type: ignore[assignment, method-assign]
admin.site.logout = log_out  # type: ignore[assignment, method-assign]
admin.site.each_context = each_context  # type: ignore[method-assign]
admin.site.login_form = StaffForm
admin.site.index_template = "admin/first_page.html"
admin.site.index_title = "Overview"


GROUPS = {
    "Conversations": {
        "conversations.Conversation": "forum",
        "sessions_app.ModelUse": "toll",
        "sessions_app.Feedback": "thumbs_up_down",
        "sessions_app.ImportRun": "upload_file",
        "sessions_app.RetentionPolicy": "auto_delete",
        "conversations.Purge": "delete_forever",
    },
    "Live": {
        "sessions_app.AgentLoop": "autorenew",
        "sessions_app.Connection": "cable",
        "sessions_app.ProcessRecord": "memory",
        "sessions_app.RemoteProgram": "smart_toy",
        "sessions_app.Repair": "healing",
    },
    "Webhooks": {"sessions_app.Endpoint": "webhook", "sessions_app.Delivery": "outbox"},
    "Access": {
        "auth.User": "person",
        "auth.Group": "group",
        "sessions_app.ApiToken": "key",
        "sessions_app.Secret": "lock",
        "sessions_app.UserSettings": "tune",
    },
    "Audit": {
        "admin.LogEntry": "receipt_long",
        "sessions_app.BackupRecord": "backup",
        "conversations.VerificationRun": "fact_check",
        "conversations.VerificationFinding": "broken_image",
    },
}
"""The icons of the models of each group of the sidebar."""


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar's groups with what the visitor may see of each."""
    overview = {
        "title": "Overview",
        "link": reverse("admin:index"),
        "icon": "home",
        "active": lambda shown: shown.path == reverse("admin:index"),
    }
    groups = [{"title": title, "items": _items(request, icons)} for title, icons in GROUPS.items()]
    return [{"title": "", "items": [overview]}, *(group for group in groups if group["items"])]


def _items(request: HttpRequest, icons: dict[str, str]) -> list[dict[str, Any]]:
    models = {apps.get_model(label): icon for label, icon in icons.items()}
    return [
        {"title": capfirst(model._meta.verbose_name_plural), "link": cells.list_of(model), "icon": icon}
        for model, icon in models.items()
        if may_view(request, model)
    ]


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Return whether the visitor may look at these rows."""
    return admin.site.get_model_admin(model).has_view_permission(request)


def first_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the state of the server, as far as the visitor may see it."""
    # Turns and repairs link to conversations by their titles.
    may_see_conversations = may_view(request, Conversation)
    found = figures.gathered()
    return {
        **context,
        "problems": overview.problems(found, lambda model: may_view(request, model)),
        "groups": overview.groups(found, lambda model: may_view(request, model)),
        "turns": overview.turns() if may_see_conversations and may_view(request, AgentLoop) else [],
        "own_entries": LogEntry.objects.filter(user=pk_of(request.user)).order_by("-pk")[:10],
        "damage": overview.damage_banner() if may_view(request, VerificationFinding) else None,
        "repairs": repairs.banner() if may_see_conversations else None,
        "may_see_nothing": not any(group["title"] for group in navigation(request)),
    }
