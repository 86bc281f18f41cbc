"""Commands of agents in bubblewrap: what they do stays in it, and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app.sandbox import choice
from sessions_app.sandbox.base import SandboxName
from sessions_app.sandbox.unconfined import Unconfined
from sessions_app.workspaces import records, uploads
from tests.support.people.clients import HTTP, Server
from tests.support.people.commands import LIMITS, OTHER, Commander, commander, require_bubblewrap, wait_for

pytestmark = pytest.mark.one_engine

TOO_MUCH_MEMORY = "The programs of this command used more than 200 MB of memory together"


@pytest.fixture(params=["started_by_root", "started_by_another"])
def agent(request: pytest.FixtureRequest) -> Iterator[Commander]:
    """Who runs commands for a server that root has started, and for one of another account."""
    if os.geteuid() != 0 and request.param == "started_by_root":
        pytest.skip("only root can start a server as root")
    of_another = request.param == "started_by_another" and os.geteuid() == 0
    with commander(OTHER if of_another else None) as found:
        yield found


def test_a_program_writes_its_workspace_and_its_tmp_and_nothing_else(agent: Commander) -> None:
    places = "/ /bin /dev /etc /home /lib /mnt /opt /proc /root /run /srv /usr /usr/local /var /var/tmp"
    said = agent.run(f"for each in {places}; do : 2>/dev/null >$each/x && echo wrote $each; done; echo end")
    assert (said.output.splitlines()[-1], "wrote" in said.output) == ("end", False)
    said = agent.run("echo mine >file && echo scratch >/tmp/file && cat file /tmp/file && pwd")
    assert said.output.splitlines() == ["mine", "scratch", "/workspace"]
    assert (agent.workspace / "file").read_text() == "mine\n"


def test_a_program_finds_nothing_of_other_accounts_and_no_socket(agent: Commander) -> None:
    said = agent.run(
        "ls -A /home /root /run /srv /var /opt /mnt /media /tmp; find / -type s 2>/dev/null; echo end"
    )
    names = [line for line in said.output.splitlines() if line and not line.endswith(":")]
    assert names == ["end"]
    said = agent.run(
        "head -1 /proc/net/unix | wc -l; tail -n +2 /proc/net/unix | wc -l; ls /etc/shadow /etc/ssh"
    )
    assert said.output.split()[:2] == ["1", "0"]
    assert said.output.count("No such file") == 2


def test_the_workspace_of_another_conversation_and_the_data_directory_are_not_there(
    configured: Callable[..., None], conversation: ConversationRef, alice: User
) -> None:
    require_bubblewrap()
    with tempfile.TemporaryDirectory() as data:
        configured(sandbox=SandboxName.BUBBLEWRAP, data_dir=Path(data), workspaces=Path(data) / "workspaces")
        other = records.directory_of(creation.create(alice))
        (other / "secret").write_text("of another")
        said = asyncio.run(
            _ran(conversation, f"ls -A {other} {data} {settings.DATABASES['default']['NAME']}")
        )
        assert said.count("No such file or directory") == 3
        said = asyncio.run(_ran(conversation, "find / -xdev -name secret 2>/dev/null; ls /workspace"))
        assert said == ""


def test_the_server_and_the_commands_of_a_conversation_change_the_same_files(
    configured: Callable[..., None], conversation: ConversationRef
) -> None:
    require_bubblewrap()
    with tempfile.TemporaryDirectory() as data:
        configured(workspaces=Path(data) / "workspaces")
        uploads.put(conversation, "before/file", b"stored while there was no sandbox")
        configured(sandbox=SandboxName.BUBBLEWRAP)
        asyncio.run(_ran(conversation, "true"))
        uploads.put(conversation, "of/the/server", b"first")
        command = "echo second >>of/the/server && echo third >of/the/commands && echo more >>before/file"
        assert asyncio.run(_ran(conversation, f"{command}; chmod 600 of/the/*")) == ""
        uploads.put(conversation, "of/the/commands", b"fourth")
        said = asyncio.run(_ran(conversation, "cat of/the/server of/the/commands; rm -r of before"))
        assert said == "firstsecond\nfourth"
        assert list(records.directory_of(conversation).iterdir()) == []


def test_a_program_sees_its_workspace_where_it_is_asked_to_unless_a_system_needs_the_place(
    agent: Commander,
) -> None:
    for asked, given in {
        "/workspace/project": "/workspace/project",
        "/home/ana/work": "/home/ana/work",
        "/tmp/work": "/tmp/work",
        "/usr/local": "/workspace",
        "/etc": "/workspace",
        "/": "/workspace",
        "/tmp": "/workspace",
        "/home/../etc": "/workspace",
        "relative": "/workspace",
        "": "/workspace",
        "/a\0--bind\0/\0/b": "/workspace",
    }.items():
        said = agent.run("pwd; echo $HOME; : >here", home=asked)
        assert said.output.splitlines() == [given, given], asked
        assert (agent.workspace / "here").exists()


def test_neither_processes_nor_variables_of_the_server_are_in_reach(
    agent: Commander, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "a key of the server's")
    said = agent.run(
        "env | cut -d= -f1 | sort; cat /proc/*/environ | tr '\\0' '\\n' | grep -c key; ls -d /proc/[0-9]*"
    )
    lines = said.output.splitlines()
    names = ["HOME", "LANG", "LOGNAME", "MARK", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER", "_"]
    assert (lines[: len(names)], lines[len(names)]) == (names, "0")
    assert len(lines[len(names) + 1 :]) <= 3
    assert "CONVSERVER" not in said.output


def test_variables_reach_the_program_and_no_command_line(agent: Commander) -> None:
    # The command line of the first process inside is that of bwrap.
    said = agent.run(
        'echo "$TOKEN"; cat /proc/1/cmdline | grep -c [s]ecret', environment={"TOKEN": "secret\nof two lines"}
    )
    assert said.output.splitlines() == ["secret", "of two lines", "0"]
    many = {f"MANY{number}": "x" * 1000 for number in range(200)}  # more than a pipe holds
    said = agent.run("env | grep -c MANY; env | grep -c left", environment={**many, "a.b": "left out"})
    assert said.output == "200\n0\n"


def test_variables_act_on_the_program_and_on_nothing_that_sets_its_limits(agent: Commander) -> None:
    for name in ("mine.so", "ulimit", "setsid", "bash"):
        (agent.workspace / name).write_text("#!/bin/sh\necho taken")
        (agent.workspace / name).chmod(0o755)
    hostile = {"LD_PRELOAD": "/workspace/mine.so", "PATH": "/workspace:/bin", "BASH_ENV": "/workspace/bash"}
    said = agent.run("ulimit -u", environment={**hostile, "REPLY": "x", "UID": "0", "SHELLOPTS": "noexec"})
    # The program itself is their own affair: its preloaded library is missing, and it reads its BASH_ENV.
    assert said.output.count("mine.so") <= 2
    assert said.output.splitlines()[-1] == str(LIMITS.processes)


def test_no_server_of_this_machine_can_be_reached(agent: Commander, server: Server) -> None:
    server.start()
    for port in (server.port, 5432, 6379, 22, 80):
        said = agent.run(f"(: >/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached")
        assert said.output == ""
    assert "lo:" in (said := agent.run("tail -n +3 /proc/net/dev")).output
    assert len(said.output.splitlines()) == 1


def test_a_fork_bomb_ends_and_the_server_is_as_before(agent: Commander, server: Server) -> None:
    server.start()
    # The first shell waits without another process, for which there is no place.
    said = agent.run(
        "bomb() { bomb | bomb & }; bomb; kill -STOP $$", kill_at="Resource temporarily unavailable"
    )
    assert said.exit_code == -signal.SIGKILL
    agent.wait_until_none_is_left()
    assert HTTP.get(f"{server.url}/alive").status_code == 200


def test_memory_is_bounded_for_one_program_and_in_sum(agent: Commander, server: Server) -> None:
    server.start()
    said = agent.run("head -c 10G /dev/zero | tail; echo end")
    # Whichever limit is reached first: its own, or that of all together.
    assert "memory exhausted" in said.output or said.reason.startswith(TOO_MUCH_MEMORY)
    said = agent.run(
        "for each in 1 2 3 4 5; do (head -c 80M /dev/zero | tail -c 80M | sleep 60) & done; wait"
    )
    assert said.exit_code == -signal.SIGKILL
    assert said.reason.startswith(TOO_MUCH_MEMORY)
    agent.wait_until_none_is_left()
    said = agent.run("head -c 300M /dev/zero >/tmp/large; head -c 300M /dev/zero >/dev/shm/large; echo end")
    assert said.output.count("\n") == 3
    assert HTTP.get(f"{server.url}/alive").status_code == 200


def test_memory_that_programs_share_is_counted_once(agent: Commander) -> None:
    large = "text=$(head -c 20M /dev/zero | tr '\\0' x)"
    said = agent.run(f"{large}; for each in {{1..12}}; do (sleep 1; : ${{#text}}) & done; wait; echo end")
    assert said == ("end\n", 0, "")


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python")
def test_files_in_memory_that_no_program_maps_are_counted(agent: Commander) -> None:
    many = "files = [os.memfd_create(str(each)) for each in range(60)]"
    fill = "[os.write(each, bytes(4_000_000)) for each in files]"
    said = agent.run(f'python3 -c "import os, time; {many}; {fill}; time.sleep(60)"')
    assert (said.exit_code, said.reason.split(",")[0]) == (
        -signal.SIGKILL,
        "The programs of this command used more than 200 MB of memory together",
    )


def test_a_file_is_bounded(agent: Commander) -> None:
    agent.run("head -c 50M /dev/zero >large")
    most = LIMITS.file_mb * 1_000_000
    assert most - 1024 < (agent.workspace / "large").stat().st_size <= most


def test_what_ignores_signals_or_outlives_its_shell_is_ended(agent: Commander) -> None:
    stubborn = "setsid nohup bash -c \"trap '' TERM HUP INT; sleep 300; sleep 300\" >/dev/null 2>&1 &"
    assert agent.run(f"{stubborn} echo begun; wait", kill_at="begun").exit_code == -signal.SIGKILL
    assert agent.left() == []
    assert agent.run(f"{stubborn} disown; echo begun; exit 3") == ("begun\n", 3, "")
    assert agent.left() == []


def test_nobody_gets_rights_inside(agent: Commander) -> None:
    said = agent.run(
        "grep -E '^(Cap|NoNewPrivs)' /proc/self/status; unshare --user true || echo no user namespace"
    )
    rights = dict(line.split(":\t") for line in said.output.splitlines() if ":\t" in line)
    assert rights.pop("NoNewPrivs") == "1"
    assert {int(each, 16) for each in rights.values()} == {0}
    assert said.output.endswith("no user namespace\n")
    said = agent.run(
        "cp /bin/id mine && chmod u+s mine && ./mine -u; mount -t tmpfs none /mnt || echo no mount"
    )
    assert (said.output.splitlines()[0], said.output.splitlines()[-1]) == ("1000", "no mount")
    said = agent.run(
        "find /usr -perm -4000 -user 0 2>/dev/null | head -1; su -c id 2>&1 </dev/null | grep -c uid=0"
    )
    assert said.output.splitlines()[-1] == "0"


def test_the_descriptors_of_the_server_are_closed_in_a_program(agent: Commander) -> None:
    said = agent.run("ls /proc/self/fd")
    assert said.output.split() == ["0", "1", "2", "3"]  # the last is the listed directory


def test_a_program_without_a_terminal_of_its_own_has_none(agent: Commander) -> None:
    said = agent.run("(: </dev/tty) 2>&1; cat /proc/self/stat | cut -d' ' -f7")
    assert said.output.splitlines()[0].endswith("/dev/tty: No such device or address")
    assert said.output.splitlines()[1] == "0"


def test_many_commands_run_side_by_side_and_leave_nothing() -> None:
    with commander(None) as agent:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda number: agent.run(f"echo {number}; exit {number}"), range(24)))
        assert [(each.output, each.exit_code) for each in outcomes] == [(f"{n}\n", n) for n in range(24)]
        # What earlier tests have left may be closed meanwhile.
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
        assert agent.left() == []


def test_a_hundred_ended_commands_leave_no_process() -> None:
    with commander(None) as agent, tempfile.TemporaryFile() as said:
        children = _children()
        for _ in range(100):
            agent.started("sleep 300 & sleep 300", said.fileno()).kill()
        agent.wait_until_none_is_left()
        wait_for(lambda: _children() == children)


@pytest.mark.no_second_try
def test_commands_end_with_a_server_that_is_killed() -> None:
    with commander(None) as agent, tempfile.TemporaryFile() as said:
        if (server := os.fork()) == 0:
            agent.started("echo begun; sleep 300", said.fileno())
            signal.pause()
        wait_for(lambda: os.pread(said.fileno(), 100, 0) == b"begun\n")
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        agent.wait_until_none_is_left()


@pytest.mark.parametrize("is_confined", [True, False])
def test_a_shell_has_the_terminal_that_it_is_given_and_controls_its_jobs(is_confined: bool) -> None:
    with commander(None) as agent:
        sandbox = agent.sandbox if is_confined else Unconfined(LIMITS)
        ours, theirs = pty.openpty()
        program = sandbox.start(
            ["/bin/bash", "--norc", "-i"],
            agent.workspace,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            environment={"MARK": agent.mark, "PS1": "ready> "},
            own_terminal=True,
        )
        os.close(theirs)
        assert "job control" not in _until(ours, "ready> ")
        os.write(ours, b"sleep 300\n")
        _until(ours, "sleep 300")
        wait_for(lambda: any(each.strip() == "sleep 300" for each in agent.left()))
        os.write(ours, b"\x03")
        _until(ours, "ready> ")
        os.write(ours, b"echo $? >/dev/tty\n")
        assert "130" in _until(ours, "130")
        program.kill()
        assert asyncio.run(program.wait()) == -signal.SIGKILL
        assert agent.left() == []
        os.close(ours)


async def _ran(conversation: ConversationRef, command: str) -> str:
    """Run a command as the server does for a conversation, and return what it says."""
    with tempfile.TemporaryFile() as said:
        program = await asyncio.to_thread(
            choice.chosen().start,
            ["/bin/sh", "-c", command],
            await asyncio.to_thread(records.directory_of, conversation),
            stdin=subprocess.DEVNULL,
            stdout=said.fileno(),
            stderr=said.fileno(),
        )
        await asyncio.wait_for(program.wait(), 30)
        return os.pread(said.fileno(), 100_000, 0).decode()


def _until(terminal: int, text: str) -> str:
    found, end = "", time.monotonic() + 20
    while text not in found:
        assert time.monotonic() < end, found
        if select.select([terminal], [], [], 0.1)[0]:
            found += os.read(terminal, 4096).decode(errors="replace")
    return found


def _children() -> set[str]:
    """Return the children of this process, ended ones that nobody has waited for too."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(each.parent.name)
    return found
