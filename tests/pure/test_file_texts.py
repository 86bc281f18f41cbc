"""Texts of files as an agent edits them, against a plain model of text, and patterns of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sessions_app.agents.llm.files import globs
from sessions_app.agents.llm.files.texts import EditRefused, TextFile, numbered
from sessions_app.agents.llm.files.undo import UndoHistory

MARK = b"\xef\xbb\xbf"
PIECES = st.text(st.sampled_from("ab é\n\t"), max_size=6)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


def of(text: str) -> TextFile:
    return TextFile.of(text.encode())


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.booleans())
def test_a_text_that_is_read_and_written_has_the_same_bytes(text: str, has_mark: bool) -> None:
    content = (MARK if has_mark else b"") + text.encode()
    assert TextFile.of(content).content == content


@pytest.mark.parametrize(
    ("content", "said"), [(b"\x7fELF\0\1", "appears to be binary"), (b"caf\xe9", "is not UTF-8 text")]
)
def test_what_is_no_text_is_refused_with_a_sentence(content: bytes, said: str) -> None:
    with pytest.raises(EditRefused, match=said):
        TextFile.of(content)


def occurrences(text: str, wanted: str) -> int:
    return sum(text.startswith(wanted, at) for at in range(len(text) + 1))


@given(TEXTS, PIECES, PIECES)
def test_a_replacement_is_of_the_only_occurrence_or_refused(text: str, old: str, new: str) -> None:
    count = occurrences(text, old)
    if old == new or count != 1:
        said = (
            "must be different" if old == new else "did not appear" if count == 0 else "Multiple occurrences"
        )
        with pytest.raises(EditRefused, match=said):
            of(text).replaced("/a", old, new)
        return
    after, line = of(text).replaced("/a", old, new)
    assert after.text == text.replace(old, new, 1)
    assert line == text[: text.index(old)].count("\n") + 1


def test_the_lines_of_several_occurrences_are_named() -> None:
    with pytest.raises(EditRefused, match=r"`x` in lines \[1, 3\]"):
        of("x x\ny\nx\n").replaced("/a", "x", "z")


@given(TEXTS, st.integers(-1, 9), PIECES)
def test_lines_are_inserted_after_a_line_and_nothing_else_changes(text: str, line: int, new: str) -> None:
    lines = text.removesuffix("\n").split("\n") if text else []
    if not 0 <= line <= len(lines):
        with pytest.raises(EditRefused, match=rf"allowed values: \[0, {len(lines)}\]"):
            of(text).inserted(line, new)
        return
    expected = [*lines[:line], *new.split("\n"), *lines[line:]]
    after = of(text).inserted(line, new).text
    is_at_the_end = line == len(lines)
    assert after == "\n".join(expected) + ("\n" if is_at_the_end or text.endswith("\n") else "")


@given(TEXTS, PIECES, PIECES)
def test_a_file_with_line_ends_of_windows_keeps_them(text: str, old: str, new: str) -> None:
    windows = of(f"first\n{text}".replace("\n", "\r\n"))
    assert windows.plain == f"first\n{text}"
    assert windows.inserted(1, new).text == of(f"first\n{text}").inserted(1, new).text.replace("\n", "\r\n")
    try:
        plain, line = of(f"first\n{text}").replaced("/a", old, new)
    except EditRefused:
        with pytest.raises(EditRefused):
            windows.replaced("/a", old, new)
    else:
        after, windows_line = windows.replaced("/a", old, new)
        assert (after.text, windows_line) == (plain.text.replace("\n", "\r\n"), line)


def test_mixed_line_ends_stay_where_they_are() -> None:
    mixed = of("one\r\ntwo\nthree\r\n")
    assert mixed.replaced("/a", "two\n", "2\n")[0].text == "one\r\n2\nthree\r\n"
    assert mixed.inserted(1, "new").text == "one\r\nnew\ntwo\nthree\r\n"


def test_halves_of_characters_are_written_to_no_file() -> None:
    with pytest.raises(EditRefused, match="halves of characters"):
        _ = TextFile("\ud800").content


def test_lines_are_numbered_and_a_long_text_says_where_it_was_clipped() -> None:
    assert numbered("a\nb\n", 9) == "     9\ta\n    10\tb\n"
    text = "".join(f"{number}\n" for number in range(1, 10_001))
    told = numbered(text, 1, most=100)
    assert "\n    10\t10\n<response clipped>" in told
    assert "only the part from line 1 to 10 of 10000 lines is shown." in told
    assert "only the beginning of line 7 of 7 lines is shown." in numbered("x" * 1_000, 7, most=100)
    assert len(numbered("\n" * 100_000, 1)) < 30_200


class Undoing(RuleBasedStateMachine):
    """Edits of two files and their undoing, against lists of their earlier contents."""

    def __init__(self) -> None:
        super().__init__()
        self.files = {"a": b"", "b": b""}
        self.earlier: dict[str, list[bytes]] = {"a": [], "b": []}
        self.history = UndoHistory()

    @rule(path=st.sampled_from("ab"), content=st.binary(max_size=5))
    def edit(self, path: str, content: bytes) -> None:
        self.history.add(path, self.files[path], content)
        self.earlier[path].append(self.files[path])
        self.files[path] = content

    @rule(path=st.sampled_from("ab"))
    def undo(self, path: str) -> None:
        last = self.history.last(path)
        assert (last is None) == (not self.earlier[path])
        if last is not None:
            assert last.is_undone_from(self.files[path])
            self.history.remove(last)
            self.files[path] = last.before
            assert last.before == self.earlier[path].pop()

    @precondition(lambda self: self.earlier["a"])
    @rule(content=st.binary(min_size=6, max_size=7))
    def change_outside(self, content: bytes) -> None:
        last = self.history.last("a")
        assert last is not None
        assert not last.is_undone_from(content)

    @invariant()
    def knows_the_last_edits(self) -> None:
        for path, earlier in self.earlier.items():
            last = self.history.last(path)
            assert (None if last is None else last.before) == (earlier[-1] if earlier else None)


TestUndoing = Undoing.TestCase


def test_the_oldest_edits_are_forgotten_where_there_is_no_room() -> None:
    history = UndoHistory(bytes_max=10, edits_max=3)
    history.add("a", b"12345678", b"")
    history.add("b", b"1", b"")
    assert history.last("a") is not None
    history.add("b", b"12", b"")
    assert history.last("a") is None
    for _ in range(3):
        history.add("c", b"", b"")
    assert history.last("b") is None
    history.add("d", b"x" * 11, b"")
    assert history.last("d") is None


@pytest.mark.parametrize(
    ("path", "pattern", "is_named"),
    [
        ("src/a.py", "*.py", True),
        ("src/a.py", "src", False),
        ("src/a.py", "src/*.py", True),
        ("src/b/a.py", "src/*.py", False),
        ("src/b/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("a.py", "**/a.py", True),
        ("a/b/c", "**", True),
        ("a/b/c", "a/**/**/c", True),
        ("a/b/c", "a/*", False),
        ("a/b", "/a/b", True),
        ("a/b/c/d", "**/b/**", True),
        ("a", "[", False),
    ],
)
def test_a_pattern_names_paths(path: str, pattern: str, is_named: bool) -> None:
    assert globs.fits(path, pattern) is is_named


def test_a_hostile_pattern_of_names_takes_no_time() -> None:
    assert not globs.fits("a" * 255, "*a" * 100 + "b")
    assert not globs.fits("/".join("a" * 100), "**/" * 200 + "b")
