"""How this program is called here, so that the commands it names can be pasted."""

from __future__ import annotations

import sys
from pathlib import Path


def command() -> str:
    """Return `convserver` if it was started by that name, else what runs the module, as in a checkout."""
    # In a checkout the name may be missing, or be that of another installation.
    return "convserver" if Path(sys.argv[0]).name == "convserver" else f"{python()} -m convserver"


def python() -> str:
    """Return the path of this Python, relative to the directory where the program was started."""
    program, here = Path(sys.executable), Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)
