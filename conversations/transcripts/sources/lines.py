"""Files with one JSON object a line, plain or packed, read with at most one line in memory."""

from __future__ import annotations

import base64
import codecs
import hashlib
import io
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from conversations.confined.processes import check
from conversations.dialects import columns
from conversations.payloads import bounds
from conversations.transcripts.sources import packed, splices, utf16
from conversations.transcripts.sources.nodes import (
    HEAD_BYTES,
    LINE_MAX_BYTES,
    VALUES_MAX,
    Changed,
    Unreadable,
)
from conversations.transcripts.sources.stepwise import StepwiseDecoder

QUICK_MAX_VALUES = 10_000  # decoded at once, in a few milliseconds
LOGLINES = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{.*?"loglines"\s*:\s*\[', re.DOTALL)
FRESH_S = 60.0


class Line(NamedTuple):
    """A line of a file that is not blank."""

    number: int  # from 1
    offset: int  # in bytes
    text: bytes  # without the line feed
    is_whole: bool  # whether a line feed ends it: the last line may still be written


class Damaged(ValueError):
    """A line is no JSON object; the message says why."""


class FoundRecord(NamedTuple):
    """A record of a file, or a piece that is none."""

    number: int  # from 1, in the order of the file
    place: str  # for people: `line 12`
    offset: int  # in bytes
    text: bytes
    value: Mapping[str, object] | None  # None for what is no record
    problem: str = ""  # why it is none
    skipped: str = ""  # why there is nothing to keep of it
    noted: tuple[str, ...] = ()


HALF = "its end is still missing"
ONLY_NULS = "it has only NUL bytes"
NULS = "NUL bytes beside it left out"
SPLICED = "it shared a line with something else"
IsRecord = Callable[[Mapping[str, object]], bool]


class Digests:
    """Ids for records without one; they stay the same when the file grows."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()

    def id_of(self, text: bytes) -> str:
        """Return the digest of the next record, and its number among equal records."""
        digest = hashlib.sha256(text).hexdigest()[:32]
        self._found[digest] += 1
        return f"{digest}-{self._found[digest]}"


def records(path: Path, is_record: IsRecord, *, is_growing: bool = False) -> Iterator[FoundRecord]:
    """Yield the records of a file, and other pieces, in order. Raise Unreadable.

    A line that is not one record is divided. `is_record` tells a record from an object that is a part of a
    damaged record. With `is_growing` the last line may be incomplete.
    """
    number = 0
    for line in lines(path):
        for part, found in enumerate(_found(line, is_record, is_growing=is_growing), 1):
            number += 1
            place = f"line {line.number}" if part == 1 else f"line {line.number}, part {part}"
            yield found._replace(number=number, place=place)


def _found(line: Line, is_record: IsRecord, *, is_growing: bool) -> Iterator[FoundRecord]:
    try:
        yield FoundRecord(0, "", line.offset, line.text, record(line.text))
        return
    except Damaged as error:
        problem = str(error)
    start, end = splices.trimmed(line.text)
    nuls = (NULS,) if b"\0" in line.text else ()
    if start == end:
        if nuls:
            yield FoundRecord(0, "", line.offset, line.text, None, skipped=ONLY_NULS)
        return
    is_cut = is_growing and not line.is_whole
    done, number = start, 0
    for each, value in _whole(line.text, is_record, is_cut=is_cut):
        if each.start > done and not splices.is_padding(line.text[done : each.start]):
            yield _rest(line, done, each.start, problem)
        beside = (SPLICED,) if (each.start, each.end) != (start, end) else ()
        text = line.text[each.start : each.end]
        yield FoundRecord(0, "", line.offset + each.start, text, value, noted=(*beside, *nuls))
        done, nuls, number = each.end, (), number + 1
    if done < end or not number:
        rest = _rest(line, done, end, problem)
        yield rest._replace(skipped=HALF) if is_cut else rest._replace(noted=nuls)


def _whole(
    text: bytes, is_record: IsRecord, *, is_cut: bool
) -> Iterator[tuple[splices.SplicedObject, dict[str, object]]]:
    """Yield the records in a line that is not one."""
    for found in splices.objects(text, is_cut=is_cut):
        try:
            value = record(text[found.start : found.end])
        except Damaged:
            continue
        if found.is_sure or is_record(value):
            yield found, value


def _rest(line: Line, start: int, end: int, problem: str) -> FoundRecord:
    """Return a piece that is no record, without the padding around it."""
    first, last = splices.trimmed(line.text[start:end])
    return FoundRecord(
        0, "", line.offset + start + first, line.text[start + first : start + last], None, problem
    )


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines that are not blank. Raise Unreadable."""
    try:
        if path.is_symlink() or not path.is_file():
            raise Unreadable(f"{path.name} is not a regular file")
        with _opened(path) as file:
            offset, number = 0, 0
            while text := file.readline(LINE_MAX_BYTES):
                check()
                number += 1
                if text.strip():
                    yield Line(number, offset, text.rstrip(b"\r\n"), text.endswith(b"\n"))
                if not text.endswith(b"\n") and len(text) < LINE_MAX_BYTES:
                    return  # the end of the file: the next bytes will be the rest of this line
                offset += len(text)
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error


def texts_at(path: Path, places: Iterable[tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield the parts of a file with these beginnings and lengths in bytes, in order.

    The `hash` of each is given, too. Raise Unreadable, also if a part has changed since its hash was taken.
    """
    try:
        with _opened(path) as file:
            at = 0
            for offset, size, expected in places:
                _go_on(file, at, offset)
                text = file.read(size)
                at = offset + len(text)
                if hash(text) != expected:
                    raise Changed(f"{path.name} changed while it was read: import it again")
                yield text
    except OSError as error:
        raise Unreadable(f"{path.name} cannot be read: {error.strerror}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if not packed.is_packed(path):
            yield _loglines(file) or utf16.as_utf8(file)
            return
        yield packed.unpacked(file, path.name, os.fstat(file.fileno()).st_size)


def has_loglines(path: Path) -> bool:
    """Return whether the file is one document with all lines in its list `loglines`."""
    try:
        with path.open("rb") as file:
            return LOGLINES.match(file.read(HEAD_BYTES)) is not None
    except OSError:
        return False


def _loglines(file: IO[bytes]) -> IO[bytes] | None:
    """Return a document's lines as a file, with its other members as the first line; None for other files."""
    is_document = LOGLINES.match(file.read(HEAD_BYTES))
    file.seek(0)
    text = file.read(LINE_MAX_BYTES + 1) if is_document else b""
    file.seek(0)
    try:
        document = parsed(text.removeprefix(codecs.BOM_UTF8)) if 0 < len(text) <= LINE_MAX_BYTES else None
    except Damaged:
        return None
    if not isinstance(document, dict) or not isinstance(rows := document.pop("loglines", None), list):
        return None
    beside = [{"type": "document", **document}] if document else []
    return io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in (*beside, *rows)))


def _go_on(file: IO[bytes], at: int, offset: int) -> None:
    """Move forward in a file; a packed one cannot skip bytes."""
    if file.seekable():
        file.seek(offset)
        return
    while at < offset and (passed := len(file.read(min(offset - at, 1024 * 1024)))):
        at += passed


def is_fresh(path: Path) -> bool:
    """Return whether the file was written to recently, so that its last line may be incomplete."""
    try:
        return time.time() - path.stat().st_mtime < FRESH_S
    except OSError:
        return False


def below(directory: Path, ending: str) -> list[Path]:
    """Return the files below a directory with this ending. Raise Unreadable if a part cannot be read."""

    def refuse(error: OSError) -> None:
        raise Unreadable(f"{error.filename} cannot be read: {error.strerror}") from error

    return [
        Path(folder, name)
        for folder, _, names in os.walk(directory, onerror=refuse)
        for name in names
        if name.endswith(ending)
    ]


def record(text: bytes) -> dict[str, object]:
    """Return the object of a line in a storable form. Raise Damaged."""
    value = parsed(text)
    if not isinstance(value, dict):
        raise Damaged("it is not a JSON object")
    return {columns.clean(name): storable(item, 1) for name, item in value.items()}


def arguments(given: object) -> Mapping[str, object] | str:
    """Return the arguments of a call: an object, or the one in a JSON text; anything else as text."""
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        return columns.as_json(given)
    # Most outputs of tools are no JSON, and may be long.
    if not given.lstrip().startswith("{"):
        return given
    try:
        # Bounded again: the bounds of the record around it count the whole text as one value.
        return record(given.encode())
    except (Damaged, UnicodeEncodeError):
        return given


def parsed(text: bytes | str) -> object:
    """Return the value of a JSON text from outside. Raise Damaged, or the error of the check of `checked_by`.

    A text with many values is decoded in steps: otherwise it would block all other threads.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        bounds.require_bounded(decoded, values_max=VALUES_MAX, depth_max=splices.DEPTH_MAX + 1, between=check)
        is_quick = sum(map(decoded.count, ",[{")) <= QUICK_MAX_VALUES
        return json.loads(decoded, cls=None if is_quick else StepwiseDecoder)
    except UnicodeDecodeError as error:
        raise Damaged("it is not UTF-8") from error
    except bounds.TooManyValues as error:
        raise Damaged(f"it has more than {VALUES_MAX:,} values") from error
    except (bounds.TooDeep, RecursionError) as error:
        raise Damaged("it is nested too deeply") from error
    except ValueError as error:
        raise Damaged("it is not valid JSON") from error


def storable(value: object, depth: int = 0) -> object:
    """Return a value without what no database stores. Raise Damaged if it is nested too deeply."""
    if depth > splices.DEPTH_MAX:
        raise Damaged("it is nested too deeply")
    if isinstance(value, list | dict):
        check()
    match value:
        case str():
            return columns.clean(value)
        case float() if not math.isfinite(value):
            return None
        case list():
            return [storable(item, depth + 1) for item in value]
        case dict():
            return {columns.clean(name): storable(item, depth + 1) for name, item in value.items()}
    return value


def kept(text: bytes) -> str | dict[str, str]:
    """Return the bytes of a damaged line in a form for JSON: as text, or in base64 if they are none."""
    if b"\0" not in text:
        try:
            return text.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(text).decode()}
