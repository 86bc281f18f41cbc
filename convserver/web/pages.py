"""What every page has beside what it shows: the list, and who is asking."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import urlsplit

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from conversations import access
from conversations.exceptions import (
    ConversationDeleted,
    ConversationNotFound,
    InvalidConversationId,
    QuotaExceeded,
)
from conversations.models import Conversation
from conversations.storage import quotas
from convserver.serving import request_log
from convserver.web.listing import list_beside
from sessions_app.live.status import asking

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def person(view: View[P]) -> View[P]:
    """Let a view be for people who may come in; the others are led to the login, and from there back.

    What is not theirs is a page that says so, with 404.
    """

    @never_cache
    @wraps(view)
    def shown(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(_page_of(request))
        try:
            quotas.admit_request(access.pk_of(request.user))
            return view(request, *args, **kwargs)
        except ConversationDeleted:
            context = {"deleted_id": kwargs.get("conversation_id")}
            return page(request, "web/not_found.html", context, status=404)
        except (ConversationNotFound, InvalidConversationId):
            return page(request, "web/not_found.html", status=404)
        except QuotaExceeded as error:  # without the list beside it: this page has to be cheap
            refusal = {"detail": str(error)}
            shown = render(request, "429.html", refusal, status=429)
            shown["Retry-After"] = str(error.retry_after_s)
            request_log.name_code(error.code)
            return shown

    return cast("View[P]", shown)


def takes_form(leads: View[P]) -> Callable[[View[P]], View[P]]:
    """Let a view take a form of people who may come in; who loads its address is led to where `leads` says.

    A browser does that with an address that it has in its history, or after a login.
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


def common(request: HttpRequest) -> dict[str, Any]:
    """Return what the templates of every page need."""
    ids = asking(Conversation.objects.visible_to(request.user))
    return {"can_log_out": can_log_out(request), "asking": json.dumps(ids), **list_beside(request)}


def sender(request: HttpRequest) -> str:
    """Return the path of the page that a form was sent from; of the first page if none of ours is told."""
    page = request.headers.get("referer", "")
    if url_has_allowed_host_and_scheme(page, {request.get_host()}):
        return urlsplit(page).path or reverse("home")
    return reverse("home")


def _page_of(request: HttpRequest) -> str:
    """Return where somebody is: of a form that was sent, the page that it stands on."""
    return request.get_full_path() if request.method in ("GET", "HEAD") else sender(request)


def can_log_out(request: HttpRequest) -> bool:
    """Say whether there is a login to end: where everybody is let in there is none."""
    return bool(request.user.is_authenticated and "_auth_user_id" in request.session)
