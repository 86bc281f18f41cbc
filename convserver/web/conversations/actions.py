"""Actions on a conversation in the list or on its page: rename, pin, archive, delete, restore."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import unquote, urlencode

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from conversations import access
from conversations.exceptions import ConversationError
from conversations.models import Conversation, ConversationRef
from conversations.store import changes, deletion, purging, store, temporary
from conversations.store import delete as delete_from_store
from convserver.event_loop import in_loop
from convserver.web.conversations.while_working import choices_of
from convserver.web.listing import ORDER_COOKIE, Filters, row_of
from convserver.web.pages import person, refusal, sender, words
from sessions_app.identity.authentication import is_keyed
from sessions_app.live import marks
from sessions_app.live.status import listed
from sessions_app.models import WhileWorking
from sessions_app.openhands_v1 import steering
from sessions_app.settings import run_options

Action = Callable[[HttpRequest, ConversationRef], HttpResponse]
View = Callable[[HttpRequest, str], HttpResponse]


class TitleForm(forms.Form):
    title = forms.CharField(max_length=200, required=False)


def _action(reach: Callable[[Any, str], ConversationRef]) -> Callable[[Action], View]:
    """Return a decorator for an action on the conversation that `reach` finds; errors are sentences."""

    def decorate(act: Action) -> View:
        @require_POST
        @person
        @wraps(act)
        def view(request: HttpRequest, conversation_id: str) -> HttpResponse:
            conversation = reach(request.user, conversation_id)
            try:
                return act(request, conversation)
            except ConversationError as error:
                return refusal(error)

        return view

    return decorate


@_action(access.writable)
def rename(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    """Set the title and return the row; an empty title restores the default one, with an undo."""
    form = TitleForm(request.POST)
    if not form.is_valid():
        return words(" ".join(map(str, form.errors["title"])), status=400)
    given = form.cleaned_data["title"] or None
    # By the seam: a store of the operator's own may keep the titles.
    own = store(str(request.user.pk))
    old = None if given else own.get_metadata(conversation.public_id).title
    changes.retitle(conversation, given)
    if not old:
        return _row(request, conversation)
    return _row(request, conversation, done="Default title restored", back="rename", old_title=old)


@_action(access.writable)
def pin(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    """Pin or unpin the conversation and return the row."""
    pinned = request.POST.get("pinned") == "true"
    marks.mark(access.pk_of(request.user), conversation, pinned=pinned)
    if not _is_from_menu(request):  # the row itself moves visibly
        return _row(request, conversation)
    return _row(request, conversation, done="Pinned" if pinned else "Unpinned", back="pin", pinned=not pinned)


@_action(access.writable)
def archive(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    """Archive or unarchive the conversation; return the row if its list still has it, and the undo."""
    archived = request.POST.get("away") == "true"  # `archived` is one of the page's filters
    marks.mark(access.pk_of(request.user), conversation, archived=archived)
    done = "Archived" if archived else "Unarchived"
    return _row(request, conversation, done=done, back="archive", away=not archived)


@_action(access.writable)
def choose_while_working(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    choice = request.POST.get("while_working")
    if choice not in WhileWorking.values:
        return words("Choose what messages do while the agent works.", status=400)
    run_options.change(conversation, {"while_working": choice})
    if not _by_script(request):
        return _back(request, conversation)
    return HttpResponse(status=204)


@_action(access.writable)
def delete(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    """Stop the agent, delete the conversation, and return the undo."""
    in_loop(steering.stop_to_delete, conversation)
    delete_from_store(conversation)
    if not _by_script(request):
        if sender(request) == reverse("deleted"):
            return redirect("deleted")
        return redirect(f"{reverse('home')}?{urlencode({'deleted': conversation.public_id})}")
    return _row(request, conversation, done="Deleted", back="restore")


@_action(access.writable)
def settle_temporary(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    """Keep or remove a temporary conversation, or note that its page was left or opened."""
    match request.POST.get("act"):
        case "left":
            temporary.leave(conversation)
        case "opened":
            temporary.come_back(conversation)
        case "remove":
            # Its branches as well: no list shows where they are.
            for row in temporary.family(conversation):
                in_loop(steering.stop_to_delete, row.ref)
                purging.begin(
                    row.ref,
                    among=Conversation.objects.temporary(),
                    requested_by=request.user.get_username(),
                    reason="by its owner",
                )
            return redirect("home")
        case _:
            temporary.keep(conversation)
            return _back(request, conversation)
    return HttpResponse(status=204)


@_action(access.restorable)
def restore(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    deletion.restore(conversation)
    # The trash has a form for each row, and goes on where the person was.
    if sender(request) == reverse("deleted") and not _by_script(request):
        return redirect(f"{reverse('deleted')}?{urlencode({'restored': conversation.public_id})}")
    return _row(request, conversation, is_back=True)


def _row(request: HttpRequest, conversation: ConversationRef, **said: Any) -> HttpResponse:
    """Return the row as the page's list shows it now, if it does; for the conversation's menu, the menu.

    Without a script, redirect to the conversation's page if the form is there, otherwise to the list.
    """
    if not _by_script(request):
        return _back(request, conversation)
    undoes = said.get("is_back") or request.POST.get("undo") == "true"
    states = listed(Conversation.objects.with_pks([conversation.pk]), access.pk_of(request.user))
    state = states[conversation.pk]
    context: dict[str, Any] = {"state": state, "has_key": is_keyed(state["version"])}
    context |= {} if undoes else said
    if _is_from_menu(request):
        template = "web/menu_done.html"
        context["while_working"] = choices_of(conversation)
    else:
        template = "web/row_done.html"
        context["is_in_front"] = _is_in_front(request, conversation)
        filters = Filters.read(request.POST, request.COOKIES.get(ORDER_COOKIE, ""))
        context["row"] = None if undoes else row_of(request.user, conversation.public_id, filters)
    response = render(request, template, context)
    # Other parts of the page, and the script of the list, have the conversation, too.
    response["HX-Trigger"] = json.dumps({"row": {"id": conversation.public_id}})
    return response


def _back(request: HttpRequest, conversation: ConversationRef) -> HttpResponse:
    if _is_in_front(request, conversation):
        return redirect("conversation", conversation.public_id)
    return redirect("home")


def _is_in_front(request: HttpRequest, conversation: ConversationRef) -> bool:
    """Return whether the request comes from the conversation's own page."""
    # Browsers and Django encode other characters of a path.
    return unquote(sender(request)) == unquote(reverse("conversation", args=[conversation.public_id]))


def _is_from_menu(request: HttpRequest) -> bool:
    """Return whether a script requests the menu of the conversation's page."""
    return request.headers.get("HX-Target") == "menu"


def _by_script(request: HttpRequest) -> bool:
    return "HX-Request" in request.headers
