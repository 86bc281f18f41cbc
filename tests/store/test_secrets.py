"""Secrets at rest: never stored or shown in clear, and opened by earlier keys until they are rotated."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core import serializers
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.forms import modelform_factory

from sessions_app.encryption import InvalidSecret, Sealed, SecretUnreadable, seal
from sessions_app.models import Secret, SecretKind
from tests.support.people.clients import program_environment
from tests.support.people.scripted_agent import Hooked, hooked

pytestmark = pytest.mark.one_engine

__all__ = ["hooked"]

FIRST_KEY, SECOND_KEY, THIRD_KEY = (letter * 50 for letter in "abc")
CLEAR = "correct horse battery staple"

Keys = Callable[..., None]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    """Set the secret key, and the fallbacks after it."""

    def change(newest: str, *fallbacks: str) -> None:
        monkeypatch.setattr(settings, "SECRET_KEY", newest)
        monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", list(fallbacks))

    change(FIRST_KEY)
    return change


@pytest.fixture
def secret(alice: User, keys: Keys) -> Secret:
    """A secret of alice's, stored under the first key."""
    return stored(alice, "DEPLOY_KEY", CLEAR)


def stored(user: User, name: str, text: str) -> Secret:
    return Secret.objects.create(user=user, kind=SecretKind.CUSTOM, name=name, value=seal(text))


def again(secret: Secret) -> Secret:
    return Secret.objects.get(pk=secret.pk)


def raw_values() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT value FROM sessions_app_secret ORDER BY id")
        return [value for (value,) in cursor.fetchall()]


def rotated() -> str:
    """Rotate, and return what is printed."""
    printed = StringIO()
    call_command("rotate_secrets", stdout=printed, stderr=printed)
    return printed.getvalue()


# At rest


def test_a_secret_reads_back_as_it_was_stored(secret: Secret) -> None:
    assert again(secret).value.open() == CLEAR


def test_the_database_holds_a_token_and_never_the_clear_text(secret: Secret) -> None:
    (raw,) = raw_values()
    assert raw.startswith("gAAAAA")
    assert CLEAR not in raw


def test_the_same_text_is_stored_differently_each_time(secret: Secret, alice: User) -> None:
    stored(alice, "COPY", CLEAR)
    assert len(set(raw_values())) == 2


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0"])
def test_a_blank_text_cannot_be_sealed(text: str) -> None:
    with pytest.raises(InvalidSecret, match="blank"):
        seal(text)


def test_a_text_that_is_no_utf_8_cannot_be_sealed() -> None:
    with pytest.raises(InvalidSecret, match="UTF-8"):
        seal("half of a pair: \ud83d")


@pytest.mark.parametrize("text", ["", CLEAR])
def test_clear_text_cannot_be_stored(alice: User, keys: Keys, text: str) -> None:
    unsealed = Secret(user=alice, kind=SecretKind.CUSTOM, name="X", value=text)  # type: ignore[misc]
    with pytest.raises(TypeError, match="sealed") as refused:
        unsealed.save()
    assert CLEAR not in str(refused.value)
    with pytest.raises(ValidationError):
        unsealed.full_clean()
    assert raw_values() == []


def test_clear_text_cannot_be_looked_for(secret: Secret) -> None:
    with pytest.raises(TypeError, match="sealed"):
        Secret.objects.filter(value=CLEAR).exists()


# Never shown


@pytest.mark.parametrize("shown", [str, repr, vars, lambda secret: (secret.value, str(secret.value))])
def test_printing_a_secret_shows_no_value(secret: Secret, shown: Callable[[Secret], object]) -> None:
    text = str(shown(secret))
    assert CLEAR not in text
    assert secret.value.token not in text


def test_a_form_for_a_secret_has_no_field_for_its_value(secret: Secret) -> None:
    form = modelform_factory(Secret, fields="__all__")(instance=secret)
    assert "value" not in form.fields
    assert CLEAR not in form.as_p()


def test_a_fixture_holds_the_token_and_brings_the_secret_back(secret: Secret) -> None:
    fixture = serializers.serialize("json", [secret])
    Secret.objects.all().delete()
    for each in serializers.deserialize("json", fixture):
        each.save()
    assert CLEAR not in fixture
    assert Secret.objects.get().value.open() == CLEAR


def test_a_secret_that_no_key_opens_says_what_to_do_and_shows_no_value(secret: Secret, keys: Keys) -> None:
    keys(SECOND_KEY)
    with pytest.raises(SecretUnreadable, match="SECRET_KEY_FALLBACKS") as refused:
        again(secret).value.open()
    told = "".join(traceback.format_exception(refused.value))
    assert not any(text in told for text in (CLEAR, secret.value.token, FIRST_KEY, SECOND_KEY))


def test_a_secret_that_no_key_opens_is_listed_with_the_others(
    secret: Secret, alice: User, keys: Keys
) -> None:
    keys(SECOND_KEY)
    stored(alice, "NEW_KEY", "new")
    assert [each.name for each in Secret.objects.of(alice.pk)] == ["DEPLOY_KEY", "NEW_KEY"]


