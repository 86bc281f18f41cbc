"""Markdown as HTML that does nothing: rendered once, and cleaned by a list of what may be in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.footnote import footnote_plugin

from conversations.transcripts import formulas as formula_rules
from convserver.rendering.text import addresses, code, details, formulas, images, visible
from convserver.rendering.text.blocks import fenced
from convserver.rendering.text.runnable import ADDRESS, Origin

MAX_CHARS = 30_000
# The marks in one text: one with more is not prose, and can take seconds to parse.
MAX_MARKS = 3_000
LINKS_MAX = 300  # a text with more addresses is rendered without links
TABLE_COLUMNS_MAX = 60
_MARKS = "[]*_~`|<>!#-+=\n"
HIGHEST = "highest"  # the key of an `env` for the highest heading so far, 1 to 6
# The page has its own headings above those of a message.
_HIGHEST_HEADING = 3

_ORIGIN = "origin"  # the key of an `env` for the event that the text is from
# What `footnote_plugin` writes for a document: the number of the note, and which of its places.
_NOTE_TEXT = re.compile(r"\[\^([^\]]+)\]:")
_NOTE = re.compile(r"#?fn(?:ref)?-\d{1,18}-\d{1,3}(?::\d{1,3})?")

_TASKS = {"[ ] ": ("todo", "☐"), "[x] ": ("done", "☑"), "[X] ": ("done", "☑")}

_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "em", "strong", "s"),
    *("a", "img", "code", "pre", "figure", "figcaption", "span", "button", "div"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "section", "sup"),
    *formulas.TAGS,
}
_ATTRIBUTES = {
    **formulas.ATTRIBUTES,
    "a": {"href", "title", "target", "id", "aria-label"},
    "li": {"id"},
    "details": {"open"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    "button": {"type", "aria-label", "title"},
    "pre": {"tabindex"},
    "div": {"tabindex", "role", "aria-label"},
    "span": {"role", "aria-label"},
}
_ALIGNS = {"left", "center", "right"}
_CLASSES = {
    "figure": {"code"},
    "button": {"copy"},
    "span": {*code.CLASSES, "language", "task", "todo", "done", "image"},
    "div": {"table", "formula"},
    "th": _ALIGNS,
    "td": _ALIGNS,
    "a": {"image", "run"},
    "section": {"footnotes"},
}


def markdown(
    text: str, *, breaks: bool = False, env: dict[str, Any] | None = None, origin: Origin | None = None
) -> SafeString | None:
    """Return Markdown as HTML; None for text that is too long or too dense, unless it is one block of code.

    `breaks` keeps the ends of lines. Parts of one text share an `env`, which holds what links mean and
    the highest heading. Code of an `origin` can be run, and a whole text of one has footnotes.
    """
    if is_long(text):
        found = fenced(visible.prose(text))
        return None if found is None else _cleaned(_code(*found, origin))
    links = text.count("://") + text.count("@") <= LINKS_MAX
    tables = max(line.count("|") for line in text.split("\n")) <= TABLE_COLUMNS_MAX
    notes = origin is not None and env is None and _can_have_notes(text)
    env = {} if env is None else env
    if origin is not None:
        env.update({_ORIGIN: origin, "docId": str(origin.seq)})
    html = _parser(breaks=breaks, links=links, tables=tables, notes=notes).render(visible.prose(text), env)
    if notes and any(place < 0 for place in env.get("footnotes", {}).get("refs", {}).values()):
        # A note to which nothing refers would not be shown.
        return markdown(text, breaks=breaks, env={}, origin=origin)
    return _cleaned(html)


def _can_have_notes(text: str) -> bool:
    """Return whether a text has notes, few, and none with two texts, of which only one would be shown."""
    defined = _NOTE_TEXT.findall(text)
    return 0 < len(defined) == len(set(defined)) and text.count("[^") <= 100


def _cleaned(html: str) -> SafeString:
    # The parser has decoded entities and percents, so that new overrides of the direction can be in the text.
    return mark_safe(visible.prose(_cleaner.clean(html)))  # noqa: S308 - cleaned


def _code(content: str, info: str, origin: Origin | None) -> SafeString:
    language = (info.split(maxsplit=1) or [""])[0]
    return code.block(content, language, run=origin.link(content, language) if origin else "")


def is_long(text: str) -> bool:
    """Return whether Markdown is too long or too dense to be rendered in one piece."""
    return len(text) > MAX_CHARS or marks_in(text) > MAX_MARKS


def marks_in(text: str) -> int:
    """Return the number of marks in a text that can be Markdown."""
    return sum(map(text.count, _MARKS))


class _Renderer(RendererHTML):
    """Renders code with a button, tables that scroll, and images that load nothing."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _code(tokens[idx].content, tokens[idx].info, env.get(_ORIGIN))

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return code.block(tokens[idx].content, "")

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<code>{escape(visible.name(tokens[idx].content))}</code>"

    def math_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        is_block = token.meta["is_block"]
        return formulas.shown(token.content, is_block=is_block, mark=token.markup, env=env)

    def math_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        shown = self.math_inline(tokens, idx, options, env)
        # A long formula scrolls, as a table does.
        return f'<div class="formula" tabindex="0" role="region" aria-label="Formula">{shown}</div>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        tokens[idx].attrSet("target", "_blank")
        return self.renderToken(tokens, idx, options, env)

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="table" tabindex="0" role="region" aria-label="Table"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>"

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        url = str(token.attrs.get("src", ""))
        alt = escape(self.renderInlineAsText(token.children or [], options, env) or "Image")
        if images.is_shown(url):
            return f'<img src="{escape(url)}" alt="{alt}">'
        if addresses.is_link(url):
            return f'<a class="image" href="{escape(url)}" target="_blank">{alt}</a>'
        return f'<span class="image">{alt}</span>'

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _cell(tokens[idx])

    def td_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return _cell(tokens[idx])


