"""Print what the newest OpenHands packages have that docs/compatibility.md does not name.

Exit status: 0 if all of it is documented or known, 1 if not, 2 if the packages could not be downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from conversations.dialects.v1.kinds import KINDS
from wires import documented, packages, sources

EVENT = "EVENT {}"


def main() -> int:
    """Download, read, compare, print."""
    with TemporaryDirectory(prefix="convserver-wires-") as directory:
        try:
            found = packages.newest(Path(directory) / "packages")
        except packages.Unreachable as error:
            print(error)
            return 2
        names = _names(found)
    compared = documented.compared(names, {*documented.rows(), *(EVENT.format(kind) for kind in KINDS)})
    _print("New, and to be documented or listed in wires/known.txt:", compared.new)
    _print("Known, and to be served or refused:", compared.missing)
    _print("To be taken off wires/known.txt:", compared.done)
    return 1 if compared.new or compared.done else 0


def _names(found: Sequence[packages.Package]) -> set[str]:
    """Return the routes and kinds of events of all packages, and print what each has."""
    names: set[str] = set()
    for package in found:
        match package.name:
            case sources.AGENT_SERVER | sources.APP_SERVER:
                own = sources.routes_of(package.name, package.root)
                print(f"{package.name} {package.version}: {len(own)} routes")
            case "openhands-sdk":
                own = {EVENT.format(kind) for kind in sources.event_kinds(package.root)}
                print(f"{package.name} {package.version}: {len(own)} kinds of events")
            case _:
                own = set()
                least = ", ".join(sorted(sources.minimum_agent_server(package.root))) or "not found"
                print(f"{package.name} {package.version}: needs an agent server of version {least}")
        names |= own
    return names


def _print(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"\n{title}")
        print("\n".join(f"  {line}" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
