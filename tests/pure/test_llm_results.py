"""What tools return, read as far as it can be."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.agents.llm.tools import messages, results
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.agents.llm.tools.programs.stderr import LastLines, secrets_of
from sessions_app.agents.llm.tools.results import EMPTY, UNREADABLE, outcome_of

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
AS_TEXT = base64.b64encode(PNG).decode()
JPEG = b"\xff\xd8\xff\xe0 and more"


def image(data: object, kind: object = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": kind}


def text(said: object) -> dict[str, Any]:
    return {"type": "text", "text": said}


TEXTS: dict[str, tuple[Any, str]] = {
    "nothing": ({"content": []}, EMPTY),
    "null": ({"content": None}, EMPTY),
    "no content": ({}, UNREADABLE),
    "no object": ("words", UNREADABLE),
    "a text in place of a list": ({"content": "words"}, "words"),
    "texts in the list": ({"content": ["one", "two"]}, "one\ntwo"),
    "one part in place of a list": ({"content": text("words")}, "words"),
    "structured alone": ({"structuredContent": {"rows": 3}}, '{"rows":3}'),
    "structured beside other words": (
        {"content": [text("3 rows")], "structuredContent": {"rows": 3}},
        '3 rows\n{"rows":3}',
    ),
    "structured that the text says": (
        {"content": [text('{ "rows": 3 }')], "structuredContent": {"rows": 3}},
        '{ "rows": 3 }',
    ),
    "structured as libraries wrap it": (
        {"content": [text("3")], "structuredContent": {"result": "3"}},
        "3",
    ),
    "structured as libraries wrap a number": (
        {"content": [text("3")], "structuredContent": {"result": 3}},
        "3",
    ),
    "a part of another kind": (
        {"content": [text("before"), {"type": "hologram", "at": 1}, text("after")]},
        'before\n(A part of the kind `hologram` can\'t be read: {"type":"hologram","at":1})\nafter',
    ),
    "a text that is none": (
        {"content": [text(5), text("after")]},
        '(A part of the kind `text` can\'t be read: {"type":"text","text":5})\nafter',
    ),
    "half an emoji and a NUL": ({"content": [text("a \ud83d b \0")]}, "a \ufffd b \ufffd"),
    "a resource": (
        {"content": [{"type": "resource", "resource": {"uri": "file:///a.txt", "text": "words"}}]},
        "file:///a.txt:\nwords",
    ),
    "a link": (
        {"content": [{"type": "resource_link", "uri": "https://a/x", "name": "x"}]},
        "(x: https://a/x)",
    ),
}


def test_what_is_readable_of_a_result_is_kept_and_the_rest_is_named(subtests: pytest.Subtests) -> None:
    for name, (result, said) in TEXTS.items():
        with subtests.test(name):
            assert outcome_of(result) == Outcome(said)


def test_images_and_other_files_are_kept_beside_the_text(subtests: pytest.Subtests) -> None:
    as_jpeg = base64.b64encode(JPEG).decode()
    rows: dict[str, tuple[dict[str, Any], str, str]] = {
        "an image": (image(AS_TEXT), "(image/png with 69 bytes.)", f"data:image/png;base64,{AS_TEXT}"),
        "one on several lines": (
            image(f"{AS_TEXT[:40]}\n{AS_TEXT[40:]}"),
            "(image/png with 69 bytes.)",
            f"data:image/png;base64,{AS_TEXT}",
        ),
        "one of another kind than is said": (
            image(as_jpeg),
            "(image/jpeg with 13 bytes.)",
            f"data:image/jpeg;base64,{as_jpeg}",
        ),
        "one of a kind that no model takes": (
            image("PHN2Zy8+", "image/svg+xml"),
            "(application/octet-stream with 6 bytes.)",
            "data:application/octet-stream;base64,PHN2Zy8+",
        ),
        "sound": (
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
            "(audio/wav with 4 bytes.)",
            "data:audio/wav;base64,UklGRg==",
        ),
        "a resource that is no text": (
            {
                "type": "resource",
                "resource": {"uri": "file:///a.pdf", "blob": "JVBERg", "mimeType": "application/pdf"},
            },
            "(file:///a.pdf, application/pdf with 4 bytes.)",
            "data:application/pdf;base64,JVBERg==",
        ),
        "a kind that would end the URL": (
            image("AAAA", "text/html,<script>"),
            "(text/htmlscript with 3 bytes.)",
            "data:text/htmlscript;base64,AAAA",
        ),
    }
    for name, (block, said, file) in rows.items():
        with subtests.test(name):
            assert outcome_of({"content": [block]}) == Outcome(said, files=(file,))
    assert outcome_of({"content": [image("no Base64!")]}).text == "(image/png can't be read.)"


def test_files_of_a_result_are_bounded_and_the_words_stay() -> None:
    long = base64.b64encode(JPEG + b"x" * results.FILES_MAX_BYTES).decode()
    outcome = outcome_of({"content": [text("two"), image(long), *[image(AS_TEXT)] * (results.FILES_MAX + 5)]})
    assert len(outcome.files) == results.FILES_MAX - 1
    assert outcome.text.startswith(
        "two\n(image/jpeg with 3,145,741 bytes, which is left out: it is too long.)"
    )


def test_an_error_is_one_whatever_it_holds() -> None:
    assert outcome_of({"content": [text("no such file")], "isError": True}) == Outcome(
        "no such file", is_error=True
    )
    assert outcome_of({"content": [], "isError": True}).is_error


LINES: dict[str, tuple[bytes, str | None]] = {
    "an answer": (b'{"jsonrpc":"2.0","id":3,"result":{}}', "result"),
    "half an emoji": (b'{"jsonrpc":"2.0","id":3,"result":{"a":"\\ud83d"}}', "result"),
    "bytes that are no text": (b'{"jsonrpc":"2.0","id":3,"result":{"a":"\xff"}}', "result"),
    "a result that is no object": (b'{"jsonrpc":"2.0","id":3,"result":"words"}', "error"),
    "a result that is null": (b'{"jsonrpc":"2.0","id":3,"result":null}', "error"),
    "an error that is a text": (b'{"jsonrpc":"2.0","id":3,"error":"words"}', "error"),
    "an answer that is cut": (b'{"jsonrpc":"2.0","id":3,"result":{"content":[', "error"),
    "a notification": (b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}', "method"),
    "a greeting": (b"Welcome to the maps!", None),
    "a line of a log": (b'{"level":"info","id":3}', None),
    "a request that is cut": (b'{"jsonrpc":"2.0","id":3,"method":"ping","par', None),
    "an answer to nothing": (b'{"jsonrpc":"2.0","result":5}', None),
}


def test_each_line_that_answers_ends_the_wait_for_its_answer(subtests: pytest.Subtests) -> None:
    for name, (line, member) in LINES.items():
        with subtests.test(name):
            message = messages.message_of(line)
            if member is None:
                assert message is None
            else:
                assert message is not None
                assert member in message.message.model_dump(exclude_unset=True)
                assert getattr(message.message, "id", 3) == 3


@given(st.binary(max_size=60), st.sampled_from(sorted(LINES)))
def test_no_line_makes_the_reading_fail(noise: bytes, name: str) -> None:
    line = LINES[name][0]
    messages.message_of(noise)
    messages.message_of(line[: len(noise)] + noise)
    messages.message_of(line[: len(noise)] + noise + line[len(noise) :])


async def test_the_last_lines_of_a_program_hold_no_secret_and_no_command_to_a_terminal() -> None:
    stream = asyncio.StreamReader()
    secrets = secrets_of(
        [("KEY", "sk-maps-1234"), ("DEBUG", "1")], ["maps", "--token", "abcdef", "--x-key=ghijkl"]
    )
    kept = LastLines(secrets)
    stream.feed_data(b"early\n" * 10_000)
    stream.feed_data(
        b"\x1b[31mTraceback\x1b[0m\r\n  sk-maps-1234 abcdef ghijkl\n\x07 1 \xff\n" + b"y" * 1_000
    )
    stream.feed_eof()
    await kept.listen(stream)
    lines = kept.text.split("\n")
    assert lines[-4:] == ["Traceback", "  *** *** ***", "\ufffd 1 \ufffd", f"{'y' * 300}…"]
    assert len(lines) == 12


async def test_secrets_in_addresses_and_headers_of_a_program_are_in_no_last_line(
    subtests: pytest.Subtests,
) -> None:
    commands: list[tuple[str, list[str]]] = [
        ("hunter22", ["server", "postgresql://ann:hunter22@db.example.org/maps"]),
        ("hunter22", ["server", "https://maps.example.org/mcp?api_key=hunter22"]),
        ("hunter22", ["remote", "https://a.example.org/mcp", "--header", "Authorization: Bearer hunter22"]),
        ("hunter22", ["remote", "--header=X-Api-Key: hunter22"]),
        ("hunter22", ["sh", "-c", "TOKEN=hunter22 maps"]),
        ("p@ss w0rd", ["server", "postgresql://ann:p%40ss%20w0rd@db.example.org/maps"]),
    ]
    for secret, command in commands:
        with subtests.test(command=command):
            stream = asyncio.StreamReader()
            kept = LastLines(secrets_of([], command))
            stream.feed_data(f"No connection: {' '.join(command)} ({secret})\n".encode())
            stream.feed_eof()
            await kept.listen(stream)
            assert (secret in kept.text, "No connection" in kept.text) == (False, True)
