"""Facts about the machine and the libraries, without which numbers say little."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil

_LIBRARIES = ("Django", "uvicorn", "uvloop", "websockets", "psycopg", "psycopg-pool", "channels", "orjson")


def facts() -> dict[str, object]:
    """Return cores, memory, system, Python and library versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "load_1_min": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
