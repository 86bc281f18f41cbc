"""Files of other programs as crashes, disks and later releases leave them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

STRANGE: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e400,
    "",
    "\x00",
    "\ud800",
    "x" * 300,
    [],
    [None],
    {},
    {"": 0},
    [[[]]],
]


def mutated(content: bytes, seed: int) -> bytes:
    """Return a file of JSON lines with one to four faults; the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        content = chance.choice(FAULTS)(content, chance)
    return content


def mutated_json(content: bytes, seed: int) -> bytes:
    """Return a file of one JSON value with one to four faults; the same for the same seed."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        content = chance.choice(JSON_FAULTS)(content, chance)
    return content


def _truncated(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _overwritten(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + chance.randbytes(chance.randint(1, 40)) + content[at + 20 :]


def _zeroed(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + b"\0" * chance.randint(1, 4096)


def _reordered(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _repeated(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    return content + b"".join(chance.choices(lines, k=3)) if lines else content


def _left_out(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _changed_value(content: bytes, chance: random.Random) -> bytes:
    """Give one member, somewhere inside a line, a value that nobody expects."""
    lines = content.splitlines()
    if not lines:
        return content
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return content
    _change(value, chance)
    lines[at] = json.dumps(value).encode()
    return b"\n".join(lines) + b"\n"


def _change(value: Any, chance: random.Random) -> None:
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = chance.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.7:
        _change(value[key], chance)
    elif chance.random() < 0.2:
        del value[key]
    else:
        value[key] = chance.choice(STRANGE)


def _relinked(content: bytes, chance: random.Random) -> bytes:
    """Let one id stand where another was, so that chains break, meet or go round."""
    lines = content.splitlines()
    if len(lines) < 2:
        return content
    one, other = chance.sample(range(len(lines)), 2)
    try:
        target, source = json.loads(lines[one]), json.loads(lines[other])
        target["parentUuid"] = source.get("uuid")
    except (ValueError, TypeError, AttributeError):
        return content
    lines[one] = json.dumps(target).encode()
    return b"\n".join(lines) + b"\n"


FAULTS: list[Callable[[bytes, random.Random], bytes]] = [
    _truncated,
    _overwritten,
    _zeroed,
    _reordered,
    _repeated,
    _left_out,
    _changed_value,
    _changed_value,
    _changed_value,
    _relinked,
]


def _changed_inside(content: bytes, chance: random.Random) -> bytes:
    """Give one member, somewhere inside the value, one that nobody expects."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict | list):
        _change(value, chance)
    return json.dumps(value).encode()


def _exchanged(content: bytes, chance: random.Random) -> bytes:
    """Let one text stand where another was, so that links break, meet or go round, and members double."""
    texts = [found.span() for found in re.finditer(rb'"[^"\\\n]{1,60}"', content)]
    if not texts:
        return content
    (start, end), (other, ends) = chance.choices(texts, k=2)
    return content[:start] + content[other:ends] + content[end:]


JSON_FAULTS: list[Callable[[bytes, random.Random], bytes]] = [
    _truncated,
    _overwritten,
    _zeroed,
    _left_out,
    *[_changed_inside] * 4,
    *[_exchanged] * 4,
]
