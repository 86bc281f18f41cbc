"""Models with hands: they view, create, edit, search and undo in the workspace of their conversation."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.dialects import v0
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import ToolCall
from sessions_app.agents.llm.files import search
from sessions_app.agents.llm.files.editor import EditedFile, FileEditor
from sessions_app.agents.llm.files.search import SearchLimits
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.models import UnknownAnswer, Workspace
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import agent_setups, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.workspaces import uploads
from tests.conftest import Join
from tests.store.test_llm_tools import called, results_of, until_asked
from tests.store.test_tool_runs import answers, begun, taken_over, until_ended
from tests.support.people.model_talks import answers_of, events, model, said, told
from tests.support.people.scripted_agent import log, manager, stage
from tests.support.servers.model_server import calling, completion
from tests.support.wires.v1_wire import require_strict

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

Make = Callable[..., Awaitable[ConversationRef]]
Run = Callable[..., Awaitable[Outcome]]
ALL = {"tools": [{"name": "file_editor"}, {"name": "grep"}]}


@pytest.fixture
def root(tmp_path: Path, manager: ConversationManager, configured: Callable[..., None]) -> Path:
    """Where the workspaces are."""
    directory = tmp_path / "workspaces"
    configured(workspaces=directory, sandbox=SandboxName.AUTO, agent=BUILT_IN_AGENTS["auto"])
    return directory


@pytest.fixture
def make(alice: User, root: Path) -> Make:
    """Create a conversation: of V1 with a client's agent, if one is given."""

    async def made(
        version: Version = Version.V0, agent: dict[str, Any] | None = None, **members: Any
    ) -> ConversationRef:
        if agent is None:
            return await astore.call(
                lambda: creation.create(alice, conversation_id="talk", version=version, title="A talk")
            )
        setup = NewSetup(agent={"kind": "Agent", **agent}, **members)
        return await astore.call(agent_setups.create, alice, setup, conversation_id="talk", title="A talk")

    return made


async def place_of(conversation: ConversationRef, root: Path) -> Path:
    row = await Workspace.objects.aget(conversation_id=conversation.pk)
    return root / str(row.directory)


def editing(command: str, path: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "file_editor", {"command": command, "path": path, **arguments}


WORK = [
    editing("create", "/workspace/src/a.py", file_text="one = 1\ntwo = 2\n"),
    editing("view", "/workspace"),
    editing("str_replace", "/workspace/src/a.py", old_str="two = 2", new_str="two = 3"),
    editing("insert", "/workspace/src/a.py", insert_line=0, new_str="# numbers"),
    ("search", {"pattern": r"^two\b", "include": "*.py"}),
    editing("undo_edit", "/workspace/src/a.py"),
    editing("view", "/workspace/src/a.py", view_range=[2, -1]),
]


@pytest.mark.parametrize("version", [Version.V0, Version.V1])
async def test_a_model_views_creates_edits_searches_and_undoes(
    make: Make, alice: User, join: Join, root: Path, version: Version
) -> None:
    talk = await make(version)
    async with model(alice, *(calling(each) for each in WORK), completion(["Done."])) as asked:
        frames = await said(await join(talk), "Mend it.")
    assert called(frames) == WORK
    assert answers_of(frames) == ["Done."]
    found = results_of(frames)
    assert found[0] == "File created successfully at: /workspace/src/a.py"
    assert found[1].endswith("excluding hidden items:\n/workspace/\n/workspace/src/\n/workspace/src/a.py")
    assert "     2\ttwo = 3\n" in found[2]
    assert "     1\t# numbers\n     2\tone = 1\n" in found[3]
    home = "/workspace" if version == Version.V0 else "/workspace/project"
    assert found[4] == f"1 line below {home}:\n{home}/src/a.py:3:two = 3"
    assert found[5].startswith("Last edit to /workspace/src/a.py undone successfully.")
    assert found[6] == "Here's the result of running `cat -n` on /workspace/src/a.py:\n     2\ttwo = 3\n"
    assert (await place_of(talk, root) / "src" / "a.py").read_text() == "one = 1\ntwo = 3\n"
    # The model is given back each call as it wrote it.
    given = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for message in asked[-1].body["messages"]
        for call in message.get("tool_calls") or ()
    ]
    assert given == WORK
    assert [text for role, text in told(asked[-1]) if role == "tool"] == found


