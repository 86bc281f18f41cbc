"""Keys of models in texts: a word that is typed where no key is wanted hides nothing of what people say."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from conversations.redaction import secrets
from conversations.redaction.masking import MASK
from sessions_app.models import SecretKind
from sessions_app.settings import agent_setups, placeholder_keys, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import SettingSecret

pytestmark = pytest.mark.one_engine

PLACEHOLDERS = (
    "EMPTY",
    "ollama",
    "none",
    "dummy",
    "x",
    "lm-studio",
    "no-key",
    "sk-no-key-required",
    "xxxxxxxx",
)


def shown(user: User, text: str, conversation: int | None = None) -> str:
    return secrets.masks_of(user.pk, conversation).hide(text)


def test_a_placeholder_and_a_short_key_stay_in_texts(alice: User, subtests: pytest.Subtests) -> None:
    for key in (*PLACEHOLDERS, " Ollama ", "k", "seven77"):
        with subtests.test(key):
            user_settings.change_settings(alice.pk, {}, secrets={SettingSecret.LLM_API_KEY: key})
            text = f"The list was {key}, and {key.lower()} it stayed: exact"
            assert shown(alice, text) == text


def test_other_keys_and_all_secrets_for_agents_are_masked(alice: User, subtests: pytest.Subtests) -> None:
    user_settings.change_settings(alice.pk, {}, secrets={SettingSecret.LLM_API_KEY: "sk-12345"})
    assert shown(alice, "with sk-12345") == f"with {MASK}"
    for word in ("EMPTY", "ollama", "x", "none"):
        with subtests.test(word):
            user_settings.store_secret(alice.pk, SecretKind.CUSTOM, name="WORD", value=word)
            assert MASK in shown(alice, f"it is {word}")


def test_a_placeholder_in_the_setup_of_an_agent_stays_in_texts(alice: User) -> None:
    agent = {"kind": "Agent", "llm": {"model": "m", "api_key": "lm-studio"}, "mcp_config": {}}
    talk = agent_setups.create(alice, NewSetup(agent=agent), title="About lm-studio")
    assert shown(alice, "lm-studio", talk.pk) == "lm-studio"
    agent["llm"] = {"model": "m", "api_key": "sk-1234567890"}
    other = agent_setups.create(alice, NewSetup(agent=agent))
    assert shown(alice, "sk-1234567890", other.pk) == MASK


def test_who_enters_a_short_key_is_told(subtests: pytest.Subtests) -> None:
    for key, is_told in (
        ("seven77", True),
        ("k9", True),
        ("EMPTY", False),
        ("", False),
        ("sk-1234567890", False),
    ):
        with subtests.test(key):
            assert bool(placeholder_keys.note_on(key)) is is_told
