"""The failure of a commit that may have been done all the same."""

from __future__ import annotations

from django.db import OperationalError


class LostCommit(OperationalError):
    """The connection broke during a commit: the database may have done it or not."""
