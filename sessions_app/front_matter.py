"""The front matter of Markdown files: YAML between two lines of dashes, before the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

_FENCE = "---"
_NULL = "tag:yaml.org,2002:null"


class _NodesOnly(yaml.SafeLoader):
    """Refuses aliases, by which a few characters stand for megabytes."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("alias")
        return super().compose_node(parent, index)


class FrontMatter(NamedTuple):
    """The text of a file without its front matter, and what that says."""

    content: str
    fields: Mapping[str, yaml.Node]
    """By name; of two with one name, the first."""
    problem: str = ""
    """Why the front matter cannot be read; empty if it can, or if there is none."""

    def text(self, name: str) -> str:
        """Return a field that is a single value, as it is written; empty for none."""
        return _text(self.fields.get(name)).strip()

    def texts(self, name: str) -> list[str]:
        """Return the values of a list, or of one that is no list."""
        node = self.fields.get(name)
        return _full(node.value if isinstance(node, yaml.SequenceNode) else [node])

    def has(self, *names: str) -> bool:
        """Return whether one of these fields is true."""
        return any(self.text(name).lower() in ("true", "yes", "on") for name in names)

    def members(self, name: str) -> list[str]:
        """Return the names in a field that is a mapping."""
        node = self.fields.get(name)
        return _full([key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else [])

    def mappings(self, name: str) -> list[dict[str, str]]:
        """Return the mappings of single values in a list."""
        node = self.fields.get(name)
        listed = node.value if isinstance(node, yaml.SequenceNode) else []
        return [
            {_text(key): _text(value) for key, value in each.value}
            for each in listed
            if isinstance(each, yaml.MappingNode)
        ]


def read(text: str) -> FrontMatter:
    """Return the parts of a file."""
    lines = text.removeprefix("\ufeff").splitlines()  # editors of Windows write a byte order mark
    if not lines or lines[0].rstrip() != _FENCE:
        return FrontMatter(text, {})
    fences = (number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE)
    end = next(fences, None)
    if end is None:
        return FrontMatter(text, {})
    content = "\n".join(lines[end + 1 :]).strip()
    try:
        return FrontMatter(content, _fields("\n".join(lines[1:end])))
    except ValueError as error:
        return FrontMatter(content, {}, f"its front matter {error}")


def _fields(written: str) -> dict[str, yaml.Node]:
    """Return the fields of front matter by their names. Raise ValueError with the reason."""
    chars_most, brackets_most = 16_384, 200
    # Each open bracket makes all that follows slower to read: thousands of them take minutes.
    if len(written) > chars_most or written.count("[") + written.count("{") > brackets_most:
        raise ValueError("is too long or too nested")
    try:
        # Only its nodes: no object is made of them, so a tag or a date in it cannot fail.
        root = yaml.compose(written, Loader=_NodesOnly)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        raise ValueError("is no YAML") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("has no names with values")
    return {_text(name): value for name, value in reversed(root.value)}


def _full(nodes: list[yaml.Node | None]) -> list[str]:
    return [text for each in nodes if (text := _text(each))]


def _text(node: yaml.Node | None) -> str:
    """Return what a single value says; empty for null, and for what is no single value."""
    if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL:
        return ""
    # YAML can write halves of surrogate pairs, which UTF-8 cannot.
    return str(node.value).encode("utf-8", "replace").decode("utf-8")
