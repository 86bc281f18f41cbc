"""Configuration: every variable's default and values, and what stops the start, in one sentence."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
import stat
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import get_commands

from convserver import cli, configuration, program
from convserver.commands import management, serving
from convserver.configuration import (
    AuthMode,
    Configuration,
    LogFormat,
    LogLevel,
)
from convserver.passwords.login_throttle import GUESSES_MAX
from convserver.quotas import RunLimits
from convserver.variables import ConfigurationError, declared_in, documentation_of
from tests.support.data.hashers import QUICK_PASSWORDS
from tests.support.people.clients import WAIT_S, Server
from tests.support.runner import forks

pytestmark = pytest.mark.one_engine

ACCOUNTS = {
    "CONVSERVER_AUTH": "accounts",
    "SECRET_KEY": "k" * 50,
    "CONVSERVER_ALLOWED_HOSTS": "chat.example.org",
}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def read(data_dir: Path, variables: Mapping[str, str] | None = None) -> Configuration:
    return configuration.read({"CONVSERVER_DATA_DIR": str(data_dir), **(variables or {})})


def test_every_variable_has_a_default(subtests: pytest.Subtests, data_dir: Path) -> None:
    for attribute, value in [
        ("host", "127.0.0.1"),
        ("port", 8000),
        ("redis_url", None),
        ("store", "conversations.store.DatabaseConversationStore"),
        ("validator", "conversations.access.ConversationValidator"),
        ("manager", "sessions_app.loops.manager.StandaloneConversationManager"),
        ("auth", AuthMode.LOCAL),
        ("agent", "sessions_app.agents.auto.AutoAgent"),
        ("llm_model", None),
        ("llm_api_key", None),
        ("llm_base_url", None),
        ("session_api_key", None),
        ("secret_key_fallbacks", ()),
        ("allowed_hosts", ("localhost", "127.0.0.1", "[::1]")),
        ("permitted_origins", ()),
        ("trusted_proxies", ()),
        ("internal_addresses", ()),
        ("max_connections", 10_000),
        ("max_connections_per_address", 500),
        ("max_concurrent", 3),
        ("max_age_days", None),
        ("allow_set_conversation_id", False),
        ("mcp_notes", False),
        ("import_max_mb", 8_590),
        ("log_format", LogFormat.TEXT),
        ("log_level", LogLevel.INFO),
    ]:
        with subtests.test(attribute=attribute, value=value):
            assert getattr(read(data_dir), attribute) == value


def test_the_documentation_has_the_table_of_the_variables() -> None:
    page = (forks.ROOT / "docs/operation.md").read_text()
    (table,) = re.findall(r"^\| variable \| default \| meaning \|\n(?:\|.*\n)+", page, re.MULTILINE)
    assert table == documentation_of(Configuration), "paste what `python -m convserver.configuration` prints"


def test_data_is_kept_under_the_working_directory_unless_said_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = configuration.read({})
    assert found.data_dir == tmp_path / "var"
    assert found.database_url == f"sqlite:///{tmp_path}/var/convserver.sqlite3"


def test_an_empty_variable_is_one_that_is_not_set(data_dir: Path) -> None:
    names = ("HOST", "PORT", "DATABASE_URL", "REDIS_URL", "SESSION_API_KEY", "SECRET_KEY", "CONVSERVER_AGENT")
    assert read(data_dir, dict.fromkeys(names, "")) == read(data_dir)


def test_a_good_value_is_taken(subtests: pytest.Subtests, data_dir: Path) -> None:
    for variable, text, attribute, value in [
        ("HOST", "localhost", "host", "localhost"),
        ("HOST", "::1", "host", "::1"),
        ("HOST", "[::1]", "host", "::1"),
        ("HOST", "127.0.0.2", "allowed_hosts", ("localhost", "127.0.0.1", "[::1]", "127.0.0.2")),
        ("PORT", "0", "port", 0),
        ("PORT", "65535", "port", 65535),
        ("DATABASE_URL", "sqlite:///data.sqlite3", "database_url", "sqlite:///data.sqlite3"),
        ("DATABASE_STATEMENT_TIMEOUT_S", "5", "statement_timeout_s", 5),
        ("DATABASE_LOCK_TIMEOUT_S", "3", "lock_timeout_s", 3),
        ("CONVSERVER_REMOTE_GRACE_S", "0", "remote_grace_s", 0),
        ("CONVSERVER_SECRETS_MAX", "9", "secrets_max", 9),
        ("CONVSERVER_SECRETS_MAX_KB", "9", "secrets_max_kb", 9),
        ("DATABASE_URL", "postgres:///talks", "database_url", "postgres:///talks"),
        ("DATABASE_URL", "postgresql://u:p@[::1]:5/t", "database_url", "postgresql://u:p@[::1]:5/t"),
        ("REDIS_URL", "redis://127.0.0.1:6379/0", "redis_url", "redis://127.0.0.1:6379/0"),
        ("REDIS_URL", "unix:///run/redis.sock", "redis_url", "unix:///run/redis.sock"),
        ("CONVSERVER_STORE", "standalone", "store", "conversations.store.DatabaseConversationStore"),
        (
            "CONVSERVER_STORE",
            "tests.support.data.faulty.FailingStore",
            "store",
            "tests.support.data.faulty.FailingStore",
        ),
        ("CONVSERVER_VALIDATOR", "standalone", "validator", "conversations.access.ConversationValidator"),
        (
            "CONVSERVER_VALIDATOR",
            "tests.support.data.faulty.Rooms",
            "validator",
            "tests.support.data.faulty.Rooms",
        ),
        (
            "CONVSERVER_MANAGER",
            "standalone",
            "manager",
            "sessions_app.loops.manager.StandaloneConversationManager",
        ),
        (
            "CONVSERVER_MANAGER",
            "tests.support.data.faulty.AManager",
            "manager",
            "tests.support.data.faulty.AManager",
        ),
        ("CONVSERVER_AUTH", "local", "auth", AuthMode.LOCAL),
        ("CONVSERVER_LOG_FORMAT", "json", "log_format", LogFormat.JSON),
        ("CONVSERVER_LOG_LEVEL", "warning", "log_level", LogLevel.WARNING),
        ("CONVSERVER_AGENT", "demo", "agent", "sessions_app.agents.demo.DemoAgent"),
        ("CONVSERVER_AGENT", "llm", "agent", "sessions_app.agents.llm.agent.LlmAgent"),
        ("CONVSERVER_AGENTS", "demo, llm,demo", "agents", ("demo", "llm")),
        ("CONVSERVER_REPEATABLE_TOOLS", "read_file, search", "repeatable_tools", ("read_file", "search")),
        ("LLM_MODEL", " openai/gpt-5 ", "llm_model", "openai/gpt-5"),
        ("LLM_API_KEY", "sk-1", "llm_api_key", "sk-1"),
        ("LLM_BASE_URL", "http://ollama:11434/v1/", "llm_base_url", "http://ollama:11434/v1"),
        (
            "CONVSERVER_AGENT",
            "tests.support.people.scripted_agent.ScriptedAgent",
            "agent",
            "tests.support.people.scripted_agent.ScriptedAgent",
        ),
        ("SESSION_API_KEY", "s3cret!", "session_api_key", "s3cret!"),
        ("SECRET_KEY", "k" * 32, "secret_key", "k" * 32),
        ("SECRET_KEY_FALLBACKS", ",", "secret_key_fallbacks", ()),
        (
            "SECRET_KEY_FALLBACKS",
            f"{'j' * 32}, {'i' * 50},",
            "secret_key_fallbacks",
            ("j" * 32, "i" * 50),
        ),
        (
            "CONVSERVER_ALLOWED_HOSTS",
            "chat.example.org, localhost",
            "allowed_hosts",
            ("localhost", "127.0.0.1", "[::1]", "chat.example.org"),
        ),
        (
            "PERMITTED_CORS_ORIGINS",
            "https://a.example, http://localhost:3000/",
            "permitted_origins",
            ("https://a.example", "http://localhost:3000"),
        ),
        (
            "CONVSERVER_TRUSTED_PROXIES",
            "10.0.0.2, 2001:db8::/64, 10.0.0.2",
            "trusted_proxies",
            ("10.0.0.2", "2001:db8::/64"),
        ),
        ("CONVSERVER_MAX_CONCURRENT", "1", "max_concurrent", 1),
        ("CONVSERVER_LIMIT_TURN_TOKENS", "9", "run_limits", RunLimits(turn_tokens=9)),
        ("CONVSERVER_LIMIT_COST", "2.50", "run_limits", RunLimits(cost=2.5)),
        ("CONVSERVER_MAX_AGE_DAYS", "10", "max_age_days", 10),
        ("CONVSERVER_MAX_AGE_DAYS", "0", "max_age_days", None),
        ("CONVSERVER_DELETED_DAYS", "7", "deleted_days", 7),
        ("CONVSERVER_DELETED_DAYS", "0", "deleted_days", None),
        ("CONVSERVER_CONVERSATION_KEY_DAYS", "7", "conversation_key_days", 7),
        ("CONVSERVER_CONVERSATION_KEY_DAYS", "0", "conversation_key_days", None),
        ("ALLOW_SET_CONVERSATION_ID", "1", "allow_set_conversation_id", True),
        ("CONVSERVER_MCP_NOTES", "1", "mcp_notes", True),
        ("CONVSERVER_IMPORT_MAX_MB", "500", "import_max_mb", 500),
        (
            "CONVSERVER_HOOKS",
            "tests.support.people.hooks.Deaf, tests.support.people.hooks.Deaf",
            "hooks",
            ("tests.support.people.hooks.Deaf",),
        ),
    ]:
        with subtests.test(variable=variable, text=text, attribute=attribute, value=value):
            assert getattr(read(data_dir, {variable: text}), attribute) == value


def test_a_data_directory_may_have_any_name(tmp_path: Path) -> None:
    found = read(tmp_path / "my data%20#1?")
    assert found.database_url.endswith("/my%20data%2520%231%3F/convserver.sqlite3")


def test_accounts_mode_may_listen_anywhere(data_dir: Path) -> None:
    assert read(data_dir, {**ACCOUNTS, "HOST": "0.0.0.0"}).host == "0.0.0.0"


WRONG = [
    ("HOST", "0.0.0.0"),
    ("HOST", "::"),
    ("HOST", "chat.example.org"),
    ("PORT", "http"),
    ("PORT", "-1"),
    ("PORT", "65536"),
    ("PORT", "8000.0"),
    ("PORT", "٨"),
    ("PORT", "9" * 5000),
    ("DATABASE_URL", "mysql://localhost/talks"),
    ("DATABASE_URL", "talks.sqlite3"),
    ("DATABASE_URL", "sqlite://"),
    ("DATABASE_URL", "sqlite:///:memory:"),
    ("DATABASE_URL", "sqlite://var/talks.sqlite3"),
    ("DATABASE_URL", "sqlite:////var/talks#1.sqlite3"),
    ("DATABASE_URL", "postgresql://localhost"),
    ("DATABASE_URL", "postgresql://localhost:port/talks"),
    ("DATABASE_URL", "postgresql://[::1/talks"),
    ("REDIS_URL", "127.0.0.1:6379"),
    ("REDIS_URL", "redis://127.0.0.1:port/0"),
    ("CONVSERVER_STORE", "database"),
    ("CONVSERVER_STORE", "no.such.module.Store"),
    ("CONVSERVER_VALIDATOR", "everybody"),
    ("CONVSERVER_MANAGER", "distributed"),
    ("CONVSERVER_MANAGER", "no.such.module.Manager"),
    ("CONVSERVER_AUTH", "none"),
    ("CONVSERVER_LOG_FORMAT", "xml"),
    ("CONVSERVER_LOG_LEVEL", "loud"),
    ("CONVSERVER_AGENT", "nobody"),
    ("CONVSERVER_AGENT", "no.such.module.Agent"),
    ("CONVSERVER_AGENT", "..Agent"),
    ("CONVSERVER_AGENTS", "demo, wizard"),
    ("LLM_API_KEY", "schlüssel"),
    ("LLM_BASE_URL", "ollama:11434"),
    ("LLM_BASE_URL", "https://me:secret@example.org/v1"),
    ("LLM_BASE_URL", "https://example.org/v1?key=secret"),
    ("SESSION_API_KEY", "two words"),
    ("SESSION_API_KEY", "schlüssel"),
    ("SECRET_KEY", "short"),
    ("SECRET_KEY_FALLBACKS", "hunter2"),
    ("SECRET_KEY_FALLBACKS", f"{'k' * 50},{'j' * 31}"),
    ("PERMITTED_CORS_ORIGINS", "a.example"),
    ("PERMITTED_CORS_ORIGINS", "https://a.example, https://b.example/path"),
    ("PERMITTED_CORS_ORIGINS", "https://a.example?query"),
    ("PERMITTED_CORS_ORIGINS", "https://[a.example"),
    ("PERMITTED_CORS_ORIGINS", "*"),
    ("CONVSERVER_TRUSTED_PROXIES", "*"),
    ("CONVSERVER_TRUSTED_PROXIES", "0.0.0.0/0"),
    ("CONVSERVER_TRUSTED_PROXIES", "10.0.0.2, proxy.example.org"),
    ("CONVSERVER_TRUSTED_PROXIES", "10.0.0.2/24"),
    ("CONVSERVER_MAX_CONNECTIONS", "31"),
    ("CONVSERVER_MAX_CONNECTIONS_PER_ADDRESS", "-1"),
    ("CONVSERVER_MAX_CONCURRENT", "0"),
    ("CONVSERVER_MAX_CONCURRENT", "many"),
    ("CONVSERVER_LIMIT_TOKENS", "1.5"),
    ("CONVSERVER_LIMIT_TURN_COST", "-1"),
    ("CONVSERVER_LIMIT_COST", "1e3"),
    ("CONVSERVER_MAX_AGE_DAYS", "-1"),
    ("CONVSERVER_DELETED_DAYS", "for ever"),
    ("CONVSERVER_REMOTE_GRACE_S", "-1"),
    ("CONVSERVER_REMOTE_GRACE_S", "3601"),
    ("CONVSERVER_CONVERSATION_KEY_DAYS", "-1"),
    ("CONVSERVER_MAX_AGE_DAYS", "ten"),
    ("ALLOW_SET_CONVERSATION_ID", "yes"),
    ("CONVSERVER_HOOKS", "tests.support.people.hooks.Deaf,nowhere"),
    ("CONVSERVER_HOOKS", "no.such.module.Hook"),
    ("CONVSERVER_ALLOWED_HOSTS", "http://x/"),
    ("CONVSERVER_ALLOWED_HOSTS", "a.example, b.example:443"),
]


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and text.endswith(".")


def test_a_wrong_value_is_refused_by_one_sentence_that_names_the_variable(
    subtests: pytest.Subtests, data_dir: Path
) -> None:
    for variable, text in WRONG:
        with subtests.test(variable=variable, text=text):
            with pytest.raises(ConfigurationError, match=variable) as refused:
                read(data_dir, {variable: text})
            assert is_one_sentence(str(refused.value))


@pytest.mark.parametrize("key", ["", "k" * 31])
def test_one_number_says_how_long_a_key_has_to_be(data_dir: Path, key: str) -> None:
    with pytest.raises(ConfigurationError, match="at least 32 "):
        read(data_dir, {**ACCOUNTS, "SECRET_KEY": key})


def test_with_accounts_a_short_key_of_the_server_is_refused(data_dir: Path) -> None:
    assert read(data_dir, {**ACCOUNTS, "SESSION_API_KEY": "k" * 16}).session_api_key == "k" * 16
    with pytest.raises(ConfigurationError, match="SESSION_API_KEY is too short: it needs at least 16 "):
        read(data_dir, {**ACCOUNTS, "SESSION_API_KEY": "k" * 15})


@pytest.mark.one_engine
@pytest.mark.parametrize(("key", "is_warned_of"), [("k" * 15, True), ("k" * 16, False)])
def test_in_local_mode_a_short_key_of_the_server_is_warned_of(
    server: Server, key: str, is_warned_of: bool
) -> None:
    server.start(SESSION_API_KEY=key)
    assert ("SESSION_API_KEY is short" in server.log.read_text()) == is_warned_of
    assert key not in server.log.read_text()


@pytest.mark.parametrize("missing", ["SECRET_KEY", "CONVSERVER_ALLOWED_HOSTS"])
def test_accounts_mode_needs_a_key_and_its_names(data_dir: Path, missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{missing} is not set"):
        read(data_dir, {**ACCOUNTS, missing: ""})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("DATABASE_URL", "postgresql://u:hunter2@h:x/t"),
        ("DATABASE_URL", "postgresql://u:hunter2/ss@h/t"),
        ("DATABASE_URL", "postgresql://u:hunter2?ss@h/t"),
        ("DATABASE_URL", "postgresql://u:hunter2#ss@h/t"),
        ("DATABASE_URL", "postgresql://u:[hunter2@h/t"),
        ("DATABASE_URL", "postgresql://u:hunter2\u2100@h/t"),
        ("REDIS_URL", "redis://:hunter2/ss@h/0"),
        ("LLM_BASE_URL", "https://me:hunter2/ss@example.org/v1"),
        ("PERMITTED_CORS_ORIGINS", "https://me:hunter2@example.org"),
        ("PERMITTED_CORS_ORIGINS", "https://me:hunter2/ss@example.org"),
        ("REDIS_URL", "http://u:hunter2@h"),
        ("SECRET_KEY_FALLBACKS", f"{'k' * 50},hunter2"),
    ],
)
def test_a_refusal_shows_no_password(data_dir: Path, variable: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(data_dir, {variable: text})
    shown = "".join(traceback.format_exception(refused.value))
    assert "hunter2" not in shown
    assert variable in shown


def test_logins_and_links_made_under_an_earlier_key_stay_valid(data_dir: Path) -> None:
    program = "from convserver import settings; print(*settings.SECRET_KEY_FALLBACKS)"
    keys = {"SECRET_KEY": "k" * 50, "SECRET_KEY_FALLBACKS": f"{'j' * 50},{'i' * 50}"}
    environment = {**os.environ, "CONVSERVER_DATA_DIR": str(data_dir), **keys}
    assert forks.printed_by(program, environment).split() == ["j" * 50, "i" * 50]


SECRETS = {
    "DATABASE_URL": "postgresql://me:hunter2@db/talks",
    "REDIS_URL": "redis://:hunter2@redis/0",
    "LLM_API_KEY": "hunter2",
    "SESSION_API_KEY": "hunter2" * 5,
    "SECRET_KEY": "hunter2" * 5,
    "SECRET_KEY_FALLBACKS": f"{'hunter2' * 5},{'hunter2' * 6}",
}
"""Each variable that may have a key or a password."""
NOT_SECRET = {"LLM_BASE_URL", "CONVSERVER_CONVERSATION_KEY_DAYS"}
"""Named as if they had one; the first is refused with a password, the second is a number."""


def test_no_key_and_no_password_is_shown_with_the_configuration(data_dir: Path) -> None:
    found = read(data_dir, SECRETS)
    assert "hunter2" in str(asdict(found))
    assert "hunter2" not in repr(found)
    kept = read(data_dir)
    assert kept.secret_key not in repr(kept)


def test_each_variable_that_sounds_secret_is_known_to_be_or_not() -> None:
    variables = declared_in(Configuration)
    sounding = {
        each.name
        for each in variables.values()
        if re.search("KEY|SECRET_|PASSWORD|TOKEN|CREDENTIAL|URL", each.name)
    }
    assert sounding == {*SECRETS, *NOT_SECRET}
    hidden = {variables[each.name].name for each in fields(Configuration) if not each.repr}
    assert hidden == set(SECRETS)


# Whom a proxy speaks for


def guess(server: Server, *, client: str, proxy: str) -> int:
    """Log in with a wrong password by a proxy that says for whom it asks; return the status."""
    transport = httpx.HTTPTransport(local_address=proxy, verify=False)
    with httpx.Client(transport=transport, base_url=server.url, timeout=WAIT_S) as http:
        answer = http.post(
            "/ui/login",
            data={"username": "bob", "password": "another", "csrfmiddlewaretoken": "c" * 32},
            headers={"x-forwarded-for": client, "cookie": f"csrftoken={'c' * 32}"},
        )
    return answer.status_code


def an_address(network: str) -> str:
    """Return one that nobody else has, so that nothing is counted of it yet."""
    known = ipaddress.IPv4Network(network)
    return str(known[1 + secrets.randbelow(known.num_addresses - 2)])


@pytest.mark.parametrize(("trusted", "is_believed"), [("127.0.0.0/8", True), ("192.0.2.1", False)])
@pytest.mark.sampled(1)
def test_a_trusted_proxy_says_who_has_guessed_too_often_and_no_other_does(
    server: Server, trusted: str, is_believed: bool
) -> None:
    server.start(constants=QUICK_PASSWORDS, **ACCOUNTS, CONVSERVER_TRUSTED_PROXIES=trusted)
    proxy, mine, other = (an_address(network) for network in ("127.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"))
    assert {guess(server, client=mine, proxy=proxy) for _ in range(GUESSES_MAX)} == {200}
    assert guess(server, client=mine, proxy=proxy) == 429
    assert guess(server, client=other, proxy=proxy) == (200 if is_believed else 429)
    claimed = f"{other}, {mine}"  # the first is what the client says of itself
    assert guess(server, client=claimed, proxy=proxy) == 429


@pytest.mark.one_engine
def test_where_no_proxy_is_configured_nobody_is_believed_to_be_one(server: Server) -> None:
    server.start(constants=QUICK_PASSWORDS, **ACCOUNTS)
    for number in range(GUESSES_MAX):
        guess(server, client=f"10.0.0.{number}", proxy="127.0.0.1")
    assert guess(server, client="10.0.1.1", proxy="127.0.0.1") == 429
    assert server.log.read_text().count("CONVSERVER_TRUSTED_PROXIES does not list it") == 1


# What tells installations apart


def hints_prefix(data_dir: Path, secret_key: str) -> str:
    program = "from convserver import settings; print(settings.CHANNEL_LAYERS['default']['CONFIG']['prefix'])"
    environment = {**os.environ, "CONVSERVER_DATA_DIR": str(data_dir), "REDIS_URL": "redis://localhost"}
    return forks.printed_by(program, {**environment, "SECRET_KEY": secret_key})


def test_installations_that_share_a_redis_do_not_share_their_hints(data_dir: Path) -> None:
    one, same, other = (hints_prefix(data_dir, letter * 50) for letter in "aab")
    assert one == same != other


@pytest.mark.parametrize(
    ("url", "are_encrypted"),
    [
        (None, True),  # PostgreSQL, where every role may listen
        ("redis://127.0.0.1:6379/0", False),
        ("redis://localhost", False),
        ("redis://[::1]:6379", False),
        ("unix:///run/redis.sock", False),
        ("rediss://redis.example:6379", False),
        ("redis://redis:6379/0", True),
        ("redis://:secret@10.0.0.7", True),
    ],
)
def test_hints_are_encrypted_where_somebody_on_the_way_could_read_them(
    data_dir: Path, url: str | None, are_encrypted: bool
) -> None:
    environment = {"REDIS_URL": url} if url else {}
    assert bool(read(data_dir, environment).hint_keys) is are_encrypted


# The generated key


def test_the_generated_key_is_kept_for_its_owner_alone(data_dir: Path) -> None:
    key = read(data_dir).secret_key
    path = data_dir / "secret_key"
    assert len(key) >= 50
    assert path.read_text() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_second_start_finds_the_key_of_the_first(data_dir: Path) -> None:
    assert read(data_dir).secret_key == read(data_dir).secret_key
    assert [path.name for path in data_dir.iterdir()] == ["secret_key"]


def test_first_starts_at_the_same_time_agree_on_one_key(data_dir: Path) -> None:
    program = (
        "import os; from convserver import configuration; print(configuration.read(os.environ).secret_key)"
    )
    environment = {**os.environ, "CONVSERVER_DATA_DIR": str(data_dir), "SECRET_KEY": ""}

    def start(_: int) -> str:
        return forks.printed_by(program, environment)

    with ThreadPoolExecutor(6) as pool:
        keys = set(pool.map(start, range(6)))
    assert keys == {(data_dir / "secret_key").read_text()}


def test_a_given_key_is_not_kept(data_dir: Path) -> None:
    read(data_dir, {"SECRET_KEY": "k" * 50})
    assert not data_dir.exists()


def test_a_kept_key_that_was_cut_off_is_refused_and_not_replaced(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "secret_key").touch()
    with pytest.raises(ConfigurationError, match="SECRET_KEY is not set"):
        read(data_dir)
    assert (data_dir / "secret_key").read_text() == ""


def test_a_data_directory_that_is_a_file_is_refused(data_dir: Path) -> None:
    data_dir.touch()
    with pytest.raises(ConfigurationError, match=r"CONVSERVER_DATA_DIR .* is a file, not a directory\.$"):
        read(data_dir)


def test_a_kept_key_that_cannot_be_read_is_named(data_dir: Path) -> None:
    path = data_dir / "secret_key"
    path.mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=f"^The file {path} cannot be read: Is a directory"):
        read(data_dir)


def test_a_cluster_needs_postgresql(tmp_path: Path) -> None:
    clustered = {"CONVSERVER_DATA_DIR": str(tmp_path), "CONVSERVER_MANAGER": "clustered"}
    with pytest.raises(ConfigurationError, match="'clustered', which needs PostgreSQL: set DATABASE_URL="):
        configuration.read(clustered)
    found = configuration.read({**clustered, "DATABASE_URL": "postgresql://127.0.0.1/convserver"})
    assert found.is_clustered


def test_a_worker_needs_a_cluster() -> None:
    with pytest.raises(ConfigurationError, match="A worker needs CONVSERVER_MANAGER=clustered"):
        serving.work_for_cluster(1, None)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--concurrency=0", "'0' is not a whole number from 1 to 10000"),
        ("--probe-port=99999", "'99999' is not a whole number from 1 to 65535"),
        ("--nonsense", "unrecognized arguments: --nonsense"),
    ],
)
def test_a_wrong_option_of_a_worker_is_refused_in_words(
    option: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["worker", option])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "allowed"),
    [
        ("CONVSERVER_STORE", "standalone or the dotted path of a store class"),
        ("CONVSERVER_VALIDATOR", "standalone or the dotted path of a validator class"),
        ("CONVSERVER_MANAGER", "standalone, clustered or the dotted path of a manager class"),
        ("ALLOW_SET_CONVERSATION_ID", "0 or 1"),
    ],
)
def test_a_refusal_lists_the_few_values_in_plain_words(data_dir: Path, variable: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"but it must be {allowed}\\.$"):
        read(data_dir, {variable: "wrong"})


@pytest.mark.parametrize("name", ["*", ".example.org", "a-b.example", "10.0.0.2", "[::1]"])
def test_a_name_an_address_and_a_pattern_are_names_of_the_server(data_dir: Path, name: str) -> None:
    assert name in read(data_dir, {"CONVSERVER_ALLOWED_HOSTS": name}).allowed_hosts


# The command


@pytest.mark.slow
def test_a_first_start_with_a_key_of_its_own_makes_the_data_directory(tmp_path: Path) -> None:
    environment = {"CONVSERVER_DATA_DIR": str(tmp_path / "new" / "var"), "SECRET_KEY": "k" * 50}
    program = "import django; django.setup(); from convserver.commands import database; database.prepare()"
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    forks.printed_by(program, {**kept, **environment, "DJANGO_SETTINGS_MODULE": "convserver.settings"})
    assert (tmp_path / "new" / "var" / "convserver.sqlite3").exists()


@pytest.fixture
def taken_port() -> Any:
    """A port where somebody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


