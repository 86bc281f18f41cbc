"""Which sandbox is chosen, and the sentence where there is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from convserver.configuration import read
from convserver.variables import ConfigurationError
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import HOME, NoSandbox, SandboxLimits, SandboxName, environment_of, safe_home
from sessions_app.sandbox.docker import Docker
from sessions_app.sandbox.unconfined import Unconfined
from tests.support.people.commands import wait_for

ACCOUNTS = {"CONVSERVER_AUTH": "accounts", "CONVSERVER_ALLOWED_HOSTS": "x.example", "SECRET_KEY": "k" * 40}


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    choice._looked_at.cache_clear()
    monkeypatch.setattr(choice, "_looked_at", choice._looked_at.__wrapped__)


def test_without_a_sandbox_nothing_starts_and_the_sentence_says_why(configured: Callable[..., None]) -> None:
    configured(sandbox=SandboxName.OFF)
    with pytest.raises(NoSandbox, match="CONVSERVER_SANDBOX is off"):
        choice.chosen()
    assert choice.state()[:2] == (SandboxName.OFF, False)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (SandboxName.AUTO, r"bwrap is not installed: install bubblewrap \(Debian: apt install bubblewrap\)"),
        (SandboxName.BUBBLEWRAP, "bwrap is not installed"),
        (SandboxName.DOCKER, "docker is not installed"),
    ],
)
def test_a_missing_program_is_named_and_how_to_get_it(
    name: SandboxName, sentence: str, configured: Callable[..., None], nothing_installed: None
) -> None:
    configured(sandbox=name)
    with pytest.raises(NoSandbox, match=sentence):
        choice.chosen()
    assert choice.state().works is False


def test_with_accounts_nothing_runs_without_a_sandbox() -> None:
    assert read({"CONVSERVER_SANDBOX": "none"}).sandbox == SandboxName.NONE
    with pytest.raises(
        ConfigurationError, match=r"CONVSERVER_SANDBOX is 'none'.*accounts mode it must be one of"
    ):
        read({**ACCOUNTS, "CONVSERVER_SANDBOX": "none"})


def test_without_confinement_every_command_asks_and_all_that_it_started_is_ended(
    configured: Callable[..., None], tmp_path: Path
) -> None:
    configured(sandbox=SandboxName.NONE)
    sandbox = choice.chosen()
    assert sandbox.asks_first
    command = "echo $HOME; setsid sleep 300 & echo $! >child; wait"
    with (tmp_path / "said").open("wb") as said:
        program = sandbox.start(
            ["/bin/bash", "-c", command],
            tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=said.fileno(),
            stderr=said.fileno(),
        )
    wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().endswith("\n"))
    program.kill()
    assert asyncio.run(program.wait()) == -9
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    wait_for(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")
    assert (tmp_path / "said").read_text() == f"{tmp_path}\n"


DOCKER = """#!/bin/bash
cd "$(dirname "$0")"
case $1 in
    run)
        printf '%s\\n' "$@" >arguments
        for each; do
            case $each in
                --env-file=*) cp "${each#*=}" variables ;;
                --name=*) echo $$ >"${each#*=}" ;;
            esac
        done
        while [ "$1" != debian:bookworm ]; do shift; done
        shift
        exec "$@" ;;
    inspect) [ -e "$3" ] && echo true ;;
    kill)
        [ ! -e slow ] || { echo >>asked; exec sleep 300; }
        kill -9 "$(cat "$2")"
        echo >killed ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Docker(SandboxLimits(100, 10, 1), None, "debian:bookworm")


def test_docker_is_asked_for_a_container_without_network_and_to_kill_it(
    tmp_path: Path, docker: Docker
) -> None:
    with (tmp_path / "said").open("wb") as said:
        program = docker.start(
            ["/bin/bash", "-c", "echo begun; sleep 300"],
            tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=said.fileno(),
            stderr=said.fileno(),
            environment={"TOKEN": "a secret"},
        )
    wait_for(lambda: (tmp_path / "said").read_text() == "begun\n")
    program.kill()
    assert asyncio.run(program.wait()) == -9
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert {"--network=none", "--cap-drop=ALL", "--pids-limit=10", "--memory=100m"} < set(arguments)
    assert f"--mount=type=bind,source={tmp_path},target=/workspace" in arguments
    assert "a secret" not in " ".join(arguments)
    assert "TOKEN=a secret" in (tmp_path / "variables").read_text().splitlines()
    assert (tmp_path / "killed").exists()


def calls_of(work: Callable[[], None]) -> set[str]:
    """Do something, and return the names of the functions that this thread has called for it."""
    names = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        names.add(argument.__name__ if event == "c_call" else frame.f_code.co_name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("name", ["none", "docker"])
def test_a_kill_starts_no_program_reads_no_file_and_waits_for_nothing(
    name: str, docker: Docker, tmp_path: Path
) -> None:
    sandbox = docker if name == "docker" else Unconfined(SandboxLimits(100, 10, 1))
    nothing = subprocess.DEVNULL
    program = sandbox.start(["sleep", "300"], tmp_path, stdin=nothing, stdout=nothing, stderr=nothing)
    called = calls_of(program.kill)
    assert asyncio.run(program.wait()) == -9
    assert called.isdisjoint({"run", "fork_exec", "_fork_exec", "open", "read_bytes", "glob", "wait"})


def test_a_docker_that_does_not_answer_is_given_up_with_a_line_in_the_log(
    tmp_path: Path, docker: Docker, caplog: pytest.LogCaptureFixture
) -> None:
    docker.answer_s = 1.0
    nothing = subprocess.DEVNULL
    program = docker.start(["sleep", "300"], tmp_path, stdin=nothing, stdout=nothing, stderr=nothing)
    (tmp_path / "slow").touch()
    program.kill()
    assert asyncio.run(program.wait()) == -9
    assert (tmp_path / "asked").exists()
    assert "A container may not have ended" in caplog.text


def test_a_program_that_is_missing_is_named(configured: Callable[..., None], tmp_path: Path) -> None:
    configured(sandbox=SandboxName.NONE)
    nothing = subprocess.DEVNULL
    with pytest.raises(NoSandbox, match="'no-such-program' cannot be started: No such file"):
        choice.chosen().start(["no-such-program"], tmp_path, stdin=nothing, stdout=nothing, stderr=nothing)


def test_a_variable_that_would_be_more_than_one_is_refused_or_left_out(
    configured: Callable[..., None], tmp_path: Path
) -> None:
    configured(sandbox=SandboxName.NONE)
    nothing = subprocess.DEVNULL
    with pytest.raises(NoSandbox, match="No program can be given the variable A: its value"):
        choice.chosen().start(
            ["true"], tmp_path, stdin=nothing, stdout=nothing, stderr=nothing, environment={"A": "b\0C=d"}
        )
    given = {"A=b": "c", "": "c", "a.b": "c", "a\0b": "c", "B": "kept"}
    assert environment_of("/workspace", given, False).keys() - environment_of("/workspace", {}, False) == {
        "B"
    }


@pytest.mark.parametrize("home", ["/w,source=/home", '/w"', "/a=b"])
def test_a_workspace_is_seen_at_no_path_that_another_program_reads_as_several(home: str) -> None:
    assert safe_home(home) == HOME
