"""Programs that start as copies of a process: each with what it was given, and a child of who started it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryFile

import pytest

from tests.support.people.clients import WAIT_S, program_environment
from tests.support.runner import forks

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every program is started as usual")


ENVIRONMENT = program_environment(Path("nowhere"))


def started(statement: str, **environment: str) -> forks.Running:
    with TemporaryFile() as output:
        return forks.start(
            [*forks.EXECUTE, statement], {**ENVIRONMENT, **environment}, stdout=output, stderr=output
        )


def printed(statement: str, **environment: str) -> str:
    """Run a statement in a copy; return the first line that it prints."""
    assert forks.waiting.copies(ENVIRONMENT | environment)
    return forks.printed_by(statement, {**ENVIRONMENT, **environment})


@on_linux
def test_each_copy_has_its_own_environment_alone() -> None:
    statement = "import os; print(os.environ.get('ONE_NAME'), os.environ.get('OTHER_NAME'))"
    assert printed(statement, ONE_NAME="1") == "1 None"
    assert printed(statement, OTHER_NAME="2") == "None 2"


@on_linux
def test_a_copy_begins_with_no_module_of_the_project() -> None:
    own = f"import sys; print([name for name in sys.modules if name.partition('.')[0] in {forks.PROJECT}])"
    assert printed(own) == "[]"


@on_linux
def test_a_copy_is_a_child_that_can_be_killed() -> None:
    copy = started("import time; time.sleep(60)")
    assert isinstance(copy, forks.Fork)
    assert (os.waitpid(copy.pid, os.WNOHANG), copy.poll()) == ((0, 0), None)
    copy.send_signal(SIGKILL)
    assert (copy.wait(WAIT_S), copy.poll()) == (-SIGKILL, -SIGKILL)


@on_linux
def test_a_failure_is_told_by_the_status_and_a_trace() -> None:
    ended = forks.run([*forks.EXECUTE, "import os; os._exit(3)"], ENVIRONMENT)
    assert ended.returncode == 3
    ended = forks.run(["no_such_module"], ENVIRONMENT)
    assert (ended.returncode, "no_such_module" in ended.stderr) == (1, True)


def test_what_is_read_only_at_a_start_needs_a_real_one() -> None:
    process = started("pass", PYTHONHASHSEED="7")
    assert isinstance(process, subprocess.Popen)
    assert process.wait(WAIT_S) == 0


def test_a_sentence_that_begins_with_import_names_no_library() -> None:
    text = '"""A process that runs an\nimport renews its lease."""\nimport httpx\nfrom django import db\n'
    assert forks.IMPORTED.findall(text) == [("", "", "httpx"), ("django", "db", "")]
