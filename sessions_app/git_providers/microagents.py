"""A repository's files with instructions for agents: where they are, and how they are read."""

from __future__ import annotations

from sessions_app import front_matter
from sessions_app.git_providers.base import Folder, GitMicroagent, GitRepository, InvalidName


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
    found = front_matter.read(text)
    return found.content, found.texts("triggers")