@pytest.mark.parametrize("damage", ["", CLEAR, "gAAAAA", "gAAAAA schlüssel", "\0" * 100])
def test_a_damaged_value_is_one_that_no_key_opens(keys: Keys, damage: str) -> None:
    assert not Sealed(damage).is_newest
    with pytest.raises(SecretUnreadable):
        Sealed(damage).open()


# Rotation


def test_a_fallback_still_opens_what_was_stored_under_it(secret: Secret, keys: Keys) -> None:
    keys(THIRD_KEY, SECOND_KEY, FIRST_KEY)
    assert again(secret).value.open() == CLEAR


def test_after_a_rotation_the_fallback_can_go(secret: Secret, keys: Keys) -> None:
    keys(SECOND_KEY, FIRST_KEY)
    assert rotated() == "Re-encrypted: 1. Could not be decrypted: 0.\n"
    keys(SECOND_KEY)
    assert again(secret).value.open() == CLEAR
    assert again(secret).updated_at == secret.updated_at


def test_a_second_rotation_changes_nothing(secret: Secret, keys: Keys) -> None:
    keys(SECOND_KEY, FIRST_KEY)
    rotated()
    stands = raw_values()
    assert rotated() == "Re-encrypted: 0. Could not be decrypted: 0.\n"
    assert raw_values() == stands


@pytest.mark.needs_engine
def test_a_rotation_goes_through_more_secrets_than_one_batch(
    alice: User, bob: User, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions_app.management.commands.rotate_secrets.BATCH", 2)
    secrets = [stored(user, f"KEY_{n}", f"{user} {n}") for n in range(4) for user in (alice, bob)]
    keys(SECOND_KEY, FIRST_KEY)
    assert rotated() == "Re-encrypted: 8. Could not be decrypted: 0.\n"
    keys(SECOND_KEY)
    assert {again(each).value.open() for each in secrets} == {
        f"{user} {n}" for n in range(4) for user in (alice, bob)
    }


def test_a_rotation_names_what_it_cannot_open_rotates_the_rest_and_fails(
    secret: Secret, bob: User, keys: Keys
) -> None:
    keys(SECOND_KEY)
    readable = stored(bob, "BOBS_KEY", "bob's")
    keys(THIRD_KEY, SECOND_KEY)
    printed = StringIO()
    with pytest.raises(CommandError, match="SECRET_KEY_FALLBACKS") as refused:
        call_command("rotate_secrets", stdout=printed, stderr=printed)
    assert refused.value.returncode == 1
    assert printed.getvalue() == (
        f"No key decrypts: custom 'DEPLOY_KEY' of 'local' (user {secret.user_id})\n"
        "Re-encrypted: 1. Could not be decrypted: 1.\n"
    )
    assert again(secret).value == secret.value
    assert again(readable).value.is_newest


def store_meanwhile(secret: Secret, keys: Keys, text: str) -> None:
    """Store another text, as a server that does not have the newest key yet does."""
    keys(FIRST_KEY)
    Secret.objects.filter(pk=secret.pk).update(value=seal(text))
    keys(SECOND_KEY, FIRST_KEY)


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_what_is_stored_during_a_rotation_is_kept_and_rotated_too(
    secret: Secret, keys: Keys, hooked: Hooked
) -> None:
    keys(SECOND_KEY, FIRST_KEY)
    hooked(Sealed, "resealed").after(partial(store_meanwhile, secret, keys, "newer"))
    assert rotated() == "Re-encrypted: 1. Could not be decrypted: 0.\n"
    keys(SECOND_KEY)
    assert again(secret).value.open() == "newer"


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_what_is_deleted_during_a_rotation_stays_deleted(secret: Secret, keys: Keys, hooked: Hooked) -> None:
    keys(SECOND_KEY, FIRST_KEY)
    hooked(Sealed, "resealed").after(Secret.objects.all().delete)
    assert rotated() == "Re-encrypted: 0. Could not be decrypted: 0.\n"
    assert raw_values() == []


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_rotation_that_is_killed_loses_nothing_and_can_be_repeated(
    alice: User, keys: Keys, tmp_path: Path
) -> None:
    Secret.objects.bulk_create(
        Secret(user=alice, kind=SecretKind.CUSTOM, name=f"{n}", value=seal(f"text {n}")) for n in range(100)
    )
    first = Secret.objects.earliest("pk")
    rotation = subprocess.Popen(
        [sys.executable, "-m", "convserver", "manage", "rotate_secrets"],
        env={
            **program_environment(tmp_path),
            "SECRET_KEY": SECOND_KEY,
            "SECRET_KEY_FALLBACKS": FIRST_KEY,
        },
        stdout=subprocess.DEVNULL,
    )
    while rotation.poll() is None and again(first).value == first.value:
        pass
    rotation.kill()
    rotation.wait()
    keys(SECOND_KEY, FIRST_KEY)
    assert again(first).value.is_newest
    assert {each.value.open() for each in Secret.objects.all()} == {f"text {n}" for n in range(100)}
    rotated()
    keys(SECOND_KEY)
    assert {each.value.open() for each in Secret.objects.all()} == {f"text {n}" for n in range(100)}
