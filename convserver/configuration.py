"""The server's configuration from the environment, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from convserver.quotas import Quotas, RunLimits, quotas_of, run_limits_of
from convserver.variables import (
    ConfigurationError,
    addresses,
    choice,
    classes,
    documentation_of,
    files,
    flag,
    keys,
    sandboxes,
    values_of,
    variable,
    whole,
    whole_or_none,
    words,
)
from convserver.variables.sandboxes import SandboxSettings
from sessions_app.outbound.internal import InternalAddress
from sessions_app.sandbox.base import SandboxName

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
# One document may bring a hundred images or a long file; sockets and bodies have the same limit.
MESSAGE_MAX_BYTES = 16 * 1024 * 1024
UNKNOWN_BODY_MAX_BYTES = 64 * 1024
"""Larger bodies are read from known clients only."""


def installation_of(secret_key: str) -> str:
    """Return the id of the installation with this secret key; it says nothing of the key."""
    # In names of channels and in manifests of backups, which other programs see.
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
    """The checked values: each field declares its variable. Parsers may use the fields above.

    A field whose value has a key or a password is not in the `repr`, which ends up in logs.
    """

    auth: AuthMode = variable(
        "CONVSERVER_AUTH",
        choice(AuthMode),
        default="local",
        meaning="`local`: one user, loopback only; `accounts`: logins and tokens ([below](#accounts-mode))",
    )
    host: str = variable(
        "HOST",
        addresses.host,
        default="127.0.0.1",
        meaning="the address to listen on; local mode accepts loopback addresses only",
    )
    """Name or address, an IPv6 address without brackets."""
    port: int = variable(
        "PORT",
        whole(0, 65_535),
        default="8000",
        meaning="the port to listen on; `0` for any that is free",
    )
    data_dir: Path = variable(
        "CONVSERVER_DATA_DIR",
        lambda _, text, __: Path(text).expanduser().absolute(),
        default="var",
        shown="`./var`",
        meaning="the directory of the SQLite file, the generated secret key, `last_database` (the name of "
        "the database that was used last) and a file that ends in `.serving-lock` (locked by the "
        "server that uses the SQLite file)",
    )
    database_url: str = variable(
        "DATABASE_URL",
        addresses.database_url,
        shown="SQLite under `CONVSERVER_DATA_DIR`",
        repr=False,
        meaning="`sqlite:///…` or `postgresql://…`",
    )
    redis_url: str | None = variable(
        "REDIS_URL",
        addresses.redis_url,
        shown="none",
        repr=False,
        meaning="carries hints between processes; without it, hints stay in the process, or go through "
        "PostgreSQL [in a cluster](#many-processes). Hints bring the text of events; they are "
        "encrypted with `SECRET_KEY`, unless Redis is on this machine or reached by `rediss://` "
        "(so let all processes name Redis in the same way). While Redis is away nothing fails: "
        "events of other processes arrive by a slow poll, each process counts wrong passwords by "
        "itself, and the log has one line when Redis goes and one when it is back",
    )
    agent: str = variable(
        "CONVSERVER_AGENT",
        classes.agent,
        default="auto",
        meaning="`auto`: a model answers wherever one is set, otherwise the demo agent; `demo`; `llm`: "
        "without a model, a turn ends with an error that says so; the name of an installed "
        "package's agent, or the dotted path of an agent class ([agents.md](agents.md)). It "
        "answers in conversations that choose no other",
    )
    """Dotted path of the class of the agent that answers unless a conversation chooses another."""
    agents: tuple[str, ...] = variable(
        "CONVSERVER_AGENTS",
        classes.agents,
        shown="all",
        meaning="the names of the agents that users may choose for a conversation, separated by commas, "
        "`remote` for [programs outside the server](agents.md#an-agent-outside-the-server); the "
        "default one can always be chosen",
    )
    remote_grace_s: int = variable(
        "CONVSERVER_REMOTE_GRACE_S",
        whole(0, 3600),
        default="15",
        meaning="how many seconds a turn waits when the program of its agent has lost its connection",
    )
    llm_model: str | None = variable(
        "LLM_MODEL",
        lambda _, text, __: text.strip() or None,
        shown="none",
        meaning="the model of users who have set none ([below](#models)), for example "
        "`anthropic/claude-sonnet-4-5`",
    )
    llm_api_key: str | None = variable(
        "LLM_API_KEY",
        keys.llm_api_key,
        shown="none",
        repr=False,
        meaning="its key. It is used with this model and this base URL only",
    )
    llm_base_url: str | None = variable(
        "LLM_BASE_URL",
        addresses.llm_base_url,
        shown="the provider's",
        meaning="the address of its server, for example `http://ollama:11434/v1`; with accounts, too, it "
        "may be a private one",
    )
    repeatable_tools: tuple[str, ...] = variable(
        "CONVSERVER_REPEATABLE_TOOLS",
        words,
        shown="none",
        meaning="names of tools, separated by commas, that may run twice: a call of theirs that a crash "
        "has cut off is run again. Of any other call, the outcome is then unknown "
        "([below](#tools))",
    )
    commands_never_asked: tuple[tuple[str, ...], ...] = variable(
        "CONVSERVER_COMMANDS_NEVER_ASKED",
        sandboxes.commands,
        shown="none",
        meaning="beginnings of commands, separated by commas, for example `git status, ls, pytest -q`: the "
        "terminal runs a command that begins with these words without approval, also where calls of tools "
        "have to be approved. A line with `;`, `&`, a pipe, a redirection, `$(` or a backquote always asks, "
        "and so do several lines. `create_pull_request` is a tool, which then [does not ask](#repositories) "
        "either",
    )
    store: str = variable(
        "CONVSERVER_STORE",
        classes.class_path(BUILT_IN_STORES, "a store"),
        default="standalone",
        meaning="where the metadata of conversations is kept: `standalone`, the database, or the dotted "
        "path of a class of your own ([below](#a-store-a-validator-a-manager-of-your-own))",
    )
    validator: str = variable(
        "CONVSERVER_VALIDATOR",
        classes.class_path(BUILT_IN_VALIDATORS, "a validator"),
        default="standalone",
        meaning="who may join a conversation: `standalone`, its owner, or the dotted path of a class",
    )
    manager: str = variable(
        "CONVSERVER_MANAGER",
        classes.class_path(BUILT_IN_MANAGERS, "a manager"),
        default="standalone",
        meaning="what runs agent loops: `standalone`, the server's process; `clustered`, "
        "[workers](#many-processes); or the dotted path of a class",
    )
    """Dotted path of the class that runs agent loops."""
    max_concurrent: int = variable(
        "CONVSERVER_MAX_CONCURRENT",
        whole(1, 100_000),
        default="3",
        meaning="how many agent loops a user may have at a time; starting one more closes an idle one, "
        "the least recently used first",
    )
    conversation_key_days: int | None = variable(
        "CONVSERVER_CONVERSATION_KEY_DAYS",
        whole_or_none(36_500),
        default="30",
        meaning="the key of a conversation, which V1 clients get with it, expires this many days after "
        "its last use; 0 for never",
    )
    """A conversation's key expires this many days after its last use; None for never."""
    deleted_days: int | None = variable(
        "CONVSERVER_DELETED_DAYS",
        whole_or_none(36_500),
        default="30",
        meaning="deleted conversations can be restored for this many days, and are then "
        "[purged](#retention-and-purge); 0 keeps them without limit",
    )
    """Deleted conversations can be restored for this many days, and are then purged; None for no limit."""
    backup_max_age_days: int = variable(
        "CONVSERVER_BACKUP_MAX_AGE_DAYS",
        whole(0, 3_650),
        default="2",
        meaning="the admin's first page warns if the newest backup is older than this many days; 0 if "
        "others make the backups",
    )
    max_age_days: int | None = variable(
        "CONVSERVER_MAX_AGE_DAYS",
        whole_or_none(36_500),
        default="0",
        shown="none",
        meaning="V0 lists leave out conversations to which nothing was added for this many days",
    )
    """V0's list omits conversations to which nothing was added for this many days; None for no limit."""
    mcp_notes: bool = variable(
        "CONVSERVER_MCP_NOTES",
        flag,
        default="0",
        meaning="`1`: clients of the [MCP door](mcp.md) may append notes to conversations",
    )
    import_max_mb: int = variable(
        "CONVSERVER_IMPORT_MAX_MB",
        whole(1, 1_000_000),
        default="8590",
        meaning="how large a file may be that is uploaded to be imported, and all of one user's that wait "
        "together; 8590 MB are 8 GiB ([below](#by-upload))",
    )
    imports_open_max_mb: int = variable(
        "CONVSERVER_IMPORTS_OPEN_MAX_MB",
        whole(0, 100_000_000),
        default="100000",
        meaning="how large the files of all users' imports that have not ended may be together; `0` for "
        "no limit",
    )
    workspaces: Path = variable(
        "CONVSERVER_WORKSPACES",
        files.workspaces,
        shown="`workspaces` in `CONVSERVER_DATA_DIR`",
        meaning="the directory of the [files of conversations](#files-of-conversations); processes on "
        "several machines need one that all of them see",
    )
    workspace_roots: tuple[Path, ...] = variable(
        "CONVSERVER_WORKSPACE_ROOTS",
        files.workspace_roots,
        shown="none",
        meaning="local mode: [directories of yours](#your-own-directories) in which conversations may work, "
        "separated by commas; `convserver serve --workspace DIR` adds one",
    )
    workspace_max_mb: int = variable(
        "CONVSERVER_WORKSPACE_MAX_MB",
        whole(1, 100_000_000),
        default="1000",
        meaning="the most MB (1,000,000 bytes) of files of one conversation",
    )
    workspace_max_files: int = variable(
        "CONVSERVER_WORKSPACE_MAX_FILES",
        whole(1, 10_000_000),
        default="100000",
        meaning="the most files and directories of one conversation",
    )
    workspace_max_depth: int = variable(
        "CONVSERVER_WORKSPACE_MAX_DEPTH",
        whole(1, 200),
        default="64",
        meaning="the most directories above a file of a conversation",
    )
    sandbox: SandboxName = variable(
        "CONVSERVER_SANDBOX",
        sandboxes.sandbox,
        default="auto",
        meaning="where commands of agents run ([below](#the-sandbox)): `auto`, in bubblewrap where it works, "
        "else nowhere; `bubblewrap`; `docker`; `none`, without a sandbox, local mode only, and each has to "
        "be approved; `off`: agents have neither a terminal nor files",
    )
    sandbox_settings: SandboxSettings = variable(
        "CONVSERVER_SANDBOX_…",
        sandboxes.sandbox_settings,
        shown="2000 MB, 512 processes",
        meaning="what a sandbox may use, its network, and who runs it ([below](#the-sandbox))",
    )
    allow_set_conversation_id: bool = variable(
        "ALLOW_SET_CONVERSATION_ID",
        flag,
        default="0",
        meaning="`1`: a client that creates a V0 conversation may choose its id",
    )
    allowed_hosts: tuple[str, ...] = variable(
        "CONVSERVER_ALLOWED_HOSTS",
        addresses.allowed_hosts,
        shown="loopback names",
        meaning="further host names under which clients reach the server, separated by commas; required "
        "in accounts mode",
    )
    trusted_proxies: tuple[str, ...] = variable(
        "CONVSERVER_TRUSTED_PROXIES",
        addresses.trusted_proxies,
        shown="none",
        meaning="accounts mode: addresses and networks of the proxies that are trusted to name the "
        "client, separated by commas ([below](#behind-a-proxy))",
    )
    internal_addresses: tuple[InternalAddress, ...] = variable(
        "CONVSERVER_INTERNAL_ADDRESSES",
        addresses.internal_addresses,
        shown="none",
        meaning="accounts mode: hosts inside your network that users may let the server ask, separated by "
        "commas: names, addresses or networks, with a port or without "
        "([below](#addresses-inside-your-network))",
    )
    max_connections: int = variable(
        "CONVSERVER_MAX_CONNECTIONS",
        whole(32, 1_000_000),
        default="10000",
        meaning="how many connections may be open at a time; fewer if the process may have fewer "
        "descriptors ([below](#limits-for-unknown-clients))",
    )
    max_connections_per_address: int = variable(
        "CONVSERVER_MAX_CONNECTIONS_PER_ADDRESS",
        whole(0, 1_000_000),
        default="500",
        meaning="how many of them one address (an IPv6 network of 64 bits) may have; `0` for no limit. "
        "Trusted proxies, `127.0.0.1` and `::1` have none",
    )
    permitted_origins: tuple[str, ...] = variable(
        "PERMITTED_CORS_ORIGINS",
        addresses.origins,
        shown="none",
        meaning="origins whose pages may use the server, separated by commas",
    )
    session_api_key: str | None = variable(
        "SESSION_API_KEY",
        keys.session_api_key,
        shown="none",
        repr=False,
        meaning="a key that every request must send (`X-Session-API-Key`); a browser asks for it once, "
        "and again when it changes. At least 16 random characters: accounts mode refuses shorter "
        "keys, local mode warns. After ten different wrong keys an address is refused for five "
        "minutes, wherever it sends them; after 200 of all addresses, each has one attempt. "
        "Tokens still work there. Each process counts by itself",
    )
    secret_key: str = variable(
        "SECRET_KEY",
        keys.secret_key,
        shown="kept in the data directory",
        repr=False,
        meaning="encrypts secrets; required in accounts mode, at least 32 characters; processes share "
        "hints only if they share this key",
    )
    secret_key_fallbacks: tuple[str, ...] = variable(
        "SECRET_KEY_FALLBACKS",
        keys.secret_key_fallbacks,
        shown="none",
        repr=False,
        meaning="earlier secret keys, separated by commas: they still decrypt secrets and accept logins, "
        "but encrypt nothing new",
    )
    frontend_dir: Path | None = variable(
        "CONVSERVER_FRONTEND_DIR",
        files.frontend,
        shown="none",
        meaning="a built single-page frontend with an `index.html`, served at `/` ([below](#a-frontend))",
    )
    hooks: tuple[str, ...] = variable(
        "CONVSERVER_HOOKS",
        classes.hooks,
        shown="none",
        meaning="dotted paths of hooks, separated by commas ([below](#webhooks-and-hooks))",
    )
    log_format: LogFormat = variable(
        "CONVSERVER_LOG_FORMAT",
        choice(LogFormat),
        default="text",
        meaning="`text`, or `json`: one object on each line ([below](#the-log))",
    )
    log_level: LogLevel = variable(
        "CONVSERVER_LOG_LEVEL",
        choice(LogLevel),
        default="info",
        meaning="the lowest level that is written: `debug`, `info`, `warning` or `error`",
    )
    secrets_max: int = variable(
        "CONVSERVER_SECRETS_MAX",
        whole(1, 10_000),
        default="1000",
        meaning="the most secrets of one conversation, with the keys of its agent; a user has at most "
        "200, and 200 of tool servers",
    )
    secrets_max_kb: int = variable(
        "CONVSERVER_SECRETS_MAX_KB",
        whole(1, 1_000),
        default="300",
        meaning="their total length, and that of a user's secrets, in kB; each is searched for in every "
        "event",
    )
    quotas: Quotas = variable(
        "CONVSERVER_QUOTA_…",
        quotas_of,
        shown="none in local mode",
        meaning="how much one user may use ([below](#quotas))",
    )
    run_limits: RunLimits = variable(
        "CONVSERVER_LIMIT_…",
        run_limits_of,
        shown="none",
        meaning="the most that an agent may use in a turn or a conversation ([below](#limits-of-agents))",
    )
    statement_timeout_s: int = variable(
        "DATABASE_STATEMENT_TIMEOUT_S",
        whole(0, 86_400),
        default="60",
        meaning="PostgreSQL: the longest time that one statement of the server may take, and that a "
        "transaction may be idle; statements of commands (`convserver manage`, `import`) have no "
        "limit; `0` for no limit",
    )
    lock_timeout_s: int = variable(
        "DATABASE_LOCK_TIMEOUT_S",
        whole(1, 300),
        default="5",
        meaning="the longest time that a change waits for a lock that another process holds: on a "
        "conversation (PostgreSQL) or on the file (SQLite); then the answer is 503 with "
        "`Retry-After`. On PostgreSQL commands (`convserver manage`, `import`) have no limit",
    )

    @property
    def is_clustered(self) -> bool:
        """Return whether workers run the loops, and processes that serve run none."""
        return self.manager == BUILT_IN_MANAGERS[CLUSTERED]

    @property
    def installation(self) -> str:
        """An id shared by the processes with the same secret key, and by no others; not secret itself."""
        return installation_of(self.secret_key)

    @property
    def hint_keys(self) -> tuple[str, ...]:
        """The keys that encrypt hints between processes; none over a local Redis, a socket or `rediss://`."""
        # In PostgreSQL every role may listen.
        parts = urlsplit(self.redis_url or "postgresql:")
        is_near = parts.scheme == "redis" and addresses.is_loopback(parts.hostname or "localhost")
        is_private = is_near or parts.scheme in ("rediss", "unix")
        return () if is_private else (f"hints {self.secret_key}",)


def read(environment: Mapping[str, str]) -> Configuration:
    """Return the checked configuration.

    Raise ConfigurationError with one sentence that names the first wrong variable.
    """
    found = Configuration(**values_of(Configuration, environment))
    if found.is_clustered and found.database_url.startswith("sqlite"):
        raise ConfigurationError(
            "CONVSERVER_MANAGER is 'clustered', which needs PostgreSQL: "
            "set DATABASE_URL=postgresql://user:password@host:port/name."
        )
    return found


if __name__ == "__main__":
    print(documentation_of(Configuration), end="")
