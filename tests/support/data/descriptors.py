"""The descriptors that this process has open below a directory."""

from __future__ import annotations

import errno
from pathlib import Path


def descriptors_in(directory: Path) -> int:
    """Count the open descriptors of a directory and of what is below it.

    The process's others are not counted: the collector closes what earlier tests left, at any time.
    """
    return sum(_is_in(directory, each) for each in Path("/proc/self/fd").iterdir())


def _is_in(directory: Path, descriptor: Path) -> bool:
    try:
        return descriptor.readlink().is_relative_to(directory)
    except OSError as error:
        # Only a test makes a path that is too long to be read; the listing's own descriptor is gone by now.
        return error.errno == errno.ENAMETOOLONG
