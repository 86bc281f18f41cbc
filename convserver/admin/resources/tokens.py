"""API tokens: listed without their digests, issued with their text in one answer, and revoked."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from convserver.admin import cells, filters, widgets
from convserver.admin.base import ReadOnlyAdmin, may_read, record_change, staff_page
from convserver.admin.cells import column
from convserver.admin.resources.users import within_reach
from convserver.admin.widgets import AnyModelForm
from convserver.token_fields import GrantFields
from sessions_app.models import ApiToken
from sessions_app.storage import usage


class IssueForm(GrantFields, AnyModelForm):
    """A new token: whose, its name, and what it opens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("rights", "days"):
            field = cast(forms.ChoiceField, self.fields[name])
            choices, field.widget = field.choices, widgets.Select()
            field.choices = choices

    def clean(self) -> dict[str, Any] | None:
        """Refuse a name that the user has given to another token."""
        cleaned = super().clean()
        user, name = self.cleaned_data.get("user"), self.cleaned_data.get("name")
        if user is not None and name:
            try:
                usage.require_free_name(user.pk, name)
            except usage.TokenNameTaken as error:
                self.add_error("name", str(error))
        return cleaned


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin[ApiToken]):
    """The tokens of all users, the newest first."""

    form = IssueForm
    list_display = fields = ("name", "user", "beginning", "can", "created", "used", "expires", "revoked")
    list_filter = (
        filters.form_of(
            user=filters.text("User", "user__username"),
            beginning=filters.text("Token starts with", "prefix__startswith", max_length=12),
            revoked=filters.yes_or_no("Revoked", "revoked_at__isnull", yes=False),
        ),
    )
    list_select_related = ("user", "conversation")
    actions = ("revoke",)
    autocomplete_fields = ("user",)

    beginning = column("Token", lambda token: cells.code(f"{token.prefix}…"))
    created = column("Created (UTC)", "created_at", cells.moment)
    used = column("Last used (UTC)", "last_used_at", cells.moment)
    expires = column("Expires (UTC)", "expires_at", cells.moment)
    revoked = column("Revoked (UTC)", "revoked_at", cells.moment)

    def has_add_permission(self, request: HttpRequest) -> bool:
        # A token opens all that its user may read.
        return request.user.has_perm("sessions_app.add_apitoken") and may_read(request)

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        return self.fields if obj else ("user", "name", "rights", "days")

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        return self.fields if obj else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "user":
            kwargs["queryset"] = within_reach(request, User.objects.filter(is_active=True))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: ApiToken, form: AnyModelForm, change: bool) -> None:
        issued, text = ApiToken.issue(obj.user_id, obj.name, form.grant)  # type: ignore[attr-defined]
        obj.pk, obj.prefix, obj.digest = issued.pk, issued.prefix, issued.digest
        request.issued_text = text  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        # This answer alone has the text: a message would keep it in a cookie.
        shown = {"token": obj, "token_page": cells.page_of(obj), "text": request.issued_text}  # type: ignore[attr-defined]
        return staff_page(request, self, "admin/token_issued.html", "Token created", **shown)

    @admin.action(description="Revoke", permissions=["steer"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        valid = list(queryset.filter(revoked_at__isnull=True))
        for token in valid:
            token.revoke()
            record_change(request, token, "Revoked")
        messages.success(request, f"Revoked {cells.counted(len(valid), 'token')}.")

    @admin.display(description="Access")
    def can(self, token: ApiToken) -> str:
        only = f", only in {token.conversation}" if token.conversation else ""
        return f"{token.rights}{only}"
