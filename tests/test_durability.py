"""Settings under which a power cut could lose what was acknowledged are warned about."""

from __future__ import annotations

from django.db import connection

from conversations.durability import check_durability, weaknesses


def test_the_settings_of_this_project_are_durable(database: None) -> None:
    assert weaknesses(connection) == []


def test_a_weaker_setting_is_warned_about(database: None) -> None:
    with connection.cursor() as cursor:
        weak = "PRAGMA synchronous=OFF" if connection.vendor == "sqlite" else "SET synchronous_commit=off"
        cursor.execute(weak)
    (warning,) = check_durability(databases=["default"])
    connection.close()
    assert warning.id == "conversations.W001"
