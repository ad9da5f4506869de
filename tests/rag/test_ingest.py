"""A collection matches the current files, and only changed ones are parsed, cut and embedded again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from quire.rag.collection import Collection
from quire.rag.collections import Collections
from quire.rag.document_parsing import ParsedDocument, parse
from quire.rag.embedder import HashingEmbedder, TokenCounter, hashing_spans
from quire.rag.embedding import Embeddings
from quire.rag.ingest import IngestReport, ingest
from quire.rag.parser_process import ParserProcess


class CountingEmbedder(HashingEmbedder):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Embeddings:
        self.texts += texts
        return super().embed(texts)


class ParserHere(ParserProcess):
    """Parses in this process; `test_document_parsing.py` tests the child."""

    def parse(self, name: str, data: bytes) -> list:
        return parse({"txt": "text", "md": "markdown", "json": "squad"}[name.rpartition(".")[2]], data)


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    collections = Collections(tmp_path / "rag")
    yield collections.create("c", HashingEmbedder.facts, chunk_tokens=8, overlap_tokens=0)
    collections.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("Cats sleep all day.")
    (folder / "deep" / "b.md").write_text("# Dogs\n\nDogs bark.")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "picture.png").write_text("png")
    os.mkfifo(folder / "pipe.txt")  # reading it would block for ever
    return folder


def run(
    collection: Collection, *paths: Path, embedder: HashingEmbedder | None = None, **options: object
) -> IngestReport:
    return ingest(
        collection, paths, embedder=embedder or HashingEmbedder(), parser=ParserHere(),
        counters=[TokenCounter(hashing_spans)], **options,  # type: ignore[arg-type]
    )  # fmt: skip


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    return report.added, report.changed, report.unchanged, report.removed


def texts(collection: Collection) -> list[str]:
    return sorted(collection.text(document.id) for document in collection.documents())


def test_only_what_changed_is_changed(collection: Collection, folder: Path) -> None:
    assert counts(run(collection, folder)) == (2, 0, 0, 0)
    first = collection.info.version
    assert counts(run(collection, folder)) == (0, 0, 2, 0)
    assert collection.info.version == first
    (folder / "a.txt").write_text("Cats sleep all night.")
    (folder / "c.txt").write_text("Fish swim.")
    (folder / "deep" / "b.md").unlink()
    assert counts(run(collection, folder)) == (1, 1, 0, 1)
    assert texts(collection) == ["Cats sleep all night.", "Fish swim."]
    assert [document.name for document in collection.documents()] == ["docs/a.txt", "docs/c.txt"]


def test_other_places_are_left_alone(collection: Collection, folder: Path) -> None:
    run(collection, folder)
    (folder / "a.txt").write_text("New.")
    assert counts(run(collection, folder / "deep")) == (0, 0, 1, 0)
    assert counts(run(collection, folder / "deep", folder / "a.txt")) == (0, 1, 1, 0)
    with pytest.raises(ValueError, match="no such file"):
        run(collection, folder / "gone")


def test_an_emptied_folder_empties_its_part_and_any_name_will_do(collection: Collection, folder: Path) -> None:
    odd = os.fsencode(folder / "deep") + b"/od\xffd\x1b\n.txt"
    Path(os.fsdecode(odd)).write_text("Odd names.")
    assert counts(run(collection, folder)) == (3, 0, 0, 0)
    assert "docs/deep/od\\xffd\\x1b\\n.txt" in [document.name for document in collection.documents()]
    assert counts(run(collection, folder)) == (0, 0, 3, 0)
    for file in (folder / "deep").iterdir():
        file.unlink()
    assert counts(run(collection, folder / "deep")) == (0, 0, 0, 2)


def test_chunks_that_stayed_are_not_embedded_again(collection: Collection, folder: Path) -> None:
    sentences = [f"This is the sentence number {number} here." for number in "abcdef"]
    (folder / "a.txt").write_text(" ".join(sentences))
    run(collection, folder / "a.txt")
    sentences[3] = "A wholly different one instead."
    (folder / "a.txt").write_text(" ".join(sentences))
    embedder = CountingEmbedder()
    report = run(collection, folder / "a.txt", embedder=embedder)
    assert (report.num_chunks, report.num_embedded, embedder.texts) == (6, 1, [sentences[3]])


def test_paragraphs_of_squad_are_documents_of_their_own(collection: Collection, tmp_path: Path) -> None:
    def write(*contexts: str) -> Path:
        data = {"data": [{"title": "T", "paragraphs": [{"context": context, "qas": []} for context in contexts]}]}
        (tmp_path / "squad.json").write_text(json.dumps(data))
        return tmp_path / "squad.json"

    assert counts(run(collection, write("one", "two", "three", "one"))) == (3, 0, 0, 0)
    assert collection.documents()[0].metadata == {"kind": "squad", "title": "T"}
    assert counts(run(collection, write("zero", "one", "2", "three"))) == (1, 1, 2, 0)
    assert counts(run(collection, write("three"))) == (0, 0, 1, 3)
    assert counts(run(collection, write("three"))) == (0, 0, 1, 0)


def test_a_file_that_cannot_be_read_is_named_and_the_rest_goes_on(collection: Collection, folder: Path) -> None:
    run(collection, folder)
    (folder / "a.txt").write_bytes(b"\0\1\2")
    (folder / "broken.json").write_text("{")
    (folder / "c.txt").write_text("Fish swim.")
    report = run(collection, folder)
    assert [name for name, _ in report.failed] == ["docs/a.txt", "docs/broken.json"]
    assert counts(report) == (1, 0, 1, 0)
    assert "Cats sleep all day." in texts(collection)  # as it was before


def test_metadata_are_kept_and_a_change_of_them_embeds_nothing(collection: Collection, folder: Path) -> None:
    run(collection, folder, metadata={"team": "blue"})
    assert collection.documents()[1].metadata == {"kind": "markdown", "title": "Dogs", "team": "blue"}
    report = run(collection, folder, metadata={"team": "red"})
    assert (counts(report), report.num_embedded) == ((0, 2, 0, 0), 0)


def test_what_was_done_before_an_interruption_is_kept(collection: Collection, folder: Path) -> None:
    for number in range(150):
        (folder / f"{number:03}.txt").write_text(f"Text of number {number}.")

    class Interrupted(HashingEmbedder):
        calls = 0

        def embed(self, texts: Sequence[str]) -> Embeddings:
            self.calls += 1
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().embed(texts)

    report = IngestReport()
    with pytest.raises(KeyboardInterrupt):
        run(collection, folder, embedder=Interrupted(), report=report)
    assert report.added == collection.info.num_documents == 64
    assert counts(run(collection, folder)) == (152 - 64, 0, 64, 0)


def test_a_file_of_which_only_a_part_was_kept_is_read_again(collection: Collection, tmp_path: Path) -> None:
    file = tmp_path / "squad.json"
    paragraphs = [{"context": f"Paragraph number {number}."} for number in range(100)]
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))

    class Interrupted(HashingEmbedder):
        def embed(self, texts: Sequence[str]) -> Embeddings:
            if collection.info.num_documents:
                raise KeyboardInterrupt
            return super().embed(texts)

    with pytest.raises(KeyboardInterrupt):
        run(collection, file, embedder=Interrupted())
    assert counts(run(collection, file)) == (36, 0, 64, 0)
    assert counts(run(collection, file)) == (0, 0, 100, 0)
    collection.change(removed=[collection.documents()[5].id])
    assert counts(run(collection, file)) == (1, 0, 99, 0)


def test_two_at_once_are_refused(collection: Collection, folder: Path) -> None:
    with collection.changing(), pytest.raises(ValueError, match="another process adds"):
        run(collection, folder)


def test_chunks_are_spans_of_the_text(collection: Collection, folder: Path) -> None:
    run(collection, folder)
    (vector,) = HashingEmbedder().embed(["dogs bark"]).vectors
    best = collection.search(vector, 1)[0]
    assert best.text == collection.text(best.document_id)[best.start : best.end]


def test_files_without_text_and_of_unknown_kinds_are_named(collection: Collection, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "empty.txt").write_text("  \n")
    (folder / "full.txt").write_text("Cats sleep.")
    for name in ("a.xyz", "b.XYZ", "Makefile", ".hidden.xyz"):
        (folder / name).write_text("x")
    report = run(collection, folder)
    assert (report.num_files, report.added, report.empty) == (2, 1, ["texts/empty.txt"])
    assert report.skipped == {".xyz": 2, "no suffix": 1}
    assert run(collection, folder).empty == report.empty, "as often as it is read"


def test_a_passage_names_the_page_on_which_it_starts(collection: Collection, tmp_path: Path) -> None:
    class Pages(ParserHere):
        def parse(self, name: str, data: bytes) -> list:
            text = "Cats sleep all day in the sun.\n\nDogs bark at night."
            return [ParsedDocument(text, page_starts=(0, text.index("Dogs")))]

    (tmp_path / "a.pdf").write_bytes(b"")
    ingest(collection, [tmp_path], embedder=HashingEmbedder(), parser=Pages(), counters=[TokenCounter(hashing_spans)])
    found = collection.search(HashingEmbedder().embed(["Dogs bark at night."]).vectors[0], top_k=1)
    assert (found[0].page, found[0].position) == (2, "page 2")
