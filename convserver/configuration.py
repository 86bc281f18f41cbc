"""The server's configuration from the environment, checked before anything starts."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from conversations import synced_files
from convserver.quotas import (
    COSTS,
    LIMIT_NAMES,
    MOST,
    NAMES,
    Quotas,
    RunLimits,
    variable_of,
    variable_of_limit,
)
from sessions_app.agents import sources
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.outbound.internal import InternalAddress, parse_all

E = TypeVar("E", bound=StrEnum)

HOST_NAME = re.compile(r"\*|\.?[\w-]+(\.[\w-]+)*\.?|\[[0-9A-Fa-f:.]+\]", re.ASCII)
"""A name, an address, all names below one (.example.org), or every name (*)."""
AMOUNT = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
SECRET_KEY_MIN_LENGTH = 32
SESSION_API_KEY_MIN_LENGTH = 16
"""In accounts mode, where the key may come from the network; local mode only warns."""


# One document may bring a hundred images or a long file; sockets and bodies have the same limit.
MESSAGE_MAX_BYTES = 16 * 1024 * 1024
UNKNOWN_BODY_MAX_BYTES = 64 * 1024
"""Larger bodies are read from known clients only."""


class ConfigurationError(Exception):
    """An environment variable has a value with which the server cannot start; the text names the variable."""


def installation_of(secret_key: str) -> str:
    """Return the id of the installation with this secret key; it says nothing of the key."""
    return sha256(secret_key.encode()).hexdigest()[:12]


class LogFormat(StrEnum):
    """The format of a line of the server's log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class AuthMode(StrEnum):
    """How clients authenticate."""

    LOCAL = "local"
    ACCOUNTS = "accounts"


