"""Count what makes the production code heavy or light, and fail where a figure passes its limit.

Run it with `python -m tests.house`; `make check` does. Migrations are not counted. A limit only gets tighter:
a change that makes a figure better writes the new one here.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("conversations", "sessions_app", "convserver")
FUNCTION_MAX_LINES = 40
_WORD = re.compile(r"\b_\w+\b")


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure, and how far it may go; the limits only get tighter."""

    name: str
    value: float
    most: float = float("inf")
    least: float = 0.0

    def __str__(self) -> str:
        bound = f"at least {self.least:g}" if self.least else f"at most {self.most:g}"
        return f"{self.value:10,.2f}  {bound:<16}  {self.name}"

    @property
    def is_kept(self) -> bool:
        """Return whether the figure is within its limit."""
        return self.least <= self.value <= self.most


@dataclass(frozen=True, slots=True)
class Source:
    """A production file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """Return the name of the top package."""
        return self.path.parts[0]


def sources(root: Path = ROOT) -> list[Source]:
    """Return the files of the three packages without migrations, in the order of their paths."""
    found = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            path = file.relative_to(root)
            if "migrations" not in path.parts:
                text = file.read_text()
                found.append(Source(path, text, ast.parse(text)))
    return found


def imported_modules(source: Source, modules: set[str]) -> set[str]:
    """Return the own modules that a file imports at its top."""
    found: set[str] = set()
    for node in source.tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found |= {whole if whole in modules else node.module} & modules
    return found


def module_name(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods of a file."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def used_once(files: Sequence[Source]) -> int:
    """Return how many private functions have a name that occurs twice: in the definition and in one use."""
    words = Counter(word for each in files for word in _WORD.findall(each.text))
    names = [function.name for each in files for function in functions(each)]
    return sum(name.startswith("_") and not name.startswith("__") and words[name] == 2 for name in names)


def comment_lines(source: Source) -> int:
    """Return how many lines have a comment for people; those for tools do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    found = (each.string for each in tokens if each.type == tokenize.COMMENT)
    return sum(not re.match(r"#\s*(noqa|type:|pragma|fmt:|ruff)", each) for each in found)


def is_number(node: ast.expr | None) -> bool:
    """Return whether an expression is a number, or made of numbers alone."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Call(func=ast.Name(id="timedelta" | "Decimal")):
            return True
    return False


def numeric_constants(source: Source) -> int:
    """Return how many names at the top of a file are numbers."""
    found = 0
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            found += is_number(node.value)
    return found


def repeated_class_names(files: Sequence[Source]) -> list[str]:
    """Return the public names of classes that one of the packages has twice."""
    places: dict[tuple[str, str], int] = defaultdict(int)
    for source in files:
        for node in source.tree.body:
            # Django asks for the name Command in each file of a management command.
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name != "Command":
                places[source.package, node.name] += 1
    return sorted(f"{package}: {name}" for (package, name), number in places.items() if number > 1)


def limits(files: Sequence[Source]) -> list[Limit]:
    """Return all figures with their limits."""
    modules = {module_name(each.path) for each in files}
    filled = sum(bool(line.strip()) for each in files for line in each.text.splitlines())
    all_functions = [function for each in files for function in functions(each)]
    long = [each for each in all_functions if (each.end_lineno or 0) - each.lineno + 1 > FUNCTION_MAX_LINES]
    imports = sum(len(imported_modules(each, modules)) for each in files) / len(files)
    once = 100 * used_once(files) / len(all_functions)
    comments = 100 * sum(map(comment_lines, files)) / filled
    return [
        Limit("lines", sum(each.text.count("\n") for each in files)),
        Limit("own modules that a file imports, mean", imports, most=4.95),
        Limit("private functions used once, in 100 functions", once, most=8.0),
        Limit(f"functions of more than {FUNCTION_MAX_LINES} lines", len(long), most=2),
        Limit("comments in 100 lines that are not blank", comments, least=4.0),
        Limit("public class names twice in a package", len(repeated_class_names(files)), most=0),
        Limit("numeric constants at the top of files", sum(map(numeric_constants, files)), most=675),
        Limit("lines of the longest file", max(each.text.count("\n") for each in files), most=500),
    ]


def main() -> int:
    """Print the figures; return 1 if one passes its limit."""
    found = limits(sources())
    for each in found:
        print(each, "" if each.is_kept else "  <- too heavy")
    return int(not all(each.is_kept for each in found))


if __name__ == "__main__":
    sys.exit(main())
