"""The forms of the sections with their errors in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from pydantic import BaseModel
from pydantic import ValidationError as Problems

from conversations import access
from conversations.access import Visitor
from conversations.models import Conversation
from convserver.api.openhands.model_names import MODEL_NAMES
from convserver.api.openhands.tool_servers import SseServer, StdioServer, StreamableServer, entered_url
from convserver.configuration import AuthMode
from convserver.token_fields import GrantFields
from convserver.web.listing import normal_ids
from sessions_app.models import (
    MAX_ITERATIONS,
    SECRET_NAME_MAX_LENGTH,
    TOKEN_NAME_MAX_LENGTH,
    Grant,
    RunOptions,
)
from sessions_app.outbound.model_trial import KNOWN_SERVERS, InvalidBaseUrl, checked_base_url

TEXT_MAX = 8000
CONVERSATIONS_OFFERED = 50
KEY_MAX = 16_384  # enough for a private key
OFF = {"autocomplete": "off", "spellcheck": "false", "autocapitalize": "off"}
# Browsers fill fields that are only `off` with stored passwords.
SECRET = {**OFF, "autocomplete": "new-password"}
BASE_URL_HELP = "Leave empty for the provider's own address. For your own server or a proxy, for example"


class UnshownText(forms.Textarea):
    """A text area whose value is never in a page, like that of a password."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        return super().get_context(name, None, attrs)


def as_pasted(text: str) -> str:
    """Return lines without the CRLF of browsers; empty for blank lines."""
    return text.replace("\r\n", "\n") if text.strip() else ""


class PastedText(forms.CharField):
    """A text of several lines with its last line end, which private keys need."""

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, **options)

    def to_python(self, value: Any) -> str:
        # Before the length is checked; blank lines count as missing.
        return as_pasted(super().to_python(value) or "")


class Form(forms.Form):
    """A form whose fields have unique ids in a page of many forms."""

    name = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("auto_id", f"{self.name}-%s")
        super().__init__(*args, **kwargs)