STANDALONE = "standalone"
BUILT_IN_STORES = {STANDALONE: "conversations.store.DatabaseConversationStore"}
BUILT_IN_VALIDATORS = {STANDALONE: "conversations.access.ConversationValidator"}
CLUSTERED = "clustered"
BUILT_IN_MANAGERS = {
    STANDALONE: "sessions_app.loops.manager.StandaloneConversationManager",
    CLUSTERED: "sessions_app.loops.cluster.managers.ClusteredConversationManager",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The checked values; the names are those of the variables."""

    host: str
    """Name or address, an IPv6 address without brackets."""
    port: int
    data_dir: Path
    database_url: str
    redis_url: str | None
    store: str
    """Dotted path of the class that stores conversations."""
    validator: str
    """Dotted path of the class that decides who may join."""
    manager: str
    """Dotted path of the class that runs agent loops."""
    auth: AuthMode
    agent: str
    """Dotted path of the class of the agent that answers unless a conversation chooses another."""
    session_api_key: str | None
    secret_key: str
    secret_key_fallbacks: tuple[str, ...] = field(repr=False)
    """Earlier secret keys: they still decrypt what was stored under them, but encrypt nothing new."""
    allowed_hosts: tuple[str, ...]
    permitted_origins: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    """Addresses and networks of proxies that are trusted to name the client; none if there is no proxy."""
    internal_addresses: tuple[InternalAddress, ...]
    """What users of an accounts server may have asked inside the server's network; empty for nothing."""
    max_connections: int
    """How many connections there may be at a time, if there are as many descriptors."""
    max_connections_per_address: int
    """How many of them one address may have, other than trusted proxies and loopback. 0 for no limit."""
    max_concurrent: int
    max_age_days: int | None
    """Lists of the OpenHands wires omit conversations unchanged for this many days; None for no limit."""
    deleted_days: int | None
    """Deleted conversations can be restored for this many days, and are then purged; None for ever."""
    conversation_key_days: int | None
    """A conversation's key expires this many days after its last use; None for never."""
    allow_set_conversation_id: bool
    """Whether the body that creates a V0 conversation may choose its id."""
    mcp_notes: bool = False
    """Whether clients of the MCP door may append notes to conversations."""
    import_max_mb: int = 8_590
    """How large an uploaded file may be, in units of 1,000,000 bytes: 8 GiB."""
    imports_open_max_mb: int = 100_000
    """How large all files together may be whose imports have not ended, in the same units; 0 for no limit."""
    frontend_dir: Path | None = None
    """The directory of a built single-page frontend, served at `/`; None for none."""
    log_format: LogFormat = LogFormat.TEXT
    log_level: LogLevel = LogLevel.INFO
    statement_timeout_s: int = 60
    """The longest time of one statement, and of an idle transaction; statements of commands have no limit.

    0 for no limit.
    """
    lock_timeout_s: int = 5
    """The longest wait for a conversation, or a SQLite file, that another program or request has locked."""
    backup_max_age_days: int = 2
    """A newest backup that is older is a problem for the operator; 0 where others make the backups."""
    remote_grace_s: int = 15
    """How long a turn waits for the program of its agent to connect again."""
    secrets_max: int = 1_000
    """The most secrets of one conversation, with the keys of its agent."""
    secrets_max_kb: int = 300
    """The total length of the secrets of a conversation, and of those of a user, in units of 1,000 bytes."""
    hooks: tuple[str, ...] = ()
    """Dotted paths of hooks that are notified of conversations."""
    quotas: Quotas = field(default_factory=Quotas)
    agents: tuple[str, ...] = ()
    """The names of the agents that users may choose beside the default one; empty for all."""
    repeatable_tools: tuple[str, ...] = ()
    """Names of tools that may be run again after a crash, whatever became of the first time."""
    run_limits: RunLimits = field(default_factory=RunLimits)
    """The most that a user may allow an agent."""
    llm_model: str | None = None
    """The model of users who have set none, as OpenHands writes it: `openai/gpt-5`. None for none."""
    llm_api_key: str | None = field(default=None, repr=False)
    llm_base_url: str | None = None

    @property
    def is_clustered(self) -> bool:
        """Whether workers run the loops, and processes that serve run none."""
        return self.manager == BUILT_IN_MANAGERS[CLUSTERED]

    @property
    def installation(self) -> str:
        """An id shared by the processes with the same secret key, and by no others; not secret itself."""
        return installation_of(self.secret_key)

    @property
    def hint_keys(self) -> tuple[str, ...]:
        """Keys that encrypt hints between processes; none where nobody on the way to Redis can read them.

        Without Redis they go through PostgreSQL, where all roles may listen.
        """
        parts = urlsplit(self.redis_url or "postgresql:")
        is_near = parts.scheme == "redis" and _is_loopback(parts.hostname or "localhost")
        is_private = is_near or parts.scheme in ("rediss", "unix")
        return () if is_private else (f"hints {self.secret_key}",)


def read(environment: Mapping[str, str]) -> Configuration:
    """Return the checked configuration.

    Raise ConfigurationError with one sentence that names the first wrong variable.
    """
    auth = _choice(environment, "CONVSERVER_AUTH", AuthMode, AuthMode.LOCAL)
    host = _host(environment, auth)
    data_dir = Path(environment.get("CONVSERVER_DATA_DIR") or "var").expanduser().absolute()
    found = Configuration(
        host=host,
        port=_integer(environment, "PORT", 8000, least=0, most=65535),
        data_dir=data_dir,
        database_url=_database_url(environment, data_dir),
        redis_url=_redis_url(environment),
        store=_class_path(environment, "CONVSERVER_STORE", BUILT_IN_STORES, "a store"),
        validator=_class_path(environment, "CONVSERVER_VALIDATOR", BUILT_IN_VALIDATORS, "a validator"),
        manager=_class_path(environment, "CONVSERVER_MANAGER", BUILT_IN_MANAGERS, "a manager"),
        auth=auth,
        agent=_agent(environment),
        session_api_key=_session_api_key(environment, auth),
        secret_key=_secret_key(environment, auth, data_dir),
        secret_key_fallbacks=_secret_key_fallbacks(environment),
        allowed_hosts=_allowed_hosts(environment, auth, host),
        permitted_origins=_origins(environment),
        trusted_proxies=_trusted_proxies(environment),
        internal_addresses=_internal_addresses(environment),
        max_connections=_integer(environment, "CONVSERVER_MAX_CONNECTIONS", 10_000, least=32, most=1_000_000),
        max_connections_per_address=_integer(
            environment, "CONVSERVER_MAX_CONNECTIONS_PER_ADDRESS", 500, least=0, most=1_000_000
        ),
        max_concurrent=_integer(environment, "CONVSERVER_MAX_CONCURRENT", 3, least=1, most=100_000),
        max_age_days=_integer(environment, "CONVSERVER_MAX_AGE_DAYS", 0, least=0, most=36_500) or None,
        deleted_days=_integer(environment, "CONVSERVER_DELETED_DAYS", 30, least=0, most=36_500) or None,
        conversation_key_days=_integer(
            environment, "CONVSERVER_CONVERSATION_KEY_DAYS", 30, least=0, most=36_500
        )
        or None,
        allow_set_conversation_id=_integer(environment, "ALLOW_SET_CONVERSATION_ID", 0, least=0, most=1) == 1,
        mcp_notes=_integer(environment, "CONVSERVER_MCP_NOTES", 0, least=0, most=1) == 1,
        import_max_mb=_integer(environment, "CONVSERVER_IMPORT_MAX_MB", 8_590, least=1, most=1_000_000),
        imports_open_max_mb=_integer(
            environment, "CONVSERVER_IMPORTS_OPEN_MAX_MB", 100_000, least=0, most=100_000_000
        ),
        frontend_dir=_frontend_dir(environment),
        log_format=_choice(environment, "CONVSERVER_LOG_FORMAT", LogFormat, LogFormat.TEXT),
        log_level=_choice(environment, "CONVSERVER_LOG_LEVEL", LogLevel, LogLevel.INFO),
        statement_timeout_s=_integer(environment, "DATABASE_STATEMENT_TIMEOUT_S", 60, least=0, most=86_400),
        lock_timeout_s=_integer(environment, "DATABASE_LOCK_TIMEOUT_S", 5, least=1, most=300),
        backup_max_age_days=_integer(environment, "CONVSERVER_BACKUP_MAX_AGE_DAYS", 2, least=0, most=3_650),
        remote_grace_s=_integer(environment, "CONVSERVER_REMOTE_GRACE_S", 15, least=0, most=3600),
        secrets_max=_integer(environment, "CONVSERVER_SECRETS_MAX", 1_000, least=1, most=10_000),
        secrets_max_kb=_integer(environment, "CONVSERVER_SECRETS_MAX_KB", 300, least=1, most=1_000),
        hooks=_hooks(environment),
        quotas=_quotas(environment, auth),
        agents=_agents(environment),
        repeatable_tools=tuple(_words(environment, "CONVSERVER_REPEATABLE_TOOLS")),
        run_limits=_run_limits(environment),
        llm_model=(environment.get("LLM_MODEL") or "").strip() or None,
        llm_api_key=_llm_api_key(environment),
        llm_base_url=_llm_base_url(environment),
    )
    if found.is_clustered and found.database_url.startswith("sqlite"):
        raise ConfigurationError(
            "CONVSERVER_MANAGER is 'clustered', which needs PostgreSQL: "
            "set DATABASE_URL=postgresql://user:password@host:port/name."
        )
    return found


def _choice(environment: Mapping[str, str], name: str, choices: type[E], default: E) -> E:
    text = environment.get(name) or default
    if text not in list(choices):
        allowed = ", ".join(choices) if len(choices) == 1 else f"one of: {', '.join(choices)}"
        raise ConfigurationError(f"{name} is {text!r}, but it must be {allowed}.")
    return choices(text)


def _integer(environment: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    text = environment.get(name) or str(default)
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not (is_number and least <= int(text) <= most):
        allowed = "0 or 1" if (least, most) == (0, 1) else f"a whole number from {least} to {most}"
        raise ConfigurationError(f"{name} is {text!r}, but it must be {allowed}.")
    return int(text)


def _quotas(environment: Mapping[str, str], auth: AuthMode) -> Quotas:
    defaults = Quotas.of_accounts_mode() if auth is AuthMode.ACCOUNTS else Quotas()
    wanted = {
        name: _integer(environment, variable_of(name), getattr(defaults, name), least=0, most=MOST)
        for name in NAMES
    }
    return Quotas(**wanted)


def _run_limits(environment: Mapping[str, str]) -> RunLimits:
    whole = {
        name: _integer(environment, variable_of_limit(name), 0, least=0, most=MOST)
        for name in LIMIT_NAMES
        if name not in COSTS
    }
    return RunLimits(
        turn_cost=_amount(environment, variable_of_limit("turn_cost")),
        cost=_amount(environment, variable_of_limit("cost")),
        **whole,
    )


def _amount(environment: Mapping[str, str], name: str) -> float:
    text = environment.get(name) or "0"
    if not AMOUNT.fullmatch(text):
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be an amount of US dollars like 2 or 0.50, at most nine digits "
            "before the point."
        )
    return float(text)


def _host(environment: Mapping[str, str], auth: AuthMode) -> str:
    host = (environment.get("HOST") or "127.0.0.1").removeprefix("[").removesuffix("]")
    if auth is AuthMode.LOCAL and not _is_loopback(host):
        raise ConfigurationError(
            f"HOST is {host!r}, but local mode has no logins, so the server listens on loopback "
            "only: use 127.0.0.1, or set CONVSERVER_AUTH=accounts."
        )
    return host


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _database_url(environment: Mapping[str, str], data_dir: Path) -> str:
    url = environment.get("DATABASE_URL") or f"sqlite:///{quote(str(data_dir / 'convserver.sqlite3'))}"
    parts = _url_parts("DATABASE_URL", url)
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
                f"DATABASE_URL has the scheme {scheme!r}, but it must begin with sqlite:/// or postgresql://."
            )
    if not is_complete:
        raise ConfigurationError(f"DATABASE_URL must have the form {form}; special characters as %20.")
    return url


