"""What a client builds the forms of settings from: the fields that have an effect on this server."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from sessions_app.settings.placeholder_keys import MASKED_FROM


class FormField(BaseModel):
    """One field of a form."""

    key: str
    """The path in the document, with dots."""
    label: str
    description: str | None = None
    section: str
    section_label: str
    value_type: Literal["string", "integer", "boolean", "object"]
    default: Any = None
    prominence: Literal["critical", "major", "minor"] = "critical"
    depends_on: list[str] = []
    secret: bool = False
    choices: list[dict[str, Any]] = []
    variant: str | None = None


class FormSection(BaseModel):
    """Fields that belong together."""

    key: str
    label: str
    fields: list[FormField]
    variant: str | None = None


class SettingsForm(BaseModel):
    """The sections of a form."""

    model_name: str
    sections: list[FormSection]


def _section(key: str, label: str, *fields: dict[str, Any], variant: str | None = None) -> FormSection:
    of_section: dict[str, Any] = {"section": key, "section_label": label, "variant": variant}
    return FormSection(
        key=key, label=label, variant=variant, fields=[FormField(**of_section, **each) for each in fields]
    )


AGENT_FORM = SettingsForm(
    model_name="AgentSettings",
    sections=[
        _section(
            "general",
            "General",
            {
                "key": "mcp_config",
                "label": "Tool servers",
                "description": "Tool servers that agents may use, by name.",
                "value_type": "object",
                "default": {},
                "prominence": "minor",
            },
        ),
        _section(
            "llm",
            "Model",
            {
                "key": "llm.model",
                "label": "Model",
                "description": "The provider and the model, for example openai/gpt-5.",
                "value_type": "string",
            },
            {
                "key": "llm.api_key",
                "label": "API key",
                "description": MASKED_FROM,
                "value_type": "string",
                "secret": True,
            },
            {
                "key": "llm.base_url",
                "label": "Base URL",
                "description": "The address of the model's server, if it is not the provider's own.",
                "value_type": "string",
                "prominence": "major",
            },
            variant="openhands",
        ),
        _section(
            "condenser",
            "Condenser",
            {
                "key": "condenser.enabled",
                "label": "Summarize long conversations",
                "value_type": "boolean",
                "default": True,
            },
            {
                "key": "condenser.max_size",
                "label": "Events kept",
                "description": "How many events a conversation has before its older ones are summarized.",
                "value_type": "integer",
                "default": 240,
                "prominence": "minor",
                "depends_on": ["condenser.enabled"],
            },
            variant="openhands",
        ),
    ],
)

CONVERSATION_FORM = SettingsForm(
    model_name="ConversationSettings",
    sections=[
        _section(
            "general",
            "General",
            {
                "key": "max_iterations",
                "label": "Steps of a run",
                "value_type": "integer",
                "default": 500,
                "prominence": "major",
            },
        ),
        _section(
            "verification",
            "Approval",
            {
                "key": "confirmation_mode",
                "label": "Ask before a tool is used",
                "value_type": "boolean",
                "default": False,
            },
            {
                "key": "security_analyzer",
                "label": "What judges the risk of a call",
                "description": "With none, each call waits for approval.",
                "value_type": "string",
                "prominence": "major",
                "depends_on": ["confirmation_mode"],
                "choices": [
                    {"label": "None", "value": "none"},
                    {"label": "Model", "value": "llm"},
                ],
            },
        ),
    ],
)
