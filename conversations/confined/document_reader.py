"""Runs in a confined process: prints the text of a document, its standard input, as one line of JSON.

Only the library for the kind of the document is loaded, which takes a second each.
"""

from __future__ import annotations

import json
import sys
import time
import zipfile
from collections.abc import Iterator
from io import BytesIO
from xml.etree import ElementTree

KIND = json.loads(sys.argv[1])["arguments"][0]  # of the process's task: see `child`

if KIND == "pdf":
    import pypdf
    import pypdf.errors
elif KIND == "docx":
    import docx
    import docx.table
    import docx.text.paragraph
elif KIND == "xlsx":
    import openpyxl

DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
ENCRYPTED = "it is encrypted; remove its password, and attach it again"


def read(kind: str, most_chars: int, seconds: float) -> None:
    """Print the beginning of a document's text, and the number of its pages."""
    data = sys.stdin.buffer.read()
    pages, parts = {"pdf": _pdf, "docx": _docx, "xlsx": _xlsx, "pptx": _pptx, "text": _text}[kind](data)
    text, is_cut, until = "", False, time.monotonic() + seconds
    for part in parts:
        text += part
        if is_cut := len(text) > most_chars or time.monotonic() > until:
            break
    print(json.dumps({"text": text[:most_chars], "pages": pages, "is_cut": is_cut}))


def _pdf(data: bytes) -> tuple[int | None, Iterator[str]]:
    try:
        opened = pypdf.PdfReader(BytesIO(data))
        if opened.is_encrypted and not opened.decrypt(""):
            raise ValueError(ENCRYPTED)
        count = len(opened.pages)
    except (pypdf.errors.PyPdfError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError("it is damaged, or not a PDF file") from error
    return count, (_of_page(opened, number) for number in range(count))


def _of_page(opened: pypdf.PdfReader, number: int) -> str:
    try:
        found = opened.pages[number].extract_text()
    except MemoryError:
        raise
    except Exception:  # of one page, which may be damaged alone
        found = "[This page cannot be read.]"
    return f"{found.strip()}\n\n" if found.strip() else ""


def _docx(data: bytes) -> tuple[int | None, Iterator[str]]:
    _require_small(data, "word/document.xml", "Word")
    try:
        document = docx.Document(BytesIO(data))
    except MemoryError:
        raise
    except Exception as error:  # of XML, of the archive, or of what is missing in it
        raise ValueError("it is damaged, or not a Word file") from error
    return None, (_of_block(block) for block in document.iter_inner_content())


def _of_block(block: docx.table.Table | docx.text.paragraph.Paragraph) -> str:
    if isinstance(block, docx.table.Table):
        return "".join("\t".join(cell.text for cell in row.cells) + "\n" for row in block.rows) + "\n"
    return f"{block.text}\n"


def _xlsx(data: bytes) -> tuple[int | None, Iterator[str]]:
    _require_small(data, "xl/workbook.xml", "Excel")
    try:
        book = openpyxl.load_workbook(BytesIO(data), read_only=True, data_only=True)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError("it is damaged, or not an Excel file") from error
    return len(book.sheetnames), _rows(book)


def _rows(book: openpyxl.Workbook) -> Iterator[str]:
    for sheet in book.worksheets:
        yield f"{sheet.title}\n"
        # What the sheet says of its size may be less than it has, or all that a sheet can have.
        sheet.reset_dimensions()
        for row in sheet.iter_rows(values_only=True):
            cells = ["" if cell is None else str(cell) for cell in row]
            # An empty row as well, so that time and length are looked at.
            yield "\t".join(cells).rstrip("\t") + "\n" if any(cells) else ""
        yield "\n"


def _pptx(data: bytes) -> tuple[int | None, Iterator[str]]:
    archive = _require_small(data, "ppt/presentation.xml", "PowerPoint")
    numbers = [
        int(number)
        for name in archive.namelist()
        if (number := name.removeprefix("ppt/slides/slide").removesuffix(".xml")).isdecimal()
    ]
    return len(numbers), (_of_slide(archive, number) for number in sorted(numbers))


def _of_slide(archive: zipfile.ZipFile, number: int) -> str:
    try:
        root = ElementTree.fromstring(archive.read(f"ppt/slides/slide{number}.xml"))  # noqa: S314 - confined
    except (ElementTree.ParseError, zipfile.BadZipFile, KeyError) as error:
        raise ValueError("it is damaged, or not a PowerPoint file") from error
    lines = ("".join(run.text or "" for run in each.iter(f"{DRAWING}t")) for each in root.iter(f"{DRAWING}p"))
    return "".join(f"{line}\n" for line in lines if line.strip()) + "\n"


def _require_small(data: bytes, member: str, program: str) -> zipfile.ZipFile:
    """Return a document's archive. Raise ValueError if it is none, or one that unpacks to too much."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):  # the container of encrypted documents and of older formats
        raise ValueError(f"it is encrypted, or of an older version of {program}; save it as a new one")
    try:
        archive = zipfile.ZipFile(BytesIO(data))
        members = archive.infolist()
        archive.getinfo(member)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, ValueError) as error:
        raise ValueError(f"it is damaged, or not a file of {program}") from error
    members_max, unpacked_max_bytes = 10_000, 50 * 1024 * 1024
    # What a member says here is the most that is unpacked of it.
    if len(members) > members_max or sum(each.file_size for each in members) > unpacked_max_bytes:
        raise ValueError("it unpacks to far more than a document holds")
    return archive


def _text(data: bytes) -> tuple[int | None, Iterator[str]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None, iter([data.decode("utf-16", errors="replace")])
    if b"\0" in data:
        raise ValueError("it is neither text nor a PDF, Word, Excel or PowerPoint file")
    try:
        return None, iter([data.decode("utf-8-sig")])
    except UnicodeDecodeError:
        return None, iter([data.decode("cp1252", errors="replace")])
