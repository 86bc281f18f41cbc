"""Make users with a token each: names by stdin, tokens by name to stdout, both as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

import django

PASSWORD = "a password that nobody tries"


def make(names: Sequence[str]) -> dict[str, str]:
    """Return the text of a token for each of the new users."""
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import User

    from sessions_app.models import ApiToken

    password = make_password(PASSWORD)
    users = User.objects.bulk_create(User(username=name, password=password) for name in names)
    return {user.username: ApiToken.issue(user.pk, "benchmark")[1] for user in users}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    django.setup()
    print(json.dumps(make(json.load(sys.stdin))))