async def test_the_events_of_a_v0_conversation_are_those_of_its_wire(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(Version.V0)
    async with model(alice, *(calling(each) for each in WORK), completion(["Done."])):
        frames = await said(await join(talk), "Mend it.")
    calls = [each["event"] for each in events(frames, "tool_call")]
    results = [each["event"] for each in events(frames, "tool_result")]
    assert [each["action"] for each in calls] == [
        *("edit", "read", "edit", "edit", "call_tool_mcp", "edit", "read")
    ]
    assert [each["observation"] for each in results] == [
        *("edit", "read", "edit", "edit", "mcp", "edit", "read")
    ]
    for event in (*calls, *results):
        v0.received({**event, "source": "agent"})  # refuses unknown fields, and JSON of other types
    edited = results[2]["extras"]
    assert (edited["prev_exist"], edited["old_content"]) == (True, "one = 1\ntwo = 2\n")
    assert edited["new_content"] == "one = 1\ntwo = 3\n"
    assert "@@ -1,2 +1,2 @@\n one = 1\n-two = 2\n+two = 3" in edited["diff"]
    assert results[0]["extras"]["prev_exist"] is False


async def test_the_events_of_a_v1_conversation_are_those_of_its_wire(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(agent=ALL)
    async with model(alice, *(calling(each) for each in WORK), completion(["Done."])) as asked:
        frames = await said(await join(talk), "Mend it.")
    assert [each["function"]["name"] for each in asked[0].body["tools"]] == ["file_editor", "search"]
    calls = [each["event"] for each in events(frames, "tool_call")]
    results = [each["event"] for each in events(frames, "tool_result")]
    for event in (*calls, *results):
        require_strict(event)
    assert [each["tool_name"] for each in results] == [each[0] for each in WORK]
    assert calls[0]["action"] == {"kind": "FileEditorAction", **WORK[0][1]}
    assert results[2]["observation"] == {
        "kind": "FileEditorObservation",
        "content": results[2]["observation"]["content"],
        "is_error": False,
        "command": "str_replace",
        "path": "/workspace/src/a.py",
        "prev_exist": True,
        "old_content": "one = 1\ntwo = 2\n",
        "new_content": "one = 1\ntwo = 3\n",
    }


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ({"tools": []}, set()),
        ({"tools": [{"name": "FileEditorTool"}]}, {"file_editor"}),
        ({"tools": [{"name": "str_replace_editor"}, {"name": "glob"}]}, {"file_editor", "search"}),
        ({"tools": [{"name": "terminal"}]}, set()),
    ],
)
async def test_a_client_of_v1_gets_the_tools_that_its_start_names(
    make: Make, alice: User, join: Join, agent: dict[str, Any], names: set[str]
) -> None:
    talk = await make(agent=agent)
    async with model(alice, completion(["Hello."])) as asked:
        await said(await join(talk), "Hello.")
    assert {each["function"]["name"] for each in asked[0].body.get("tools", [])} - {"terminal"} == names


async def test_there_are_no_hands_where_the_operator_wants_none(
    make: Make, alice: User, join: Join, configured: Callable[..., None]
) -> None:
    configured(sandbox=SandboxName.OFF)
    talk = await make()
    async with model(alice, calling(WORK[0]), completion(["Hm."])) as asked:
        frames = await said(await join(talk), "Mend it.")
    assert "tools" not in asked[0].body
    assert "There are no tools now." in results_of(frames)[0]
    assert not await Workspace.objects.filter(conversation_id=talk.pk).aexists()


async def test_an_agent_that_plans_views_and_searches_and_changes_nothing(
    make: Make, alice: User, join: Join, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["plan"])
    talk = await make()
    await astore.change(uploads.put, talk, "a.py", b"x = 1\n")
    answers = [
        calling(editing("create", "/workspace/b", file_text="")),
        calling(editing("view", "/workspace")),
    ]
    async with model(alice, *answers, completion(["A plan."])) as asked:
        frames = await said(await join(talk), "Plan it.")
    tools = {each["function"]["name"]: each["function"]["parameters"] for each in asked[0].body["tools"]}
    assert tools["file_editor"]["properties"]["command"]["enum"] == ["view"]
    assert "`command` must be `view`" in results_of(frames)[0]
    assert "/workspace/a.py" in results_of(frames)[1]


