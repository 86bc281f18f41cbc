"""Start a program of the project for a run: `python -m faults.entry [OPTIONS] -- MODULE …`.

With `--clock` its time of day is off as the file says. With `--planted` one named function of it is replaced
by one with a bug (`faults.planted`). Nothing in the program itself can be switched off.
"""

from __future__ import annotations

import argparse
import gc
import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path


def main(arguments: Sequence[str]) -> None:
    """Prepare, and become the program."""
    end = arguments.index("--")
    parser = argparse.ArgumentParser(prog="python -m faults.entry")
    parser.add_argument("--clock", type=Path)
    parser.add_argument("--planted")
    parser.add_argument("--bound-by-rights", action="store_true", help="rights of files bind root as well")
    asked = parser.parse_args(arguments[:end])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    gc.disable()  # until the server listens, as in `serve`
    if asked.bound_by_rights:
        import_module("faults.rights").be_bound()
    if asked.clock:
        import_module("faults.clock").follow(asked.clock)
    if asked.planted:
        import_module("django").setup()
        import_module("faults.planted").plant(asked.planted)
    program, *rest = arguments[end + 1 :]
    sys.argv = [program, *rest]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
