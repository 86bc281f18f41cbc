"""A user's settings on the app face: the document of the agent face, with what web clients keep beside it."""

from __future__ import annotations

from typing import Annotated, Any

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.new_settings import NewSettings
from convserver.api.openhands.settings import SecretsStore
from convserver.api.openhands.text import StorableText
from convserver.api.openhands.view import body_of
from convserver.api.scopes import BY_ANSWER, OF_THE_USER, WRITES, requires
from convserver.api.v1.agent.requests import KeptObject
from convserver.api.v1.agent.settings import document, forms
from convserver.api.v1.agent.settings.document import AGENT, CONVERSATION
from convserver.api.v1.agent.settings.profiles import note_on
from convserver.api.v1.app.view import AppViewSet
from sessions_app.identity import scopes
from sessions_app.models import Scope, UserSettings
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import SettingSecret

KEPT = "web_client"
"""The member of the stored document that has the settings of web clients alone."""
SHARED = (
    "language",
    "remote_runtime_resource_factor",
    "enable_sound_notifications",
    "enable_proactive_conversation_starters",
    "user_consents_to_analytics",
    "sandbox_base_container_image",
    "sandbox_runtime_container_image",
    "max_budget_per_task",
    "email",
    "git_user_name",
    "git_user_email",
    "v1_enabled",
)
"""The settings that V0 has under the same name."""
LEGACY = ("agent_settings", "conversation_settings")
USE_DIFFS = "Use *_diff nested settings payloads instead of legacy keys"


class Marketplace(BaseModel):
    """A place that plugins come from: kept for the web client, and not read here."""

    name: Annotated[StorableText, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,99}$")]
    source: Annotated[StorableText, Field(min_length=1, max_length=1000)]
    ref: Annotated[StorableText, Field(max_length=1000)] | None = None
    repo_path: Annotated[StorableText, Field(max_length=1000)] | None = None
    auto_load: bool = False


class WebClientSettings(BaseModel):
    """The settings that only web clients know; they have no effect on the server."""

    disabled_skills: Annotated[list[StorableText], Field(max_length=1000)] | None = None
    git_full_clone: bool = False
    sandbox_grouping_strategy: Annotated[StorableText, Field(max_length=100)] = "NO_GROUPING"
    default_sandbox_spec_id: Annotated[StorableText, Field(max_length=1000)] | None = None
    registered_marketplaces: Annotated[list[Marketplace], Field(max_length=100)] = []


class AppSettings(BaseModel):
    """A user's settings; a key is never shown, only whether there is one."""

    disabled_skills: list[str] | None
    git_full_clone: bool
    sandbox_grouping_strategy: str
    default_sandbox_spec_id: str | None
    registered_marketplaces: list[dict[str, Any]]

    language: str | None
    user_version: None = None
    remote_runtime_resource_factor: int | None
    secrets_store: SecretsStore = SecretsStore(provider_tokens={})
    enable_sound_notifications: bool
    enable_proactive_conversation_starters: bool
    user_consents_to_analytics: bool | None
    sandbox_base_container_image: str | None
    sandbox_runtime_container_image: str | None
    search_api_key: None = None
    sandbox_api_key: None = None
    max_budget_per_task: float | None
    email: str | None
    email_verified: bool | None
    git_user_name: str | None
    git_user_email: str | None
    v1_enabled: bool | None
    agent_settings: dict[str, Any]
    conversation_settings: dict[str, Any]
    inherited_marketplaces: list[dict[str, Any]] = []
    llm_api_key_set: bool
    search_api_key_set: bool
    provider_tokens_set: dict[str, str | None]


class NewAppSettings(WebClientSettings, NewSettings):
    """The settings to change; absent ones stay, and the members of a `…_diff` are merged."""

    agent_settings_diff: KeptObject | None = None
    conversation_settings_diff: KeptObject | None = None
    agent_settings: Any = None
    conversation_settings: Any = None


class StoredSettings(BaseModel):
    """They are stored."""

    message: str


class SettingsFailure(BaseModel):
    """The reason for a failure."""

    error: str


class LegacySettings(SettingsFailure):
    """The members that are not taken any more."""

    keys: list[str]


