"""Users' settings: to be edited; the keys among them are secrets, and have a page of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from convserver.admin import cells
from convserver.admin.base import ListAdmin, one_line
from convserver.admin.filters import FormFilter, text_field
from convserver.api.openhands.tool_servers import entered_url
from sessions_app.models import UserSettings

if TYPE_CHECKING:
    FormOfSettings = forms.ModelForm[UserSettings]
else:
    FormOfSettings = forms.ModelForm

LABELS = {"llm_model": "Model", "llm_base_url": "Base URL"}


class SettingsFilterForm(forms.Form):
    """What settings can be looked for by."""

    user = text_field("User")
    model = text_field("Model")


class SettingsFilter(FormFilter[QuerySet[UserSettings]]):
    """Settings by user and model."""

    form_class = SettingsFilterForm

    def narrowed(self, rows: QuerySet[UserSettings], wanted: dict[str, Any]) -> QuerySet[UserSettings]:
        """Return the settings with the wanted facts."""
        if "user" in wanted:
            rows = rows.filter(user__username=wanted["user"])
        if "model" in wanted:
            rows = rows.filter(llm_model=wanted["model"])
        return rows


class UserSettingsForm(FormOfSettings):
    """A user's settings, whose addresses the server asks for the user."""

    def clean_llm_base_url(self) -> str | None:
        """Refuse an address that may not be asked."""
        url: str | None = self.cleaned_data["llm_base_url"]
        try:
            return url and entered_url(url)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None


@admin.register(UserSettings)
class UserSettingsAdmin(ListAdmin[UserSettings]):
    """One row for each user who has set anything."""

    form = UserSettingsForm
    list_display = ("user", "model_name", "agent", "language", "changed")
    list_filter = (SettingsFilter,)
    list_select_related = ("user",)
    autocomplete_fields = ("user",)
    readonly_fields = ("created", "changed")
    fieldsets = (
        (None, {"fields": ("user", "language", "email", "email_verified")}),
        (
            "Agent",
            {"fields": ("agent", "llm_model", "llm_base_url", "max_iterations", "max_budget_per_task")},
        ),
        ("Safety", {"fields": ("confirmation_mode", "security_analyzer")}),
        ("Memory", {"fields": ("enable_default_condenser", "condenser_max_size")}),
        ("Git", {"fields": ("git_user_name", "git_user_email")}),
        (
            "Sandbox",
            {
                "fields": (
                    "sandbox_base_container_image",
                    "sandbox_runtime_container_image",
                    "remote_runtime_resource_factor",
                )
            },
        ),
        (
            "Interface",
            {
                "fields": (
                    "enable_sound_notifications",
                    "enable_proactive_conversation_starters",
                    "enable_solvability_analysis",
                    "user_consents_to_analytics",
                    "v1_enabled",
                )
            },
        ),
        ("Times", {"fields": ("created", "changed")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: UserSettings | None = None) -> Any:
        """Let settings stay whose they are."""
        return (*self.readonly_fields, "user") if obj else self.readonly_fields

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Ask for texts on one line, and take an empty one for not set."""
        field = one_line(db_field, super().formfield_for_dbfield(db_field, request, **kwargs))
        if field is not None:
            field.label = LABELS.get(db_field.name, field.label)
        return field

    @admin.display(description="Model")
    def model_name(self, row: UserSettings) -> str | None:
        """Which model answers the user."""
        return row.llm_model

    @admin.display(description="Created (UTC)")
    def created(self, row: UserSettings) -> SafeString | None:
        """When they were first set."""
        return cells.moment(row.created_at)

    @admin.display(description="Changed (UTC)")
    def changed(self, row: UserSettings) -> SafeString | None:
        """When they were last changed."""
        return cells.moment(row.updated_at)
