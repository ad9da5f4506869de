"""Parse text, Markdown, HTML, PDF, Office, EPUB, CSV and SQuAD JSON files into plain text, in a child process."""

from __future__ import annotations

import csv
import io
import json
import logging
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

KINDS = {
    ".txt": "text", ".text": "text", ".rst": "text",
    ".md": "markdown", ".markdown": "markdown",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "docx", ".pptx": "pptx", ".xlsx": "xlsx",
    ".epub": "epub",
    ".csv": "csv", ".tsv": "csv",
    ".json": "squad",
}  # fmt: skip
"""File suffix -> format."""
MAX_CHARACTERS = 64 << 20  #: per file; a PDF of a few KiB can expand to more text than that

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w-]{1,40})""", re.I)
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {12: "\n"}
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)??(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_TITLE_FIELD = re.compile(r"^title:(.+)$", re.M | re.I)
_HEADING = re.compile(r"^#{1,2}[ \t](.+)$", re.M)
_UNSEEN = {"script", "style", "noscript", "template", "head", "svg", "iframe", "object", "select", "textarea"}
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "summary", "table", "tr", "ul",
}  # fmt: skip
_KEPT_SPACE, _KEPT_LINE, _LINE, _PARAGRAPH, _PRE = ("\0", "\1", "\2", "\3", "\4")  # markers that `_join` resolves
_PARAGRAPHS = {"p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "pre", "blockquote", "section", "article"}


@dataclass(frozen=True)
class ParsedDocument:
    """One document of a file; most files are one."""

    text: str  #: without control characters, lines ended by \n
    title: str = ""
    page_starts: tuple[int, ...] = ()  #: offset of each page in the text, in characters; empty without pages


def kind_of(name: str) -> str | None:
    """The format of a file by its name; None if it is not supported."""
    return KINDS.get(PurePath(name).suffix.lower())


def parse(kind: str, data: bytes) -> list[ParsedDocument]:
    """Parse a file of a kind in `KINDS` into documents with text. Raises ValueError for other or too much content."""
    try:
        found = _PARSERS[kind](data)
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # parser libraries raise anything on a broken file
        raise ValueError(f"it cannot be parsed as {kind} ({type(error).__name__}: {error!s:.200})") from None
    if sum(len(each.text) for each in found) > MAX_CHARACTERS:
        raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters of text; split it")
    cleaned = [
        ParsedDocument(clean(each.text).strip("\n"), " ".join(clean(each.title).split()), each.page_starts)
        for each in found
    ]
    return [each for each in cleaned if each.text.strip()]


def clean(text: str) -> str:
    """Normalize line ends, replace control characters and lone surrogates: safe for terminals and SQLite."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    return text.encode("utf-8", "replace").decode("utf-8")


def _decode(data: bytes, charset: str = "utf-8") -> str:
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if b"\0" in data[:4096]:
        raise ValueError("it is binary, not text")
    try:
        return data.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return data.decode("cp1252", "replace")


def _text(data: bytes) -> list[ParsedDocument]:
    return [ParsedDocument(_decode(data))]


def _markdown(data: bytes) -> list[ParsedDocument]:
    """Keep the markup, which models read well; the front matter only provides the title."""
    text = _decode(data).replace("\r\n", "\n")
    title, front = "", _FRONT_MATTER.match(text)
    if front is not None:
        text = text[front.end() :]
        title = _first(_TITLE_FIELD, front[1] or "")
    # The end of a heading is stripped here: a pattern that leaves it out takes quadratic time.
    title = title or _first(_HEADING, text).rstrip(" \t#")
    return [ParsedDocument(text, title.strip("\"'"))]


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].strip() if found is not None else ""


def _html(data: bytes) -> list[ParsedDocument]:
    from selectolax.lexbor import LexborHTMLParser

    charset = _CHARSET.search(data[:2048])
    tree = LexborHTMLParser(_decode(data, charset[1].decode() if charset is not None else "utf-8"))
    title = tree.css_first("title")
    return [
        ParsedDocument(
            "" if tree.body is None else _join("".join(_visible(tree.body))), "" if title is None else title.text()
        )
    ]


def _visible(root: LexborNode) -> Iterator[str]:
    """Yield a page's text with markers for borders and preserved spaces; iterative, since pages nest deeply."""
    num_pre = 0
    stack: list[LexborNode | str] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            num_pre -= node == _PRE
            yield _PARAGRAPH if node == _PRE else node
            continue
        tag = node.tag or ""
        if tag == "-text":
            text = node.text_content or ""
            yield (
                text.replace("\n", _KEPT_LINE).replace(" ", _KEPT_SPACE)
                if num_pre
                else " ".join(re.split(r"\s+", text))
            )
        elif tag == "br":
            yield "\n"
        elif tag not in _UNSEEN and not tag.startswith(("-", "_")) and "hidden" not in node.attributes:
            edge = _PARAGRAPH if tag in _PARAGRAPHS else _LINE if tag in _BLOCKS else " " if tag in ("td", "th") else ""
            yield edge
            if tag == "pre":
                num_pre, edge = num_pre + 1, _PRE
            stack.append(edge)
            children = list(node.iter(include_text=True))
            stack.extend(reversed(children))


