"""`doctor`: say what is configured, what is missing, and how to get it."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import redis
from django.conf import settings
from django.core.management import BaseCommand
from django.db import Error as DatabaseProblem
from django.db import connection

from conversations.engines import failures
from conversations.engines.sqlite3 import library
from convserver import program
from convserver.commands import database
from convserver.configuration import Configuration
from sessions_app.models import BackupRecord
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import NoSandbox, SandboxName
from sessions_app.sandbox_network.policy import NetworkPolicy


class Verdict(StrEnum):
    """What is said of a part of the installation; `WRONG` makes the exit code 1."""

    OK = "ok"
    MISSING = "missing"
    """It can be done without."""
    WRONG = "wrong"


class Finding(NamedTuple):
    """A sentence about a part of the installation, without any secret."""

    part: str
    verdict: Verdict
    sentence: str


class Command(BaseCommand):
    help = "Says what is configured, what is missing, and how to get it."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each part; exit with 1 if one is configured and does not work."""
        found = list(findings(settings.CONFIGURATION))
        for each in found:
            self.stdout.write(f"{each.part:12}{each.verdict:9}{each.sentence}")
        if any(each.verdict == Verdict.WRONG for each in found):
            sys.exit(1)


def findings(configuration: Configuration) -> Iterator[Finding]:
    """Yield what is found, part by part."""
    is_migrated, of_database = _database()
    yield of_database
    if connection.vendor == "sqlite":
        weakness = library.weakness()
        verdict = Verdict.WRONG if weakness else Verdict.OK
        yield Finding("sqlite", verdict, weakness or f"SQLite {sqlite3.sqlite_version}.")
    yield _redis(configuration)
    yield _sandbox(configuration.sandbox_settings.network)
    yield _workspaces(configuration.workspaces)
    if configuration.workspace_roots:
        named = ", ".join(map(str, configuration.workspace_roots))
        yield Finding("roots", Verdict.OK, f"Conversations may also work in your directories in {named}.")
    yield _backups(configuration, is_migrated)
    yield _model(configuration)


def _database() -> tuple[bool, Finding]:
    path = database.sqlite_file()
    if path is not None and not path.exists():  # to connect would make it
        sentence = f"There is no file {path} yet: `{program.command()} serve` makes it."
        return False, Finding("database", Verdict.MISSING, sentence)
    name = f"SQLite, {path}" if path else f"PostgreSQL, database {connection.settings_dict['NAME']}"
    try:
        if path is None:
            # Once, without the pool, which would try again for seconds.
            with connection.wrap_database_errors:
                psycopg.connect(**connection.get_connection_params()).close()
        tables = connection.introspection.table_names()
    except DatabaseProblem as error:
        sentence = f"{name}: {failures.sentence(error, connection)} Look at DATABASE_URL."
        return False, Finding("database", Verdict.WRONG, sentence)
    if "django_migrations" not in tables:
        sentence = f"{name}: it is empty. Run `{program.command()} manage migrate`."
        return False, Finding("database", Verdict.MISSING, sentence)
    return True, Finding("database", Verdict.OK, f"{name}.")


def _redis(configuration: Configuration) -> Finding:
    if not configuration.redis_url:
        sentence = "REDIS_URL is not set: one process needs none, and a cluster may use PostgreSQL instead."
        return Finding("redis", Verdict.MISSING, sentence)
    try:
        with redis.Redis.from_url(
            configuration.redis_url, socket_connect_timeout=3, socket_timeout=3
        ) as asked:
            asked.ping()
    except redis.RedisError as error:
        sentence = f"REDIS_URL names a Redis that does not answer ({type(error).__name__}): start it."
        return Finding("redis", Verdict.WRONG, sentence)
    return Finding("redis", Verdict.OK, "Redis answers.")


def _sandbox(policy: NetworkPolicy) -> Finding:
    state = choice.state()
    if state.works:
        if state.name != SandboxName.NONE and policy != NetworkPolicy.OFF:
            try:
                choice.chosen().look_for_network()
            except NoSandbox as error:
                return Finding("sandbox", Verdict.WRONG, f"{state.sentence} But: {error}")
        return Finding("sandbox", Verdict.OK, state.sentence)
    is_asked_for = state.name not in (SandboxName.AUTO, SandboxName.OFF)
    return Finding("sandbox", Verdict.WRONG if is_asked_for else Verdict.MISSING, state.sentence)


def _workspaces(root: Path) -> Finding:
    nearest = next(each for each in (root, *root.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        sentence = f"This account cannot write {nearest}: change its owner, or CONVSERVER_WORKSPACES."
        return Finding("workspaces", Verdict.WRONG, sentence)
    return Finding("workspaces", Verdict.OK, f"The files of conversations are in {root}.")


def _backups(configuration: Configuration, is_migrated: bool) -> Finding:
    if not configuration.backup_max_age_days:
        sentence = "Others make the backups (CONVSERVER_BACKUP_MAX_AGE_DAYS is 0)."
        return Finding("backups", Verdict.OK, sentence)
    try:
        newest = BackupRecord.objects.usable().first() if is_migrated else None
    except DatabaseProblem as error:  # a store of an earlier release
        return Finding("backups", Verdict.MISSING, failures.sentence(error, connection))
    if newest is None:
        sentence = f"There is no backup yet: run `{program.command()} backup DIR --verify` every day."
        return Finding("backups", Verdict.MISSING, sentence)
    return Finding("backups", Verdict.OK, f"The newest one is of {newest.ended_at:%Y-%m-%d %H:%M} UTC.")


def _model(configuration: Configuration) -> Finding:
    if configuration.llm_model is None:
        sentence = "LLM_MODEL is not set: users choose a model in their settings, or the demo agent answers."
        return Finding("model", Verdict.MISSING, sentence)
    has_key = "with a key" if configuration.llm_api_key else "without a key (LLM_API_KEY)"
    return Finding("model", Verdict.OK, f"{configuration.llm_model}, {has_key}.")
