"""The words of a text: the same for the index, for events that are not indexed yet, and for queries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import islice

WORD_MAX_LENGTH = 50
"""Only this many characters of a word count: hashes and encoded files are not words."""
KNOWN_MAX_LENGTH = 100
"""The forms of longer words are not cached, because a whole text may be one word."""

# Scripts without spaces between words, and emoji: each character is a word.
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
_ACCENTS = "\u0300-\u036f"
_SILENT = re.compile("[\u0300-\u0344\u0346-\u036f]+")
"""Accents of which nothing is left; of the one between them an iota is."""
_LETTER = rf"[^\W_{_ALONE}]"
_WORD = re.compile(rf"[{_ALONE}]|{_LETTER}(?:{_LETTER}|[{_ACCENTS}])*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
# Hangul, kana and a letter of Burmese as some systems write file names: several characters each.
_IN_PIECES = re.compile(r"[\uac00-\ud7a3]?[\u1100-\u11ff]+|[\u3040-\u30ff][\u3099\u309a]|\u1025\u102e")
_IS_ALONE = re.compile(rf"[{_ALONE}]")


class Words:
    """The words of one text in order, in the form in which they are compared."""

    def __init__(self, text: str) -> None:
        self._is_ascii = text.isascii()
        self.text = text if self._is_ascii else _composed(text)
        """The text to which `places` refer."""
        self._read = text.lower() if self._is_ascii else self.text

    @cached_property
    def all(self) -> list[str]:
        """Every word, in order, with repetitions."""
        if self._is_ascii:
            return [word[:WORD_MAX_LENGTH] for word in _ASCII_WORD.findall(self._read)]
        return [_form(word) for word in _WORD.findall(self._read)]

    @cached_property
    def different(self) -> frozenset[str]:
        """Every word once."""
        return frozenset(self.all)

    @cached_property
    def joined(self) -> str:
        """All words with a space before and after each, so that one search finds several in a row."""
        return f" {' '.join(self.all)} "

    def lacks(self, word: str) -> bool:
        """Say that the word, or one with this beginning, is certainly absent; quick, and often undecided."""
        return self._is_ascii and word not in self._read

    def places(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the start and end in the text of the words from number `first` on."""
        pattern = _ASCII_WORD if self._is_ascii else _WORD
        return (found.span() for found in islice(pattern.finditer(self._read), first, None))


def _composed(text: str) -> str:
    """Return a text in which each character of these scripts is a single code point.

    Nothing else is composed: accents are ignored, and sorting a long row of them is slow.
    """
    return _IN_PIECES.sub(lambda found: unicodedata.normalize("NFC", found[0]), text)


def _folded(word: str) -> str:
    """Return a word without case and accents; never empty, with no ASCII except letters and digits."""
    if word.isascii():
        return word[:WORD_MAX_LENGTH].lower()
    if _IS_ALONE.match(word):
        plain = unicodedata.normalize("NFKC", word)  # half-width, or a compatibility ideograph
        return plain if len(plain) == 1 and plain.isalnum() else word
    bare = _SILENT.sub("", word)  # sorting a long row of accents is slow
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", bare).casefold())
    letters = "".join(filter(str.isalnum, apart))
    return (letters or word)[:WORD_MAX_LENGTH]


_known_folded = lru_cache(maxsize=65_536)(_folded)


def _form(word: str) -> str:
    """Return the form of a word, from the cache for repeated words; long words are hardly ever repeated."""
    return (_known_folded if len(word) <= KNOWN_MAX_LENGTH else _folded)(word)