class ModelForm(Form):
    """The model, its address, and its key."""

    name = "model"
    model = forms.CharField(
        required=False,
        show_hidden_initial=True,
        max_length=TEXT_MAX,
        label="Model",
        help_text="The provider, a slash, and the model's name, for example openai/gpt-5.",
        widget=forms.TextInput(attrs={**OFF, "list": "model-names"}),
    )
    base_url = forms.CharField(
        required=False,
        show_hidden_initial=True,
        max_length=TEXT_MAX,
        label="Base URL (optional)",
        help_text=f"{BASE_URL_HELP} http://localhost:11434/v1.",
        widget=forms.URLInput(attrs=OFF),
    )
    key = forms.CharField(
        required=False,
        max_length=KEY_MAX,
        label="API key",
        widget=forms.PasswordInput(attrs=SECRET),
    )
    forgets_key = forms.BooleanField(required=False, label="Remove saved key")

    names = MODEL_NAMES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if settings.CONFIGURATION.auth is AuthMode.ACCOUNTS:  # where addresses have to be public
            self.fields["base_url"].help_text = f"{BASE_URL_HELP} https://models.example.org/v1."

    @property
    def loses_key(self) -> bool:
        return bool(self.errors and self.data.get("key"))

    def clean_base_url(self) -> str:
        """Return the address without a slash at its end."""
        text: str = self.cleaned_data["base_url"]
        try:
            return checked_base_url(text) if text else ""
        except InvalidBaseUrl as error:
            raise ValidationError(str(error)) from error

    def edits(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the fields of `stored` that were edited since the page was opened.

        A field that was also changed elsewhere gets an error; sent again, it counts as edited.
        """
        edited = {}
        for name, now in stored.items():
            shown, given = self.data.get(self.add_initial_prefix(name)), self.cleaned_data[name]
            # `shown` is what the page had when it was opened: an unedited field must not undo a change that
            # was made meanwhile in another tab or by the API.
            if shown is None or given not in (shown, now):
                edited[name] = given
                if shown not in (None, now):
                    self._note_changed_elsewhere(name, now)
        return edited

    def _note_changed_elsewhere(self, name: str, now: str) -> None:
        told = f"This was changed to “{now}” elsewhere" if now else "This was emptied elsewhere"
        self.add_error(name, f"{told} since you opened the page. Save again to replace it.")
        self.data = self.data.copy()  # type: ignore[attr-defined]  # a QueryDict's is mutable
        self.data[self.add_initial_prefix(name)] = now  # type: ignore[index]


class ProviderForm(Form):
    """A server of models, beside that of the settings."""

    name = "provider"
    label = forms.CharField(
        max_length=64,
        label="Name",
        help_text="Letters, digits, dots, dashes and underscores, for example Ollama.",
        # The names that V1 clients can use in an address, too.
        validators=[RegexValidator(r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", "Use letters, digits and . _ - only.")],
        error_messages={"required": "Enter a name."},
        widget=forms.TextInput(attrs={**OFF, "placeholder": "Ollama"}),
    )
    base_url = forms.CharField(
        max_length=TEXT_MAX,
        label="Base URL",
        help_text="Where the server has its API; most end with /v1.",
        error_messages={"required": "Enter the base URL."},
        widget=forms.URLInput(
            attrs={**OFF, "list": "provider-urls", "placeholder": "http://localhost:11434/v1"}
        ),
    )
    key = forms.CharField(
        required=False,
        max_length=KEY_MAX,
        label="API key (optional)",
        help_text="It is stored encrypted and never shown.",
        widget=forms.PasswordInput(attrs=SECRET),
    )
    forgets_key = forms.BooleanField(required=False)

    urls = tuple(KNOWN_SERVERS.values())

    def clean_base_url(self) -> str:
        """Return the address without a slash at its end, and with the path that servers have by default."""
        try:
            base_url = checked_base_url(self.cleaned_data["base_url"])
        except InvalidBaseUrl as error:
            raise ValidationError(str(error)) from error
        return f"{base_url}/v1" if urlsplit(base_url).path == "" else base_url

    def clean_key(self) -> str:
        """Return the key. Raise ValidationError for one that no header holds."""
        key: str = self.cleaned_data["key"]
        if not (key.isascii() and key.isprintable()):
            raise ValidationError("The key contains invalid characters. Copy it again, without line breaks.")
        return key


class LimitsForm(Form):
    """The limits of agents in conversations without their own limits."""

    name = "limits"
    max_iterations = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,  # the column's
        label="Steps per message",
        help_text=f"Most model calls for one message (default {MAX_ITERATIONS}).",
        widget=forms.NumberInput(attrs={"placeholder": str(MAX_ITERATIONS)}),
    )
    max_budget_per_task = forms.FloatField(
        required=False,
        min_value=0,
        max_value=1_000_000,
        label="Cost per conversation (US dollars)",
        help_text="Models whose price is unknown don't count.",
        widget=forms.NumberInput(attrs={"placeholder": "no limit", "step": "any"}),
    )


class InstructionsForm(Form):
    """The user's own instructions for models."""

    name = "instructions"
    instructions = forms.CharField(
        required=False,
        max_length=RunOptions.INSTRUCTIONS_MAX_LENGTH,
        label="Your instructions",
        help_text="What every model should know about you, and how it should answer.",
        widget=forms.Textarea(attrs={"rows": 5, "dir": "auto"}),
    )


class ApprovalForm(Form):
    """The choice whether calls of tools need an approval."""

    name = "approval"
    asks = forms.BooleanField(required=False, label="Ask for my approval before each tool call")


class ServerForm(Form):
    """A tool server with an address."""

    name = "server"
    url = forms.CharField(
        max_length=TEXT_MAX,
        label="URL",
        error_messages={"required": "Enter the server's URL."},
        widget=forms.URLInput(attrs={**OFF, "placeholder": "https://tools.example.org/mcp"}),
    )
    kind = forms.ChoiceField(
        choices=[("shttp_servers", "Streamable HTTP"), ("sse_servers", "Server-sent events (SSE)")],
        label="Transport",
    )
    api_key = forms.CharField(
        required=False, max_length=KEY_MAX, label="Key (optional)", widget=forms.PasswordInput(attrs=SECRET)
    )

    server: SseServer | None = None  # the server to add, once the form is valid

    def clean(self) -> dict[str, Any]:
        given = {"url": self.cleaned_data.get("url"), "api_key": self.cleaned_data.get("api_key") or None}
        shape = StreamableServer if self.cleaned_data.get("kind") == "shttp_servers" else SseServer
        if not self.errors:
            self.server = _read(self, shape, given, {})
        if self.server is not None:
            try:
                entered_url(self.server.url)
            except ValueError as error:
                self.add_error("url", str(error))
        return self.cleaned_data


class CommandForm(Form):
    """A tool server that is a program."""

    name = "command"
    label = forms.CharField(
        max_length=200,
        label="Name",
        error_messages={"required": "Enter a name."},
        widget=forms.TextInput(attrs={**OFF, "placeholder": "files"}),
    )
    command = forms.CharField(
        max_length=TEXT_MAX,
        label="Command",
        help_text="Only the program here; its arguments in the next field.",
        error_messages={"required": "Enter the command that starts the server."},
        widget=forms.TextInput(attrs={**OFF, "placeholder": "npx"}),
    )
    args = forms.CharField(
        required=False,
        max_length=TEXT_MAX,
        label="Arguments (optional)",
        help_text="Quote arguments as in a shell.",
        widget=forms.TextInput(attrs={**OFF, "placeholder": "-y @modelcontextprotocol/server-memory"}),
    )
    env = forms.CharField(
        required=False,
        max_length=KEY_MAX,
        label="Environment (optional)",
        help_text="One NAME=value per line. Values are never shown again.",
        widget=UnshownText(attrs={**OFF, "rows": 2}),
    )

    server: StdioServer | None = None  # the server to add, once the form is valid

    def clean_env(self) -> dict[str, str]:
        pairs = [line.partition("=") for line in self.cleaned_data["env"].splitlines() if line.strip()]
        if any(not equals or not name.strip() for name, equals, _ in pairs):
            raise ValidationError("Write one NAME=value per line.")
        return {name.strip(): value for name, _, value in pairs}

    def clean(self) -> dict[str, Any]:
        given = {name: self.cleaned_data.get(name) for name in ("command", "args", "env")}
        if not self.errors:
            named = {"name": self.cleaned_data["label"], **given}
            self.server = _read(self, StdioServer, named, {"name": "label"})
        return self.cleaned_data


def _read(form: Form, shape: type[BaseModel], given: dict[str, Any], fields: dict[str, str]) -> Any:
    """Return the server, read as the wires do; None after adding the errors to the fields."""
    try:
        return shape.model_validate_json(json.dumps(given))
    except Problems as problems:
        for problem in problems.errors():
            name = str(problem["loc"][0])
            words = problem["msg"].removeprefix("Value error, ")
            form.add_error(fields.get(name, name), words[:1].upper() + words[1:] + ".")
        return None


class SecretForm(Form):
    name = "secret"
    label = forms.CharField(
        max_length=SECRET_NAME_MAX_LENGTH,
        label="Name",
        error_messages={"required": "Enter a name."},
        widget=forms.TextInput(attrs={**OFF, "placeholder": "DEPLOY_KEY"}),
    )
    value = PastedText(
        max_length=KEY_MAX,
        label="Value",
        error_messages={"required": "Enter a value."},
        widget=UnshownText(attrs={**OFF, "rows": 2}),
    )
    description = forms.CharField(
        required=False,
        max_length=TEXT_MAX,
        label="Description (optional)",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class TokenForm(GrantFields, Form):
    name = "token"
    label = forms.CharField(
        max_length=TOKEN_NAME_MAX_LENGTH,
        label="Name",
        error_messages={"required": "Enter a name."},
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": "laptop"}),
    )
    conversation = forms.ChoiceField(
        required=False,
        label="Conversations",
        help_text="For an older conversation, choose “New API token…” in its menu.",
    )

    def __init__(self, user: Visitor, *args: Any, only: str = "", **kwargs: Any) -> None:
        """Offer the user's newest conversations, and the one with the id `only`, if any."""
        data = args[0] if args else kwargs.get("data")
        chosen = only or (data.get("conversation", "") if data else "")
        super().__init__(*args, initial={"conversation": only}, **kwargs)
        self._user = user
        field = cast(forms.ChoiceField, self.fields["conversation"])
        field.choices = [("", "All conversations"), *_offered(user, chosen)]

    @property
    def grant(self) -> Grant:
        """Return the chosen rights. Raise ConversationNotFound if the conversation no longer exists."""
        only = self.cleaned_data["conversation"]
        return replace(super().grant, conversation=access.readable(self._user, only) if only else None)


def _offered(user: Visitor, chosen: str) -> list[tuple[str, str]]:
    """Return ids and titles of the newest conversations, and of the chosen one."""
    rows = Conversation.objects.visible_to(user)
    newest = list(rows.newest_first()[:CONVERSATIONS_OFFERED])
    known = {row.public_id for row in newest}
    older = [] if chosen in known else list(rows.with_public_ids(normal_ids([chosen])))
    return [(row.public_id, row.shown_title) for row in (*older, *newest)]
