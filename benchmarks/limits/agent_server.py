"""The agent server of OpenHands, installed from the package index into an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks import server

PYTHON_VARIABLE = "AGENT_SERVER_PYTHON"
"""Names an interpreter, where none that is new enough is found by its name."""
PACKAGE = "openhands-agent-server"
_BESIDE = ("openhands-sdk", "openhands-tools")
"""What it imports; all are released together, and need each other's version."""
ENVIRONMENT = server.ROOT / "build" / "benchmarks" / "agent-server"
_INTERPRETERS = ("python3.12", "python3.13")
_IS_NEW_ENOUGH = "import ensurepip, sys; sys.exit(sys.version_info < (3, 12))"


class NoAgentServer(RuntimeError):
    """There is no agent server on this machine; the text says why, and what to do."""


def python(environment: Path = ENVIRONMENT) -> Path:
    """Return the interpreter of an environment, which is made if it is not there. Raise NoAgentServer."""
    own, installed = environment / "bin" / "python", environment / ".installed"
    if not installed.exists():
        _run([_interpreter(), "-m", "venv", "--clear", str(environment)])
        # No index is named here: pip asks the one that this machine is configured for.
        pip = [str(own), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, "--no-deps", PACKAGE])
        newest = version(own)
        _run([*pip, *(f"{name}=={newest}" for name in (PACKAGE, *_BESIDE))])
        installed.touch()
    return own


def version(own: Path) -> str:
    """Return which version an environment has. Raise NoAgentServer."""
    return _run([str(own), "-c", f"from importlib.metadata import version; print(version({PACKAGE!r}))"])


def _interpreter() -> str:
    named = os.environ.get(PYTHON_VARIABLE)
    for name in [named] if named else _INTERPRETERS:
        found = shutil.which(name)
        # Some of these are no interpreters, but programs that look for one and may find none.
        if (
            found
            and not subprocess.run([found, "-c", _IS_NEW_ENOUGH], capture_output=True, check=False).returncode
        ):
            return found
    raise NoAgentServer(
        f"{named} is not Python 3.12 or newer with ensurepip: let {PYTHON_VARIABLE} name another interpreter."
        if named
        else f"It needs Python 3.12 or newer, but there is neither {' nor '.join(_INTERPRETERS)} here: "
        f"let {PYTHON_VARIABLE} name one."
    )


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise NoAgentServer(f"{' '.join(command[:4])} failed: {said.strip()[-1000:]}") from error
    return done.stdout.strip()
