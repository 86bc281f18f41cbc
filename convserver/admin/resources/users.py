"""Users and groups: Django's, with unfold's forms; only superusers hand out rights.

Accounts are closed by taking `Active` away. Deleting a person removes what is theirs (`user_deletion`); the
row stays without names, since the log of the admin refers to it.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from conversations.storage import quotas
from convserver.admin import cells, filters, user_deletion, widgets
from convserver.admin.base import ListAdmin, StaffPages, may_purge, sections, staff_pages
from convserver.admin.cells import column
from sessions_app.models import UserDeletion
from sessions_app.storage import usage

RIGHTS = ("is_staff", "is_superuser", "groups", "user_permissions")

admin.site.unregister(User)
admin.site.unregister(Group)

STILL_COUNTED = " so far; the rest is still being counted"


def within_reach(request: HttpRequest, users: QuerySet[User]) -> QuerySet[User]:
    """Return the users whom this member of staff may change: only superusers may change staff."""
    return users if _is_superuser(request) else users.filter(is_staff=False, is_superuser=False)


def _is_superuser(request: HttpRequest) -> bool:
    return isinstance(request.user, User) and request.user.is_superuser


class NewUserForm(widgets.AdminUserCreationForm):
    """A new account, without the framework's choice of accounts that log in elsewhere."""

    usable_password = None  # type: ignore[assignment]  # no such field


class NewPasswordForm(widgets.AdminPasswordChangeForm):
    """A new password for an account, without that choice."""

    usable_password = None


@admin.register(User)
class UserAdmin(widgets.UserAdmin, ListAdmin[User]):
    """Accounts, the newest first."""

    form = widgets.UserChangeForm
    add_form = NewUserForm
    change_password_form = NewPasswordForm
    add_fieldsets = sections({"": ("username", "password1", "password2")})
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "logged_in", "joined")
    list_filter = (
        filters.form_of(
            active=filters.yes_or_no("Active", "is_active"),
            staff=filters.yes_or_no("Staff", "is_staff"),
            superuser=filters.yes_or_no("Superuser", "is_superuser"),
        ),
    )
    fieldsets = sections(
        {
            "": ("username", "password"),
            "Person": ("first_name", "last_name", "email"),
            "Permissions": ("is_active", *RIGHTS),
            "Times": ("logged_in", "joined", "deletion_shown"),
            "Quotas": ("use",),
        }
    )
    search_fields = ("username", "email")
    compressed_fields = True
    actions = ("delete_person",)
    change_form_outer_before_template = "admin/user_actions.html"

    logged_in = column("Last login (UTC)", "last_login", cells.moment)
    joined = column("Joined (UTC)", "date_joined", cells.moment)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        facts = ("logged_in", "joined", "deletion_shown", "use")
        return facts if _is_superuser(request) else (*facts, *RIGHTS)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        # A new password for a member of staff would be a way to their rights.
        may_act = obj is None or _is_superuser(request) or not (obj.is_staff or obj.is_superuser)
        return may_act and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return may_purge(request)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # The framework's class allows more look-ups.
        return ListAdmin.lookup_allowed(self, lookup, value, request)

    def get_urls(self) -> list[URLPattern]:
        pages: StaffPages = {
            "<int:pk>/delete-person/": ("delete_person", user_deletion.page),
            "<int:pk>/export/": ("export", user_deletion.export),
        }
        return [*staff_pages(self, pages), *super().get_urls()]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        user: User | None = options["obj"]
        context["may_delete_person"] = user is not None and user_deletion.may_delete(request, self, user)
        return super().render_change_form(request, context, *args, **options)

    @admin.action(description="Delete with all data (cannot be undone)", permissions=["purge"])
    def delete_person(self, request: HttpRequest, queryset: QuerySet[User]) -> HttpResponse | None:
        """Redirect to the page that asks whether to delete the chosen person."""
        keys = list(queryset.values_list("pk", flat=True)[:2])  # the page asks for the name of one person
        if len(keys) == 1:
            return HttpResponseRedirect(reverse("admin:auth_user_delete_person", args=keys))
        messages.warning(request, "Nothing was deleted. Select one user.")
        return None

    @admin.display(description="Deleted (UTC)")
    def deletion_shown(self, user: User) -> str:
        deletion = UserDeletion.objects.filter(user=user).first()
        if deletion is None:
            return "No"
        begun = f"Asked for by {deletion.requested_by}, {deletion.requested_at:%Y-%m-%d %H:%M}"
        if deletion.finished_at is None:
            return f"{begun}; data is being removed"
        erased = f"; erased from files {deletion.erased_at:%Y-%m-%d %H:%M}" if deletion.erased_at else ""
        return f"{begun}; finished {deletion.finished_at:%Y-%m-%d %H:%M}{erased}"

    @admin.display(description="Used")
    def use(self, user: User) -> SafeString | str:
        # Rates and sockets are counted by each process for itself.
        lines = [
            (
                quota.replace("_mb", " (bytes)").replace("_", " "),
                f"{used.amount:,}",
                f"{quotas.limit_of(quota):,}",
                "" if used.is_all else STILL_COUNTED,
            )
            for quota, used in usage.use_of(user.pk).items()
        ]
        return format_html_join(SafeString("<br>"), "{}: {} of {}{}", lines) or "No quotas are set."


@admin.register(Group)
class GroupAdmin(widgets.GroupAdmin, ListAdmin[Group]):
    """Groups and the rights that they give."""

    list_filter = ()

    # Groups give rights, which only superusers hand out.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request)
