"""Files become text, and hostile ones become named errors."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from docx import Document
from openpyxl import Workbook
from pptx import Presentation
from pptx.util import Inches
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from quire.rag.document_parsing import ParsedDocument, kind_of, parse
from quire.rag.parser_process import ParserProcess
from quire.system.worker_process import WorkerError, WorkerLimits

PAGE = b"""<html><head><title> A  page </title><style>p {}</style></head><body><h1>Head</h1>
<p>Hello <b>big</b> <i>w</i>orld,
again.<br>next</p><script>evil()</script><ul><li>one<li>two</ul><pre>  a
   b</pre><div hidden>no</div><!-- c -->tail"""


def make_pdf(*pages: str, title: str = "") -> bytes:
    writer = PdfWriter()
    for text in pages:
        page = writer.add_blank_page(300, 300)
        font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
        fonts = DictionaryObject(
            {NameObject("/F1"): DictionaryObject({NameObject(k): NameObject(v) for k, v in font.items()})}
        )
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    if title:
        writer.add_metadata({"/Title": title})
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def test_a_page_is_its_visible_text() -> None:
    (page,) = parse("html", PAGE)
    assert page.title == "A page"
    assert page.text == "Head\n\nHello big world, again.\nnext\n\none\ntwo\n\n  a\n   b\n\ntail"


def test_deep_pages_and_other_charsets_are_read() -> None:
    assert parse("html", b"<div>" * 3_000 + b"deep") == [ParsedDocument("deep")]
    assert parse("html", '<meta charset="iso-8859-1">café'.encode("latin-1")) == [ParsedDocument("café")]
    assert parse("html", "<meta charset=nonsense>café".encode()) != []
    assert parse("text", "café".encode("utf-16")) == [ParsedDocument("café")]
    assert parse("text", b"caf\xe9") == [ParsedDocument("café")]


def test_text_is_safe_to_show_and_to_store() -> None:
    (document,) = parse("text", b"a\x1b[31mb\r\nc\rd\x0ce")
    assert document.text == "a [31mb\nc\nd\ne"
    (document,) = parse("squad", b'{"data": [{"title": "x\\ny", "paragraphs": [{"context": "a\\ud800\\u0000b"}]}]}')
    assert document == ParsedDocument("a? b", "x y")


def test_markdown_stays_as_it_is_without_its_front_matter() -> None:
    assert parse("markdown", b'---\ntitle: "Foo"\nx: 1\n---\n# H\ntext') == [ParsedDocument("# H\ntext", "Foo")]
    assert parse("markdown", b"# Head #\n---\ntext\n---\n") == [ParsedDocument("# Head #\n---\ntext\n---", "Head")]


def test_a_pdf_is_the_text_of_its_pages() -> None:
    assert parse("pdf", make_pdf("first page", "second", title="Manual")) == [
        ParsedDocument("first page\n\nsecond", "Manual", (0, 12))
    ]
    assert parse("pdf", make_pdf("", "second"))[0].page_starts == (0, 0), "an empty page takes no room"
    with pytest.raises(ValueError, match="OCR"):
        parse("pdf", make_pdf(""))


def test_a_word_file_is_its_paragraphs_and_tables() -> None:
    document = Document()
    document.core_properties.title = "Minutes"
    document.add_heading("Agenda")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "ferry", "half past seven"
    document.add_paragraph("The end.")
    file = io.BytesIO()
    document.save(file)
    assert parse("docx", file.getvalue()) == [
        ParsedDocument("Agenda\n\nferry | half past seven\n\nThe end.", "Minutes")
    ]


def saved(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_slides_are_pages_with_tables_groups_and_notes() -> None:
    deck = Presentation()
    deck.core_properties.title = "Harbour"
    first, _, last = (deck.slides.add_slide(deck.slide_layouts[6]) for _ in range(3))
    size = [Inches(1)] * 4
    first.shapes.add_textbox(*size).text_frame.text = "Ferries"
    table = first.shapes.add_table(1, 2, *size).table
    table.cell(0, 0).text, table.cell(0, 1).text = "quay", "07:30"
    last.shapes.add_group_shape().shapes.add_textbox(*size).text_frame.text = "Inside a group"
    last.notes_slide.notes_text_frame.text = "Speak slowly."
    text = "Ferries\n\nquay | 07:30\n\nInside a group\n\nSpeak slowly."
    at = text.index("Inside")
    assert parse("pptx", saved(deck)) == [ParsedDocument(text, "Harbour", (0, at, at))]
    with pytest.raises(ValueError, match="no text"):
        parse("pptx", saved(Presentation()))


def test_a_sheet_is_a_document_whose_rows_name_their_columns() -> None:
    book = Workbook()
    for row in (("stop", "boats"), ("Quay", 3), (None, None), ("Mill", 1.5)):
        book.active.append(row)
    book.active.title = "Stops"
    book.create_sheet("Empty")
    book.create_sheet("Note").append(("only a note",))
    assert parse("xlsx", saved(book)) == [
        ParsedDocument("stop: Quay; boats: 3\nstop: Mill; boats: 1.5", "Stops"),
        ParsedDocument("only a note", "Note"),
    ]


def make_epub(**chapters: str) -> bytes:
    items = "".join(f'<item id="{name}" href="text/{name}%20x.xhtml"/>' for name in chapters)
    order = "".join(f'<itemref idref="{name}"/>' for name in reversed(chapters))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("META-INF/container.xml", '<container><rootfile full-path="OPS/book.opf"/></container>')
        book = f"<metadata><title>Tales</title></metadata><manifest>{items}</manifest><spine>{order}</spine>"
        archive.writestr("OPS/book.opf", f'<package xmlns="http://www.idpf.org/2007/opf">{book}</package>')
        for name, text in chapters.items():
            archive.writestr(f"OPS/text/{name} x.xhtml", f"<html><body><p>{text}</p></body></html>")
    return file.getvalue()


def test_a_book_is_its_chapters_in_reading_order() -> None:
    assert parse("epub", make_epub(b="Second.", a="First.")) == [ParsedDocument("First.\n\nSecond.", "Tales")]


def test_a_row_of_a_table_names_its_columns() -> None:
    semicolons = "stop;time\nQuay;07:30\n;\nMill;08:00;extra\n"
    assert parse("csv", semicolons.encode()) == [
        ParsedDocument("stop: Quay; time: 07:30\nstop: Mill; time: 08:00; column 3: extra")
    ]
    assert parse("csv", b"one line") == [ParsedDocument("one line")]


def test_every_paragraph_of_squad_is_a_document() -> None:
    data = {"data": [{"title": "T", "paragraphs": [{"context": "one", "qas": []}, {"context": "two"}]}]}
    assert parse("squad", json.dumps(data).encode()) == [ParsedDocument("one", "T"), ParsedDocument("two", "T")]


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("text", b"\x7fELF\x00\x00", "binary"),
        ("pdf", b"%PDF-1.4 nonsense", "cannot be parsed as pdf|PDF"),
        ("pdf", make_pdf("a page")[:100], "cannot be parsed"),
        ("docx", b"PK nonsense", "cannot be parsed as docx"),
        ("pptx", b"PK nonsense", "cannot be parsed as pptx"),
        ("xlsx", b"PK nonsense", "cannot be parsed as xlsx"),
        ("epub", make_epub(a="First.")[:60], "cannot be parsed as epub"),
        ("squad", b'{"data": [1]}', "not SQuAD JSON"),
        ("squad", b'{"data": [{"paragraphs": [{"context": 5}]}]}', "not SQuAD JSON"),
        ("squad", b"[" * 200_000, "not SQuAD JSON|not JSON"),
        ("squad", b"{", "not JSON"),
    ],
    ids=map(str, range(11)),  # a zip file contains the time
)
def test_what_is_broken_is_refused(kind: str, data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(kind, data)


def test_a_file_that_breaks_the_limits_is_an_error_and_the_next_one_is_read() -> None:
    small = ParserProcess(WorkerLimits(memory_bytes=256 << 20))
    with pytest.raises(ValueError, match="more memory"):
        small.parse("large.txt", bytes([65]) * (60 << 20))
    assert small.parse("a.txt", b"fine") == [ParsedDocument("fine")]
    small.close()
    parser = ParserProcess(WorkerLimits(cpu_s=0.2, wall_s=60))
    with pytest.raises(WorkerError, match="processor time"):
        parser.parse("deep.html", b"<div>" * 100_000)
    assert parser.parse("a.txt", b"fine") == [ParsedDocument("fine")]
    with pytest.raises(ValueError, match="no kind"):
        parser.parse("a.exe", b"")
    assert kind_of("A.Markdown") == "markdown"
    parser.close()


def test_titles_of_long_lines_take_linear_time() -> None:
    blank = " " * 300_000  # a quadratic pattern would take minutes
    assert parse("markdown", f"# a{blank}b #{blank}\ntext".encode())[0].title == "a b"
    assert parse("markdown", f"---\ntitle: C#{blank}\n---\ntext".encode())[0].title == "C#"
