"""The parts of every page: the list, the check of the login, and forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.exceptions import (
    ConversationDeleted,
    ConversationError,
    ConversationNotFound,
    InvalidConversationId,
    QuotaExceeded,
)
from conversations.models import Conversation, ConversationRef
from conversations.storage import quotas
from convserver.api.errors import NATIVE_STATUS, retry_headers, status_of
from convserver.serving import request_log
from convserver.web.listing import list_beside
from sessions_app.live.status import asking

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def person(view: View[P]) -> View[P]:
    """Return a view for people who have logged in; others are redirected to the login, and back from there.

    A conversation that they may not read is a page with 404.
    """

    @never_cache
    @wraps(view)
    def shown(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(_page_of(request))
        try:
            # Pages count like requests by REST, whose throttle classes they do not pass.
            quotas.admit_request(user_id_of(request))
            return view(request, *args, **kwargs)
        except ConversationDeleted:
            context = {"deleted_id": kwargs.get("conversation_id")}
            return page(request, "web/not_found.html", context, status=404)
        except (ConversationNotFound, InvalidConversationId):
            return page(request, "web/not_found.html", status=404)
        except QuotaExceeded as error:  # without the list, so that the page is cheap
            shown = render(request, "429.html", {"detail": str(error)}, status=429)
            shown["Retry-After"] = str(error.retry_after_s)
            request_log.name_code(error.code)
            return shown

    return cast("View[P]", shown)


def user_id_of(request: HttpRequest) -> int:
    """Return the key of the person who asks, in a view for people who have logged in."""
    return access.pk_of(request.user)


def takes_form(leads: View[P]) -> Callable[[View[P]], View[P]]:
    """Return a decorator for a view that takes a form of people who have logged in.

    A browser can also load its address, from its history or after a login: `leads` redirects it.
    """

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def taken(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            return (view if request.method == "POST" else leads)(request, *args, **kwargs)

        return require_http_methods(["GET", "HEAD", "POST"])(person(cast("View[P]", taken)))

    return decorate


def page(
    request: HttpRequest, template: str, context: Mapping[str, Any] | None = None, *, status: int = 200
) -> HttpResponse:
    """Return a whole page, with the list beside it."""
    return render(request, template, {**common(request), **(context or {})}, status=status)


def words(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return a sentence of plain text, for a script that shows it."""
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8", headers=headers)


def refusal(error: ConversationError) -> HttpResponse:
    """Return an error's own sentence, with the status that the native door has for it."""
    return words(str(error), status=status_of(error, NATIVE_STATUS), headers=retry_headers(error))


def to_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Redirect to a conversation's page, when a browser loads the address of a form about it."""
    return redirect("conversation", access.readable(request.user, conversation_id).public_id)


def named(conversation: ConversationRef) -> dict[str, str]:
    """Return a conversation's id and title for the templates of pages about it."""
    row = Conversation.objects.get(pk=conversation.pk)
    return {"id": row.public_id, "title": row.shown_title}


def number_in(text: str | None) -> int | None:
    """Return the number in a parameter, which a column can hold; None for any other text."""
    # At most 18 digits: the database refuses a number of more than 64 bits with an error.
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def common(request: HttpRequest) -> dict[str, Any]:
    """Return the context that every page needs."""
    ids = asking(Conversation.objects.visible_to(request.user))
    return {"can_log_out": can_log_out(request), "asking": json.dumps(ids), **list_beside(request)}


def sender(request: HttpRequest) -> str:
    """Return the path of the page that sent a form; the first page if it is unknown or not of this site."""
    page = request.headers.get("referer", "")
    # A redirect to what a header names would lead from this site to any other.
    if url_has_allowed_host_and_scheme(page, {request.get_host()}):
        return urlsplit(page).path or reverse("home")
    return reverse("home")


def _page_of(request: HttpRequest) -> str:
    """Return the address of the visitor's page: for a form, the page that has it."""
    # After the login a browser asks by GET, and a form's own address shows nothing.
    return request.get_full_path() if request.method in ("GET", "HEAD") else sender(request)


def can_log_out(request: HttpRequest) -> bool:
    """Return whether there is a login to end; a server without logins has none."""
    return bool(request.user.is_authenticated and "_auth_user_id" in request.session)
