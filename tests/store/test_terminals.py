"""Terminals: a real bash on a real pseudo-terminal, in each sandbox that works here."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.sandbox.base import SandboxName
from sessions_app.terminals.captured import CapturedOutput
from sessions_app.terminals.terminal import (
    FOLDER,
    NEW_SHELL,
    NOT_TYPED,
    NOTHING_RUNS,
    CommandResult,
    Terminal,
)
from sessions_app.workspaces import records
from tests.support.people.scripted_agent import until_here
from tests.support.servers import sandboxes

pytestmark = pytest.mark.one_engine

LONG_S = 60.0


@pytest.fixture(params=[SandboxName.NONE, SandboxName.BUBBLEWRAP])
def sandbox(request: pytest.FixtureRequest, configured: Callable[..., None], tmp_path: Path) -> SandboxName:
    name: SandboxName = request.param
    sandboxes.use(name, configured, tmp_path / "workspaces")
    return name


@pytest.fixture
async def terminal(sandbox: SandboxName, conversation: ConversationRef) -> AsyncIterator[Terminal]:
    opened = await Terminal.opened(conversation)
    yield opened
    await opened.close()


@pytest.fixture
async def directory(terminal: Terminal, conversation: ConversationRef) -> Path:
    """The workspace, as the server sees it."""
    found: Path = await astore.change(records.directory_of, conversation)
    return found


class Reader:
    """Who is shown the output of a command while it comes."""

    def __init__(self, until: str = "") -> None:
        self.pieces: list[str] = []
        self.has_seen = asyncio.Event()
        self._until = until

    def __call__(self, piece: str) -> None:
        self.pieces.append(piece)
        if self._until in self.text:
            self.has_seen.set()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


async def run(
    terminal: Terminal, command: str, *, timeout_s: float = LONG_S, is_input: bool = False
) -> CommandResult:
    return await terminal.run(command, timeout_s=timeout_s, on_output=Reader(), is_input=is_input)


async def output_of(terminal: Terminal, command: str) -> str:
    """Run a command that must succeed."""
    result = await run(terminal, command)
    assert (result.exit_code, result.has_timed_out) == (0, False), result
    return result.output


def marked() -> tuple[str, str]:
    """Return a command that sleeps for very long, and a word that only its processes have."""
    seconds = f"1000.{secrets.randbelow(10**9):09d}"
    return f"sleep {seconds}", seconds


async def test_the_working_directory_variables_and_functions_stay_from_one_command_to_the_next(
    terminal: Terminal, directory: Path
) -> None:
    first = await run(
        terminal, "mkdir -p a/b && cd a/b && export X=1 y=2 && f() { echo in f; } && declare -A m=([k]=v)"
    )
    assert (first.output, first.exit_code) == ("", 0)
    assert first.working_directory.endswith("/a/b")
    assert await output_of(terminal, "pwd; echo $X $y ${m[k]}; f") == (
        f"{first.working_directory}\n1 2 v\nin f\n"
    )
    assert (directory / "a" / "b").is_dir()


async def test_commands_of_several_lines_run_without_an_echo(terminal: Terminal) -> None:
    lines = "cat <<'END'\nit's \"quoted\" $HOME `x` \\n\nEND\nfor each in 1 2; do\n  echo $each\ndone\n# end"
    assert await output_of(terminal, lines) == 'it\'s "quoted" $HOME `x` \\n\n1\n2\n'
    assert await output_of(terminal, "echo 'é 日本 \\ '\"'\" !x !!") == "é 日本 \\ ' !x !!\n"
    long = "x" * 100_000
    assert await output_of(terminal, f"v={long}; echo ${{#v}}") == "100000\n"


@pytest.mark.parametrize(
    "command", ["echo 'open", 'echo "open', "if true; then", "for", "echo $(", "f() {", ")"]
)
async def test_a_syntax_error_is_told_and_the_shell_stays(terminal: Terminal, command: str) -> None:
    await run(terminal, "x=kept")
    result = await run(terminal, command)
    assert result.exit_code not in (0, Terminal.RUNNING)
    assert re.search("unexpected|syntax error", result.output), result
    assert await output_of(terminal, "echo $x") == "kept\n"


async def test_a_heredoc_without_its_end_is_no_hang(terminal: Terminal) -> None:
    assert "text" in (await run(terminal, "cat <<END\ntext")).output


async def test_exit_codes_are_told_and_the_next_command_knows_them(terminal: Terminal) -> None:
    assert (await run(terminal, "(exit 42)")).exit_code == 42
    assert await output_of(terminal, "echo $?") == "42\n"
    assert (await run(terminal, "no-such-program")).exit_code == 127
    assert (await run(terminal, "trap 'echo failed' ERR; false")).output == "failed\n"
    assert await output_of(terminal, "echo fine") == "fine\n"


async def test_output_is_shown_while_the_command_runs(terminal: Terminal, directory: Path) -> None:
    reader = Reader(until="first")
    command = (
        "echo first; until [ -e go ]; do sleep 0.02; done; printf 'l\\303'; sleep 0.2; printf '\\251 last'"
    )
    running = asyncio.create_task(terminal.run(command, timeout_s=LONG_S, on_output=reader))
    await asyncio.wait_for(reader.has_seen.wait(), LONG_S)
    assert not running.done()
    (directory / "go").touch()
    result = await running
    assert result.output == reader.text == "first\nlé last"


async def test_escape_sequences_and_binary_output_become_text(terminal: Terminal) -> None:
    assert await output_of(terminal, "printf '\\e[31mred\\e[0m\\n1%%\\r2%%\\n\\e]0;t\\a'") == "red\n2%\n"
    noise = await output_of(terminal, "head -c 30000 /dev/urandom; echo; echo end")
    assert noise.endswith("\nend\n")
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", noise)


async def test_output_cannot_pass_for_the_end_of_a_command(terminal: Terminal) -> None:
    text = await output_of(
        terminal, "set; printf '\\e]%032d;0;/\\e]%032d;\\e]%032d\\a' 0 0 0; echo; echo end"
    )
    assert text.endswith("end\n")
    assert "BASH_VERSION" in text


async def test_what_is_piped_into_a_file_or_closed_does_not_hide_the_end(
    terminal: Terminal, directory: Path
) -> None:
    assert (await run(terminal, "exec >out 2>&1; echo hidden; ls nothing")).exit_code == 2
    assert (await run(terminal, "exec <&-; exec >/dev/tty 2>&1; false")).exit_code == 1
    assert await output_of(terminal, "echo shown") == "shown\n"
    assert (directory / "out").read_text().startswith("hidden\n")


@pytest.mark.parametrize(
    "spoils", ["PS1='prompt$ ' PS2='> '", "stty echo raw", "PROMPT_COMMAND='echo p'; PS1=x"]
)
async def test_prompts_and_modes_of_the_terminal_do_not_stay(terminal: Terminal, spoils: str) -> None:
    await run(terminal, spoils)
    await run(terminal, "PS1= PROMPT_COMMAND=")
    assert await output_of(terminal, "echo shown") == "shown\n"


async def test_a_command_that_takes_long_goes_on_and_is_read_by_an_empty_one(terminal: Terminal) -> None:
    late = await run(terminal, "echo one; read answer; echo got $answer", timeout_s=0.5)
    assert (late.exit_code, late.has_timed_out) == (Terminal.RUNNING, True)
    assert late.output.startswith("one\n[The command still runs after 0.5 seconds.")
    refused = await run(terminal, "touch bad")
    assert refused.exit_code == Terminal.RUNNING
    assert "was not run" in refused.output
    assert (await run(terminal, "", timeout_s=0.1)).has_timed_out
    done = await run(terminal, "yes", is_input=True)
    assert (done.output, done.exit_code, done.has_timed_out) == ("got yes\n", 0, False)
    assert await output_of(terminal, "ls") == ""


async def test_a_silent_command_is_left_to_itself_after_a_while(terminal: Terminal) -> None:
    result = await terminal.run("echo one; read x", timeout_s=LONG_S, on_output=Reader(), silence_s=0.3)
    assert result.has_timed_out
    assert "has written nothing for 0.3 seconds" in result.output
    assert (await run(terminal, "C-c", is_input=True)).exit_code == 130


async def test_a_program_talks_with_its_user(terminal: Terminal) -> None:
    await run(terminal, 'python3 -q -c \'import code; code.interact(banner="", exitmsg="")\'', timeout_s=1)
    answer = await run(terminal, "6 * 7", is_input=True)
    assert "42" in answer.output
    assert answer.has_timed_out
    assert (await run(terminal, "C-d", is_input=True)).exit_code == 0


async def test_control_keys_interrupt_end_and_stop_programs(terminal: Terminal) -> None:
    for command, key, exit_code in (
        ("sleep 1000", "C-c", 130),
        ("while :; do :; done", "C-c", 130),
        ("for i in 1 2 3; do sleep 1000; done", "C-c", 130),
        ("cat", "C-d", 0),
        ("sleep 1000", "C-z", 148),
    ):
        assert (await run(terminal, command, timeout_s=0.2)).has_timed_out
        result = await run(terminal, key, is_input=True)
        assert (result.exit_code, result.has_timed_out) == (exit_code, False), command
    assert "Stopped" in result.output
    assert "[Background programs:" in result.output


async def test_typing_needs_a_program_that_runs(terminal: Terminal) -> None:
    for command in ("", "yes", "C-c"):
        result = await run(terminal, command, is_input=True)
        assert (result.output, result.exit_code) == (NOTHING_RUNS, 1)


async def test_what_a_program_has_not_read_is_no_command_and_is_forgotten(
    terminal: Terminal, directory: Path
) -> None:
    await run(terminal, "until [ -e go ]; do sleep 0.02; done", timeout_s=0.1)
    await run(terminal, "touch bad; echo bad", is_input=True)
    (directory / "go").touch()
    assert (await run(terminal, "")).output == ""
    assert await output_of(terminal, 'read -t 0.1 x; echo "[$x]"') == "[]\n"
    assert not (directory / "bad").exists()


async def test_a_program_that_ends_between_two_calls_is_told_at_the_next_one(
    terminal: Terminal, directory: Path
) -> None:
    for command, is_input, said in (
        ("", False, ""),
        ("yes", True, NOT_TYPED),
        ("echo next", False, "next\n"),
    ):
        (directory / "go").unlink(missing_ok=True)
        await run(terminal, "until [ -e go ]; do sleep 0.02; done; echo done; (exit 3)", timeout_s=0.05)
        (directory / "go").touch()
        assert terminal._shell is not None
        await asyncio.wait_for(terminal._shell.is_over.wait(), LONG_S)
        result = await run(terminal, command, is_input=is_input)
        assert result.output.startswith("done\n")
        assert result.output.endswith(said)
        assert result.exit_code == (0 if command == "echo next" else 3)


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [("echo last; exit 7", 7), ("echo last; exec sh -c 'exit 7'", 7), ("set -e; echo last; (exit 7)", 7)],
)
async def test_a_command_that_ends_its_shell_gets_a_new_one_and_says_what_is_lost(
    terminal: Terminal, command: str, exit_code: int
) -> None:
    home = await output_of(terminal, "pwd")
    await run(terminal, "cd /usr; x=1")
    result = await run(terminal, command)
    assert (result.exit_code, result.has_timed_out) == (exit_code, False)
    assert "last\n" in result.output
    assert "The shell has ended with exit code 7." in result.output
    assert "are lost" in result.output
    following = await run(terminal, "pwd; echo [$x]")
    assert following.output == f"{NEW_SHELL}\n{home}[]\n"


async def test_a_shell_that_is_killed_is_replaced(terminal: Terminal) -> None:
    result = await run(terminal, "echo last; kill -9 $$")
    assert result.exit_code not in (0, Terminal.RUNNING)
    assert "The next command starts in a new shell" in result.output
    await run(terminal, "(sleep 0.1; kill -9 $$) &")
    assert terminal._shell is not None
    await until_here(lambda: terminal._shell is not None and terminal._shell.has_ended)
    assert (await run(terminal, "echo new")).output == f"{NEW_SHELL}\nnew\n"


async def test_background_programs_are_listed_and_end_with_the_terminal(terminal: Terminal) -> None:
    command, word = marked()
    started = await run(
        terminal, f"{command} & setsid {command} & nohup {command} >/dev/null 2>&1 & (({command} &) &)"
    )
    assert "[Background programs:" in started.output
    assert "Running" in started.output
    assert "echo on" not in (await run(terminal, "echo on")).output
    assert sandboxes.running(word)
    await terminal.close()
    assert sandboxes.running(word) == []


async def test_a_cancelled_call_interrupts_its_program(terminal: Terminal) -> None:
    await run(terminal, "x=kept")
    command, word = marked()
    reader = Reader(until="begun")
    running = asyncio.create_task(terminal.run(f"echo begun; {command}", timeout_s=LONG_S, on_output=reader))
    await asyncio.wait_for(reader.has_seen.wait(), LONG_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sandboxes.running(word) == []
    assert await output_of(terminal, "echo $x") == "kept\n"


async def test_a_program_that_ignores_an_interrupt_is_ended_with_its_shell(terminal: Terminal) -> None:
    command, word = marked()
    reader = Reader(until="begun")
    stubborn = f"sh -c 'trap \"\" INT TERM HUP; echo begun; {command}; {command}'"
    running = asyncio.create_task(terminal.run(stubborn, timeout_s=LONG_S, on_output=reader))
    await asyncio.wait_for(reader.has_seen.wait(), LONG_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sandboxes.running(word) == []
    assert (await run(terminal, "echo new")).output == f"{NEW_SHELL}\nnew\n"


async def test_a_hundred_interrupts_leave_no_process(terminal: Terminal) -> None:
    command, word = marked()
    for number in range(100):
        reader = Reader(until="begun")
        piped = f"echo begun; {command} | cat"
        running = asyncio.create_task(terminal.run(piped, timeout_s=LONG_S, on_output=reader))
        await asyncio.wait_for(reader.has_seen.wait(), LONG_S)
        if number % 2:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        else:
            await terminal.interrupt()
            # Where the interrupt comes between the two programs, bash has another exit code than 130.
            assert not (await running).has_timed_out
    assert "Running" not in await output_of(terminal, "jobs")
    await until_here(lambda: sandboxes.running(word) == [])


async def test_an_interrupt_at_any_moment_neither_loses_the_end_of_a_command_nor_a_word_of_the_next(
    terminal: Terminal, chance: random.Random
) -> None:
    for number in range(100):
        command = f"sleep 0.00{number % 10}"
        running = asyncio.create_task(terminal.run(command, timeout_s=LONG_S, on_output=Reader()))
        await asyncio.sleep(chance.random() * 0.012)
        await terminal.interrupt()
        assert not (await running).has_timed_out
        assert await output_of(terminal, f"echo {number}") == f"{number}\n"


async def test_long_output_is_shown_in_part_and_whole_in_a_file(terminal: Terminal, directory: Path) -> None:
    result = await run(terminal, "seq 1 30000")
    assert result.is_cut
    assert result.output.startswith("1\n2\n")
    assert result.output.endswith("29999\n30000\n")
    assert len(result.output.encode()) <= CapturedOutput.SHOWN_MAX_BYTES
    (name,) = re.findall(rf"`({re.escape(FOLDER)}/\w+\.txt)`", result.output)
    assert (directory / name).read_text() == "".join(f"{number}\n" for number in range(1, 30_001))
    assert await output_of(terminal, f"tail -n 1 ~/{name}") == "30000\n"


async def test_a_flood_of_output_is_read_in_bounded_memory_while_others_go_on(
    terminal: Terminal, directory: Path
) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    beside = asyncio.create_task(others())
    result = await run(terminal, "yes 'a line of text' | head -c 50000000; echo; echo the end")
    beside.cancel()
    assert turns > 50
    assert result.is_cut
    assert result.output.endswith("the end\n")
    assert len(result.output) <= CapturedOutput.SHOWN_MAX_BYTES
    (kept,) = (directory / FOLDER).iterdir()
    assert 0.9 * CapturedOutput.KEPT_MAX_BYTES < kept.stat().st_size <= CapturedOutput.KEPT_MAX_BYTES


@pytest.mark.slow
async def test_a_gigabyte_of_output_is_read_to_its_end(terminal: Terminal) -> None:
    result = await run(
        terminal, "yes 'a line of text' | head -c 1000000000; echo; echo the end", timeout_s=100
    )
    assert (result.exit_code, result.is_cut) == (0, True)
    assert result.output.endswith("the end\n")


async def test_a_file_that_has_no_room_in_the_workspace_is_told(
    terminal: Terminal, configured: Callable[..., None]
) -> None:
    configured(workspace_max_files=0)
    result = await run(terminal, "seq 1 30000")
    assert "could not be put into a file: The workspace of this conversation is full" in result.output
    assert result.exit_code == 0


async def test_a_reset_ends_all_programs_and_the_next_command_has_a_new_shell(terminal: Terminal) -> None:
    command, word = marked()
    await run(terminal, f"x=1; {command}", timeout_s=0.2)
    await terminal.reset()
    assert sandboxes.running(word) == []
    assert (await run(terminal, "echo [$x]")).output == f"{NEW_SHELL}\n[]\n"


@pytest.mark.parametrize(
    "written",
    [
        r"""builtin printf '\e]%s' "$1"; yes""",
        r"""builtin printf '\e]%s;x\e]%s;\e]%s\a' "$1" "$1" "$1" """,
        r"""builtin printf '\e]%s;1\e]%s\a' "$1" "$1" """,
    ],
)
async def test_a_command_that_changes_what_writes_the_marks_ends_its_shell_alone(
    terminal: Terminal, written: str
) -> None:
    forged = await run(terminal, f"_convserver_end() {{ {{ {written}; }} >/dev/tty; }}")
    assert "The next command starts in a new shell" in forged.output
    assert await output_of(terminal, "echo works") == f"{NEW_SHELL}\nworks\n"


async def test_a_nearly_full_workspace_is_told_by_results_and_stored_and_a_full_one_ends_the_shell(
    configured: Callable[..., None], conversation: ConversationRef, tmp_path: Path
) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")
    configured(workspace_max_mb=20)
    terminal = await Terminal.opened(conversation)
    try:
        result = await run(terminal, "head -c 17M /dev/zero >large; sleep 1.5")
        told = "The workspace is nearly full: it holds 18 of 20 MB, and 1 of 100,000 files and directories."
        assert told in result.output
        assert (await astore.call(records.nearly_full, conversation)).startswith(told)
        result = await run(terminal, "while head -c 3M /dev/zero; do :; done >$RANDOM; sleep 60")
        assert "[The workspace is full: it may hold 20 MB in 100,000 files" in result.output
        assert "nearly full" not in result.output
        result = await run(terminal, "rm *; sleep 1.5")
        assert result.output == NEW_SHELL + "\n"
        assert await output_of(terminal, "true") == ""
        assert await astore.call(records.nearly_full, conversation) == ""
    finally:
        await terminal.close()
