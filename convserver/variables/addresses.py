"""Variables with names and addresses: of the server itself, of its databases, of proxies and models."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote

from convserver.variables import ConfigurationError, Given, url_parts, words
from sessions_app.identity.addresses import LOOPBACK_NAMES
from sessions_app.outbound.internal import InternalAddress, parse_all

HOST_NAME = re.compile(r"\*|\.?[\w-]+(\.[\w-]+)*\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)
"""A name, an address, all names below one (.example.org), or every name (*)."""


def host(name: str, text: str, given: Given) -> str:
    host = text.removeprefix("[").removesuffix("]")
    if given.is_local and not is_loopback(host):
        raise ConfigurationError(
            f"{name} is {host!r}, but local mode has no logins, so the server listens on loopback "
            "only: use 127.0.0.1, or set CONVSERVER_AUTH=accounts."
        )
    return host


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def database_url(name: str, text: str, given: Given) -> str:
    url = text or f"sqlite:///{quote(str(given.known['data_dir'] / 'convserver.sqlite3'))}"
    parts = url_parts(name, url)
    match parts.scheme:
        case "sqlite":
            is_complete = not (parts.netloc or parts.query or parts.fragment) and (
                parts.path.removeprefix("/") not in ("", ":memory:")
            )
            form = "sqlite:/// and the path of a file"
        case "postgres" | "postgresql":
            is_complete = len(parts.path) > 1
            form = "postgresql://user:password@host:port/name"
        case scheme:
            raise ConfigurationError(
                f"{name} has the scheme {scheme!r}, but it must begin with sqlite:/// or postgresql://."
            )
    if not is_complete:
        raise ConfigurationError(f"{name} must have the form {form}; special characters as %20.")
    return url


def redis_url(name: str, text: str, _: Given) -> str | None:
    if text and url_parts(name, text).scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError(f"{name} must begin with redis://, rediss:// or unix://.")
    return text or None


def llm_base_url(name: str, text: str, _: Given) -> str | None:
    url = text.strip().rstrip("/")
    if not url:
        return None
    parts = url_parts(name, url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"{name} must begin with http:// or https://.")
    # An address is shown and logged, so no key may be in it.
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(f"{name} must have no password, ? or #; the key is LLM_API_KEY.")
    return url


def allowed_hosts(name: str, text: str, given: Given) -> tuple[str, ...]:
    names, host = words(name, text, given), given.known["host"]
    if not given.is_local and not names:
        raise ConfigurationError(
            f"{name} is not set, but accounts mode needs the names under which the "
            "server is reached, separated by commas."
        )
    for each in names:
        if not HOST_NAME.fullmatch(each):
            raise ConfigurationError(
                f"{name} names {each!r}, but a name looks like chat.example.org, without "
                "a scheme, a port or a path."
            )
    # Any other HOST is where to listen, not a name under which the server may be asked.
    own = [f"[{host}]" if ":" in host else host] if is_loopback(host) else []
    return tuple(dict.fromkeys([*LOOPBACK_NAMES, *own, *names]))


def origins(name: str, text: str, given: Given) -> tuple[str, ...]:
    origins = words(name, text, given)
    for origin in origins:
        parts = url_parts(name, origin)
        is_origin = parts.scheme in ("http", "https") and parts.netloc and "@" not in parts.netloc
        if not is_origin or parts.path not in ("", "/") or parts.query or parts.fragment:
            shown = "an address with a password or an @" if "@" in origin else repr(origin)
            raise ConfigurationError(f"{name} names {shown}, but an origin looks like https://example.org.")
    return tuple(origin.rstrip("/") for origin in origins)


def trusted_proxies(name: str, text: str, given: Given) -> tuple[str, ...]:
    proxies = words(name, text, given)
    for proxy in proxies:
        if not _may_be_trusted(proxy):
            raise ConfigurationError(
                f"{name} names {proxy!r}, but a proxy is an address such as 10.0.0.2, or "
                "one of a network such as 10.0.0.0/24."
            )
    return tuple(dict.fromkeys(proxies))


def internal_addresses(name: str, text: str, given: Given) -> tuple[InternalAddress, ...]:
    try:
        return parse_all(words(name, text, given))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} cannot be used: {error}. Separated by commas, each entry is a "
            "host name, an address or a network, with a port or without: ollama:11434, 10.0.0.7, "
            "10.1.0.0/16, [fd00::7]:443."
        ) from error


def _may_be_trusted(proxy: str) -> bool:
    try:
        # A trusted proxy may claim any address, so not every address can be trusted.
        return ipaddress.ip_network(proxy).prefixlen > 0
    except ValueError:
        return False
