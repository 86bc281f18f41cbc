"""The settings that a request changes, on either wire: checked, and as columns and secrets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from convserver.api.openhands.text import storable
from convserver.api.openhands.tool_servers import EnteredMcpConfig, entered_url
from sessions_app.models import CONDENSER_SIZE_MIN, UserSettings
from sessions_app.settings.user_settings import SettingSecret

Text = Annotated[str, Field(max_length=8000), AfterValidator(storable)]
EnteredUrl = Annotated[Text, AfterValidator(entered_url)]
Key = Annotated[str, Field(max_length=16_384), AfterValidator(storable)]
Count = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""The range of an integer column of any database."""


def _enough_events(size: int) -> int:
    if size < CONDENSER_SIZE_MIN:
        raise ValueError(f"a condenser keeps {CONDENSER_SIZE_MIN} events at least")
    return size


CondenserSize = Annotated[
    int,
    Field(lt=2**31, json_schema_extra={"minimum": CONDENSER_SIZE_MIN}),
    AfterValidator(_enough_events),
]
Amount = Annotated[float, Field(allow_inf_nan=False)]

# A null leaves these as they are, and clears all others (spec V0 §1.9).
NULL_KEEPS = frozenset(
    {"llm_api_key", "llm_model", "llm_base_url", "search_api_key", "user_consents_to_analytics"}
)


# The reference resets what is absent, so that a client that knows fewer settings loses the others (spec V0
# §7.5, A9).
class NewSettings(BaseModel):
    """The settings to change; absent ones stay, null clears one, and unknown members are ignored."""

    language: Text | None = None
    agent: Text | None = None
    max_iterations: Count | None = None
    security_analyzer: Text | None = None
    confirmation_mode: bool | None = None
    llm_model: Text | None = None
    llm_api_key: Key | None = None
    llm_base_url: EnteredUrl | None = None
    remote_runtime_resource_factor: Count | None = None
    enable_default_condenser: bool | None = None
    enable_sound_notifications: bool | None = None
    enable_proactive_conversation_starters: bool | None = None
    enable_solvability_analysis: bool | None = None
    user_consents_to_analytics: bool | None = None
    sandbox_base_container_image: Text | None = None
    sandbox_runtime_container_image: Text | None = None
    mcp_config: EnteredMcpConfig | None = None
    search_api_key: Key | None = None
    sandbox_api_key: Key | None = None
    max_budget_per_task: Amount | None = None
    condenser_max_size: CondenserSize | None = None
    email: Text | None = None
    git_user_name: Text | None = None
    git_user_email: Text | None = None
    v1_enabled: bool | None = None

    def values(self) -> dict[str, Any]:
        """Return the columns to set: a setting that a null clears gets its default."""
        unset = UserSettings()
        return {
            name: getattr(unset, name) if value is None else value
            for name, value in self._given().items()
            # Before Python 3.12, `in` of an enum raises TypeError for a plain text.
            if name not in list(SettingSecret)
        }

    def secrets(self) -> dict[SettingSecret, str]:
        """Return the secrets to set, in clear; a blank one is to be removed."""
        given = self._given()
        texts = {
            **given,
            **({"mcp_config": self.mcp_config.model_dump_json()} if self.mcp_config else {}),
        }
        return {name: texts[name] or "" for name in SettingSecret if name in texts}

    def _given(self) -> dict[str, Any]:
        """Return the members of the body, without the nulls that change nothing."""
        named = {name: getattr(self, name) for name in self.model_fields_set}
        return {name: value for name, value in named.items() if value is not None or name not in NULL_KEEPS}