async def test_edits_ask_where_risky_calls_do_and_views_do_not(make: Make, alice: User, join: Join) -> None:
    policy = {"kind": "ConfirmRisky", "threshold": "MEDIUM"}
    talk = await make(agent=ALL, confirmation_policy=policy)
    create = editing("create", "/workspace/a", file_text="x")
    answers = [calling(editing("view", "/workspace")), calling(("search", {"include": "*"})), calling(create)]
    async with model(alice, *answers, completion(["Done."])) as asked:
        client = await join(talk)
        await until_asked(client)
        assert len(results_of(client.frames)) == 2
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert results_of(client.frames)[2] == "File created successfully at: /workspace/a"
    assert told(asked[-1])[-1] == ("tool", "File created successfully at: /workspace/a")


async def test_the_result_of_a_rejected_edit_is_the_users_reason(make: Make, alice: User, join: Join) -> None:
    talk = await make()
    await astore.call(user_settings.change_settings, alice.pk, {"confirmation_mode": True}, secrets={})
    async with model(alice, calling(WORK[0]), completion(["OK."])) as asked:
        client = await join(talk)
        await until_asked(client)
        await client.send({"type": "confirm", "accept": False, "reason": "Not there."})
        await client.until("event", kind="turn")
    assert ("tool", "Not there.") in told(asked[-1])
    assert not await Workspace.objects.filter(conversation_id=talk.pk).aexists()


# A crash


async def left(talk: ConversationRef, call: tuple[str, dict[str, Any]]) -> ToolCall:
    """Let a call be started, and its process die."""
    turn = await begun(talk)
    stored = await turn.call_tool(*call)
    await turn.start_tool(stored)
    await taken_over(talk)
    return stored


@pytest.mark.parametrize("version", [Version.V0, Version.V1])
async def test_an_edit_that_a_crash_has_cut_off_waits_for_a_persons_word_and_runs_again(
    make: Make, alice: User, manager: ConversationManager, root: Path, version: Version
) -> None:
    talk = await make(version)
    async with model(alice, completion(["Done."])) as asked:
        call = await left(talk, WORK[0])
        assert await answers(talk) == []
        await manager.confirm(talk, accept=True, call_seq=call.seq)
        assert await until_ended(talk, manager) == ["File created successfully at: /workspace/src/a.py"]
    assert (await place_of(talk, root) / "src" / "a.py").exists()
    assert told(asked[0])[-1] == ("tool", "File created successfully at: /workspace/src/a.py")


@pytest.mark.parametrize("version", [Version.V0, Version.V1])
async def test_what_a_person_says_of_an_edit_becomes_its_result(
    make: Make, alice: User, manager: ConversationManager, version: Version
) -> None:
    talk = await make(version)
    async with model(alice, completion(["Done."])):
        await left(talk, WORK[0])
        await manager.confirm(talk, accept=True, outcome=UnknownAnswer.DONE, reason="It is there.")
        [text] = await until_ended(talk, manager)
    assert text.endswith("It is there.")
    [result] = [each for each in await log(talk) if each["kind"] == "tool_result"]
    assert result["type"] == ("edit" if version == Version.V0 else "ObservationEvent")
    assert not await Workspace.objects.filter(conversation_id=talk.pk).aexists()


async def test_a_view_that_a_crash_has_cut_off_runs_again_unasked(
    make: Make, alice: User, manager: ConversationManager
) -> None:
    talk = await make()
    async with model(alice, completion(["Done."])):
        await left(talk, editing("view", "/workspace"))
        [text] = await until_ended(talk, manager)
    assert text.endswith("excluding hidden items:\n/workspace/")


# The editor


@pytest.fixture
async def talk(make: Make) -> ConversationRef:
    return await make()


@pytest.fixture
def edit(talk: ConversationRef) -> Run:
    """Run a call of the editor, which keeps what can be undone."""
    editor = FileEditor(talk)

    async def run(command: str, path: str, **arguments: Any) -> Outcome:
        return await editor.run({"command": command, "path": path, **arguments})

    return run


