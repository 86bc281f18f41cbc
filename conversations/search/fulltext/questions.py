"""Parsing a search query."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from conversations.exceptions import ConversationError
from conversations.search.fulltext.words import Words

QUESTION_MAX_LENGTH = 1_000
WORDS_MAX = 64
BEGINNING_MIN_LENGTH = 2

_PIECE = re.compile(r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"|$)|(?P<chunk>[^\s"]+)')
_QUOTES = str.maketrans("“”„«»", '"' * 5)


class InvalidQuery(ConversationError):
    """The query has nothing to search for."""

    code: ClassVar[str] = "invalid_query"


class Term(NamedTuple):
    """Words that must follow one another; of the last one perhaps only the beginning."""

    words: tuple[str, ...]
    is_beginning: bool
    written: str
    """As it was typed, to search titles."""

    def stands_in(self, among: Words) -> bool:
        """Say whether the term occurs in a text."""
        return self._place(among) is not None

    def first_in(self, among: Words) -> int | None:
        """Return the number of the first word of its first occurrence in a text."""
        place = self._place(among)
        return None if place is None else among.joined.count(" ", 0, place)

    def stands_at(self, among: Words, number: int) -> bool:
        """Say whether it occurs in a text at the word with this number."""
        there = among.all[number : number + len(self.words)]
        return f" {' '.join(there)} ".startswith(self._joined)

    def _place(self, among: Words) -> int | None:
        """Return its first position in the joined words."""
        if any(among.lacks(word) for word in self.words):
            return None
        place = among.joined.find(self._joined)  # much faster than comparing word after word
        return None if place < 0 else place

    @property
    def _joined(self) -> str:
        return f" {' '.join(self.words)}{'' if self.is_beginning else ' '}"


class Branch(NamedTuple):
    """One side of an `OR`: all of some terms, at least one, and none of others."""

    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...]

    def is_met_by(self, words: Words) -> bool:
        """Say whether a text matches."""
        return all(term.stands_in(words) for term in self.wanted) and not any(
            term.stands_in(words) for term in self.unwanted
        )


class Question(NamedTuple):
    """A whole query: a text must match one of the branches."""

    branches: tuple[Branch, ...]

    def is_met_by(self, words: Words) -> bool:
        """Say whether a text matches; the index only says which may."""
        return any(branch.is_met_by(words) for branch in self.branches)

    @property
    def wanted(self) -> list[Term]:
        """Every term whose occurrences are highlighted."""
        return list(dict.fromkeys(term for branch in self.branches for term in branch.wanted))


def read(text: str) -> Question:
    """Parse a query; misplaced operators are ignored.

    Raise InvalidQuery if nothing is left to search for, or if there are too many words.
    """
    branches = [Branch(tuple(wanted), tuple(unwanted)) for wanted, unwanted in _sides(text)]
    if not branches:
        raise InvalidQuery("Enter a word to search for, with letters or digits.")
    if not all(branch.wanted for branch in branches):
        raise InvalidQuery(
            "Enter at least one word to find, not only words to exclude (on each side of an OR)."
        )
    if sum(len(term.words) for wanted, unwanted in branches for term in wanted + unwanted) > WORDS_MAX:
        raise InvalidQuery(f"You can search for at most {WORDS_MAX} words at a time.")
    return Question(tuple(branches))


def _sides(text: str) -> Iterator[tuple[Sequence[Term], Sequence[Term]]]:
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
                minus, term = _term(piece)
                if term is not None:
                    (unwanted if is_excluded or minus else wanted).append(term)
                    is_excluded = False
    if wanted or unwanted:
        yield wanted, unwanted


def _term(piece: re.Match[str]) -> tuple[bool, Term | None]:
    """Return whether a piece is excluded by a minus, and its term; None if it has no word."""
    if piece["chunk"] is None:
        return bool(piece["minus"]), _made(piece["phrase"], is_beginning=False)
    chunk: str = piece["chunk"]
    # `--flag` is searched for, `-flag` is excluded.
    minus = chunk.startswith("-") and not chunk.startswith("--")
    chunk = chunk[minus:]
    written = chunk.rstrip("*")
    return minus, _made(written, is_beginning=written != chunk and _ends_in_word(written))


def _ends_in_word(written: str) -> bool:
    return bool(Words(unicodedata.normalize("NFC", written)[-1:]).all)  # an accent may stand by itself


def _made(written: str, *, is_beginning: bool) -> Term | None:
    words = tuple(Words(written).all)
    if not words:
        return None
    if is_beginning and written[-1:].isascii() and len(words[-1]) < BEGINNING_MIN_LENGTH:
        raise InvalidQuery(f"Enter at least {BEGINNING_MIN_LENGTH} letters before a *.")
    return Term(words, is_beginning, " ".join(written.split()))
