"""What stands on a page, read as a browser would: elements, attributes, text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

from convserver.rendering.text import formulas

_VOID = frozenset({"br", "hr", "img", "meta"})

_ELEMENTS = {
    *("article", "header", "div", "p", "span", "bdi", "a", "time", "code", "pre", "details", "summary"),
    *("figure", "figcaption", "button", "img", "svg", "path", "ul", "ol", "li", "blockquote", "br", "hr"),
    *("table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s", "h3", "h4", "h5", "h6"),
    "audio",
    *("section", "sup"),
    *formulas.TAGS,
}
_ATTRIBUTES = {
    "article": {
        "class",
        "id",
        "data-seq",
        "data-id",
        "data-kind",
        "data-source",
        "data-cause",
        "data-call",
        "aria-label",
    },
    "div": {
        *("class", "id", "data-seq", "data-id", "data-kind", "data-source", "data-cause", "data-call"),
        *("data-outcome", "dir", "tabindex", "role", "aria-label"),
    },
    "span": {"class", "title", "role", "aria-label"},
    "a": {
        *(
            "class",
            "href",
            "target",
            "rel",
            "title",
            "download",
            "data-again",
            "data-edit",
            "id",
            "aria-label",
        ),
        "aria-current",
    },
    "time": {"datetime", "title"},
    "pre": {"class", "dir", "tabindex"},
    "details": {"class", "open"},
    "button": {"type", "class", "aria-label", "title"},
    "summary": {"class", "aria-label", "title"},
    "img": {"src", "alt", "title", "loading"},
    "audio": {"controls", "preload", "src", "aria-label"},
    "svg": {"class", "viewbox", "aria-hidden", "focusable"},
    "path": {"d"},
    "ol": {"start"},
    "li": {"class", "id"},
}
_HREF = re.compile(
    r"#e\d+|#fn(ref)?-\d+-\d+(:\d+)?|/(ui/)?settings#model"
    r"|/(ui/)?c/[^/]+(/events/\d+/(output|preview/[0-9a-f]{16})|/branch\?after=\d+|/again\?(message|answer)=\d+|\?as_of=\d+"
    r"|/feedback\?seq=\d+&polarity=(positive|negative))"
    r"|/api/native/conversations/[^/]+/events\?after=-?\d+&limit=1"
    r"|https?://.+|mailto:.+|data:application/octet-stream;base64,[a-z0-9+/=]+",
    re.IGNORECASE | re.DOTALL,
)
_SRC = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
_SOUND = re.compile(r"data:audio/[\w.+-]+;base64,[A-Za-z0-9+/=]+")
_CLASS = re.compile(r"[a-z0-9_ -]*")


class Element(NamedTuple):
    """One element with its attributes."""

    tag: str
    attributes: dict[str, str]


class PageParts(HTMLParser):
    """Reads HTML. Raise AssertionError when it is not balanced, or holds what no event may bring."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.text = ""
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()
        self.text = "".join(self._texts)
        self.spaced = " ".join([*self._texts, *self._names()])
        assert self._open == []

    def _names(self) -> Iterator[str]:
        """Return what is said of elements beside their text."""
        for element in self.elements:
            yield from (element.attributes.get(name, "") for name in ("aria-label", "title"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _ELEMENTS, tag
        if tag in formulas.TAGS:
            assert all(formulas.filtered(name, value or "") for name, value in attrs), (tag, attrs)
            attrs = []
        attributes = {name: value or "" for name, value in attrs}
        assert attributes.keys() <= _ATTRIBUTES.get(tag, {"class"}), (tag, attributes)
        assert len(attributes) == len(attrs), attrs
        _require_harmless(tag, attributes)
        self.elements.append(Element(tag, attributes))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def named(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def of_class(self, name: str) -> list[Element]:
        return [each for each in self.elements if name in each.attributes.get("class", "").split()]


def _require_harmless(tag: str, attributes: dict[str, str]) -> None:
    assert _CLASS.fullmatch(attributes.get("class", "")), attributes
    if "href" in attributes:
        assert _HREF.fullmatch(attributes["href"]), attributes
        if attributes["href"].startswith("data:"):
            assert "download" in attributes, attributes
        elif not attributes["href"].startswith(("#", "/")):
            assert attributes["target"] == "_blank"
            assert attributes["rel"] == "noopener noreferrer nofollow"
    if tag == "audio":
        assert _SOUND.fullmatch(attributes["src"]), attributes
    if tag == "img":
        assert _SRC.fullmatch(attributes["src"]), attributes
        assert attributes["alt"]
    if tag == "button":
        assert attributes["type"] == "button"