async def put(talk: ConversationRef, path: str, content: bytes) -> None:
    await astore.change(uploads.put, talk, path, content)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            editing("view", "/workspace/none"),
            "The path /workspace/none does not exist. Please provide a valid path.",
        ),
        (editing("view", "/etc/passwd"), "is outside the workspace, whose paths begin with /workspace."),
        (editing("view", "/workspace/../etc/passwd"), "is outside the workspace"),
        (editing("view", "../a"), "leads out of the workspace."),
        (editing("view", "/workspace/out/passwd"), "leads out of the workspace."),
        (editing("create", "/workspace/out/new", file_text="x"), "leads out of the workspace."),
        (editing("create", "/workspace/a.txt", file_text="x"), "File already exists at: /workspace/a.txt."),
        (editing("create", "/workspace/src", file_text="x"), "File already exists at: /workspace/src."),
        (editing("create", "/workspace/a.txt/b", file_text="x"), "a file has its name."),
        (editing("create", "/workspace/b"), "Parameter `file_text` is required for command: create."),
        (editing("str_replace", "/workspace/a.txt"), "Parameter `old_str` is required"),
        (
            editing("str_replace", "/workspace/src", old_str="x"),
            "only the `view` command can be used on directories",
        ),
        (
            editing("str_replace", "/workspace/a.txt", old_str="nine"),
            "old_str `nine` did not appear verbatim",
        ),
        (editing("str_replace", "/workspace/a.txt", old_str="o", new_str=""), "Multiple occurrences"),
        (editing("insert", "/workspace/a.txt", insert_line=9, new_str="x"), "allowed values: [0, 2]"),
        (editing("undo_edit", "/workspace/a.txt"), "No edit history found for /workspace/a.txt."),
        (editing("view", "/workspace/a.txt", view_range=[3, 4]), "range of lines of the file: [1, 2]."),
        (
            editing("view", "/workspace/a.txt", view_range=[2, 1]),
            "greater than or equal to the first element `2`",
        ),
        (editing("view", "/workspace/a.txt", view_range=[1]), "It should be a list of two integers."),
        (
            editing("view", "/workspace/src", view_range=[1, 2]),
            "not allowed when `path` points to a directory",
        ),
        (editing("view", "/workspace/binary"), "File appears to be binary"),
        (editing("str_replace", "/workspace/binary", old_str="a"), "File appears to be binary"),
        (editing("view", "/workspace/latin"), "It is not UTF-8 text"),
        (editing("view", "/workspace/pipe"), "is not a file"),
        (editing("view", "/workspace/\0"), "cannot be the name of a file"),
    ],
)
async def test_what_cannot_be_done_is_told_in_a_sentence_and_changes_nothing(
    talk: ConversationRef, edit: Run, root: Path, call: tuple[str, dict[str, Any]], said: str
) -> None:
    await put(talk, "a.txt", b"one\ntwo\n")
    await put(talk, "src/b", b"")
    await put(talk, "binary", b"\x7fELF\0a")
    await put(talk, "latin", b"caf\xe9\n")
    place = await place_of(talk, root)
    (place / "out").symlink_to("/etc")
    os.mkfifo(place / "pipe")
    before = sorted((str(each), each.stat().st_size) for each in place.iterdir())
    outcome = await edit(**call[1])
    assert said in outcome.text
    assert outcome.is_error
    assert sorted((str(each), each.stat().st_size) for each in place.iterdir()) == before


async def test_a_file_that_is_too_large_is_neither_shown_nor_edited(talk: ConversationRef, edit: Run) -> None:
    await put(talk, "long", b"x" * (EditedFile.MAX_BYTES + 1))
    await put(talk, "full", b"x" * EditedFile.MAX_BYTES)
    said = "File is too large (5.0MB). Maximum allowed size is 5MB."
    assert said in (await edit("view", "/workspace/long")).text
    assert said in (await edit("str_replace", "/workspace/long", old_str="x")).text
    outcome = await edit("insert", "/workspace/full", insert_line=0, new_str="y")
    assert "The edit makes the file longer than 5MB." in outcome.text


async def test_another_conversations_files_are_not_in_reach(
    make: Make, bob: User, edit: Run, root: Path
) -> None:
    other = await astore.call(lambda: creation.create(bob, conversation_id="other", version=Version.V0))
    await put(other, "secret", b"bob's")
    theirs = await place_of(other, root)
    for path in ("/workspace/secret", str(theirs / "secret"), f"/workspace/../{theirs.name}/secret"):
        outcome = await edit("view", path)
        assert outcome.is_error
        assert "bob's" not in outcome.text


