"""Searches by words beside vectors find exactly the stored chunks, in old databases too."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quire.rag import database, index
from quire.rag.collection import Collection
from quire.rag.collections import Collections
from quire.rag.database import FILE
from rag.test_collections import EMBEDDER, document, find


@pytest.fixture
def collections(tmp_path: Path) -> Iterator[Collections]:
    made = Collections(tmp_path / "rag")
    yield made
    made.close()


def by_words(collection: Collection, query: str) -> list[str]:
    """The texts of all chunks with a word of the query, best first."""
    ids = collection._rank_by_words(query, 99, None)
    vector = np.zeros(EMBEDDER.facts.dimension, np.float32)
    texts = {each.chunk_id: each.text for each in collection.search(vector, 99)}
    return [texts[id_] for id_ in ids]


def stored_bytes(collections: Collections) -> bytes:
    collections._database.shrink()  # moves the log into the file
    return (collections.directory / FILE).read_bytes()


def test_both_rankings_are_fused_by_their_ranks() -> None:
    assert index.fuse([1, 2, 3], [3, 4]) == [3, 1, 2, 4]
    assert index.fuse([1, 2], []) == [1, 2]
    assert index.fuse([1], [2]) == [1, 2], "the first ranking decides ties"


def test_a_passage_that_only_its_words_tell_is_found(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("near the question"), document("see part E4711 there", n=1), document("far away")])
    assert find(collection, "near the question") == ["near the question"]
    (vector,) = EMBEDDER.embed(["near the question"]).vectors
    (best,) = collection.search(vector, 1, words="what is e4711?")
    assert best.text == "see part E4711 there"
    assert best.score == pytest.approx(float(vector @ EMBEDDER.embed([best.text]).vectors[0]), abs=1e-6)
    assert [each.text for each in collection.search(vector, 9, {"n": 2}, "e4711")] == []
    assert [each.text for each in collection.search(vector, 9, {"n": 1}, "near")] == ["see part E4711 there"]


def test_changes_leave_exactly_the_words_of_the_stored_chunks(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("cat dog\ndog fish"), document("bird"), document("cat bird")])
    first, second, _ = collection.documents()
    broken = replace(document("one\ntwo"), vectors=np.zeros((1, 384), np.float32))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        collection.change([document("never"), broken], removed=[second.id])
    assert sorted(by_words(collection, "dog bird never")) == ["bird", "cat bird", "cat dog", "dog fish"]
    collection.change([document("dog mouse", replaces=first.id)], removed=[second.id, second.id])
    other = Collections(collections.directory)
    for each in (collection, other.get("c")):
        found = {word: by_words(each, word) for word in ("cat", "dog", "fish", "mouse", "bird")}
        assert found == {"cat": ["cat bird"], "dog": ["dog mouse"], "fish": [], "mouse": ["dog mouse"],
                         "bird": ["cat bird"]}  # fmt: skip
    other.close()


def test_deleted_words_are_overwritten(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document(text) for text in ("QXJKVZ one", "WYXQJZ two", "three")])
    first, second, _ = collection.documents()
    assert all(word in stored_bytes(collections) for word in (b"qxjkvz", b"wyxqjz"))  # lower case: the index
    collection.change([document("four", replaces=first.id)])
    assert b"qxjkvz" not in stored_bytes(collections)
    collection.change(removed=[second.id])
    assert b"wyxqjz" not in stored_bytes(collections)
    collection.change([document("ZKQXWJ five")])
    assert b"zkqxwj" in stored_bytes(collections)
    collections.delete("c")
    assert b"zkqxwj" not in stored_bytes(collections)
    with collections._database.reading() as connection:
        assert not connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'words%'").fetchall()


def test_an_older_database_is_upgraded_and_its_words_are_indexed(collections: Collections) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("cat one"), document("dog two")])
    with collections._database.writing() as connection:
        collection._words.drop(connection)
        connection.execute("ALTER TABLE collections DROP COLUMN words_version")
        connection.execute("PRAGMA user_version = 3")
    upgraded = Collections(collections.directory)
    found = upgraded.get("c")
    assert [each.name for each in found.documents()] == ["cat", "dog"]
    found.change([document("cat three")])
    assert sorted(by_words(found, "cat")) == ["cat one", "cat three"]
    assert find(found, "dog two") == ["dog two"]
    upgraded.close()


@pytest.mark.parametrize(
    "query",
    ['"', '" OR 1 --', "NEAR(a b)", "a AND NOT b*", "text : x ^ {}", "a\0b", "\0", "...", " ", "-", "\ud800", "* cat",
     "cat " * 25_000, " ".join(map(str, range(20_000))), "x" * 100_000, "́", "東"],
    ids=range(17),
)  # fmt: skip
def test_no_query_fails(collections: Collections, query: str) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("cat text")])
    assert by_words(collection, query) == (["cat text"] if "cat" in query or "text" in query else [])


def test_common_words_are_ignored_where_chunks_are_many(
    collections: Collections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MAX_POSTINGS", 3)
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document(f"common {text}") for text in ("rare", "a", "b", "c", "d")])
    assert by_words(collection, "common rare") == ["common rare"]
    assert len(by_words(collection, "common")) == 5


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("東京都の地下鉄は便利です", "東京の地下鉄"),
        ("สุนัขเห่าตอนกลางคืน", "สุนัข"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("Der Café-Besuch", "CAFE"),
        ("дома стоят", "Дома?"),
    ],
    ids=["han", "thai", "devanagari", "accents", "cyrillic"],
)
def test_words_of_other_scripts_are_found(collections: Collections, text: str, query: str) -> None:
    collection = collections.create("c", EMBEDDER.facts)
    collection.change([document("京 other ก words ह"), document(text)])
    assert by_words(collection, query) == [text]


def test_without_fts5_vectors_alone_are_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "has_fts5", lambda connection: False)
    caplog.set_level(logging.WARNING)
    without = Collections(tmp_path)
    collection = without.create("c", EMBEDDER.facts)
    collection.change([document("cat one"), document("dog two")])
    (vector,) = EMBEDDER.embed(["cat one"]).vectors
    for _ in range(2):
        assert [each.text for each in collection.search(vector, 9, words="dog")] == ["cat one", "dog two"]
    assert [record.message for record in caplog.records] == [
        f"SQLite {sqlite3.sqlite_version} has no FTS5: collections are searched by vectors only"
    ]
    monkeypatch.undo()
    assert by_words(Collections(tmp_path).get("c"), "dog") == ["dog two"]
    collection.change([document("dog three")])  # leaves the index as it is
    assert sorted(by_words(Collections(tmp_path).get("c"), "dog")) == ["dog three", "dog two"]
    without.delete("c")
