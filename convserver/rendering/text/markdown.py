"""Markdown as HTML that does nothing: rendered once, and cleaned by a list of what may be in it."""

from __future__ import annotations

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

from conversations.transcripts import formulas as formula_rules
from convserver.rendering.text import addresses, code, formulas, images, visible

MAX_CHARS = 30_000
# The marks in one text: one with more is not prose, and can take seconds to parse.
MAX_MARKS = 3_000
LINKS_MAX = 300  # a text with more addresses is rendered without links
TABLE_COLUMNS_MAX = 60
_MARKS = "[]*_~`|<>!#-+=\n"
HIGHEST = "highest"  # the key of an `env` for the highest heading so far, 1 to 6
# The page has its own headings above those of a message.
_HIGHEST_HEADING = 3

_TASKS = {"[ ] ": ("todo", "☐"), "[x] ": ("done", "☑"), "[X] ": ("done", "☑")}

_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "em", "strong", "s"),
    *("a", "img", "code", "pre", "figure", "figcaption", "span", "button", "div"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *formulas.TAGS,
}
_ATTRIBUTES = {
    **formulas.ATTRIBUTES,
    "a": {"href", "title"},
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
    "a": {"image"},
}
_RENDERED_WITH_NEW_TAB = {"a": {"target": "_blank"}}


def markdown(text: str, *, breaks: bool = False, env: dict[str, Any] | None = None) -> SafeString | None:
    """Return Markdown as HTML; None for text that is too long or too dense.

    `breaks` keeps the ends of lines. Parts of one text share an `env`, which holds what links mean and
    the highest heading.
    """
    if is_long(text):
        return None
    links = text.count("://") + text.count("@") <= LINKS_MAX
    tables = max(line.count("|") for line in text.split("\n")) <= TABLE_COLUMNS_MAX
    html = _parser(breaks=breaks, links=links, tables=tables).render(
        visible.prose(text), {} if env is None else env
    )
    # The parser has decoded entities and percents, so that new overrides of the direction can be in the text.
    return mark_safe(visible.prose(_cleaner.clean(html)))  # noqa: S308 - cleaned


def is_long(text: str) -> bool:
    """Return whether Markdown is too long or too dense to be rendered in one piece."""
    return len(text) > MAX_CHARS or marks_in(text) > MAX_MARKS


def marks_in(text: str) -> int:
    """Return the number of marks in a text that can be Markdown."""
    return sum(map(text.count, _MARKS))


class _Renderer(RendererHTML):
    """Renders code with a button, tables that scroll, and images that load nothing."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        language = tokens[idx].info.strip().split(maxsplit=1)
        return code.block(tokens[idx].content, language[0] if language else "")

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
            return f'<a class="image" href="{escape(url)}">{alt}</a>'
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


@cache
def _parser(*, breaks: bool, links: bool, tables: bool) -> MarkdownIt:
    options = {"html": False, "linkify": links, "breaks": breaks}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    # Their time can grow faster than the text: one with many addresses or columns goes without.
    parser.enable(["strikethrough", *(["linkify"] if links else []), *(["table"] if tables else [])])
    formula_rules.add_to(parser)
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
            return value if addresses.is_link(value) else None
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
    set_tag_attribute_values=_RENDERED_WITH_NEW_TAB,
)
