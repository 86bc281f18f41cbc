"""`convserver doctor`: what it finds, and what its exit code means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.people.clients import Server
from tests.support.people.commands import require_bubblewrap

pytestmark = pytest.mark.one_engine


def test_the_doctor_names_what_is_missing_and_how_to_get_it(server: Server) -> None:
    looked = server.run(["convserver", "doctor"], DATABASE_URL="", REDIS_URL="", LLM_MODEL="")
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in looked.stdout.splitlines()}
    assert (looked.returncode, looked.stderr) == (0, "")
    assert list(found) == ["database", "sqlite", "redis", "sandbox", "workspaces", "backups", "model"]
    assert found["database"].startswith("missing There is no file")
    assert found["redis"].startswith("missing REDIS_URL is not set")
    assert found["sandbox"].startswith("missing There is no terminal: CONVSERVER_SANDBOX is off")
    assert found["backups"].startswith("missing There is no backup yet: run")
    assert not server.file.exists()


def test_the_doctor_finds_what_does_not_work_and_tells_no_secret(server: Server) -> None:
    server.start()
    broken = {
        "REDIS_URL": "redis://:quiet-password@127.0.0.1:1/0",
        "LLM_MODEL": "openai/x",
        "LLM_API_KEY": "quiet-key",
    }
    looked = server.run(["convserver", "doctor"], **broken)
    assert looked.returncode == 1
    assert "redis       wrong    REDIS_URL names a Redis that does not answer" in looked.stdout
    assert "database    ok " in looked.stdout
    assert "openai/x, with a key." in looked.stdout
    assert "quiet" not in looked.stdout + looked.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a part of /proc")
def test_the_doctor_says_why_bubblewrap_does_not_work(tmp_path: Path) -> None:
    require_bubblewrap()
    hidden = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /proc/kmsg && exec "$@"', "sh")
    in_a_container = Server(tmp_path, run_by=hidden)
    looked = in_a_container.run(["convserver", "doctor"], CONVSERVER_SANDBOX="bubblewrap")
    assert looked.returncode == 1
    assert "sandbox     wrong    There is no terminal, because bubblewrap does not work here" in looked.stdout
    assert "Can't mount proc" in looked.stdout
    looked = in_a_container.run(["convserver", "doctor"], CONVSERVER_SANDBOX="auto")
    assert (looked.returncode, "sandbox     missing  There is no terminal" in looked.stdout) == (0, True)


def test_the_doctor_names_a_database_that_cannot_be_reached(server: Server) -> None:
    url = "postgresql://someone:quiet-password@127.0.0.1:1/store"
    looked = server.run(["convserver", "doctor"], DATABASE_URL=url, REDIS_URL="")
    assert looked.returncode == 1
    assert "database store: The database cannot be reached. Look at DATABASE_URL." in looked.stdout
    assert "quiet" not in looked.stdout + looked.stderr
