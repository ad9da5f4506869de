"""`quire rag` reads files into collections and searches them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from quire.rag.document_parsing import kind_of, parse
from quire.rag.embedder import HashingEmbedder
from quire.rag.embedder_process import EmbedderProcess
from quire.rag.parser_process import ParserProcess


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything in this process; tests/rag covers the child processes."""
    monkeypatch.setattr(ParserProcess, "parse", lambda self, name, data: parse(kind_of(name), data))
    monkeypatch.setattr(EmbedderProcess, "facts", HashingEmbedder.facts)
    monkeypatch.setattr(EmbedderProcess, "embed", lambda self, texts: HashingEmbedder().embed(texts))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "cats.md").write_text("# Cats\n\nCats sleep all day.")
    (docs / "dogs.txt").write_text("Dogs bark at [bold]night.")
    return docs


def quire(directory: Path, *arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["rag", *map(str, arguments), "--rag-dir", str(directory / "rag")])
    assert result.exit_code == status, result.output
    return result


def test_documents_are_ingested_found_listed_and_deleted(tmp_path: Path, docs: Path) -> None:
    ingest = (
        "ingest",
        docs,
        "-c",
        "pets",
        "--embedder",
        "hashing",
        "--json",
        tmp_path / "json",
        "--metadata",
        "year=1",
        "--public",
    )
    assert "2 added, 0 changed, 0 unchanged, 0 removed" in quire(tmp_path, *ingest).output
    assert "0 added, 0 changed, 2 unchanged, 0 removed" in quire(tmp_path, *ingest).output
    figures = json.loads((tmp_path / "json").read_text())
    assert (figures["unchanged"], figures["num_documents"], figures["num_chunks_in_all"]) == (2, 2, 2)

    output = quire(tmp_path, "query", "do cats sleep", "-c", "pets", "--top-k", 1, "--json", tmp_path / "json").output
    assert "docs/cats.md, characters 0 to 27  Cats" in output
    (passage,) = json.loads((tmp_path / "json").read_text())
    assert passage["text"] == "# Cats\n\nCats sleep all day."
    assert f"{passage['score']:.3f}" in output
    only_text = ("query", "cats", "-c", "pets", "--filter", "kind=text", "--filter", "year=1")
    assert "Dogs bark at [bold]night." in quire(tmp_path, *only_text).output
    assert "no passages found" in quire(tmp_path, "query", "cats", "-c", "pets", "--filter", "year=2").output

    assert "pets" in quire(tmp_path, "ls", "--json", tmp_path / "json").output
    assert json.loads((tmp_path / "json").read_text())[0]["is_public"]
    assert "docs/dogs.txt" in quire(tmp_path, "ls", "-c", "pets").output
    assert "1 documents deleted" in quire(tmp_path, "rm", "-c", "pets", "docs/dogs.txt").output
    assert "no document 'docs/dogs.txt'" in quire(tmp_path, "rm", "-c", "pets", "docs/dogs.txt", status=2).output
    assert "1 documents deleted" in quire(tmp_path, "rm", "-c", "pets", "#1").output
    assert "'pets' is deleted" in quire(tmp_path, "rm", "-c", "pets").output
    assert "there are no collections" in quire(tmp_path, "ls").output


def test_chunks_fit_the_smallest_of_the_models_that_read_them(tmp_path: Path, docs: Path) -> None:
    (docs / "long.txt").write_text("Nobody knows how long this is. " * 60)
    models = ("--model", "random:tiny", "--model", "quire-chat")
    quire(tmp_path, "ingest", docs, "-c", "c", "--embedder", "hashing", "--chunk-tokens", 100, *models)
    # The preset counts bytes, the largest possible number of tokens.
    quire(tmp_path, "query", "nobody", "-c", "c", "--top-k", 99, "--json", tmp_path / "json")
    passages = json.loads((tmp_path / "json").read_text())
    assert max(len(passage["text"]) for passage in passages) == 92  # three sentences
    output = quire(tmp_path, "ingest", docs, "-c", "c", "--chunk-tokens", 50, status=2).output
    assert "quire rag rm -c c" in output
    output = quire(tmp_path, "ingest", docs, "-c", "d", "--embedder", "hashing", "--chunk-tokens", 999, *models).output
    assert "chunks of 256 tokens, not 999" in output


def test_mistakes_are_explained(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashing = ("-c", "c", "--embedder", "hashing")
    assert "no such file" in quire(tmp_path, "ingest", tmp_path / "gone", *hashing, status=2).output
    assert "there are none" in quire(tmp_path, "query", "x", "-c", "c", status=2).output
    assert "KEY=VALUE" in quire(tmp_path, "ingest", docs, *hashing, "--metadata", "x", status=2).output
    (docs / "broken.json").write_text("{")
    output = quire(tmp_path, "ingest", docs, *hashing, status=1).output
    assert "2 added" in output
    assert "not read: docs/broken.json: it is not JSON" in output
    monkeypatch.setitem(sys.modules, "quire.rag.collections", None)
    assert "pip install 'quire-llm[rag]'" in quire(tmp_path, "ls", status=2).output


def test_ctrl_c_says_what_is_kept(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(70):
        (docs / f"{number}.txt").write_text(f"Text of number {number}.")
    calls = iter([False, True])

    def embed(self: object, texts: list[str]) -> object:
        if next(calls):
            raise KeyboardInterrupt
        return HashingEmbedder().embed(texts)

    monkeypatch.setattr(EmbedderProcess, "embed", embed)
    output = quire(tmp_path, "ingest", docs, "-c", "c", "--embedder", "hashing", status=130).output
    assert "interrupted: 64 added" in output


def test_the_second_answer_has_the_passages_kv_from_disk(
    tmp_path: Path, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (docs / "cats.md").write_text("Cats sleep all day, and whoever wakes them up is sorry for it soon. " * 3)
    warm = ("--warm", "random:tiny")
    output = quire(tmp_path, "ingest", docs, "-c", "pets", "--embedder", "hashing", *warm).output
    assert "2 passages of 'pets' for random:tiny" in output
    (docs / "empty.txt").touch()
    (docs / "picture.png").touch()
    output = quire(tmp_path, "ingest", docs, "-c", "pets").output
    assert "without text: docs/empty.txt\nskipped, since these kinds are not read: 1 of .png\n" in output
    ask = ("ask", "do cats sleep?", "-c", "pets", "--model", "random:tiny", "--max-tokens", 4)
    caplog.clear()
    output = quire(tmp_path, *ask, "--json", tmp_path / "json").output
    assert not caplog.messages, "how the model was loaded is not the question"
    figures = json.loads((tmp_path / "json").read_text())
    assert "first token after" in output
    assert figures["answer"].strip() in output
    assert figures["sources"][0]["document"].endswith("cats.md")
    assert figures["cached_tokens_by_tier"]["disk"] >= 192
    output = quire(tmp_path, "warm", "-c", "pets", "--model", "random:tiny").output
    assert ": 0 tokens computed" in output
    assert "{documents} once" in quire(tmp_path, *ask, "--template", "{question}", status=2).output
    assert "no passages found" in quire(tmp_path, *ask, "--filter", "kind=none", status=2).output