def _redis_url(environment: Mapping[str, str]) -> str | None:
    url = environment.get("REDIS_URL") or None
    if url and _url_parts("REDIS_URL", url).scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError("REDIS_URL must begin with redis://, rediss:// or unix://.")
    return url


def _url_parts(name: str, url: str) -> SplitResult:
    """Split a URL; error messages do not show it, because it may contain a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError as error:
        raise ConfigurationError(f"{name} is not a valid URL: {error}.") from error
    return parts


def _class_path(environment: Mapping[str, str], name: str, built_in: Mapping[str, str], what: str) -> str:
    """Return the dotted path of a class, whose module exists; the default is the first built-in one."""
    text = environment.get(name) or next(iter(built_in))
    if text in built_in:
        return built_in[text]
    if not _may_be_imported(text):
        known = ", ".join(built_in)
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be {known} or the dotted path of {what} class."
        )
    return text


def _agent(environment: Mapping[str, str]) -> str:
    """Return the dotted path of the agent's class; only an unknown name looks through the packages."""
    text = environment.get("CONVSERVER_AGENT") or next(iter(BUILT_IN_AGENTS))
    if text not in BUILT_IN_AGENTS and not _may_be_imported(text) and text in sources.packaged():
        return sources.packaged()[text]
    return _class_path(environment, "CONVSERVER_AGENT", BUILT_IN_AGENTS, "an agent")


