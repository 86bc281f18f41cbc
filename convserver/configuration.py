"""What the environment says about this server, checked before anything starts."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

E = TypeVar("E", bound=StrEnum)

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class ConfigurationError(Exception):
    """An environment variable has a value that the server cannot start with; the text names it."""


class ManagerKind(StrEnum):
    """Where agent loops run."""

    STANDALONE = "standalone"


class AuthMode(StrEnum):
    """Who may come in."""

    LOCAL = "local"
    ACCOUNTS = "accounts"


BUILT_IN_AGENTS = {"demo": "sessions_app.agents.demo.DemoAgent"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The checked values; the names are those of the variables."""

    host: str
    port: int
    data_dir: Path
    database_url: str
    redis_url: str | None
    manager: ManagerKind
    auth: AuthMode
    agent: str
    """Dotted path of the agent class."""
    session_api_key: str | None
    secret_key: str
    allowed_hosts: tuple[str, ...]
    permitted_origins: tuple[str, ...]
    max_concurrent: int


def read(environment: Mapping[str, str]) -> Configuration:
    """Return the checked configuration.

    Raise ConfigurationError with one sentence that names the first wrong variable.
    """
    auth = _choice(environment, "CONVSERVER_AUTH", AuthMode, AuthMode.LOCAL)
    data_dir = Path(environment.get("CONVSERVER_DATA_DIR") or "var").expanduser().absolute()
    return Configuration(
        host=_host(environment, auth),
        port=_integer(environment, "PORT", 8000, least=0, most=65535),
        data_dir=data_dir,
        database_url=_database_url(environment, data_dir),
        redis_url=_redis_url(environment),
        manager=_choice(environment, "CONVSERVER_MANAGER", ManagerKind, ManagerKind.STANDALONE),
        auth=auth,
        agent=_agent(environment),
        session_api_key=_session_api_key(environment),
        secret_key=_secret_key(environment, auth, data_dir),
        allowed_hosts=_allowed_hosts(environment, auth),
        permitted_origins=_origins(environment),
        max_concurrent=_integer(environment, "CONVSERVER_MAX_CONCURRENT", 3, least=1, most=100_000),
    )


def _choice(environment: Mapping[str, str], name: str, choices: type[E], default: E) -> E:
    text = environment.get(name) or default
    if text not in list(choices):
        allowed = ", ".join(choices)
        raise ConfigurationError(f"{name} is {text!r}, but it must be one of: {allowed}.")
    return choices(text)


def _integer(environment: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ConfigurationError(f"{name} is {text!r}, but it must be a whole number from {least} to {most}.")
    return int(text)


def _host(environment: Mapping[str, str], auth: AuthMode) -> str:
    host = environment.get("HOST") or "127.0.0.1"
    if auth is AuthMode.LOCAL and not _is_loopback(host):
        raise ConfigurationError(
            f"HOST is {host!r}, but in local mode whoever reaches the server is let in, so it listens on "
            "loopback only: use 127.0.0.1, or set CONVSERVER_AUTH=accounts."
        )
    return host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _database_url(environment: Mapping[str, str], data_dir: Path) -> str:
    url = environment.get("DATABASE_URL") or f"sqlite:///{data_dir / 'convserver.sqlite3'}"
    scheme = urlsplit(url).scheme
    if scheme not in ("sqlite", "postgres", "postgresql"):
        raise ConfigurationError(
            f"DATABASE_URL has the scheme {scheme!r}, but it must begin with sqlite:/// or postgresql://."
        )
    return url


def _redis_url(environment: Mapping[str, str]) -> str | None:
    url = environment.get("REDIS_URL") or None
    if url and urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError("REDIS_URL must begin with redis://, rediss:// or unix://.")
    return url


def _agent(environment: Mapping[str, str]) -> str:
    name = environment.get("CONVSERVER_AGENT") or "demo"
    if name in BUILT_IN_AGENTS:
        return BUILT_IN_AGENTS[name]
    module, _, attribute = name.rpartition(".")
    try:
        found = bool(module and attribute and find_spec(module))
    except (ImportError, ValueError):
        found = False
    if not found:
        known = ", ".join(BUILT_IN_AGENTS)
        raise ConfigurationError(
            f"CONVSERVER_AGENT is {name!r}, but it must be {known} or the dotted path of an agent class."
        )
    return name


def _session_api_key(environment: Mapping[str, str]) -> str | None:
    key = environment.get("SESSION_API_KEY") or None
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError(
            "SESSION_API_KEY must be printable ASCII without spaces, because it travels in a header."
        )
    return key


def _secret_key(environment: Mapping[str, str], auth: AuthMode, data_dir: Path) -> str:
    key = environment.get("SECRET_KEY")
    if auth is AuthMode.ACCOUNTS and not key:
        raise ConfigurationError(
            "SECRET_KEY is not set, but accounts mode needs one: "
            "set it to at least 50 random characters and keep it."
        )
    if key and len(key) < 32:
        raise ConfigurationError("SECRET_KEY is too short: it needs at least 32 characters.")
    return key or _kept_secret_key(data_dir)


def _kept_secret_key(data_dir: Path) -> str:
    """Return the key of the data directory, making it on first use, readable by its owner only."""
    path = data_dir / "secret_key"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_once(path, secrets.token_urlsafe(64))
        return path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(
            f"CONVSERVER_DATA_DIR is {str(data_dir)!r}, but nothing can be kept there: {error.strerror}."
        ) from error


def _write_once(path: Path, text: str) -> None:
    """Write `text` to `path` unless another process was first; nobody ever reads half of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _allowed_hosts(environment: Mapping[str, str], auth: AuthMode) -> tuple[str, ...]:
    names = _words(environment, "CONVSERVER_ALLOWED_HOSTS")
    if auth is AuthMode.ACCOUNTS and not names:
        raise ConfigurationError(
            "CONVSERVER_ALLOWED_HOSTS is not set, but accounts mode needs the names under which the "
            "server is reached, separated by commas."
        )
    return (*LOOPBACK_NAMES, *(name for name in names if name not in LOOPBACK_NAMES))


def _origins(environment: Mapping[str, str]) -> tuple[str, ...]:
    origins = _words(environment, "PERMITTED_CORS_ORIGINS")
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/"):
            raise ConfigurationError(
                f"PERMITTED_CORS_ORIGINS names {origin!r}, but an origin looks like https://example.org."
            )
    return tuple(origin.rstrip("/") for origin in origins)


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return [word.strip() for word in environment.get(name, "").split(",") if word.strip()]
