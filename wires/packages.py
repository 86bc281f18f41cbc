"""The newest packages of OpenHands, downloaded and unpacked; nothing of them is imported or run."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

WHEELS = ("openhands-agent-server", "openhands-ai", "openhands-sdk")
NPM_PACKAGE = "@openhands/agent-canvas"
PYTHON = "3.12"
"""The oldest Python for which the wheels are made; the interpreter here may be older."""
_WHEEL_NAME = re.compile(r"(?P<name>\w+)-(?P<version>[^-]+)-.*\.whl")
_TARBALL_NAME = re.compile(r"(?P<name>.+)-(?P<version>\d+\.\d+\.\d+)\.tgz")


class Unreachable(Exception):
    """A package could not be downloaded; the text is for people."""


class Package(NamedTuple):
    """An unpacked package."""

    name: str
    version: str
    root: Path


def newest(directory: Path) -> list[Package]:
    """Download the newest versions into a directory that is empty, and unpack them. Raise Unreachable."""
    directory.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    pip += ["--only-binary=:all:", f"--python-version={PYTHON}", f"--dest={directory}", *WHEELS]
    _run(pip, directory)
    _run(["npm", "pack", "--silent", NPM_PACKAGE], directory)
    return [_unpacked(file) for file in sorted(directory.iterdir()) if file.is_file()]


def _run(command: list[str], directory: Path) -> None:
    try:
        subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unreachable(f"{command[0]} could not download the packages: {error}") from error


def named(file: Path) -> tuple[str, str]:
    """Return the name and the version that the name of a file has. Raise Unreachable."""
    found = _WHEEL_NAME.fullmatch(file.name) or _TARBALL_NAME.fullmatch(file.name)
    if found is None:
        raise Unreachable(f"{file.name} is no package whose name is known here.")
    return found["name"].replace("_", "-"), found["version"]


def _unpacked(file: Path) -> Package:
    name, version = named(file)
    root = file.parent / name
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(root)
    else:
        with tarfile.open(file) as tarball:
            tarball.extractall(root, filter="data")
    return Package(name, version, root)