def _agents(environment: Mapping[str, str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_words(environment, "CONVSERVER_AGENTS")))
    for name in names:
        if name not in (*BUILT_IN_AGENTS, sources.REMOTE) and name not in sources.packaged():
            known = ", ".join((*sources.paths(), sources.REMOTE))
            raise ConfigurationError(
                f"CONVSERVER_AGENTS names {name!r}, but the agents of this server are {known}."
            )
    return names


def _hooks(environment: Mapping[str, str]) -> tuple[str, ...]:
    paths = _words(environment, "CONVSERVER_HOOKS")
    for path in paths:
        if not _may_be_imported(path):
            raise ConfigurationError(
                f"CONVSERVER_HOOKS names {path!r}, but a hook is the dotted path of a class or object."
            )
    return tuple(dict.fromkeys(paths))


def _may_be_imported(path: str) -> bool:
    module, _, attribute = path.rpartition(".")
    try:
        return bool(module and attribute and find_spec(module))
    except (ImportError, ValueError):
        return False


def _session_api_key(environment: Mapping[str, str], auth: AuthMode) -> str | None:
    key = environment.get("SESSION_API_KEY") or None
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError(
            "SESSION_API_KEY must be printable ASCII without spaces, because it is sent in a header."
        )
    if key and auth is AuthMode.ACCOUNTS and len(key) < SESSION_API_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"SESSION_API_KEY is too short: it needs at least {SESSION_API_KEY_MIN_LENGTH} random characters."
        )
    return key