class AppSettingsViewSet(AppViewSet):
    """The settings of the user."""

    needs = OF_THE_USER

    @requires(BY_ANSWER)
    @extend_schema(responses={200: AppSettings, 404: SettingsFailure})
    def retrieve(self, request: Request) -> Response:
        """Return all settings; 404 if none was ever saved, which makes web clients ask for them.

        A token without the scope `admin` is shown the language and the names of agent and model alone.
        """
        stored = user_settings.settings_of(self.user_id)
        if stored is None:
            # Web clients then open the dialogue of the first run.
            raise Refused(404, {"error": "Settings not found"})
        shown = _shown(self.user_id, stored)
        if not scopes.may(request.user, Scope.ADMIN):
            scopes.require(request.user, Scope.READ)
            # OpenHands' command line asks for these at its log-in, whose token has no `admin`.
            shown = _outline(shown)
        return Response(shown.model_dump(mode="json"))

    @extend_schema(
        request=NewAppSettings,
        responses={200: StoredSettings, 400: Detail, 422: LegacySettings | ValidationProblems},
    )
    def change(self, request: Request) -> Response:
        """Change the settings that the body names."""
        body = body_of(request, NewAppSettings)
        # Members of an older form of the settings: to ignore them would answer 200 and store nothing.
        if legacy := [name for name in LEGACY if name in body.model_fields_set]:
            raise Refused(422, {"error": USE_DIFFS, "keys": legacy})
        own = body.model_dump(mode="json", include=body.model_fields_set & {*WebClientSettings.model_fields})
        diffs = {
            AGENT: _without_masked_key(body.agent_settings_diff),
            CONVERSATION: body.conversation_settings_diff,
            KEPT: own,
        }
        shared = body.model_dump(include=body.model_fields_set & {*SHARED, "search_api_key"})
        document.change(
            self.user_id,
            {part: diff for part, diff in diffs.items() if diff},
            pointers={},
            settings=NewSettings.model_validate(shared),
        )
        note = note_on((body.agent_settings_diff or {}).get("llm"))
        return Response({"message": f"Settings stored. {note}" if note else "Settings stored"})

    @requires(WRITES)
    @extend_schema(responses={200: forms.SettingsForm})
    def agent_form(self, request: Request) -> Response:
        """Return the fields of an agent's settings that have an effect here."""
        return Response(forms.AGENT_FORM.model_dump())

    @requires(WRITES)
    @extend_schema(responses={200: forms.SettingsForm})
    def conversation_form(self, request: Request) -> Response:
        """Return the fields of a conversation's settings that have an effect here."""
        return Response(forms.CONVERSATION_FORM.model_dump())


def _shown(user_id: int, stored: UserSettings) -> AppSettings:
    shown = document.shown(user_id)
    # This wire says by a flag that there is a key, and never shows a mask that a client could send back.
    shown[AGENT]["llm"]["api_key"] = None
    return AppSettings(
        **{name: getattr(stored, name) for name in SHARED},
        **WebClientSettings.model_validate(document.kept_of(user_id).get(KEPT, {})).model_dump(),
        email_verified=stored.email_verified,
        agent_settings=shown[AGENT],
        conversation_settings=shown[CONVERSATION],
        llm_api_key_set=shown["llm_api_key_is_set"],
        search_api_key_set=SettingSecret.SEARCH_API_KEY in user_settings.setting_secrets(user_id),
        provider_tokens_set={
            provider: token.host for provider, token in user_settings.provider_tokens(user_id).items()
        },
    )


def _outline(settings: AppSettings) -> AppSettings:
    """Return the settings without what names people, hosts, tool servers and keys."""
    agent = settings.agent_settings
    hidden = dict.fromkeys(
        (
            *("email", "email_verified", "git_user_name", "git_user_email"),
            *("disabled_skills", "max_budget_per_task", "default_sandbox_spec_id"),
            *("sandbox_base_container_image", "sandbox_runtime_container_image"),
        )
    )
    return settings.model_copy(
        update={
            **hidden,
            "registered_marketplaces": [],
            "agent_settings": {"agent": agent.get("agent"), "llm": {"model": agent["llm"].get("model")}},
            "conversation_settings": {},
            "provider_tokens_set": {},
        }
    )


def _without_masked_key(diff: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the change without a null key: a client that was shown no key sends none back."""
    if diff is None or not isinstance(llm := diff.get("llm"), dict) or llm.get("api_key", "") is not None:
        return diff
    return {**diff, "llm": {name: value for name, value in llm.items() if name != "api_key"}}
