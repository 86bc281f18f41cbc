"""Marks of citations in ChatGPT's texts, between U+E200 and U+E201, which its page shows as links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import nodes

LINKS_MAX = 10  # the most sources that are named in place of a mark; all are kept with the message

_MARK = re.compile(r" ?(\ue200([^\ue200\ue201]*)\ue201|\ue200[^\s\ue200\ue201]*\Z|【[^【】]{1,200}】)")
# Remaining marks, such as those around the words that a source supports.
_HALF = re.compile("[\ue200-\ue206]")
_REFERENCE = re.compile(r"turn\d{1,6}[a-z_]{1,30}\d{1,6}")
_URL = re.compile(r"https?://[^\s<>\"\\]+")


class _Link(NamedTuple):
    title: str
    url: str

    def __str__(self) -> str:
        title = re.sub(r"([\[\]\\])", r"\\\1", " ".join(self.title.split()))[: nodes.TITLE_MAX_CHARS]
        url = self.url.replace("(", "%28").replace(")", "%29")
        return f"[{title or url}]({url})" if url else title


class Citations:
    """The sources of the marks in one message, from its metadata."""

    def __init__(self, metadata: Fields) -> None:
        self._metadata = metadata
        self._by_mark: dict[str, list[_Link]] = {}
        self._by_reference: dict[str, _Link] = {}
        for told in columns.objects(metadata.get("content_references")):
            mark = columns.first_text(told.get("matched_text")).strip()
            self._by_mark.setdefault(mark, list(_links(told)))
        for group in columns.objects(metadata.get("search_result_groups")):
            for entry in columns.objects(group.get("entries")):
                self._by_reference[_reference(entry)] = _link(entry)

    def shown(self, text: str) -> str:
        """Return a text with links to the sources instead of marks; a mark without a source is left out."""
        if "\ue200" not in text and "【" not in text:
            return text
        by_mark = {**self._by_place(text), **self._by_mark}

        def replaced(found: re.Match[str]) -> str:
            mark = found[1]
            if mark.startswith("【"):  # people write such brackets, too
                return _named("", by_mark[mark]) if mark in by_mark else found[0]
            kind, *given = (found[2] or "").split("\ue202")
            links = by_mark.get(mark) or [
                self._by_reference[each]
                for each in _REFERENCE.findall(" ".join(given))
                if each in self._by_reference
            ]
            words = _words(kind, given)
            before = " " if words and found[0].startswith(" ") else ""
            return before + _named(words, links)

        shown = _MARK.sub(replaced, text)
        return _HALF.sub("", shown) if "\ue200" in text else shown

    def _by_place(self, text: str) -> dict[str, list[_Link]]:
        """Return the sources that older exports name with the place of their mark."""
        found: dict[str, list[_Link]] = {}
        for told in columns.objects(self._metadata.get("citations")):
            start, end = told.get("start_ix"), told.get("end_ix")
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
                found.setdefault(text[start:end].strip(), list(_links(columns.fields(told.get("metadata")))))
        return found


def _named(words: str, links: Iterable[_Link]) -> str:
    """Return words, and their sources in brackets."""
    named = list(dict.fromkeys(filter(None, map(str, links))))[:LINKS_MAX]
    return words + (f" ({', '.join(named)})" if named else "")


def _words(kind: str, given: list[str]) -> str:
    """Return the words in a mark itself: the name of a thing, or the text of a link."""
    if kind == "url" and given:
        return given[0]
    if kind == "entity" and given:
        try:
            named = json.loads(given[0])
        except (ValueError, RecursionError):
            return ""
        return named[1] if isinstance(named, list) and len(named) > 1 and isinstance(named[1], str) else ""
    return ""


def _links(told: Fields) -> Iterator[_Link]:
    inner = [each for name in ("items", "sources") for each in columns.objects(told.get(name))]
    for each in inner or [told]:
        yield _link(each)


def _link(told: Fields) -> _Link:
    url = columns.first_text(told.get("url"))
    title = columns.first_text(told.get("title"), told.get("name"), told.get("attribution"))
    return _Link(title, url if _URL.fullmatch(url) else "")


def _reference(entry: Fields) -> str:
    """Return a mark's reference to an entry of a search's results, such as `turn0search1`."""
    told = columns.fields(entry.get("ref_id"))
    return f"turn{told.get('turn_index')}{told.get('ref_type')}{told.get('ref_index')}"
