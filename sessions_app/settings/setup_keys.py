"""The keys in an agent's setup: of models, tools, services and tool servers, wherever clients put them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from sessions_app.settings import placeholder_keys

MASK = "**********"

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Names of members, at any depth, that are never shown, of options, and of what a URL asks with.
_KEY = re.compile(
    r"(?:.*_)?(?:api_?key|token|password|passwd|passphrase|secret|secret_access_key|access_key_id|credentials?"
    r"|authorization|auth_header|cookie|(?:access|secret|private|account|master|service|license)_key)|key|sig|bearer"
)
# Members whose own members are often keys: of tool servers, of requests, and of an agent's context.
_BAGS = frozenset({"env", "acp_env", "headers", "extra_headers", "secrets"})
# Members of bags that are no keys. They are not shown either, but masking them would spoil events.
_PLAIN_HEADERS = frozenset(
    {
        *("accept", "accept_encoding", "accept_language", "cache_control", "content_type", "host"),
        *("http_referer", "origin", "referer", "user_agent", "x_title"),
    }
)
# Any other text as a tool server's `auth` is its key.
_SCHEMES = frozenset({"oauth"})
# Any other member of a tool server's `auth` object is a key.
_PLAIN_CREDENTIALS = frozenset({"strategy", "username", "header_name"})

_USERINFO = re.compile(r"(?<=://)([^/?#@\s]+)(?=@)")
_QUERY = re.compile(r"(?<=[?&;#])([^=&#;?\s]+)=([^&#;\s]+)")
_OPTION = re.compile(r"(?<!\S)(-{1,2}[\w-]+ (?!-)|-{0,2}\w[\w-]*=)(\S+)")
_HEADER = re.compile(r"(?:^|(?<=[= ]))([\w-]+): *(\S.*)")
_IS_OPTION = re.compile(r"-{1,2}([\w-]+)")
_COMMANDS = frozenset({"command", "args", "arguments"})


def masked(value: Any) -> Any:
    """Return JSON without keys: named ones, in URLs and arguments, and all of environments and headers."""
    return _Walk().masked(value)


def without_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the members that are, or contain, keys."""
    shown = masked(value)
    return {name: member for name, member in value.items() if shown[name] == member}


def keys_of(*values: Any) -> list[str]:
    """Return the keys that `masked` replaces, without placeholders and too short ones."""
    return sorted(key for key in hidden_in(*values) if placeholder_keys.is_masked(key) and key.strip("*"))


def hidden_in(*values: Any) -> set[str]:
    """Return all that `masked` replaces, in each form in which it may be written elsewhere."""
    walk = _Walk()
    for value in values:
        walk.masked(value)
    return {form for key in walk.keys for form in _forms(key)}


def _forms(key: str) -> Iterator[str]:
    """Yield a key as it was sent, as it was before it was put into a URL, and without a header's scheme."""
    shown = key.strip()
    yield shown
    yield unquote(shown)
    # Programs print the key of a header without the scheme before it.
    scheme, _, credentials = shown.partition(" ")
    if scheme.lower() in ("basic", "bearer", "token"):
        yield credentials.strip()


def unmasked(sent: Any, stored: Any) -> Any:
    """Return what a client sends back of what it was shown, with the stored keys in the place of masks."""
    return restored(sent, stored, masked(stored))


def restored(sent: Any, stored: Any, shown: Any) -> Any:
    """Return the same, with the masked form of the stored value; a mask without a key becomes null."""
    if sent == shown and shown != stored:
        return stored
    if isinstance(sent, Mapping):
        known, seen = (each if isinstance(each, Mapping) else {} for each in (stored, shown))
        return {name: restored(value, known.get(name), seen.get(name)) for name, value in sent.items()}
    if isinstance(sent, list):
        return _restored_items(sent, stored, shown)
    return None if sent == MASK else sent