async def test_a_view_of_an_empty_workspace_makes_no_directory(talk: ConversationRef, edit: Run) -> None:
    outcome = await edit("view", "/workspace")
    assert outcome.text.endswith("excluding hidden items:\n/workspace/")
    assert not await Workspace.objects.filter(conversation_id=talk.pk).aexists()


async def test_marks_and_line_ends_stay_as_they_are(talk: ConversationRef, edit: Run, root: Path) -> None:
    await put(talk, "a", b"\xef\xbb\xbfone\r\ntwo\r\n")
    shown = await edit("view", "/workspace/a")
    assert shown.text.endswith("     1\tone\n     2\ttwo\n")
    await edit("str_replace", "/workspace/a", old_str="one\ntwo", new_str="1\n2")
    await edit("insert", "/workspace/a", insert_line=1, new_str="new")
    file = await place_of(talk, root) / "a"
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\nnew\r\n2\r\n"
    await edit("undo_edit", "/workspace/a")
    await edit("undo_edit", "/workspace/a")
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\ntwo\r\n"


async def test_an_edit_keeps_what_may_be_run_and_where_a_link_leads(
    talk: ConversationRef, edit: Run, root: Path
) -> None:
    await put(talk, "bin/run", b"#!/bin/sh\n")
    place = await place_of(talk, root)
    (place / "bin" / "run").chmod(0o700)
    (place / "link").symlink_to("bin/run")
    await edit("str_replace", "/workspace/link", old_str="sh", new_str="bash")
    assert (place / "link").is_symlink()
    assert (place / "bin" / "run").read_bytes() == b"#!/bin/bash\n"
    assert (place / "bin" / "run").stat().st_mode & 0o100


async def test_what_was_changed_meanwhile_is_not_undone(talk: ConversationRef, edit: Run, root: Path) -> None:
    await put(talk, "a", b"one\n")
    await edit("str_replace", "/workspace/a", old_str="one", new_str="two")
    file = await place_of(talk, root) / "a"
    file.write_text("three\n")
    outcome = await edit("undo_edit", "/workspace/a")
    assert "was changed by something else since its last edit" in outcome.text
    assert file.read_text() == "three\n"


async def test_a_full_workspace_is_told_in_a_sentence(
    make: Make, alice: User, join: Join, configured: Callable[..., None]
) -> None:
    configured(workspace_max_files=1)
    talk = await make()
    async with model(alice, calling(WORK[0]), completion(["It is full."])):
        frames = await said(await join(talk), "Mend it.")
    assert results_of(frames)[0].startswith("ERROR:\nThe workspace of this conversation is full")
    assert answers_of(frames) == ["It is full."]


async def test_names_that_are_no_text_are_listed_and_searched(
    talk: ConversationRef, edit: Run, root: Path
) -> None:
    await put(talk, "a", b"")
    place = await place_of(talk, root)
    (place / os.fsdecode(b"caf\xe9")).write_bytes(b"here\n")
    assert "/workspace/caf\ufffd" in (await edit("view", "/workspace")).text
    found = await search.run(talk, {"pattern": "here"}, SearchLimits())
    assert found.text == "1 line below /workspace:\n/workspace/caf\ufffd:1:here"
    json.dumps(found.text).encode()


async def test_an_image_is_shown_as_one(talk: ConversationRef, edit: Run) -> None:
    await put(talk, "a.png", b"\x89PNG\r\n\x1a\n\0\0")
    outcome = await edit("view", "/workspace/a.png")
    assert outcome.text == "Image file /workspace/a.png read successfully. Displaying image content."
    assert outcome.files[0].startswith("data:image/png;base64,")


async def test_a_large_directory_is_shown_in_part(talk: ConversationRef, edit: Run, root: Path) -> None:
    await put(talk, ".hidden", b"")
    place = await place_of(talk, root)
    for number in range(2_000):
        (place / f"{number:04}").touch()
    outcome = await edit("view", "/workspace")
    assert "/workspace/0998\n<response clipped>" in outcome.text
    assert outcome.text.endswith("1 hidden files/directories in this directory are excluded.")