def refusal(server: Server, **environment: str) -> str:
    """Run `serve`, which must fail with status 2, and return what it prints."""
    ended = server.run(["convserver", "serve"], **environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended.stderr


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PORT", "http"),
        ("HOST", "0.0.0.0"),
        ("DATABASE_URL", "mysql://localhost/talks"),
        ("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/talks"),
        ("DATABASE_URL", "sqlite:////nowhere/talks.sqlite3"),
        ("CONVSERVER_AUTH", "none"),
        ("CONVSERVER_AGENT", "convserver.cli.NoAgent"),
        ("CONVSERVER_STORE", "convserver.cli.NoStore"),
        ("CONVSERVER_STORE", "conversations.store.ConversationStore"),
        ("CONVSERVER_VALIDATOR", "conversations.store.DatabaseConversationStore"),
        ("CONVSERVER_MANAGER", "sessions_app.loops.manager.get_manager"),
        ("PERMITTED_CORS_ORIGINS", "*"),
    ],
)
@pytest.mark.sampled(4)
def test_the_server_does_not_start_with_a_wrong_value_and_says_so_in_one_line(
    server: Server, variable: str, text: str
) -> None:
    assert re.fullmatch(rf"convserver: .*{variable}.*\.\n", refusal(server, **{variable: text}))


