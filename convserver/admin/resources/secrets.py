"""Users' secrets: added and replaced here, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from pydantic import ValidationError

from convserver.admin import cells
from convserver.admin.base import ListAdmin, edited_columns, one_line
from convserver.admin.filters import ANY, FormFilter, choice_field, text_field
from convserver.admin.widgets import PasswordInput
from convserver.api.openhands.tool_servers import McpConfig, entered_config
from sessions_app.git_providers.base import InvalidName, ProviderType
from sessions_app.git_providers.names import host_of
from sessions_app.models import Secret, SecretKind, SecretQuerySet
from sessions_app.settings.user_settings import SettingSecret, store_secret

if TYPE_CHECKING:
    FormOfSecret = forms.ModelForm[Secret]
else:
    FormOfSecret = forms.ModelForm

KNOWN_NAMES: dict[str, list[str]] = {
    SecretKind.SETTING: [*SettingSecret],
    SecretKind.PROVIDER_TOKEN: [*ProviderType],
}
"""The names that secrets of these kinds can have; others are the users' choice."""


class SecretFilterForm(forms.Form):
    """What secrets can be looked for by."""

    user = text_field("User")
    kind = choice_field("Kind", [ANY, *SecretKind.choices])
    name = text_field("Name")


class SecretFilter(FormFilter[SecretQuerySet]):
    """Secrets by user, kind and name."""

    form_class = SecretFilterForm

    def narrowed(self, rows: SecretQuerySet, wanted: dict[str, Any]) -> SecretQuerySet:
        """Return the secrets with the wanted facts."""
        columns = {"user": "user__username"}
        return rows.filter(**{columns.get(name, name): value for name, value in wanted.items()})


class SecretForm(FormOfSecret):
    """A secret with a field for its value, which goes in and never comes out."""

    clear = forms.CharField(
        label="Value",
        required=False,
        strip=False,
        widget=PasswordInput({"autocomplete": "new-password"}),
    )

    class Meta:
        model = Secret
        fields = ("user", "kind", "name", "description", "host")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.fields["clear"].help_text = "Leave empty to keep the stored value."

    def clean_clear(self) -> str:
        """Refuse a blank value; nothing at all keeps a stored one."""
        clear: str = self.cleaned_data["clear"]
        if not clear.strip() and (clear or not self.instance.pk):
            raise forms.ValidationError("A secret cannot be blank.")
        return clear

    def clean(self) -> dict[str, Any]:
        """Refuse a name or a host that the kind does not have."""
        super().clean()
        kind = self.instance.kind if self.instance.pk else self.cleaned_data.get("kind", "")
        if self.cleaned_data.get("host") and kind != SecretKind.PROVIDER_TOKEN:
            self.add_error("host", "Only provider tokens have a host.")
        self._refuse_internal(kind)
        known = [] if self.instance.pk else KNOWN_NAMES.get(kind, [])
        if known and self.cleaned_data.get("name") not in known:
            self.add_error("name", f"A secret of this kind must be named {' or '.join(known)}.")
        return self.cleaned_data

    def _refuse_internal(self, kind: str) -> None:
        """Refuse a git host or tool servers that the server may not ask for the user."""
        name = self.instance.name if self.instance.pk else self.cleaned_data.get("name")
        try:
            if host := self.cleaned_data.get("host"):
                host_of(host, public=host, takes_path=True)
        except InvalidName as error:
            self.add_error("host", str(error))
        if name != SettingSecret.MCP_CONFIG or not self.cleaned_data.get("clear"):
            return
        try:
            entered_config(McpConfig.model_validate_json(self.cleaned_data["clear"]))
        except ValidationError:
            pass  # it can be stored; its owner sees that it has to be entered again
        except ValueError as error:
            self.add_error("clear", str(error))


@admin.register(Secret)
class SecretAdmin(ListAdmin[Secret]):
    """The secrets of all users, the newest first; of their values nothing is known here."""

    form = SecretForm
    list_display = ("name", "kind", "user", "description", "changed")
    list_filter = (SecretFilter,)
    list_select_related = ("user",)
    autocomplete_fields = ("user",)
    fields = ("user", "kind", "name", "clear", "description", "host")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Secret]:
        """Return the rows without their values."""
        return super().get_queryset(request).defer("value")

    def get_fields(self, request: HttpRequest, obj: Secret | None = None) -> Any:
        """Ask for no value where none could be stored, and say when the stored one was."""
        if not self.has_change_permission(request, obj) and obj:
            return ("user", "kind", "name", "description", "host", "created", "changed")
        return (*self.fields, "created", "changed") if obj else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Secret | None = None) -> Any:
        """Let a secret stay whose and what it is."""
        return ("user", "kind", "name", "created", "changed") if obj else ()

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Ask for texts on one line."""
        return one_line(db_field, super().formfield_for_dbfield(db_field, request, **kwargs))

    def save_model(
        self, request: HttpRequest, obj: Secret, form: forms.ModelForm[Secret], change: bool
    ) -> None:
        """Store the value encrypted, or only what stands beside it."""
        clear = form.cleaned_data["clear"]
        if clear:
            stored = store_secret(
                obj.user_id,
                SecretKind(obj.kind),
                name=obj.name,
                value=clear,
                description=obj.description,
                host=obj.host,
            )
            obj.pk = stored.pk
        else:
            obj.save(update_fields=edited_columns(form))

    @admin.display(description="Created (UTC)")
    def created(self, secret: Secret) -> SafeString | None:
        """When there was first a secret of this name."""
        return cells.moment(secret.created_at)

    @admin.display(description="Changed (UTC)")
    def changed(self, secret: Secret) -> SafeString | None:
        """When it was last replaced or described."""
        return cells.moment(secret.updated_at)
