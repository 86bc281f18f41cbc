"""Documents of strangers: their text, or a sentence, by a process that ends alone."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from conversations.confined import documents
from conversations.confined.documents import TEXT_MAX_CHARS
from conversations.confined.processes import NotRead
from tests.support.data.documents import encrypted, excel, packed, pdf, pdf_of, powerpoint, unpacked, word

ENCRYPTED = "it is encrypted; remove its password, and attach it again"


def test_the_text_of_a_document_is_read_whatever_its_format(subtests: pytest.Subtests) -> None:
    report = pdf([f"Page {number} of the report" for number in range(1, 4)])
    whole = "Page 1 of the report\n\nPage 2 of the report\n\nPage 3 of the report\n\n"
    rows = excel({"Fruit": [["name", "price"], ["pear", 2.5]], "Empty": []})
    found = [
        ("report.pdf", report, whole, 3),
        ("report", report, whole, 3),
        ("no password.PDF", encrypted(report, ""), whole, 3),
        ("letter.docx", word(["Dear Ana,", "grüße"], [["a", "b"]]), "Dear Ana,\ngrüße\na\tb\n\n", None),
        ("fruit.xlsx", rows, "Fruit\nname\tprice\npear\t2.5\n\nEmpty\n\n", 2),
        ("talk.pptx", powerpoint(["Hello", "Bye"]), "Hello\n\nBye\n\n", 2),
        ("notes.md", "# Grüße\n".encode(), "# Grüße\n", None),
        ("marked.csv", b"\xef\xbb\xbfa,b\n", "a,b\n", None),
        ("windows.txt", "Grüße".encode("utf-16"), "Grüße", None),
        ("old.txt", "Grüße".encode("latin-1"), "Grüße", None),
        ("empty", b"", "", None),
    ]
    for name, content, text, pages in found:
        with subtests.test(name=name):
            read = documents.read(name, content)
            assert (read.text, read.pages, read.is_cut) == (text, pages, False)


def test_a_sheet_is_read_whatever_it_says_of_its_size(subtests: pytest.Subtests) -> None:
    made = excel({"Fruit": [[f"pear {number}"] for number in range(100)]})
    for size in ("A1", "A1:XFD1048576"):
        with subtests.test(size=size):
            members = {
                name: re.sub(rb'<dimension ref="[^"]*"', f'<dimension ref="{size}"'.encode(), content)
                for name, content in unpacked(made).items()
            }
            assert documents.read("fruit.xlsx", packed(members)).text.count("pear") == 100


def test_a_document_of_300_pages_is_read_to_its_end() -> None:
    read = documents.read("long.pdf", pdf([f"This is page {number}." for number in range(1, 301)]))
    assert (read.pages, read.is_cut) == (300, False)
    assert read.text.startswith("This is page 1.")
    assert read.text.endswith("This is page 300.\n\n")


def test_of_a_table_of_20_megabytes_the_beginning_is_read() -> None:
    content = b"name,price\n" + b"pear,2.50\n" * 2_000_000
    read = documents.read("fruit.csv", content)
    assert read.is_cut
    assert read.text == content[:TEXT_MAX_CHARS].decode()


def test_what_cannot_be_read_is_named_in_a_sentence(subtests: pytest.Subtests) -> None:
    report = pdf(["Page 1"])
    letter = word(["Dear Ana,"], [["a"]])
    older = b"\xd0\xcf\x11\xe0" + bytes(600)
    unread = [
        ("secret.pdf", encrypted(report, "password"), ENCRYPTED),
        ("cut.pdf", report[:200], "it is damaged, or not a PDF file"),
        ("other.pdf", b"hello", "it is damaged, or not a PDF file"),
        ("cut.docx", letter[: len(letter) // 2], "it is damaged, or not a file of Word"),
        ("other.docx", packed({"a": "b"}), "it is damaged, or not a file of Word"),
        ("hollow.docx", packed({"word/document.xml": "<a/>"}), "it is damaged, or not a Word file"),
        ("older.docx", older, "it is encrypted, or of an older version of Word; save it as a new one"),
        ("other.xlsx", packed({"xl/workbook.xml": "<a>"}), "it is damaged, or not an Excel file"),
        ("program", b"\x7fELF\0\0", "it is neither text nor a PDF, Word, Excel or PowerPoint file"),
    ]
    for name, content, why in unread:
        with subtests.test(name=name):
            with pytest.raises(NotRead) as refused:
                documents.read(name, content)
            assert str(refused.value) == why


def test_a_document_that_takes_too_much_ends_its_process_and_no_other(subtests: pytest.Subtests) -> None:
    much = b"x" * 300_000_000
    stream = zlib.compress(b"BT /F1 12 Tf (" + much + b") Tj ET")
    bombs = [
        ("bomb.docx", packed({"word/document.xml": much})),
        ("bomb.xlsx", packed({"xl/workbook.xml": "<a/>", **{f"{number}": "" for number in range(11_000)}})),
        ("bomb.pptx", powerpoint(["&l;"], before=_laughing())),
    ]
    for name, content in bombs:
        with subtests.test(name=name), pytest.raises(NotRead):
            documents.read(name, content)
    # A page that is too much is left out, or the whole file is.
    try:
        read = documents.read("bomb.pdf", pdf_of([stream], extra=b"/Filter/FlateDecode"))
    except NotRead:
        pass
    else:
        assert len(read.text) <= TEXT_MAX_CHARS
    assert documents.read("after.txt", b"Still here.").text == "Still here."


def _laughing() -> str:
    doubled = "".join(f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">' for number in range(1, 12))
    return f'<!DOCTYPE a [<!ENTITY l0 "lol">{doubled}<!ENTITY l "&l11;">]>'


def test_a_document_names_no_file_that_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for models")
    outside = f'<!DOCTYPE a [<!ENTITY l SYSTEM "file://{secret}">]>'
    try:
        text = documents.read("talk.pptx", powerpoint(["&l;"], before=outside)).text
    except NotRead as refused:
        text = str(refused)
    assert "not for models" not in text
