from __future__ import annotations

import json
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from sessions_app.encryption import Sealed, SecretUnreadable, seal
from sessions_app.settings.tool_server_secrets import secret_values

BATCH = 500
PARAMETER = "mcp_config"


def fill(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Find the keys of the tool servers that conversations were created with; unreadable ones have none."""
    setups = apps.get_model("sessions_app", "AgentSetup").objects
    rows = apps.get_model("conversations", "CreationParameters").objects.filter(parameters__has_key=PARAMETER)
    after = 0
    while batch := list(rows.filter(pk__gt=after).order_by("pk")[:BATCH]):
        after = batch[-1].pk
        for row in batch:
            try:
                keys = set(secret_values(Sealed(row.parameters[PARAMETER]).open()))
                if keys:
                    _add(setups, row.pk, keys)
            except SecretUnreadable:
                continue


def _add(setups: Any, conversation_pk: int, keys: set[str]) -> None:
    defaults = {"sealed_agent": seal("null"), "sealed_secrets": seal("{}")}
    setup, _ = setups.get_or_create(conversation_id=conversation_pk, defaults=defaults)
    merged = sorted({*json.loads(setup.sealed_keys.open()), *keys})
    setup.sealed_keys, setup.has_secrets = seal(json.dumps(merged)), True
    setup.save(update_fields=["sealed_keys", "has_secrets"])


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0016_setup_keys"), ("conversations", "0012_stored_bytes")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop, elidable=True)]
