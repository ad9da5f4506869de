"""Searches see exactly the stored documents, whatever happens to the index or to writers."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quire.rag.chunks import Chunk
from quire.rag.collection import Collection
from quire.rag.collections import Collections, default_directory
from quire.rag.database import FILE
from quire.rag.embedder import HashingEmbedder
from quire.rag.embedding import EmbedderFacts
from quire.rag.records import NewDocument

EMBEDDER = HashingEmbedder()


@pytest.fixture
def collections(tmp_path: Path) -> Iterator[Collections]:
    made = Collections(tmp_path / "rag")
    yield made
    made.close()


def document(text: str, *, origin: str | None = None, replaces: int | None = None, **metadata: object) -> NewDocument:
    """A document with one chunk per line."""
    chunks, start = [], 0
    for line in text.split("\n"):
        chunks.append(Chunk(start, start + len(line), len(line.split())))
        start += len(line) + 1
    vectors = EMBEDDER.embed(text.split("\n")).vectors
    name = origin or text.split()[0]
    return NewDocument(name, name, metadata, text, text.encode(), chunks, vectors, replaces)  # type: ignore[arg-type]


def find(collection: Collection, text: str, top_k: int = 1, **options: object) -> list[str]:
    (vector,) = EMBEDDER.embed([text]).vectors
    return [passage.text for passage in collection.search(vector, top_k, **options)]  # type: ignore[arg-type]


def test_the_nearest_chunks_are_found_with_their_places(collections: Collections) -> None:
    collection = collections.create("pets", EMBEDDER.facts)
    collection.change(
        [document("the cat sleeps\nа dog barks 🐕 loudly\nfish swim", title="Pets"), document("rain falls")]
    )
    (vector,) = EMBEDDER.embed(["a dog barks loudly"]).vectors
    passages = collection.search(vector, 9)
    best = passages[0]
    assert (best.text, best.document, best.metadata, best.num_tokens) == (
        "а dog barks 🐕 loudly", "the", {"title": "Pets"}, 5,
    )  # fmt: skip
    assert collection.text(best.document_id)[best.start : best.end] == best.text
    assert [passage.score for passage in passages] == sorted((p.score for p in passages), reverse=True)
    assert len(passages) == 4
    assert best.score == pytest.approx(float(vector @ EMBEDDER.embed([best.text]).vectors[0]))


def test_the_memory_of_what_was_searched_longest_ago_is_given_back(collections: Collections) -> None:
    made = [collections.create(name, EMBEDDER.facts) for name in ("a", "b", "c")]
    for collection in made:
        collection.change([document(f"{collection.info.name} word")])
    for name in ("b", "a", "c", "a"):
        find(collections.get(name), "word")
    collections.trim_indexes(2)
    assert [collections.get(name).num_vectors for name in ("a", "b", "c")] == [1, 0, 1]
    collections.trim_indexes(0)
    assert [collections.get(name).num_vectors for name in ("a", "b", "c")] == [0, 0, 1]
    assert find(collections.get("b"), "word") == ["b word"]


def test_filters_are_by_value_and_all_fields_must_fit(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document(f"word {year}", year=year, kind=kind) for year, kind in ((1, "x"), (2, "x"), (3, "y"))])
    assert find(collection, "word", 9, where={"kind": "x", "year": [2, 3]}) == ["word 2"]
    assert sorted(find(collection, "word", 9, where={"kind": "x"})) == ["word 1", "word 2"]
    assert find(collection, "word", 9, where={"year": "1"}) == []
    assert find(collection, "word", 9, where={"year') OR 1 --": 1}) == []
    with pytest.raises(ValueError, match="not a string, number"):
        find(collection, "word", where={"year": [{}]})


def test_what_was_replaced_or_removed_is_not_found_in_any_process(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("old words"), document("other things")])
    other = Collections(collections.directory)
    assert find(other.get("c"), "old words") == ["old words"]
    first, second = collection.documents()
    collection.change([document("new words", replaces=first.id)], removed=[second.id])
    for each in (collection, other.get("c")):
        assert find(each, "old words other things", 9) == ["new words"]
        assert [info.id for info in each.documents()] == [first.id]
    other.close()


def test_a_collection_that_is_made_again_is_another_one(collections: Collections) -> None:
    first = collections.create("c", EMBEDDER.facts)
    first.change([document("a secret")])
    with pytest.raises(ValueError, match="already"):
        collections.create("c", EMBEDDER.facts)
    assert collections.create("c", EMBEDDER.facts, owner="another").id != first.id
    collections.delete("c")
    assert b"a secret" not in (collections.directory / FILE).read_bytes()
    assert not list(collections.directory.glob(f"{first.id}*"))
    second = collections.create("c", EMBEDDER.facts)
    assert second.id != first.id
    assert find(second, "a secret") == []
    for use in (lambda: find(first, "a secret"), lambda: first.change([document("more")])):
        with pytest.raises(ValueError, match="deleted"):
            use()
    assert [info.name for info in collections.infos("")] == ["c"]
    with pytest.raises(ValueError, match="there are c"):
        collections.get("d")


def test_a_writer_that_is_killed_leaves_what_it_had_finished(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("kept words")])
    code = (
        "import sys, os, signal\nfrom pathlib import Path\nfrom quire.rag.database import Database\n"
        "with Database(Path(sys.argv[1])).writing() as c:\n c.execute('DELETE FROM documents')\n"
        " os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.run([sys.executable, "-c", code, str(collections.directory)], check=False)
    assert process.returncode == -signal.SIGKILL
    assert find(collection, "kept") == ["kept words"]


def test_changes_are_whole_or_none(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("kept words")])
    broken = replace(document("one\ntwo"), vectors=np.zeros((1, 384), np.float32))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        collection.change([document("never seen"), broken], removed=[collection.documents()[0].id])
    assert find(collection, "never seen words", 9) == ["kept words"]
    with pytest.raises(ValueError, match="not a string, number"):
        collection.change([document("x", bad=[1])])
    for bad in (float("nan"), float("inf"), 2**63):
        with pytest.raises(ValueError, match="not a string, number"):
            collection.change([document("x", bad=bad)])


def test_vectors_of_other_embedders_are_refused(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.check_embedder(EMBEDDER.facts)
    with pytest.raises(ValueError, match="embedded by hashing"):
        collection.check_embedder(EmbedderFacts("other", 384, 256, "other"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("", {}, "cannot name"),
        ("a\nb", {}, "cannot name"),
        ("c", {"chunk_tokens": 9000}, "8 to 8192"),
        ("c", {"overlap_tokens": 200}, "at most half"),
    ],
)
def test_what_cannot_be_a_collection_is_refused(
    collections: Collections, name: str, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        collections.create(name, EMBEDDER.facts, **options)  # type: ignore[arg-type]


def test_a_database_that_cannot_be_used_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(ValueError, match="move it away"):
        Collections(tmp_path)
    (tmp_path / FILE).unlink()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ValueError, match="version 99"):
        Collections(tmp_path)
    with pytest.raises(ValueError, match="cannot be written"):
        Collections(Path("/dev/null/rag"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "quire" / "rag"


def test_threads_and_processes_search_while_another_adds(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("word 0")])
    other = Collections(collections.directory)
    same = other.get("c")
    wrong: list[object] = []

    def search() -> None:
        seen = 0
        while seen < 20:
            found = find(same, "word", 99)
            if not seen <= len(found) == len(set(found)):
                wrong.append(found)
                return
            seen = len(found)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 20):
        collection.change([document(f"word {number}")])
    for thread in threads:
        thread.join()
    assert not wrong
    other.close()
