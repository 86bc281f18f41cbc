"""Users' settings: to be edited; the keys among them are secrets, and have a page of their own."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from convserver.admin import cells, filters
from convserver.admin.base import ListAdmin, sections
from convserver.admin.cells import column
from convserver.admin.widgets import AnyModelForm
from convserver.api.openhands.tool_servers import entered_url
from sessions_app.models import UserSettings

LABELS = {"llm_model": "Model", "llm_base_url": "Base URL"}


class UserSettingsForm(AnyModelForm):
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
    list_filter = (
        filters.form_of(
            user=filters.text("User", "user__username"), model=filters.text("Model", "llm_model")
        ),
    )
    list_select_related = ("user",)
    autocomplete_fields = ("user",)
    readonly_fields = ("created", "changed")
    fieldsets = sections(
        {
            "": ("user", "language", "email", "email_verified"),
            "Agent": ("agent", "llm_model", "llm_base_url", "max_iterations", "max_budget_per_task"),
            "Safety": ("confirmation_mode", "security_analyzer"),
            "Memory": ("enable_default_condenser", "condenser_max_size"),
            "Git": ("git_user_name", "git_user_email"),
            "Sandbox": (
                *("sandbox_base_container_image", "sandbox_runtime_container_image"),
                "remote_runtime_resource_factor",
            ),
            "Interface": (
                *("enable_sound_notifications", "enable_proactive_conversation_starters"),
                *("enable_solvability_analysis", "user_consents_to_analytics", "v1_enabled"),
            ),
            "Times": ("created", "changed"),
        }
    )

    model_name = column("Model", "llm_model")
    created = column("Created (UTC)", "created_at", cells.moment)
    changed = column("Changed (UTC)", "updated_at", cells.moment)

    def get_readonly_fields(self, request: HttpRequest, obj: UserSettings | None = None) -> Any:
        return (*self.readonly_fields, "user") if obj else self.readonly_fields

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if field is not None:
            field.label = LABELS.get(db_field.name, field.label)
        return field
