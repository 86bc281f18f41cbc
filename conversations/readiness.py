"""Whether this process may store anything: what its last look at the database has found.

Guards that are gone let history be changed, what is written into a file that was removed is lost, and of
files that became read-only only the connections that were open before can still be written; so nothing is
stored until all is as it should be. Every sweep and the health probe look; appends ask what they found.
"""

from __future__ import annotations

import logging

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.engines import guards
from conversations.engines.sqlite3 import files
from conversations.engines.sqlite3.files import EMPTIED, GONE, FileGone
from conversations.exceptions import StoreUnavailable

logger = logging.getLogger(__name__)


class Readiness:
    """What the last look has found."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Why nothing can be stored, as a sentence; None while everything is in order."""

    def look(self, connection: BaseDatabaseWrapper) -> None:
        """Check the guards and the files; log changes. Raise any other error of the database."""
        found = _found(connection)
        if found and found != self.refusal:
            logger.error("Nothing more is stored: %s", found)
        elif self.refusal and not found:
            logger.info("The database is back: events are stored again.")
        self.refusal = found

    def require(self) -> None:
        """Raise StoreUnavailable for the last finding; each commit checks the file by itself."""
        if self.refusal and self.refusal not in (GONE, EMPTIED):
            raise StoreUnavailable(self.refusal)


def _found(connection: BaseDatabaseWrapper) -> str | None:
    try:
        absent = guards.missing(connection)
    except OperationalError as error:
        if isinstance(error.__cause__, FileGone):
            return str(error.__cause__)
        raise
    if absent:
        return guards.lost(absent)
    if connection.vendor == "sqlite" and not files.can_be_written(str(connection.settings_dict["NAME"])):
        return files.READ_ONLY  # open connections could continue; new ones could not
    return None


readiness = Readiness()
"""The readiness of this process."""
