"""Users' secrets: added and replaced here, never shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from pydantic import ValidationError

from convserver.admin import cells, filters
from convserver.admin.base import ListAdmin, edited_columns
from convserver.admin.cells import column
from convserver.admin.widgets import AnyModelForm, PasswordInput
from convserver.api.openhands.tool_servers import McpConfig, entered_config
from sessions_app.git_providers.base import InvalidName, ProviderType, host_of
from sessions_app.models import Secret, SecretKind
from sessions_app.settings.user_settings import SettingSecret, store_secret

KNOWN_NAMES: dict[str, list[str]] = {
    SecretKind.SETTING: [*SettingSecret],
    SecretKind.PROVIDER_TOKEN: [*ProviderType],
}
"""The names of secrets of these kinds; users choose those of others."""


class StoredSecretForm(AnyModelForm):
    """A secret with a field for its value, which is never shown."""

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
        """Refuse a blank value; an empty one keeps the stored value."""
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
        self._refuse_internal()
        known = [] if self.instance.pk else KNOWN_NAMES.get(kind, [])
        if known and self.cleaned_data.get("name") not in known:
            self.add_error("name", f"A secret of this kind must be named {' or '.join(known)}.")
        return self.cleaned_data

    def _refuse_internal(self) -> None:
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
            pass  # it is stored; its owner sees that it must be entered again
        except ValueError as error:
            self.add_error("clear", str(error))


@admin.register(Secret)
class SecretAdmin(ListAdmin[Secret]):
    """The secrets of all users, the newest first, without their values."""

    form = StoredSecretForm
    list_display = ("name", "kind", "user", "description", "changed")
    list_filter = (
        filters.form_of(
            user=filters.text("User", "user__username"),
            kind=filters.choice("Kind", SecretKind.choices, "kind"),
            name=filters.text("Name", "name"),
        ),
    )
    list_select_related = ("user",)
    autocomplete_fields = ("user",)
    fields = ("user", "kind", "name", "clear", "description", "host")

    created = column("Created (UTC)", "created_at", cells.moment)
    changed = column("Changed (UTC)", "updated_at", cells.moment)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Secret]:
        return super().get_queryset(request).defer("value")  # no page needs it, sealed as it is

    def get_fields(self, request: HttpRequest, obj: Secret | None = None) -> Any:
        # No value is asked for where the visitor could not store one.
        if not self.has_change_permission(request, obj) and obj:
            return ("user", "kind", "name", "description", "host", "created", "changed")
        return (*self.fields, "created", "changed") if obj else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Secret | None = None) -> Any:
        return ("user", "kind", "name", "created", "changed") if obj else ()

    def save_model(self, request: HttpRequest, obj: Secret, form: AnyModelForm, change: bool) -> None:
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
            obj.pk = stored.pk  # the framework goes on with the row that it made itself
        else:
            obj.save(update_fields=edited_columns(form))