def _llm_api_key(environment: Mapping[str, str]) -> str | None:
    key = (environment.get("LLM_API_KEY") or "").strip() or None
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError("LLM_API_KEY must be printable ASCII, because it is sent in a header.")
    return key


def _llm_base_url(environment: Mapping[str, str]) -> str | None:
    url = (environment.get("LLM_BASE_URL") or "").strip().rstrip("/")
    if not url:
        return None
    parts = _url_parts("LLM_BASE_URL", url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("LLM_BASE_URL must begin with http:// or https://.")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError("LLM_BASE_URL must have no password, ? or #; the key is LLM_API_KEY.")
    return url


def _secret_key(environment: Mapping[str, str], auth: AuthMode, data_dir: Path) -> str:
    key = environment.get("SECRET_KEY")
    if auth is AuthMode.ACCOUNTS and not key:
        raise ConfigurationError(
            "SECRET_KEY is not set, but accounts mode needs one: "
            f"set it to at least {SECRET_KEY_MIN_LENGTH} random characters and keep it."
        )
    if key and len(key) < SECRET_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"SECRET_KEY is too short: it needs at least {SECRET_KEY_MIN_LENGTH} characters."
        )
    return key or _kept_secret_key(data_dir)


def _secret_key_fallbacks(environment: Mapping[str, str]) -> tuple[str, ...]:
    keys = _words(environment, "SECRET_KEY_FALLBACKS")
    if any(len(key) < SECRET_KEY_MIN_LENGTH for key in keys):
        raise ConfigurationError(
            "SECRET_KEY_FALLBACKS has a key that is too short: separated by commas, each needs at least "
            f"{SECRET_KEY_MIN_LENGTH} characters."
        )
    return tuple(keys)


def _kept_secret_key(data_dir: Path) -> str:
    """Return the key in the data directory; on first use create it, readable by its owner only."""
    path = data_dir / "secret_key"
    try:
        synced_files.make_directory(data_dir)
        if not path.exists():
            _write_once(path, secrets.token_urlsafe(64))
    except OSError as error:
        is_file = data_dir.exists() and not data_dir.is_dir()
        reason = (
            "that is a file, not a directory" if is_file else f"nothing can be stored there: {error.strerror}"
        )
        raise ConfigurationError(f"CONVSERVER_DATA_DIR is {str(data_dir)!r}, but {reason}.") from error
    try:
        key = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be read: {error.strerror}.") from error
    if len(key) < SECRET_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"SECRET_KEY is not set, and {str(path)!r} does not contain one: restore that file, or delete it "
            "to have a new key generated."
        )
    return key


