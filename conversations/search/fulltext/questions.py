"""Parsing a search query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from conversations.search.fulltext.words import Words

QUESTION_MAX_LENGTH = 1_000
WORDS_MAX = 64
BEGINNING_MIN_LENGTH = 2

_PIECE = re.compile(r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"|$)|(?P<chunk>[^\s"]+)')
_QUOTES = str.maketrans("“”„«»", '"' * 5)

_NO_WORD = "There is no word in this: enter letters, digits, an emoji or another symbol to search for."
_TOO_LONG = (
    f"Only the first {WORDS_MAX} words of at most {QUESTION_MAX_LENGTH:,} characters were searched for."
)
_SHORT_BEGINNING = (
    f"A * needs at least {BEGINNING_MIN_LENGTH} letters before it; the whole word was searched for."
)
_ONLY_EXCLUDED = "A - or NOT needs a word to find beside it; all words were searched for."
_SIDE_LEFT_OUT = "A side of an OR that only excludes words was left out."


class Term(NamedTuple):
    """Words that must follow one another; of the last one perhaps only the beginning."""

    words: tuple[str, ...]
    is_beginning: bool
    written: str  # as it was typed, to search titles

    def stands_in(self, among: Words) -> bool:
        """Return whether the term occurs in a text."""
        return self._place(among) is not None

    def first_in(self, among: Words) -> int | None:
        """Return the number of the first word of its first occurrence in a text."""
        place = self._place(among)
        return None if place is None else among.joined.count(" ", 0, place)

    def stands_at(self, among: Words, number: int) -> bool:
        """Return whether the term occurs in a text at the word with this number."""
        there = among.all[number : number + len(self.words)]
        return f" {' '.join(there)} ".startswith(self._joined)

    # The first position in the joined words.
    def _place(self, among: Words) -> int | None:
        if any(among.lacks(word) for word in self.words):
            return None
        place = among.joined.find(self._joined)  # much faster than comparing word after word
        return None if place < 0 else place

    @property
    def _joined(self) -> str:
        return f" {' '.join(self.words)}{'' if self.is_beginning else ' '}"


class QueryBranch(NamedTuple):
    """One side of an `OR`: all of some terms, at least one, and none of others."""

    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...]

    def is_met_by(self, words: Words) -> bool:
        """Return whether a text has all wanted terms and no unwanted one."""
        return all(term.stands_in(words) for term in self.wanted) and not any(
            term.stands_in(words) for term in self.unwanted
        )


class Question(NamedTuple):
    """A whole query: a text must match one of the branches; without branches nothing matches."""

    branches: tuple[QueryBranch, ...]
    notice: str = ""  # what of the query was not searched for as it is written, as a sentence for people

    def is_met_by(self, words: Words) -> bool:
        """Return whether a text matches; the index only finds candidates."""
        return any(branch.is_met_by(words) for branch in self.branches)

    @property
    def wanted(self) -> list[Term]:
        return list(dict.fromkeys(term for branch in self.branches for term in branch.wanted))


def read(text: str) -> Question:
    """Parse a query, whatever a person has typed; ignore misplaced operators."""
    asked = _beginning(text)
    notices = [_TOO_LONG] if asked != text else []
    parsed = _Parsed()
    branches = [QueryBranch(tuple(wanted), tuple(unwanted)) for wanted, unwanted in parsed.sides(asked)]
    found = [branch for branch in branches if branch.wanted]
    if not found:  # only operators and excluded words: search for the text as it is
        parsed = _Parsed()
        term = parsed.made(asked, is_beginning=False)
        if term is None:
            return Question((), _NO_WORD)
        if branches:
            notices.append(_ONLY_EXCLUDED)
        found = [QueryBranch((term,), ())]
    elif len(found) < len(branches):
        notices.append(_SIDE_LEFT_OUT)
    return Question(tuple(found), " ".join(dict.fromkeys([*notices, *parsed.notices])))


def _beginning(text: str) -> str:
    """Return the part of a query that is parsed: whole words, if the limit allows it."""
    if len(text) <= QUESTION_MAX_LENGTH:
        return text
    cut = text[:QUESTION_MAX_LENGTH]
    return cut if text[QUESTION_MAX_LENGTH].isspace() else (cut.rsplit(None, 1) or [""])[0]


class _Parsed:
    """The state of parsing one query: the words so far, and notices about what was ignored."""

    def __init__(self) -> None:
        self._words = 0
        self.notices: list[str] = []

    def sides(self, text: str) -> Iterator[tuple[Sequence[Term], Sequence[Term]]]:
        """Yield the wanted and excluded terms of each side of an OR; sides without a term are skipped."""
        wanted: list[Term] = []
        unwanted: list[Term] = []
        is_excluded = False
        for piece in _PIECE.finditer(text.translate(_QUOTES)):
            match piece["chunk"]:
                case "OR":
                    if wanted or unwanted:
                        yield wanted, unwanted
                    wanted, unwanted, is_excluded = [], [], False
                case "NOT":
                    is_excluded = True
                case "AND":
                    pass
                case _:
                    minus, term = self._term(piece)
                    if term is not None:
                        (unwanted if is_excluded or minus else wanted).append(term)
                        is_excluded = False
        if wanted or unwanted:
            yield wanted, unwanted

    def _term(self, piece: re.Match[str]) -> tuple[bool, Term | None]:
        """Return whether a piece is excluded by a minus, and its term; None if it has no word."""
        if piece["chunk"] is None:
            return bool(piece["minus"]), self.made(piece["phrase"], is_beginning=False)
        chunk: str = piece["chunk"]
        # `--flag` is searched for, `-flag` is excluded.
        minus = chunk.startswith("-") and not chunk.startswith("--")
        chunk = chunk[minus:]
        written = chunk.rstrip("*")
        return minus, self.made(written, is_beginning=written != chunk and Words(written).ends_in_word)

    def made(self, written: str, *, is_beginning: bool) -> Term | None:
        """Return the term of what is written; None if it has no word, or none that may be added."""
        words = tuple(Words(written).all)
        if is_beginning and written[-1:].isascii() and len(words[-1]) < BEGINNING_MIN_LENGTH:
            self.notices.append(_SHORT_BEGINNING)
            is_beginning = False
        if self._words + len(words) > WORDS_MAX:
            self.notices.append(_TOO_LONG)
            words, is_beginning = words[: WORDS_MAX - self._words], False
        self._words += len(words)
        return Term(words, is_beginning, " ".join(written.split())) if words else None