def _cell(token: Token) -> str:
    align = str(token.attrs.get("style", "")).partition(":")[2]
    return f'<{token.tag} class="{align}">' if align in _ALIGNS else f"<{token.tag}>"


def _tick_tasks(state: StateCore) -> None:
    """Replace the brackets of a task at the beginning of a list item by a sign."""
    for at, token in enumerate(state.tokens):
        is_item = token.type == "inline" and at > 1 and state.tokens[at - 2].type == "list_item_open"
        if not is_item or not token.children or token.children[0].type != "text":
            continue
        first = token.children[0]
        if task := _TASKS.get(first.content[:4]):
            first.content = first.content[4:]
            token.children.insert(0, Token("task", "", 0, meta={"status": task[0], "sign": task[1]}))


def _lower_headings(state: StateCore) -> None:
    """Lower the headings of a text so that the highest one is _HIGHEST_HEADING."""
    headings = [token for token in state.tokens if token.type.startswith("heading_")]
    if not headings:
        return
    highest = min([state.env.get(HIGHEST, 6), *(int(token.tag[1]) for token in headings)])
    state.env[HIGHEST] = highest
    for token in headings:
        token.tag = f"h{min(6, int(token.tag[1]) - highest + _HIGHEST_HEADING)}"


def _task(self: Any, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
    status, sign = tokens[idx].meta["status"], tokens[idx].meta["sign"]
    return f'<span class="task {status}" role="img" aria-label="{status}">{sign}</span> '


def _note_left(self: Any, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
    place = self.rules["footnote_anchor_name"](tokens, idx, options, env)
    if tokens[idx].meta["subId"] > 0:
        place += f":{tokens[idx].meta['subId']}"
    return f' <a href="#fnref{place}" aria-label="Back to the text">↩</a>'


@cache
def _parser(*, breaks: bool, links: bool, tables: bool, notes: bool) -> MarkdownIt:
    options = {"html": False, "linkify": links, "breaks": breaks}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    # Their time can grow faster than the text: one with many addresses or columns goes without.
    parser.enable(["strikethrough", *(["linkify"] if links else []), *(["table"] if tables else [])])
    formula_rules.add_to(parser)
    details.add_to(parser)
    if notes:
        parser.use(footnote_plugin, inline=False)
        parser.add_render_rule("footnote_anchor", _note_left)
    parser.core.ruler.push("tasks", _tick_tasks)
    parser.core.ruler.push("headings", _lower_headings)
    parser.add_render_rule("task", _task)
    parser.validateLink = lambda url: addresses.is_link(url) or images.is_shown(url)  # type: ignore[method-assign]
    if parser.linkify is not None:
        # `main.py` is a file, although py is the domain of a country.
        parser.linkify.set({"fuzzy_link": False}).add("ftp:", None).add("//", None)
    return parser


def _filtered(tag: str, attribute: str, value: str) -> str | None:
    """Return an attribute's value; None for an address that is not allowed there."""
    # The parser has checked them; this holds even if a rule of it brings an address that it did not check.
    if tag in formulas.TAGS:
        return formulas.filtered(attribute, value)
    match attribute:
        case "href":
            is_ours = ADDRESS.fullmatch(value) or (value.startswith("#") and _NOTE.fullmatch(value))
            return value if is_ours or addresses.is_link(value) else None
        case "id":
            return value if _NOTE.fullmatch(value) else None
        case "src":
            return value if images.is_shown(value) else None
        case _:
            return value


_cleaner = nh3.Cleaner(
    tags=_TAGS,
    attributes=_ATTRIBUTES,
    allowed_classes=_CLASSES,
    attribute_filter=_filtered,
    url_schemes={*(each.partition(":")[0] for each in addresses.LINK_SCHEMES), "data"},
    link_rel="noopener noreferrer nofollow",
)
