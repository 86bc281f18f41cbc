"""What a user has set, and their secrets: each user's own, replaced one at a time, never half."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError

from sessions_app.encryption import InvalidSecret, SecretUnreadable, seal
from sessions_app.git_providers.base import ProviderToken, ProviderType
from sessions_app.models import Secret, SecretKind, UserSettings
from sessions_app.settings import user_settings
from sessions_app.settings.user_settings import (
    ModelKeyMissing,
    SettingSecret,
    SettingsNotFound,
    store_secret,
)

pytestmark = pytest.mark.one_engine

UNSET = {
    "language": None,
    "agent": None,
    "max_iterations": None,
    "security_analyzer": None,
    "confirmation_mode": None,
    "llm_model": None,
    "llm_base_url": None,
    "remote_runtime_resource_factor": None,
    "enable_default_condenser": True,
    "enable_sound_notifications": False,
    "enable_proactive_conversation_starters": True,
    "enable_solvability_analysis": True,
    "user_consents_to_analytics": None,
    "sandbox_base_container_image": None,
    "sandbox_runtime_container_image": None,
    "max_budget_per_task": None,
    "condenser_max_size": None,
    "email": None,
    "email_verified": None,
    "git_user_name": None,
    "git_user_email": None,
    "v1_enabled": None,
}
"""Spec V0 §1.9, but for what is secret."""


def store_key(user: User, value: str = "sk-1") -> Secret:
    return store_secret(user.pk, SecretKind.SETTING, name=SettingSecret.LLM_API_KEY, value=value)


def store_token(user: User, provider: ProviderType, value: str, **values: Any) -> Secret:
    return store_secret(user.pk, SecretKind.PROVIDER_TOKEN, name=provider, value=value, **values)


def store_custom(user: User, name: str, value: str, **values: Any) -> Secret:
    return store_secret(user.pk, SecretKind.CUSTOM, name=name, value=value, **values)


def replace_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with another secret key, so that what is stored can no longer be opened."""
    monkeypatch.setattr(settings, "SECRET_KEY", "another " * 10)


# Settings


def test_a_user_who_has_set_nothing_has_no_settings(alice: User) -> None:
    assert user_settings.settings_of(alice.pk) is None


def test_what_is_not_set_has_the_defaults_of_the_wire(alice: User) -> None:
    UserSettings.objects.create(user=alice)
    found = user_settings.settings_of(alice.pk)
    assert {name: getattr(found, name) for name in UNSET} == UNSET


def test_settings_are_the_users_own(alice: User, bob: User) -> None:
    UserSettings.objects.create(user=alice, git_user_name="Alice")
    UserSettings.objects.create(user=bob, git_user_name="Bob", llm_model="gpt-9")
    found = user_settings.settings_of(alice.pk)
    assert found is not None
    assert (found.git_user_name, found.llm_model) == ("Alice", None)


@pytest.mark.needs_engine
def test_a_user_has_settings_once(alice: User) -> None:
    UserSettings.objects.create(user=alice)
    with pytest.raises(IntegrityError):
        UserSettings.objects.create(user=alice)


@pytest.mark.needs_engine
def test_the_database_refuses_a_condenser_that_is_too_small(alice: User) -> None:
    UserSettings.objects.create(user=alice, condenser_max_size=20)
    with pytest.raises(IntegrityError):
        UserSettings.objects.update(condenser_max_size=19)


# The model's key


def has_model_key(user: User) -> bool:
    try:
        user_settings.require_model_key(user.pk)
    except (SettingsNotFound, ModelKeyMissing):
        return False
    return True


def test_without_settings_there_is_no_model_key(alice: User) -> None:
    store_key(alice)
    with pytest.raises(SettingsNotFound):
        user_settings.require_model_key(alice.pk)
    assert not has_model_key(alice)


@pytest.mark.parametrize("model", [None, "", "openai/gpt-5", "my-bedrock/model", "bedrock"])
def test_a_model_needs_a_key(alice: User, model: str | None) -> None:
    UserSettings.objects.create(user=alice, llm_model=model)
    with pytest.raises(ModelKeyMissing):
        user_settings.require_model_key(alice.pk)
    store_key(alice)
    assert has_model_key(alice)


@pytest.mark.parametrize("model", ["bedrock/claude", "lemonade/qwen"])
def test_some_models_need_none(alice: User, model: str) -> None:
    UserSettings.objects.create(user=alice, llm_model=model)
    assert has_model_key(alice)


def test_the_key_of_another_user_or_another_purpose_is_not_the_models(alice: User, bob: User) -> None:
    UserSettings.objects.create(user=alice)
    store_key(bob)
    store_secret(alice.pk, SecretKind.SETTING, name=SettingSecret.SEARCH_API_KEY, value="tvly-1")
    store_custom(alice, "llm_api_key", "mine")
    assert not has_model_key(alice)


