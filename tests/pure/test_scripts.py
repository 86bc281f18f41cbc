"""The scripts of the pages import each other without a cycle, and only files that exist."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import convserver

SCRIPTS = Path(convserver.__file__).parent / "static" / "web"
IMPORTED = re.compile(r"""\b(?:from|import)\s*\(?\s*["']\./([^"']+)["']""")
"""What a script imports: at once, for its effects alone, later by `import(…)`, or to export it again."""


def imports() -> dict[str, set[str]]:
    """Return each script with those that it imports."""
    return {file.name: set(IMPORTED.findall(file.read_text())) for file in SCRIPTS.glob("*.js")}


def test_scripts_import_each_other_without_a_cycle() -> None:
    TopologicalSorter(imports()).prepare()  # raises CycleError, which names the scripts


def test_every_script_that_is_imported_exists() -> None:
    found = imports()
    assert set().union(*found.values()) <= found.keys()


def test_imports_are_found_however_they_are_written() -> None:
    text = 'import "./a.js";\nimport { b } from "./b.js";\nimport("./c.js");\nexport { d } from \'./d.js\';'
    assert IMPORTED.findall(text) == ["a.js", "b.js", "c.js", "d.js"]