def test_the_server_does_not_start_where_another_listens(server: Server, taken_port: str) -> None:
    said = refusal(server, PORT=taken_port)
    found = re.fullmatch(
        rf"convserver: .*PORT is {taken_port}, .* Address already in use\. "
        r"Choose another port: PORT=(\d+) make run\.\n",
        said,
    )
    assert found is not None, said
    assert abs(int(found[1]) - int(taken_port)) == 1


def test_the_server_does_not_start_on_a_file_that_is_no_database(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Alice,\n" * 100)
    assert "file is not a database" in refusal(server, DATABASE_URL=f"sqlite:///{path}")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_the_help_of_the_management_commands_names_those_for_operators_alone(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert cli.main(["manage", *arguments]) == 0
    shown = capsys.readouterr().out
    assert [name for name in management.MANAGEMENT if name not in shown] == []
    assert "makemigrations" not in shown


def test_each_command_of_that_help_exists() -> None:
    assert [name for name in management.MANAGEMENT if name not in get_commands()] == []


NO_DATABASE = (
    "There is no database at {}/convserver.sqlite3 yet."
    f" Run this first: {program.python()} -m convserver manage migrate\n"
)


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (["create_token", "boss", "--name", "t1"], 1, NO_DATABASE),
        (["createsuperuser", "--username", "me"], 1, NO_DATABASE),
        (["migrate", "-v0"], 0, ""),
    ],
)
@pytest.mark.sampled(1)
def test_a_management_command_may_be_the_first_to_use_a_data_directory(
    tmp_path: Path, command: list[str], status: int, said: str
) -> None:
    data_dir = tmp_path / "new"
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    environment = {**kept, **ACCOUNTS, "CONVSERVER_DATA_DIR": str(data_dir)}
    ended = forks.run(["convserver", "manage", *command], environment)
    assert (ended.returncode, "Traceback" in ended.stderr) == (status, False)
    assert said.format(data_dir) in ended.stderr
    assert "unapplied" not in ended.stdout + ended.stderr
