"""A repository's files with instructions for agents: where they are, and how they are read."""

from __future__ import annotations

import yaml

from sessions_app.git_providers.base import Folder, GitMicroagent, GitRepository, InvalidName
from sessions_app.git_providers.names import encodable

FENCE = "---"


def folder_of(repository: GitRepository) -> str:
    """Return the folder; a repository named `.openhands` has them at its root."""
    is_dedicated = repository["full_name"].rpartition("/")[2] == ".openhands"
    return "microagents" if is_dedicated else ".openhands/microagents"


def is_microagent(file_name: str) -> bool:
    return file_name.endswith(".md") and file_name.lower() != "readme.md"


def listed(folder: Folder, path: str) -> list[GitMicroagent]:
    return [
        {"name": name.removesuffix(".md"), "path": f"{path}/{name}", "created_at": folder["changed_at"]}
        for name in sorted(folder["file_names"])
        if is_microagent(name)
    ]


def checked_path(repository: GitRepository, file_path: str) -> str:
    """Return the path of a microagent's file. Raise InvalidName for another path."""
    folder, _, name = file_path.rpartition("/")
    if folder != folder_of(repository) or not is_microagent(name):
        raise InvalidName(f"A microagent is a file of {folder_of(repository)} that ends in .md.")
    return file_path


def read(text: str) -> tuple[str, list[str]]:
    """Return the content of the file, and the triggers of its front matter, if that can be read."""
    lines = text.removeprefix("\ufeff").splitlines()  # editors of Windows write a byte order mark
    if not lines or lines[0].rstrip() != FENCE:
        return text, []
    fences = (number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE)
    end = next(fences, None)
    if end is None:
        return text, []
    return "\n".join(lines[end + 1 :]).strip(), _triggers("\n".join(lines[1:end]))


def _triggers(front_matter: str) -> list[str]:
    # Hostile YAML of this length already takes the better part of a second.
    if len(front_matter) > 16_384:
        return []
    try:
        # Only its nodes: no object is made of them, so a tag or a date in it cannot fail.
        root = yaml.compose(front_matter, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return []
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    named = (value for name, value in pairs if name.value == "triggers")
    return _texts(next(named, None))


def _texts(node: yaml.Node | None) -> list[str]:
    scalars = node.value if isinstance(node, yaml.SequenceNode) else [node]
    found = [scalar.value for scalar in scalars if isinstance(scalar, yaml.ScalarNode)]
    return [encodable(text) for text in found if text]