def _restored_items(sent: list[Any], stored: Any, shown: Any) -> list[Any]:
    """Restore a list by its items: a client may have added some, or taken some out."""
    hidden: dict[str, list[Any]] = {}
    if isinstance(stored, list | tuple) and isinstance(shown, list):
        for own, seen in zip(stored, shown, strict=True):
            if own != seen:
                hidden.setdefault(_compared(seen), []).append(own)
    taken = {name: iter(items) for name, items in hidden.items()}
    return [next(taken.get(_compared(item), iter(())), restored(item, None, None)) for item in sent]


def _compared(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


class _Walk:
    """One walk through a setup, which collects the keys that it replaces."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def masked(self, value: Any, *, is_command: bool = False) -> Any:
        if isinstance(value, Mapping):
            return {name: self._member(name, member) for name, member in value.items()}
        if isinstance(value, list | tuple):
            return self._items(value, is_command=is_command)
        if isinstance(value, str):
            return self._text(value, is_command=is_command)
        return value

    def _member(self, name: str, member: Any) -> Any:
        if name == "auth" and isinstance(member, Mapping):
            return {each: self._credential(each, value) for each, value in member.items()}
        is_scheme = isinstance(member, str) and member in _SCHEMES
        if _is_key(name) or (name == "auth" and not is_scheme):
            return self._hidden(member)
        if name in _BAGS and isinstance(member, Mapping):
            for each, value in member.items():
                if _normal(each) not in _PLAIN_HEADERS:
                    self._collect(value)
            return dict.fromkeys(member, MASK)
        return self.masked(member, is_command=name in _COMMANDS)

    def _credential(self, name: str, value: Any) -> Any:
        """Return what is shown of a member of a tool server's `auth` object."""
        if isinstance(value, Mapping):
            return {each: self._credential("", member) for each, member in value.items()}
        return value if name in _PLAIN_CREDENTIALS else self._hidden(value)

    def _hidden(self, member: Any) -> Any:
        """Return what is shown of a key; a number or a flag is none."""
        if member is None or isinstance(member, bool | int | float):
            return member
        self._collect(member)
        return MASK

    def _collect(self, value: Any) -> None:
        if isinstance(value, str):
            self.keys.append(value)
        elif isinstance(value, Mapping):
            self._collect(list(value.values()))
        elif isinstance(value, list | tuple):
            for item in value:
                self._collect(item)

    def _items(self, items: Sequence[Any], *, is_command: bool) -> list[Any]:
        """Mask a list; in arguments, what follows the option of a key is one."""
        shown: list[Any] = []
        is_next_key = False
        for item in items:
            shown.append(self._hidden(item) if is_next_key else self.masked(item, is_command=is_command))
            option = _IS_OPTION.fullmatch(item) if is_command and isinstance(item, str) else None
            is_next_key = option is not None and _is_key(option[1])
        return shown

    def _text(self, text: str, *, is_command: bool) -> str:
        if "://" in text:
            text = _USERINFO.sub(self._userinfo, text)
            text = _QUERY.sub(self._pair("="), text)
        if is_command:
            text = _HEADER.sub(self._pair(": "), text)
            text = _OPTION.sub(self._option, text)
        return text

    def _userinfo(self, found: re.Match[str]) -> str:
        if found[1] != MASK:
            # The password of a pair; without a colon, the user is a token.
            self.keys += found[1].split(":", 1)[-1:]
        return MASK

    def _pair(self, between: str) -> Any:
        def shown(found: re.Match[str]) -> str:
            return f"{found[1]}{between}{self._value(found[1], found[2]) or found[2]}"

        return shown

    def _option(self, found: re.Match[str]) -> str:
        return f"{found[1]}{self._value(found[1][:-1], found[2]) or found[2]}"

    def _value(self, name: str, value: str) -> str | None:
        """Return the mask if the name is a key's."""
        if not _is_key(name):
            return None
        self._collect(value)
        return MASK


def _is_key(name: str) -> bool:
    return _KEY.fullmatch(_normal(name)) is not None


def _normal(name: str) -> str:
    """Return a name as Python would write it: `apiKey`, `X-Api-Key` and `--api-key` are all `api_key`."""
    return _CAMEL.sub("_", name).replace("-", "_").strip("_").lower()
