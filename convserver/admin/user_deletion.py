"""The page on which staff delete a person: it shows what is deleted and what stays, and asks for the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_http_methods

from conversations.models import Conversation, StoredBytes
from convserver.admin import cells
from convserver.admin.base import may_purge, may_read, record_change, staff_page
from convserver.exports import account
from convserver.pagination import COUNTED_MAX
from sessions_app.retention import user_deletions
from sessions_app.retention.user_deletions import UserNotDeletable

if TYPE_CHECKING:
    from convserver.admin.resources.users import UserAdmin


def may_delete(request: HttpRequest, admin: UserAdmin, user: User) -> bool:
    """Return whether the visitor may delete this person: a purge, and a change of the account."""
    is_own = user.pk == request.user.pk  # the deletion would end the session that confirms it
    return not is_own and may_purge(request) and admin.has_change_permission(request, user)


@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest, pk: int, *, admin: UserAdmin) -> HttpResponseBase:
    """Show what would be deleted; delete the person when the form is sent with the name."""
    user = _opened(request, pk, admin)
    if request.method == "POST":
        return _delete(request, user)
    count = Conversation.objects.owned_by(user.pk).unpurged()[: COUNTED_MAX + 1].count()
    return staff_page(
        request,
        admin,
        "admin/delete_user.html",
        "Delete a person",
        person=user,
        count=cells.bounded(count, COUNTED_MAX),
        bytes=StoredBytes.objects.filter(owner=user).values_list("total", flat=True).first() or 0,
        may_export=may_read(request),
    )


@require_GET
def export(request: HttpRequest, pk: int, *, admin: UserAdmin) -> HttpResponseBase:
    """Download all conversations of the person, without deleted ones."""
    user = _opened(request, pk, admin)
    if not may_read(request):
        raise PermissionDenied
    record_change(request, user, "Exported all conversations")
    return account.download(user, name=f"conversations-of-user-{user.pk}.zip")


def _opened(request: HttpRequest, pk: int, admin: UserAdmin) -> User:
    """Return the person. Raise Http404 and PermissionDenied."""
    user = get_object_or_404(admin.get_queryset(request), pk=pk)
    if not may_delete(request, admin, user):
        raise PermissionDenied
    return user


def _delete(request: HttpRequest, user: User) -> HttpResponseBase:
    # Nothing brings the data back: a click too many must not be enough.
    if request.POST.get("username") != user.username:
        messages.error(request, "Nothing was deleted. Type the user name exactly as it is shown.")
        return HttpResponseRedirect(request.path)
    try:
        user_deletions.begin(user, requested_by=request.user.get_username())
    except UserNotDeletable as error:
        messages.error(request, f"Nothing was deleted. {error}")
        return HttpResponseRedirect(request.path)
    user.refresh_from_db()  # the deletion has given the account another name
    record_change(request, user, "Deleted with all data")
    messages.success(
        request, f"The account is closed and is called {user.username} now. Its data is being removed."
    )
    return HttpResponseRedirect(cells.page_of(user))
