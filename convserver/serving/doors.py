"""The doors that speak HTTP: polled reads and appends on the event loop, all others through Django."""

from __future__ import annotations

from convserver.api.direct.appends import DirectAppends
from convserver.api.direct.reads import DirectReads
from convserver.serving.http import OneThreadHandler

# Reads first: they are the most frequent, and each door passes on what is not its own.
application = DirectReads(DirectAppends(OneThreadHandler()))
