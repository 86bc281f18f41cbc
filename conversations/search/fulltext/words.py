"""The words of a text: the same for the index, for events that are not indexed yet, and for queries.

When they change, the entries of the index change with them: `SearchProgress.words_through` then begins anew.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import islice

WORD_MAX_LENGTH = 50  # only this many characters of a word count: hashes and encoded files are not words
RESERVED = "\ue000"  # never a word: the index begins words of its own with it

# Scripts without spaces between words, emoji, and the letters that name a flag: each character is a word.
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2600-\u27bf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
    "\U0001f000-\U0001faff\U00020000-\U0003ffff\U000e0020-\U000e007e"
)
# Soft hyphen, joiners, marks of direction, variation selectors: what a reader does not see is not compared.
_UNSEEN = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\U000e0001\U000e007f\U000e0100-\U000e01ef"
)
_IS_UNSEEN = re.compile(f"[{_UNSEEN}]")
_SYMBOLS = frozenset({"So", "Sm", "Sc", "Co"})
_PUNCTUATION_AS_EMOJI = frozenset("\u203c\u2049\u3030\u303d")
# Marks of these combining classes are vowels and viramas, without which an Indic word is another one.
_VOWEL_CLASSES = (0, 9)
_TATWEEL = "\u0640"  # only makes an Arabic word longer


def _class(characters: Iterable[str]) -> str:
    """Return characters in ascending order as the inside of a regular expression's class."""
    spans: list[list[str]] = []
    for each in characters:
        if spans and ord(each) == ord(spans[-1][1]) + 1:
            spans[-1][1] = each
        else:
            spans.append([each, each])
    return "".join(f"{first}-{last}" for first, last in spans)


def _is_vowel(mark: str) -> bool:
    return (
        unicodedata.category(mark) in ("Mn", "Mc")
        and unicodedata.combining(mark) in _VOWEL_CLASSES
        and not _IS_UNSEEN.match(mark)
    )


# All marks are below this; those of the last planes are unseen.
_MARKS = [mark for mark in map(chr, range(0x300, 0x1F000)) if unicodedata.category(mark)[0] == "M"]
# Sorting a long row of marks is slow, so those that are not compared go first; of U+0345 an iota is left.
_NOT_COMPARED = (mark for mark in _MARKS if mark != chr(0x345) and not _is_vowel(mark))
_SILENT = re.compile(f"[{_UNSEEN}{_class(_NOT_COMPARED)}]+")
_LETTER = rf"[^\W_{_ALONE}]"
_WORD = re.compile(
    # A half-width kana with its voice mark, a keycap of a sign, one character, a run of letters, other signs.
    rf"[\uff66-\uff9d][\uff9e\uff9f]|[#*]\ufe0f?\u20e3|[{_ALONE}]"
    rf"|{_LETTER}(?:{_LETTER}|[{_UNSEEN}{_class(_MARKS)}])*|[^\x00-\x7f\w\s]"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
# Hangul, kana and a letter of Burmese as some systems write file names: several characters each.
_IN_PIECES = re.compile(r"[\uac00-\ud7a3]?[\u1100-\u11ff]+|[\u3040-\u30ff][\u3099\u309a]|\u1025\u102e")
_IS_LETTERS = re.compile(_LETTER)
_IS_ALONE = re.compile(rf"[{_ALONE}]")


class Words:
    """The words of one text in order, in the form in which they are compared."""

    def __init__(self, text: str) -> None:
        self._is_ascii = text.isascii()
        self.text = text if self._is_ascii else _composed(text)  # the text to which `places` refer
        self._read = text.lower() if self._is_ascii else self.text

    @cached_property
    def all(self) -> list[str]:
        if self._is_ascii:
            return [word[:WORD_MAX_LENGTH] for word in _ASCII_WORD.findall(self._read)]
        return [form for word in _WORD.findall(self._read) if (form := _form(word))]

    @cached_property
    def different(self) -> frozenset[str]:
        return frozenset(self.all)

    @cached_property
    def joined(self) -> str:
        """Return all words with a space before and after each, so that one search finds several in a row."""
        return f" {' '.join(self.all)} "

    def lacks(self, word: str) -> bool:
        """Return True if the text certainly lacks the word, or one with this beginning; often undecided."""
        return self._is_ascii and word not in self._read

    def places(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the start and end in the text of the words from number `first` on."""
        if self._is_ascii:
            spans = (found.span() for found in _ASCII_WORD.finditer(self._read))
        else:
            spans = (found.span() for found in _WORD.finditer(self._read) if _form(found[0]))
        return islice(spans, first, None)

    @cached_property
    def ends_in_word(self) -> bool:
        return bool(self.all) and next(self.places(len(self.all) - 1))[1] == len(self.text)


def _composed(text: str) -> str:
    """Return a text in which each character of these scripts is a single code point.

    Nothing else is composed: accents are ignored, and sorting a long row of them is slow.
    """
    return _IN_PIECES.sub(lambda found: unicodedata.normalize("NFC", found[0]), text)


def _folded(word: str) -> str:
    """Return a word without case, accents and unseen characters; empty for a sign that is no word.

    No ASCII is left except letters and digits.
    """
    if word.isascii():
        return word[:WORD_MAX_LENGTH].lower()
    if not _IS_LETTERS.match(word):
        return _folded_sign(word)
    bare = _SILENT.sub("", word)
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", bare).casefold())
    kept = (each for each in apart if each.isalnum() or _is_vowel(each))
    # A digit of any script is compared as the ASCII digit.
    letters = "".join(str(unicodedata.decimal(each, each)) for each in kept if each != _TATWEEL)
    return (letters or word)[:WORD_MAX_LENGTH]


def _folded_sign(sign: str) -> str:
    """Return the form of what is a word by itself; empty for punctuation and for marks without a letter."""
    if sign[0] in "#*":
        return f"{chr(ord(sign[0]) + 0xFEE0)}\u20e3"  # the full-width sign: no ASCII sign is part of a word
    is_word = _IS_ALONE.match(sign) or (
        sign != RESERVED and (unicodedata.category(sign) in _SYMBOLS or sign in _PUNCTUATION_AS_EMOJI)
    )
    if not is_word:
        return ""
    plain = unicodedata.normalize("NFKC", sign)  # half-width, or a compatibility ideograph
    if len(plain) > 1:
        return sign
    return plain.casefold() if plain.isalnum() or not plain.isascii() else ""


_known_folded = lru_cache(maxsize=65_536)(_folded)


def _form(word: str) -> str:
    """Return the form of a word, from the cache for repeated words; long words are hardly ever repeated."""
    # A whole text may be one word, which would stay in the cache.
    return (_known_folded if len(word) <= WORD_MAX_LENGTH else _folded)(word)
