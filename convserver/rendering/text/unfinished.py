"""Unfinished Markdown with its open marks closed, so that readers do not see them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from conversations.transcripts import formulas
from convserver.rendering.text.blocks import FENCE
from convserver.rendering.text.markdown import TABLE_COLUMNS_MAX

MARKS_MAX = 400
_ANY_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ONLY_SIGNS = re.compile(r"[\s\d\-+*_=#~`|:>.)!\[]*")
_TASK_BEGUN = re.compile(r"(\s*(?:[-+*]|\d{1,9}[.)])\s+)\[[ xX]?\]?")
_LEAF = re.compile(r"\s*(?:[-+*]\s|\d{1,9}[.)]\s|#{1,6}\s|>|\|)")
_ENTITY_BEGUN = re.compile(r"&#?\w{0,10}$")
_SIGN = re.compile(r"[\\`*_{}\[\]()#+.!|<>~$-]")
_PIPE = re.compile(r"(?<!\\)\|")


def closed(text: str) -> str:
    """Return the last block of growing Markdown in a form that can be rendered now."""
    body, newline, last = text.rpartition("\n")
    if sign := _open_fence(text):  # code needs no end, but half of its closing line would be shown as code
        return body + newline if last.strip() and set(last.strip()) == {sign} else text
    if newline and FENCE.match(last):
        return text
    if _ONLY_SIGNS.fullmatch(last):  # it may become a rule, a heading or an item: too early to show
        text = body
    elif begun := _TASK_BEGUN.fullmatch(last):
        text = f"{body}{newline}{begun[1]}"
    text = text.rstrip()
    lines = text.split("\n")
    first = _first_of_leaf(lines)
    leaf = _closed_inline("\n".join(lines[first:]))
    return "\n".join([*lines[:first], _as_table(leaf, lines)])


def _open_fence(text: str) -> str:
    """Return the character of the fence that is open at the end; empty if none is."""
    sign = ""
    for line in text.split("\n"):
        found = _ANY_FENCE.match(line)
        if not found:
            continue
        if not sign:
            sign = found[1]
        elif found[1].startswith(sign) and not line[found.end() :].strip():
            sign = ""
    return sign[:1]


def _first_of_leaf(lines: list[str]) -> int:
    """Return the line where the last paragraph, item, heading or row begins."""
    for at in range(len(lines) - 1, -1, -1):
        if not lines[at].strip():
            return at + 1
        if _LEAF.match(lines[at]):
            return at
    return 0


def _as_table(leaf: str, lines: list[str]) -> str:
    """Return the head of a table without its second line as a table; anything else unchanged."""
    if not leaf.lstrip().startswith("|") or "\n" in leaf:
        return leaf
    for line in reversed(lines):
        if not line.lstrip().startswith("|"):
            break
        if "-" in line and set(line) <= set("|-: \t"):
            return leaf
    head = leaf if leaf.rstrip().endswith("|") and not leaf.rstrip().endswith("\\|") else f"{leaf} |"
    # Without its second line a head is a paragraph, which would jump into a table a moment later.
    columns = len(_PIPE.findall(head)) - 1
    return f"{head}\n|{'---|' * columns}" if 0 < columns <= TABLE_COLUMNS_MAX else leaf


@dataclass(slots=True)
class _Inline:
    """The open marks of a paragraph, read from its beginning."""

    text: str
    open: list[tuple[str, int, int]] = field(default_factory=list)
    """Emphasis: its character, their number, and the place."""
    brackets: list[int] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)  # stretches that are left out


def _closed_inline(text: str) -> str:
    # A longer last paragraph, or one with more than MARKS_MAX marks, stays as it is
    leaf_max_chars = 8_000
    if len(text) > leaf_max_chars or sum(map(text.count, "*_~`[]\\$")) > MARKS_MAX:
        return text
    text = _ENTITY_BEGUN.sub("", text)
    line = _Inline(text)
    at = 0
    while at < len(line.text):
        at = _step(line, at)
    for bracket in line.brackets:
        line.dropped.append((bracket - (line.text[:bracket].endswith("!")), bracket + 1))
    return _written(line)


def _step(line: _Inline, at: int) -> int:
    """Read the mark at `at`; return where the next one begins."""
    text = line.text
    match text[at]:
        case "\\":
            if at + 1 == len(text):
                line.dropped.append((at, at + 1))
            return _formula(line, at) if text[at + 1 : at + 2] in ("(", "[") else at + 2
        case "$" if text[at : at + 2] == "$$":
            return _formula(line, at)
        case "`":
            return _code(line, at)
        case "*" | "_" | "~":
            return _emphasis(line, at)
        case "[":
            line.brackets.append(at)
        case "]" if line.brackets:
            return _bracket(line, at)
    return at + 1


def _formula(line: _Inline, at: int) -> int:
    """Pass over a formula; one that is open stays as its source until its end comes."""
    end = formulas.end_of(line.text, at + 2, line.text[at : at + 2], len(line.text))
    if end >= 0:
        return end + 2
    line.text = line.text[:at] + _SIGN.sub(r"\\\g<0>", line.text[at:])
    return len(line.text)


def _code(line: _Inline, at: int) -> int:
    end = _end_of_run(line.text, at)
    run = line.text[at:end]
    found = re.compile(rf"(?<!`){run}(?!`)").search(line.text, end)
    if found:
        return found.end()
    inside = line.text[end:].rstrip("`")
    if inside.strip():
        line.text = f"{line.text[:end]}{inside}{run}"
    else:
        line.dropped.append((at, len(line.text)))
    return len(line.text)


def _emphasis(line: _Inline, at: int) -> int:
    text = line.text
    sign, end = text[at], _end_of_run(text, at)
    before, after = text[at - 1 : at], text[end : end + 1]
    count = end - at
    closes = bool(before) and not before.isspace() and not (sign == "_" and after.isalnum())
    opens = bool(after) and not after.isspace() and not (sign == "_" and before.isalnum())
    if not after:  # at the end of the text, the rest of a mark can follow
        line.dropped.append((at, end))
        return end
    if sign == "~" and count != 2:  # only two strike text through
        return end
    while closes and count and any(each[0] == sign for each in line.open):
        while line.open[-1][0] != sign:
            line.open.pop()
        _, length, place = line.open.pop()
        if length > count:
            line.open.append((sign, length - count, place))
        count = max(0, count - length)
    if opens and count:
        line.open.append((sign, count, end - count))
    return end


def _bracket(line: _Inline, at: int) -> int:
    """Read the end of a link's text, which is plain text while the address is missing."""
    text, start = line.text, line.brackets.pop()
    after = text[at + 1 : at + 2]
    if after == "(":
        end = text.find(")", at)
        if end >= 0:
            return end + 1
    elif after:
        return at + 1
    line.dropped += [(start - (text[:start].endswith("!")), start + 1), (at, len(text))]
    return len(text)


def _end_of_run(text: str, at: int) -> int:
    end = at
    while end < len(text) and text[end] == text[at]:
        end += 1
    return end


def _written(line: _Inline) -> str:
    """Return the text without the dropped stretches, and with the closing marks."""
    dropped = {place for start, end in line.dropped for place in range(start, end)}
    kept_until = _last_kept(line.text, dropped)
    closers = ""
    for sign, length, place in reversed(line.open):
        if place + length > kept_until:
            dropped.update(range(place, place + length))
            kept_until = _last_kept(line.text, dropped)
        else:
            closers += sign * length
    kept = "".join(sign for at, sign in enumerate(line.text) if at not in dropped)
    return kept.rstrip() + closers if closers else kept


def _last_kept(text: str, dropped: set[int]) -> int:
    """Return the place of the last character that is neither dropped nor a space; -1 for none."""
    at = len(text) - 1
    while at >= 0 and (at in dropped or text[at].isspace()):
        at -= 1
    return at
