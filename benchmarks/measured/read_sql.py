"""The SQL that the server answers reads with: addresses by the command line, JSON by address to stdout."""

from __future__ import annotations

import json
import os
import sys

import django


def statement_of(address: str) -> str:
    """Return the longest of the statements that a read takes: the one that reads what is shown."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from convserver.api.direct.calls import Read
    from convserver.api.direct.reads import ROUTES
    from sessions_app.identity.authentication import local_user

    path, _, query = address.partition("?")
    for route in ROUTES:
        if match := route.address.fullmatch(path):
            named = match.groupdict().get("conversation_id", "")
            read = Read(local_user(), None, named, query, "http://localhost")
            with CaptureQueriesContext(connection) as asked:
                route.read(read)
            return max((each["sql"] for each in asked.captured_queries), key=len)
    raise ValueError(address)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    django.setup()
    print(json.dumps({address: statement_of(address) for address in sys.argv[1:]}))
