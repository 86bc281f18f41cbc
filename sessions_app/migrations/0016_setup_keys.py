from __future__ import annotations

import json
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import sessions_app.encryption
import sessions_app.models.v1
from sessions_app.encryption import SecretUnreadable, seal
from sessions_app.settings.setup_keys import keys_of

BATCH = 500


def fill(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Find the keys of the agents that are stored; one that no key of the server opens has none."""
    rows = apps.get_model("sessions_app", "AgentSetup").objects.order_by("pk")
    after = 0
    while batch := list(rows.filter(pk__gt=after).only("sealed_agent", "has_secrets")[:BATCH]):
        after = batch[-1].pk
        for setup in batch:
            try:
                keys = keys_of(json.loads(setup.sealed_agent.open()))
            except SecretUnreadable:
                continue
            if keys:
                setup.sealed_keys, setup.has_secrets = seal(json.dumps(keys)), True
                setup.save(update_fields=["sealed_keys", "has_secrets"])


class Migration(migrations.Migration):
    contracts = "It is older than the first release, so no earlier one runs beside it."
    dependencies = [("sessions_app", "0015_access")]

    operations = [
        migrations.AddField(
            model_name="agentsetup",
            name="sealed_keys",
            field=sessions_app.encryption.EncryptedTextField(
                default=sessions_app.models.v1.sealed_nothing, editable=False
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
    ]