def _join(text: str) -> str:
    text = re.sub(r"[\2\3][\2\3 ]*", lambda found: "\n\n" if _PARAGRAPH in found[0] else "\n", text)
    joined = "\n".join(re.sub(r" +", " ", line).strip(" ") for line in text.split("\n"))
    return joined.replace(_KEPT_SPACE, " ").replace(_KEPT_LINE, "\n").strip("\n")


def _pdf(data: bytes) -> list[ParsedDocument]:
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns about every oddity
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it is encrypted; save it without a password")
    return _paged((page.extract_text() for page in reader.pages), (reader.metadata and reader.metadata.title) or "")


def _paged(texts: Iterable[str], title: str) -> list[ParsedDocument]:
    pages: list[str] = []
    starts, length = [], 0
    for text in texts:
        starts.append(length)
        if cleaned := clean(text).strip("\n"):  # here, so that the offsets stay right
            pages.append(cleaned)
            length += len(cleaned) + 2
        if length > MAX_CHARACTERS:
            break
    if not any(text.strip() for text in pages):
        raise ValueError("it has only images and no text; run it through OCR first")
    return [ParsedDocument("\n\n".join(pages), title, tuple(starts))]


def _docx(data: bytes) -> list[ParsedDocument]:
    """Paragraphs and tables in their order; a table's row is a line."""
    from docx import Document
    from docx.table import Table

    document = Document(io.BytesIO(data))
    blocks = [_grid(each) if isinstance(each, Table) else each.text for each in document.iter_inner_content()]
    return [ParsedDocument("\n\n".join(block for block in blocks if block.strip()), document.core_properties.title)]


def _grid(table: Any) -> str:
    return "\n".join(" | ".join(cell.text for cell in row.cells) for row in table.rows)


def _pptx(data: bytes) -> list[ParsedDocument]:
    """Slides as pages: texts and tables of their shapes, then the speaker's notes."""
    from pptx import Presentation

    presentation = Presentation(io.BytesIO(data))
    slides = ("\n\n".join(filter(str.strip, _slide(slide))) for slide in presentation.slides)
    return _paged(slides, presentation.core_properties.title)


def _slide(slide: Any) -> Iterator[str]:
    shapes = [*slide.shapes][::-1]
    while shapes:
        shape = shapes.pop()
        shapes += [*getattr(shape, "shapes", ())][::-1]  # of a group
        if getattr(shape, "has_table", False):
            yield _grid(shape.table)
        elif shape.has_text_frame:
            yield shape.text_frame.text
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) is not None:
        yield frame.text


def _xlsx(data: bytes) -> list[ParsedDocument]:
    """A document for each sheet, with a line for each row, as in CSV. Formulas are their last values."""
    from openpyxl import load_workbook

    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    found = []
    for sheet in book.worksheets:
        rows = ([str(cell if cell is not None else "") for cell in row] for row in sheet.iter_rows(values_only=True))
        found.append(ParsedDocument(_lines(rows), sheet.title))
    return found


def _epub(data: bytes) -> list[ParsedDocument]:
    """The chapters of a book in its reading order."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if "META-INF/encryption.xml" in archive.namelist():
            raise ValueError("it is encrypted; take a copy without DRM")
        container = etree.fromstring(archive.read("META-INF/container.xml"), parser)
        package_path = container.xpath("string(//*[local-name()='rootfile']/@full-path)")
        package = etree.fromstring(archive.read(package_path), parser)
        folder = posixpath.dirname(package_path)
        hrefs = {item.get("id"): item.get("href") for item in package.xpath("//*[local-name()='item']")}
        chapters = dict.fromkeys(hrefs[each.get("idref")] for each in package.xpath("//*[local-name()='itemref']"))
        names = [posixpath.normpath(posixpath.join(folder, unquote(href))) for href in chapters]
        texts = [document.text for name in names for document in _html(archive.read(name))]
    title = package.xpath("string(//*[local-name()='title'])")
    return [ParsedDocument("\n\n".join(texts), title)]


def _csv(data: bytes) -> list[ParsedDocument]:
    """A line for each row, which repeats the header's names, so that a chunk is understood alone."""
    text = _decode(data)
    csv.field_size_limit(MAX_CHARACTERS)
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    return [ParsedDocument(_lines(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)) or text)]


def _lines(table: Iterable[Sequence[str]]) -> str:
    """Write the cells of rows behind the names in the first one, which stands alone if it is the only one."""
    rows = [row for row in table if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        return "; ".join(rows[0]) if rows else ""
    header, *rows = rows
    names = [*header, *(f"column {number}" for number in range(len(header) + 1, max(map(len, rows)) + 1))]
    return "\n".join(
        "; ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=False) if cell) for row in rows
    )


def _squad(data: bytes) -> list[ParsedDocument]:
    """Every paragraph is a document; questions are ignored."""
    wrong = "it is not SQuAD JSON ({'data': [{'title', 'paragraphs': [{'context'}]}]})"
    try:
        content: Any = json.loads(data)
        return [
            ParsedDocument(str.__str__(paragraph["context"]), str(article.get("title") or ""))
            for article in content["data"]
            for paragraph in article["paragraphs"]
        ]
    except RecursionError:
        raise ValueError(wrong) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{wrong}: {error!r:.100}") from None


_PARSERS: dict[str, Callable[[bytes], list[ParsedDocument]]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "pdf": _pdf,
    "docx": _docx,
    "pptx": _pptx,
    "xlsx": _xlsx,
    "epub": _epub,
    "csv": _csv,
    "squad": _squad,
}
