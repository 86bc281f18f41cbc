"""Serve with other values of constants.

Run as `python -m tests.support.servers.serve_with sessions_app.live.hub.POLL_S=3600 …`.

What follows `--` is the command of convserver, `serve` if there is none.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import django
from django.utils.module_loading import import_string

from convserver.cli import main


def change(constants: Sequence[str]) -> None:
    """Set the constants, each given as `place.NAME=number`; the place is a module or a class.

    Raise AttributeError for an unknown one.
    """
    for constant in constants:
        name, _, value = constant.partition("=")
        place, _, attribute = name.rpartition(".")
        found = _at(place)
        getattr(found, attribute)
        setattr(found, attribute, int(value) if value.isdigit() else float(value))


def _at(place: str) -> Any:
    try:
        return import_module(place)
    except ModuleNotFoundError:
        return import_string(place)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    gc.disable()  # until the server listens, as in `serve`
    django.setup()
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    change(given[:end])
    sys.exit(main(given[end + 1 :] or ["serve"]))
