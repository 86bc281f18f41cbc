"""Code as HTML: coloured by classes, with the language's name and a button that copies it."""

from __future__ import annotations

from functools import lru_cache
from io import StringIO
from time import thread_time

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, _TokenType
from pygments.util import ClassNotFound

from convserver.rendering.text import visible

# Longer code is not coloured, which would take too long.
COLOURED_MAX_CHARS = 10_000
# Code with longer lines is not written by people, and lexers are slow on it.
LINE_MAX_CHARS = 2_000
NAME_MAX_CHARS = 40
CLASSES = frozenset(filter(None, STANDARD_TYPES.values()))  # all classes of coloured code

_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)
_PLAIN = frozenset({"", "text", "plain", "txt", "plaintext", "output", "console-output"})


def block(code: str, language: str, *, run: str = "") -> SafeString:
    """Return code as a figure with the name of its language, and the link that runs it."""
    label = visible.name(language)[:NAME_MAX_CHARS]
    return mark_safe(  # noqa: S308 - both parts are escaped below
        '<figure class="code"><figcaption>'
        f'<span class="language">{escape(label or "text")}</span>{run}'
        '<button type="button" class="copy" aria-label="Copy code" title="Copy code"></button></figcaption>'
        f'<pre tabindex="0"><code>{coloured(code, language)}</code></pre></figure>'
    )


def coloured(code: str, language: str) -> SafeString:
    """Return code with the classes of its parts, without a block around it."""
    text = visible.name(code)
    is_long = len(text) > COLOURED_MAX_CHARS or max(map(len, text.split("\n"))) > LINE_MAX_CHARS
    lexer = None if is_long else _lexer(language.lower())
    tokens = None if lexer is None else _tokens(text, lexer)
    html = str(escape(text)) if tokens is None else _written(tokens)
    return mark_safe(html)  # noqa: S308 - the formatter escapes, too


def _tokens(text: str, lexer: Lexer) -> list[tuple[_TokenType, str]] | None:
    """Return the tokens of code; None if that takes too long, or if they do not add up to the code."""
    # Some lexers take seconds on text that resembles their language.
    tokens: list[tuple[_TokenType, str]] = []
    # The processor time for one block.
    colouring_max_s = 0.05
    until = thread_time() + colouring_max_s
    for token in lexer.get_tokens(text):
        tokens.append(token)
        if thread_time() > until:
            return None
    # A lexer that leaves out or adds a character would show other code than the event has.
    return tokens if "".join(part for _, part in tokens) == text else None


def _written(tokens: list[tuple[_TokenType, str]]) -> str:
    html = StringIO()
    _FORMATTER.format(tokens, html)
    return html.getvalue()


@lru_cache(maxsize=128)
def _lexer(language: str) -> Lexer | None:
    if language in _PLAIN or len(language) > NAME_MAX_CHARS:
        return None
    try:
        # Without these, a lexer strips blank lines and adds an end: the tokens would not add up.
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
