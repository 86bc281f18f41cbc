"""What is left of a program's output for models and pages, and what is typed into programs."""

from __future__ import annotations

import asyncio

import pytest

from sessions_app.terminals.captured import CapturedOutput
from sessions_app.terminals.keys import typed
from sessions_app.terminals.plain_text import LivePieces, plain


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("\x1b[1;31mred\x1b[0m\r\n", "red\n"),
        ("\x1b]0;a title\x07text \x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "text link"),
        ("\x1bPq#0\x1b\\\x1b7\x1b(Bplain\x1b8", "plain"),
        ("10%\r 50%\r100%\r\ndone\r\n", "100%\ndone\n"),
        ("a\r\r\nb\r", "a\nb"),
        ("b\bbo\bol\bld _\bu", "bold u"),
        ("bell\a nul\0 tab\t", "bell nul tab\t"),
        ("\x1b[", ""),
        ("€ ü 日本", "€ ü 日本"),
        ("\ufffd" * 1000, "\ufffd\ufffd"),
    ],
)
def test_escape_sequences_are_removed_and_lines_are_as_a_terminal_leaves_them(
    written: str, left: str
) -> None:
    assert plain(written) == left


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("C-c", b"\x03"),
        (" C-D ", b"\x04"),
        ("C-z", b"\x1a"),
        ("C-\\", b"\x1c"),
        ("yes", b"yes\n"),
        ("yes\n", b"yes\n"),
        ("two\nlines", b"two\nlines\n"),
        ("C-", b"C-\n"),
        ("", b"\n"),
        ("é", b"\xc3\xa9\n"),
    ],
)
def test_control_keys_have_names_and_other_text_ends_with_enter(text: str, keys: bytes) -> None:
    assert typed(text) == keys


def test_short_output_is_shown_whole() -> None:
    output = CapturedOutput()
    for piece in (b"on", b"e\r\n", "zwölf".encode()[:3], "zwölf".encode()[3:]):
        output.add(piece)
    assert output.shown("left out") == "one\nzwölf"
    assert not output.is_cut


@pytest.mark.parametrize("line", [b"a line of text\r\n", "日本語".encode(), b"\xff\xfe", b"x"])
def test_long_output_keeps_its_beginning_and_its_end_in_bounded_memory(line: bytes) -> None:
    output = CapturedOutput()
    output.add(b"BEGIN\r\n")
    block = line * 50_000
    while output.size < 2 * CapturedOutput.KEPT_MAX_BYTES:
        output.add(block)
    output.add(b"\r\nEND")
    shown = output.shown("[left out]")
    assert output.is_cut
    assert shown.startswith("BEGIN\n")
    assert shown.endswith("\nEND")
    assert shown.count("[left out]") == 1
    assert len(shown.encode()) <= CapturedOutput.SHOWN_MAX_BYTES
    if b"\xff" not in line:
        assert "\ufffd" not in shown
    assert output.kept_size == CapturedOutput.KEPT_MAX_BYTES
    assert len(output._end) <= 4 * CapturedOutput.SHOWN_MAX_BYTES


async def test_pieces_for_readers_break_no_character_and_no_escape_sequence() -> None:
    pieces: list[str] = []
    live = LivePieces(pieces.append)
    for byte in "é\x1b[31m日本\x1b[0m!\r\n".encode():
        live.add(bytes([byte]))
        live._show()  # as if time had passed
    live.flush()
    assert "".join(pieces) == "é日本!\n"
    assert "\ufffd" not in "".join(pieces)


async def test_a_flood_is_given_to_readers_in_some_ten_pieces_a_second() -> None:
    pieces: list[str] = []
    live = LivePieces(pieces.append)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() < began + 0.5:
        live.add(b"x" * 100_000)
        await asyncio.sleep(0)
    live.flush()
    assert 2 <= len(pieces) <= 8
    assert max(map(len, pieces)) <= 64 * 1024
