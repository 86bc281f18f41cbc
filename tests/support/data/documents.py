"""Documents of office programs, made as small as they can be."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence

import docx
import openpyxl
import pypdf

_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"


def pdf(pages: Sequence[str]) -> bytes:
    """Return a PDF whose pages have one line of ASCII each."""
    contents = [f"BT /F1 12 Tf 72 720 Td ({page}) Tj ET".encode() for page in pages]
    return pdf_of(contents)


def pdf_of(contents: Sequence[bytes], *, extra: bytes = b"") -> bytes:
    """Return a PDF whose pages have these content streams; `extra` is in the dictionary of each stream."""
    first = 4
    kids = b" ".join(b"%d 0 R" % (first + 2 * number) for number in range(len(contents)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(contents), kids),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, content in enumerate(contents):
        place = first + 2 * number + 1
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
            b"/Contents %d 0 R>>" % place
        )
        objects.append(b"<</Length %d%s>>stream\n%s\nendstream" % (len(content), extra, content))
    written, offsets = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        offsets.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(written))
    return written + head + table + end


def encrypted(content: bytes, password: str) -> bytes:
    """Return a PDF that opens with this password only."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(content))
    writer.encrypt(password, "the owner's", algorithm="AES-256")
    return _saved(writer.write)


def word(paragraphs: Sequence[str], cells: Sequence[Sequence[str]]) -> bytes:
    """Return a Word file: paragraphs, and a table after them."""
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    table = document.add_table(len(cells), len(cells[0]))
    for row, texts in zip(table.rows, cells, strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    return _saved(document.save)


def excel(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """Return an Excel file with these sheets."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(list(row))
    return _saved(book.save)


def powerpoint(slides: Sequence[str], *, before: str = "") -> bytes:
    """Return a PowerPoint file; `before` precedes the XML of each slide."""
    names = f'xmlns:p="p" xmlns:a="{_DRAWING}"'
    shapes = [f"<p:sld {names}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>" for text in slides]
    members = {f"ppt/slides/slide{number}.xml": before + each for number, each in enumerate(shapes, 1)}
    return packed({"ppt/presentation.xml": "<a/>", **members})


def packed(members: Mapping[str, str | bytes]) -> bytes:
    """Return a zip file."""

    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    return _saved(write)


def unpacked(content: bytes) -> dict[str, bytes]:
    """Return the members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()
