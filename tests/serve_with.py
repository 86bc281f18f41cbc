"""Serve with other values of constants: `python -m tests.serve_with sessions_app.live.hub.POLL_S=3600 …`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import django

from convserver.cli import main


def change(constants: Sequence[str]) -> None:
    """Set the constants, each given as `module.NAME=number`. Raise AttributeError for an unknown one."""
    for constant in constants:
        name, _, value = constant.partition("=")
        module, _, attribute = name.rpartition(".")
        found = import_module(module)
        getattr(found, attribute)
        setattr(found, attribute, float(value))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    gc.disable()  # until the server listens, as in `serve`
    django.setup()
    change(sys.argv[1:])
    sys.exit(main(["serve"]))
