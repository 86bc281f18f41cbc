"""API tokens: listed without their digests, issued with their text in one answer, and revoked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from convserver.admin import cells, widgets
from convserver.admin.base import ReadOnlyAdmin, may_change
from convserver.admin.filters import YES_OR_NO, FormFilter, choice_field, text_field
from convserver.admin.resources import audit
from convserver.admin.resources.events import may_read
from convserver.admin.resources.users import within_reach
from convserver.token_fields import GrantFields
from sessions_app.models import ApiToken, ApiTokenQuerySet
from sessions_app.storage import usage


class TokenFilterForm(forms.Form):
    """What tokens can be looked for by."""

    user = text_field("User")
    beginning = text_field("Token starts with", max_length=12)
    revoked = choice_field("Revoked", YES_OR_NO)


class TokenFilter(FormFilter[ApiTokenQuerySet]):
    """Tokens by user, beginning and whether they still open something."""

    form_class = TokenFilterForm

    def narrowed(self, rows: ApiTokenQuerySet, wanted: dict[str, Any]) -> ApiTokenQuerySet:
        """Return the tokens with the wanted facts."""
        if "user" in wanted:
            rows = rows.filter(user__username=wanted["user"])
        if "beginning" in wanted:
            rows = rows.filter(prefix__startswith=wanted["beginning"])
        if "revoked" in wanted:
            rows = rows.filter(revoked_at__isnull=wanted["revoked"] == "no")
        return rows


if TYPE_CHECKING:
    TokenModelForm = ModelForm[ApiToken]
else:
    TokenModelForm = ModelForm


class IssueForm(GrantFields, TokenModelForm):
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
    list_display = ("name", "user", "beginning", "can", "created", "used", "expires", "revoked")
    list_filter = (TokenFilter,)
    list_select_related = ("user", "conversation")
    actions = ("revoke",)
    fields = ("name", "user", "beginning", "can", "created", "used", "expires", "revoked")
    autocomplete_fields = ("user",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Let staff issue tokens who may also read what was said: a token opens everything of its user."""
        return request.user.has_perm("sessions_app.add_apitoken") and may_read(request)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Say whether the visitor may revoke tokens."""
        return may_change(request, ApiToken)

    def get_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        """Ask for what a new token opens; show the rest of one that is there."""
        return self.fields if obj else ("user", "name", "rights", "days")

    def get_readonly_fields(self, request: HttpRequest, obj: ApiToken | None = None) -> Any:
        """Let nothing of an issued token be changed."""
        return self.fields if obj else ()

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer the users who may come in, and staff only to superusers."""
        if db_field.name == "user":
            kwargs["queryset"] = within_reach(request, User.objects.filter(is_active=True))
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: ApiToken, form: ModelForm[ApiToken], change: bool
    ) -> None:
        """Issue the token; its text goes no further than this request."""
        issued, text = ApiToken.issue(obj.user_id, obj.name, form.grant)  # type: ignore[attr-defined]
        obj.pk, obj.prefix, obj.digest = issued.pk, issued.prefix, issued.digest
        request.issued_text = text  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Show the text, in this answer alone: a message would wait for it in a cookie."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Token created",
            "token": obj,
            "token_page": cells.page_of(obj),
            "text": request.issued_text,  # type: ignore[attr-defined]
        }
        return TemplateResponse(request, "admin/token_issued.html", context)

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        """Let the chosen tokens open nothing any more."""
        standing = list(queryset.filter(revoked_at__isnull=True))
        for token in standing:
            token.revoke()
            audit.record_change(request, token, "Revoked")
        messages.success(request, f"Revoked {len(standing)} token{'' if len(standing) == 1 else 's'}.")

    @admin.display(description="Token")
    def beginning(self, token: ApiToken) -> SafeString:
        """The token's beginning."""
        return cells.code(f"{token.prefix}…")

    @admin.display(description="Created (UTC)")
    def created(self, token: ApiToken) -> SafeString | None:
        """When it was issued."""
        return cells.moment(token.created_at)

    @admin.display(description="Last used (UTC)")
    def used(self, token: ApiToken) -> SafeString | None:
        """When it last let somebody in, to the minute."""
        return cells.moment(token.last_used_at)

    @admin.display(description="Access")
    def can(self, token: ApiToken) -> str:
        """What it lets its holder do."""
        only = f", only in {token.conversation}" if token.conversation else ""
        return f"{token.rights}{only}"

    @admin.display(description="Expires (UTC)")
    def expires(self, token: ApiToken) -> SafeString | None:
        """When it stops working by itself."""
        return cells.moment(token.expires_at)

    @admin.display(description="Revoked (UTC)")
    def revoked(self, token: ApiToken) -> SafeString | None:
        """Since when it opens nothing."""
        return cells.moment(token.revoked_at)