def test_a_key_that_cannot_be_opened_is_none_until_it_is_stored_again(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    UserSettings.objects.create(user=alice)
    store_key(alice)
    replace_key(monkeypatch)
    assert not has_model_key(alice)
    store_key(alice)
    assert has_model_key(alice)


# Storing


def test_a_stored_secret_reads_back(alice: User) -> None:
    store_custom(alice, "DEPLOY_KEY", "ssh-ed25519 …", description="for staging")
    assert user_settings.secret_value(alice.pk, SecretKind.CUSTOM, name="DEPLOY_KEY") == "ssh-ed25519 …"


def test_there_is_no_secret_of_another_name_kind_or_user(alice: User, bob: User) -> None:
    store_custom(alice, "github", "mine")
    asked = [
        (alice, SecretKind.CUSTOM, "GITHUB"),
        (alice, SecretKind.PROVIDER_TOKEN, "github"),
        (bob, SecretKind.CUSTOM, "github"),
    ]
    assert [user_settings.secret_value(user.pk, kind, name=name) for user, kind, name in asked] == [None] * 3


@pytest.mark.needs_engine
def test_storing_again_replaces_the_value_and_keeps_the_description(alice: User) -> None:
    first = store_custom(alice, "DEPLOY_KEY", "old", description="for staging")
    store_custom(alice, "DEPLOY_KEY", "new")
    row = Secret.objects.get()
    assert (row.value.open(), row.description, row.created_at) == ("new", "for staging", first.created_at)
    assert row.updated_at > first.updated_at


def test_storing_again_can_change_the_description(alice: User) -> None:
    store_custom(alice, "DEPLOY_KEY", "value", description="for staging")
    store_custom(alice, "DEPLOY_KEY", "value", description="")
    assert Secret.objects.get().description == ""


def test_a_new_token_brings_its_own_host_and_user(alice: User) -> None:
    store_token(alice, ProviderType.GITLAB, "t1", host="git.example.org", provider_user_id="7")
    store_token(alice, ProviderType.GITLAB, "t2")
    row = Secret.objects.get()
    assert (row.value.open(), row.host, row.provider_user_id) == ("t2", None, None)


@pytest.mark.needs_engine
@pytest.mark.parametrize("value", ["", "  ", "\ud800"])
def test_a_value_that_cannot_be_kept_changes_nothing(alice: User, value: str) -> None:
    store_key(alice, "sk-1")
    with pytest.raises(InvalidSecret):
        store_key(alice, value)
    assert Secret.objects.get().value.open() == "sk-1"


def test_a_name_that_its_kind_cannot_have_is_refused(subtests: pytest.Subtests, alice: User) -> None:
    for kind, name in [
        (SecretKind.SETTING, "llm_model"),
        (SecretKind.PROVIDER_TOKEN, "sourceforge"),
        (SecretKind.CUSTOM, ""),
        (SecretKind.CUSTOM, " "),
        (SecretKind.CUSTOM, "N" * 256),
        (SecretKind.CUSTOM, "a\0b"),
        (SecretKind.CUSTOM, "\ud800"),
    ]:
        with subtests.test(kind=kind, name=name):
            with pytest.raises(InvalidSecret, match="name"):
                store_secret(alice.pk, kind, name=name, value="value")
            assert not Secret.objects.exists()


def test_only_a_providers_token_has_a_host(alice: User) -> None:
    with pytest.raises(InvalidSecret, match="host"):
        store_custom(alice, "DEPLOY_KEY", "value", host="git.example.org")
    with pytest.raises(IntegrityError):
        Secret.objects.create(
            user=alice, kind=SecretKind.CUSTOM, name="DEPLOY_KEY", value=seal("value"), host="git.example.org"
        )


@pytest.mark.needs_engine
def test_a_description_and_a_host_may_be_any_text(alice: User) -> None:
    store_token(alice, ProviderType.GITHUB, "t", host="git\0.example.org", description="half: \ud83d")
    row = Secret.objects.get()
    assert (row.host, row.description) == ("git\ufffd.example.org", "half: \ufffd")


def test_a_secret_that_no_key_opens_is_an_error_and_not_an_absent_one(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_key(alice)
    replace_key(monkeypatch)
    with pytest.raises(SecretUnreadable, match="SECRET_KEY_FALLBACKS"):
        user_settings.secret_value(alice.pk, SecretKind.SETTING, name=SettingSecret.LLM_API_KEY)


@pytest.mark.needs_engine
def test_settings_and_secrets_go_with_their_user(bob: User) -> None:
    UserSettings.objects.create(user=bob)
    store_key(bob)
    bob.delete()
    assert not UserSettings.objects.exists()
    assert not Secret.objects.exists()


# Providers


def test_provider_tokens_are_those_of_the_user_by_provider(alice: User, bob: User) -> None:
    store_token(alice, ProviderType.GITHUB, "gh-token")
    store_token(alice, ProviderType.GITLAB, "gl-token", host="git.example.org", provider_user_id="7")
    store_token(bob, ProviderType.BITBUCKET, "bobs-token")
    store_custom(alice, "bitbucket", "no token")
    assert user_settings.provider_tokens(alice.pk) == {
        ProviderType.GITHUB: ProviderToken(token="gh-token"),
        ProviderType.GITLAB: ProviderToken(token="gl-token", host="git.example.org", user_id="7"),
    }


def test_what_cannot_be_opened_is_left_out_and_logged_without_its_value(
    alice: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = store_token(alice, ProviderType.GITHUB, "gh-token")
    replace_key(monkeypatch)
    store_token(alice, ProviderType.GITLAB, "gl-token")
    with caplog.at_level(logging.WARNING):
        found = user_settings.provider_tokens(alice.pk)
    assert list(found) == [ProviderType.GITLAB]
    assert "provider_token 'github'" in caplog.text
    assert not any(text in caplog.text for text in ("gh-token", "gl-token", unreadable.value.token))


def test_a_token_for_a_provider_that_is_not_known_here_is_left_out(alice: User) -> None:
    Secret.objects.create(
        user=alice, kind=SecretKind.PROVIDER_TOKEN, name="sourceforge", value=seal("sf-token")
    )
    assert user_settings.provider_tokens(alice.pk) == {}
