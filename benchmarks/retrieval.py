"""Retrieval: our embedder beside the reference, recall on SQuAD questions by vectors and words, and search speed.

    python -m benchmarks.retrieval --squad FILE --json FILE
    python -m benchmarks.retrieval --words FILE... --num-chunks 100000

The reference is sentence-transformers' computation: transformers' BertModel, mean pooling, normalisation.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from quire.rag.chunks import Chunk, cut
from quire.rag.collection import Collection
from quire.rag.collections import DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS, Collections
from quire.rag.database import FILE
from quire.rag.embedder import find_embedder, load_embedder
from quire.rag.embedding import Embedder, EmbedderFacts
from quire.rag.index import VectorIndex, WordIndex
from quire.rag.records import NewDocument

BATCH = 32


def make_reference(directory: Path, max_tokens: int) -> Callable[[Sequence[str]], np.ndarray]:
    """The reference embedder; texts of similar length form a batch."""
    import transformers

    model = transformers.BertModel.from_pretrained(directory, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def embed(texts: Sequence[str]) -> np.ndarray:
        vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            batch = tokenizer(
                [texts[index] for index in some], padding=True, truncation=True, max_length=max_tokens,
                return_tensors="pt",
            )  # fmt: skip
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None]
            vectors[some] = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1).numpy()
        return vectors

    return embed


def by_vectors(questions: np.ndarray, vectors: np.ndarray, owners: Sequence[int]) -> Iterator[list[int]]:
    """Rank paragraphs for each question; `owners` has that of each vector."""
    for scores in questions @ vectors.T:
        yield [owners[index] for index in np.argsort(-scores, kind="stable")]


def recall(
    rankings: Iterable[Sequence[int]], answers: Sequence[int], depths: Sequence[int] = (1, 5)
) -> dict[str, float]:
    """Share of questions whose paragraph is among the first different ones."""
    hits = dict.fromkeys(depths, 0)
    for ranking, answer in zip(rankings, answers, strict=True):
        distinct = list(dict.fromkeys(ranking))
        for k in hits:
            hits[k] += answer in distinct[:k]
    return {f"recall_at_{k}": round(count / len(answers), 4) for k, count in hits.items()}


def measure_texts(path: Path, num_compared: int) -> dict[str, Any]:
    source = find_embedder()
    assert source.path is not None
    paragraphs, questions, answers = read_squad(path)
    embedder: Embedder = load_embedder(source)
    reference = make_reference(source.path, embedder.facts.max_tokens)
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    seconds = {"ours": 0.0, "reference": 0.0}
    for name, texts in (("paragraphs", paragraphs), ("questions", questions)):
        for start in range(0, len(texts), 80):  # alternating, so that both have the same machine
            some = texts[start : start + 80]
            begin = time.perf_counter()
            ours.setdefault(name, []).append(embedder.embed(some).vectors)
            middle = time.perf_counter()
            theirs.setdefault(name, []).append(reference(some))
            seconds["ours"] += middle - begin
            seconds["reference"] += time.perf_counter() - middle
    mine, others = ({k: np.concatenate(v) for k, v in each.items()} for each in (ours, theirs))
    half = num_compared // 2
    cosines = np.concatenate([(mine[k][:half] * others[k][:half]).sum(1) for k in ("paragraphs", "questions")])
    chunks, owners = [], []
    for index, text in enumerate(paragraphs):
        found = cut(text, [source.token_counter()], DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS)
        chunks += [text[chunk.start : chunk.end] for chunk in found]
        owners += [index] * len(found)
    each_one = range(len(paragraphs))
    total = len(paragraphs) + len(questions)
    return {
        "num_paragraphs": len(paragraphs),
        "num_questions": len(questions),
        "num_chunks": len(chunks),
        "num_threads": torch.get_num_threads(),
        "texts_compared": len(cosines),
        "cosine_min": float(cosines.min()),
        "texts_per_s": {name: round(total / value, 1) for name, value in seconds.items()},
        "recall": {
            "ours, paragraphs": recall(by_vectors(mine["questions"], mine["paragraphs"], each_one), answers),
            "reference, paragraphs": recall(by_vectors(others["questions"], others["paragraphs"], each_one), answers),
            "ours, chunks": recall(by_vectors(mine["questions"], embedder.embed(chunks).vectors, owners), answers),
        },
    }


def measure_search(num_vectors: int, num_queries: int, dimension: int = 384) -> dict[str, Any]:
    random = np.random.default_rng(0)

    def unit(count: int) -> np.ndarray:
        vectors = random.standard_normal((count, dimension), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    vectors, queries = unit(num_vectors), unit(num_queries)
    index, begin = VectorIndex(dimension), time.perf_counter()
    index.update(1, np.arange(num_vectors), lambda ids: (ids, vectors))
    build_s, times = time.perf_counter() - begin, []
    for query in queries:
        start = time.perf_counter()
        found = index.search(query, 21)  # as for five passages
        times.append(time.perf_counter() - start)
    exact = {int(id_) for id_ in np.argsort(-(vectors @ queries[-1]))[:5]}
    assert exact <= {id_ for id_, _ in found}
    return {
        "num_vectors": num_vectors,
        "num_queries": num_queries,
        "search_s": {
            "median": statistics.median(times),
            "p99": float(np.quantile(times, 0.99)),
            "max": max(times),
        },
        "build_s": build_s,
    }


def measure_collection(num_chunks: int, num_queries: int, dimension: int = 384) -> dict[str, Any]:
    """Time of searches by vectors and by both, and of deletions, in a collection of texts with Zipf's distribution."""
    random = np.random.default_rng(0)
    share = 1 / np.arange(1, 100_001) ** 1.05
    share /= share.sum()
    facts, num_words = EmbedderFacts("random", dimension, 256, "random"), 170

    def text(count: int) -> str:
        return " ".join(f"w{each}" for each in random.choice(len(share), count, p=share))

    def unit(count: int) -> np.ndarray:
        vectors = random.standard_normal((count, dimension), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    times: dict[str, list[float]] = {"vectors": [], "both": [], "hostile": [], "delete": []}
    with TemporaryDirectory() as directory:
        collection = Collections(Path(directory)).create("measured", facts)
        begin = time.perf_counter()
        for _ in range(0, num_chunks, 1000):
            texts = ["\n".join(text(num_words) for _ in range(10)) for _ in range(100)]
            collection.change([_lines(each, unit(10)) for each in texts])
        store_s = time.perf_counter() - begin
        collection.search(unit(1)[0], words="w1")  # builds the vectors' index
        for vector in unit(num_queries):
            query, hostile = text(12), text(3_000)
            for name, words in (("vectors", ""), ("both", query), ("hostile", hostile)):
                start = time.perf_counter()
                collection.search(vector, 5, words=words)
                times[name].append(time.perf_counter() - start)
        for document in collection.documents(limit=3):
            start = time.perf_counter()
            collection.change(removed=[document.id])
            times["delete"].append(time.perf_counter() - start)
        num_bytes = Path(directory, FILE).stat().st_size
    medians = {f"{name}_s": statistics.median(each) for name, each in times.items()}
    return {"num_chunks": num_chunks, "store_s": store_s, "num_bytes": num_bytes, **medians,
            "both_max_s": max(times["both"]), "hostile_max_s": max(times["hostile"])}  # fmt: skip


def _lines(text: str, vectors: np.ndarray) -> NewDocument:
    """A document with a chunk per line."""
    ends = [len(line) + 1 for line in text.split("\n")]
    starts = [0, *accumulate(ends)]
    chunks = [Chunk(start, start + size - 1, 256) for start, size in zip(starts, ends, strict=False)]
    return NewDocument("zipf", "zipf", {}, text, b"", chunks, vectors)


def read_squad(path: Path) -> tuple[list[str], list[str], list[int]]:
    """Paragraphs, questions, and the paragraph of each question."""
    paragraphs: list[str] = []
    questions: list[str] = []
    answers: list[int] = []
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            questions += [each["question"] for each in paragraph["qas"]]
            answers += [len(paragraphs)] * len(paragraph["qas"])
            paragraphs.append(paragraph["context"])
    return paragraphs, questions, answers


def store(collection: Collection, texts: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray]) -> None:
    """Add each text as a document named by its number."""
    counter = [find_embedder().token_counter()]
    for start in range(0, len(texts), 64):
        documents = []
        for number, text in enumerate(texts[start : start + 64], start):
            chunks = cut(text, counter, DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS)
            vectors = embed([text[chunk.start : chunk.end] for chunk in chunks])
            documents.append(NewDocument(str(number), str(number), {}, text, b"", chunks, vectors))
        collection.change(documents)