def _write_once(path: Path, text: str) -> None:
    """Write `text` to `path` unless another process was first; no reader ever sees half of it."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    synced_files.sync(draft)
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    synced_files.sync(path.parent)


def _allowed_hosts(environment: Mapping[str, str], auth: AuthMode, host: str) -> tuple[str, ...]:
    names = _words(environment, "CONVSERVER_ALLOWED_HOSTS")
    if auth is AuthMode.ACCOUNTS and not names:
        raise ConfigurationError(
            "CONVSERVER_ALLOWED_HOSTS is not set, but accounts mode needs the names under which the "
            "server is reached, separated by commas."
        )
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise ConfigurationError(
                f"CONVSERVER_ALLOWED_HOSTS names {name!r}, but a name looks like chat.example.org, without "
                "a scheme, a port or a path."
            )
    own = [f"[{host}]" if ":" in host else host] if _is_loopback(host) else []
    return tuple(dict.fromkeys([*LOOPBACK_NAMES, *own, *names]))


def _origins(environment: Mapping[str, str]) -> tuple[str, ...]:
    origins = _words(environment, "PERMITTED_CORS_ORIGINS")
    for origin in origins:
        parts = _url_parts("PERMITTED_CORS_ORIGINS", origin)
        is_origin = parts.scheme in ("http", "https") and parts.netloc and "@" not in parts.netloc
        if not is_origin or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ConfigurationError(
                f"PERMITTED_CORS_ORIGINS names {origin!r}, but an origin looks like https://example.org."
            )
    return tuple(origin.rstrip("/") for origin in origins)


def _trusted_proxies(environment: Mapping[str, str]) -> tuple[str, ...]:
    proxies = _words(environment, "CONVSERVER_TRUSTED_PROXIES")
    for proxy in proxies:
        if not _may_be_trusted(proxy):
            raise ConfigurationError(
                f"CONVSERVER_TRUSTED_PROXIES names {proxy!r}, but a proxy is an address such as 10.0.0.2, or "
                "one of a network such as 10.0.0.0/24."
            )
    return tuple(dict.fromkeys(proxies))


def _internal_addresses(environment: Mapping[str, str]) -> tuple[InternalAddress, ...]:
    try:
        return parse_all(_words(environment, "CONVSERVER_INTERNAL_ADDRESSES"))
    except ValueError as error:
        raise ConfigurationError(
            f"CONVSERVER_INTERNAL_ADDRESSES cannot be used: {error}. Separated by commas, each entry is a "
            "host name, an address or a network, with a port or without: ollama:11434, 10.0.0.7, "
            "10.1.0.0/16, [fd00::7]:443."
        ) from error


def _may_be_trusted(proxy: str) -> bool:
    try:
        # A trusted proxy may claim any address, so not every address can be trusted.
        return ipaddress.ip_network(proxy).prefixlen > 0
    except ValueError:
        return False


def _frontend_dir(environment: Mapping[str, str]) -> Path | None:
    text = environment.get("CONVSERVER_FRONTEND_DIR")
    if not text:
        return None
    try:
        path = Path(text).expanduser().resolve()
        index = (path / "index.html").resolve()
        with index.open("rb"):
            is_complete = index.is_relative_to(path)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: no home directory, links in a circle
        is_complete = False
    if not is_complete:
        raise ConfigurationError(
            f"CONVSERVER_FRONTEND_DIR is {text!r}, but it must be a directory with an index.html that can be "
            "read: the output of a frontend's build."
        )
    return path


def _words(environment: Mapping[str, str], name: str) -> list[str]:
    return [word.strip() for word in environment.get(name, "").split(",") if word.strip()]
