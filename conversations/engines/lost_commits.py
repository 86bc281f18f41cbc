"""The failure of a commit that may have succeeded nevertheless."""

from __future__ import annotations

from django.db import OperationalError


class LostCommit(OperationalError):
    """The connection broke during a commit, which the database may or may not have carried out."""