def measure_words(path: Path) -> dict[str, Any]:
    """Recall of the right paragraph by vectors, by words and by both."""
    paragraphs, questions, answers = read_squad(path)
    embedder = load_embedder(find_embedder())
    vectors = embedder.embed(questions).vectors
    with TemporaryDirectory() as directory:
        collection = Collections(Path(directory)).create("measured", embedder.facts)
        store(collection, paragraphs, lambda texts: embedder.embed(texts).vectors)
        ranked: dict[str, list[list[int]]] = {"vectors": [], "words": [], "both": []}
        for question, vector in zip(questions, vectors, strict=True):
            ranked["vectors"].append([int(each.document) for each in collection.search(vector, 30)])
            ranked["both"].append([int(each.document) for each in collection.search(vector, 30, words=question)])
        with closing(sqlite3.connect(Path(directory, FILE))) as connection:
            sql = "SELECT c.id, d.name FROM chunks c JOIN documents d ON d.id = c.document_id"
            owners = {chunk_id: int(name) for chunk_id, name in connection.execute(sql)}
            words = WordIndex(collection.id)
            for question in questions:
                ranked["words"].append([owners[id_] for id_ in words.search(connection, question, 30)])
    return {
        "num_paragraphs": len(paragraphs),
        "num_questions": len(questions),
        **{name: recall(rankings, answers, (1, 5, 10)) for name, rankings in ranked.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--squad", type=Path, help="questions and paragraphs in SQuAD's form")
    parser.add_argument("--words", type=Path, nargs="+", default=[], help="such files: recall by vectors and words")
    parser.add_argument("--num-chunks", type=int, default=0, help="size of a collection to search")
    parser.add_argument("--num-compared", type=int, default=200, help="texts whose vectors are compared")
    parser.add_argument("--num-vectors", type=int, default=100_000)
    parser.add_argument("--num-queries", type=int, default=500)
    parser.add_argument("--num-threads", type=int, default=2, help="threads of each embedder")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.num_threads)
    figures: dict[str, Any] = {}
    if arguments.squad or not (arguments.words or arguments.num_chunks):
        figures["search"] = measure_search(arguments.num_vectors, arguments.num_queries)
    if arguments.squad:
        figures["texts"] = measure_texts(arguments.squad, arguments.num_compared)
    for path in arguments.words:
        figures[path.name] = measure_words(path)
    if arguments.num_chunks:
        figures["collection"] = measure_collection(arguments.num_chunks, min(arguments.num_queries, 50))
    print(json.dumps(figures, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
