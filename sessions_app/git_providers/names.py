"""Names of hosts, of repositories and of paths inside them, and users' search texts."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from sessions_app.git_providers.base import InvalidName
from sessions_app.outbound.hosts import Host, HostRefused, parse_host


def host_of(text: str | None, *, public: str, takes_path: bool = False) -> Host:
    try:
        return parse_host(text, public=public, takes_path=takes_path)
    except HostRefused as error:
        raise InvalidName(str(error)) from error


def pieces_of(path: str, *, least: int, most: int = 30) -> list[str]:
    """Split a repository's name or a path at its slashes. Raise InvalidName for an invalid one."""
    pieces = path.split("/")
    if not least <= len(pieces) <= most or not all(is_piece(piece) for piece in pieces):
        raise InvalidName("This is not the name of a repository or a path in one.")
    return pieces


def is_piece(text: str) -> bool:
    """Return whether it can be between two slashes of an address without a special meaning."""
    return (
        0 < len(text) <= 255
        and text not in (".", "..")
        and text.isprintable()
        and "/" not in text
        and "\\" not in text
    )


def encodable(text: str) -> str:
    """Return the text with half surrogate pairs, which UTF-8 cannot encode, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


class SearchText(NamedTuple):
    """A user's search: text in names, of one owner, as an address on one host."""

    text: str
    owner: str | None = None
    host: str | None = None

    @property
    def full_name(self) -> str | None:
        return f"{self.owner}/{self.text}" if self.owner and self.text else None


def search_text(query: str) -> SearchText:
    """Parse what was typed or pasted: text, `owner/text` or a repository's web address."""
    query = encodable(query).strip()
    if query.startswith(("https://", "http://")):
        return _of_address(query)
    owner, _, text = query.rpartition("/")
    return SearchText(text, owner or None)


def _of_address(query: str) -> SearchText:
    try:
        address = urlsplit(query)
        host = f"{address.hostname}:{address.port}" if address.port else address.hostname
    except ValueError:
        return SearchText(query)
    # GitLab's pages are below `/-/`, Azure DevOps' repositories below `_git`, and clones end in `.git`.
    name = address.path.split("/-/")[0].replace("/_git/", "/").strip("/").removesuffix(".git")
    owner, _, text = name.rpartition("/")
    return SearchText(text, owner or None, host)