# Search


async def found_by(
    talk: ConversationRef, limits: SearchLimits | None = None, **arguments: Any
) -> Sequence[str]:
    outcome = await search.run(talk, arguments, limits or SearchLimits())
    return outcome.text.splitlines()


async def test_lines_and_names_are_found(talk: ConversationRef) -> None:
    await put(talk, "src/a.py", b"import os\r\nx = os.getcwd()\r\n")
    await put(talk, "src/b.txt", b"import nothing\nIMPORT\n")
    await put(talk, ".git/config", b"import secret\n")
    await put(talk, "binary", b"import\0")
    assert await found_by(talk, pattern="^import") == [
        "2 lines below /workspace:",
        "/workspace/src/a.py:1:import os",
        "/workspace/src/b.txt:1:import nothing",
    ]
    assert (await found_by(talk, pattern="^import", ignore_case=True))[-1] == "/workspace/src/b.txt:2:IMPORT"
    assert await found_by(talk, include="*.py") == ["1 file below /workspace:", "/workspace/src/a.py"]
    assert (await found_by(talk, include="src/*", pattern="getcwd"))[1:] == [
        "/workspace/src/a.py:2:x = os.getcwd()"
    ]
    assert (await found_by(talk, path="/workspace/src/b.txt", pattern="i"))[1:] == [
        "/workspace/src/b.txt:1:import nothing"
    ]
    assert await found_by(talk, pattern="nowhere") == ["No lines were found."]


async def test_an_empty_workspace_has_nothing_to_find(talk: ConversationRef) -> None:
    assert await found_by(talk, include="*") == ["No files were found."]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Give `pattern`"),
        ({"pattern": "("}, "The pattern can't be used: it is no regular expression of Python: missing )"),
        ({"pattern": "x", "path": "/etc"}, "is outside the workspace"),
        ({"pattern": "x", "path": "/workspace/none"}, "There is no"),
        ({"pattern": "x" * 5_001}, "at most 5,000 characters"),
    ],
)
async def test_a_search_that_cannot_be_made_is_told_in_a_sentence(
    talk: ConversationRef, arguments: dict[str, Any], said: str
) -> None:
    await put(talk, "a", b"x\n")
    outcome = await search.run(talk, arguments, SearchLimits())
    assert outcome.is_error
    assert said in outcome.text


async def test_a_hostile_expression_is_killed_and_the_server_goes_on_meanwhile(talk: ConversationRef) -> None:
    await put(talk, "a", b"a" * 50 + b"b\n")
    searching = asyncio.create_task(search.run(talk, {"pattern": "(a+)+$"}, SearchLimits()))
    late_s = 0.0
    while not searching.done():
        asked = time.monotonic()
        await asyncio.sleep(0.01)
        late_s = max(late_s, time.monotonic() - asked)
    outcome = await searching
    assert "it takes too long on these files; write a simpler one" in outcome.text
    assert outcome.is_error
    assert late_s < 1.0


async def test_a_search_that_is_cancelled_ends_its_process_at_once(talk: ConversationRef) -> None:
    await put(talk, "a", b"a" * 50 + b"b\n")
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await search.run(talk, {"pattern": "(a+)+$"}, SearchLimits())
    assert time.monotonic() - began < 3.0


async def test_a_search_ends_at_its_limits_and_says_so(talk: ConversationRef) -> None:
    for number in range(6):
        await put(talk, f"{number}", b"x\n" * 3)
    limits = SearchLimits(matches=4)
    lines = await found_by(talk, limits, pattern="x")
    assert (len(lines), lines[-1]) == (6, "[Only the first 4 are shown. Search for something narrower.]")
    assert (await found_by(talk, SearchLimits(files=2, step_bytes=1), pattern="x"))[-1].startswith(
        "[The search was ended after 2 files with 12 bytes"
    )
    assert (await found_by(talk, SearchLimits(seconds=0.0), pattern="x"))[-1].startswith(
        "[The search was ended at its limit of time"
    )
    lines = await found_by(talk, SearchLimits(step_bytes=1), pattern="x")
    assert len(lines) == 19
    assert (await found_by(talk, SearchLimits(file_bytes=5), pattern="x")) == [
        "No lines were found.",
        "[6 files of more than 0 MB were left out.]",
    ]
