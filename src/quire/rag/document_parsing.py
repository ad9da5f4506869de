"""Parse text, Markdown, HTML, PDF and SQuAD JSON files into plain text.

Runs in a child process (`parser_process.py`): a hostile file ends as a ValueError, or ends the process.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

KINDS = {
    ".txt": "text", ".text": "text", ".rst": "text",
    ".md": "markdown", ".markdown": "markdown",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".pdf": "pdf",
    ".json": "squad",
}  # fmt: skip
"""File suffix -> format."""
MAX_CHARACTERS = 64 << 20  #: per file; a PDF of a few KiB can expand to more text than that

_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w-]{1,40})""", re.I)
_CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if code not in (9, 10)} | {12: "\n"}
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)??(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.S)
_TITLE_FIELD = re.compile(r"^title:[ \t]*(.+?)[ \t]*$", re.M | re.I)
_HEADING = re.compile(r"^#{1,2}[ \t]+(.+?)[ \t#]*$", re.M)
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
    cleaned = [ParsedDocument(clean(each.text).strip("\n"), " ".join(clean(each.title).split())) for each in found]
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
    title, front = None, _FRONT_MATTER.match(text)
    if front is not None:
        text = text[front.end() :]
        title = _TITLE_FIELD.search(front[1] or "")
    title = title or _HEADING.search(text)
    return [ParsedDocument(text, title[1].strip("\"'") if title is not None else "")]


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
    pages = []
    for page in reader.pages:
        pages.append(page.extract_text())
        if sum(map(len, pages[-1:])) > MAX_CHARACTERS:
            break
    text = "\n\n".join(pages)
    if not text.strip():
        raise ValueError("it has only images and no text; run it through OCR first")
    return [ParsedDocument(text, (reader.metadata and reader.metadata.title) or "")]


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
    "squad": _squad,
}
