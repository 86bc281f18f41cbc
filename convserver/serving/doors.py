"""The doors that speak HTTP: polled reads and appends on the event loop, all others through Django."""

from __future__ import annotations

from convserver.api.direct.door import DirectDoor
from convserver.serving.http import OneThreadHandler

application = DirectDoor(OneThreadHandler())
