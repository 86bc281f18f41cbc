"""Whether this process may store anything, by its last look at the database.

Without guards history can be changed; writes into a removed file are lost; once files became read-only, only
older connections can still write. So nothing is stored until all of these are in order. Every sweep and the
health probe look; appends check the result.
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
    """The result of the last look."""

    def __init__(self) -> None:
        # Why nothing can be stored, as a sentence; None while everything is in order.
        self.refusal: str | None = None

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


readiness = Readiness()  # the readiness of this process
