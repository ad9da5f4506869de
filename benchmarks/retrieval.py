"""Retrieval: our embedder beside the reference, recall on SQuAD questions, and search among many vectors.

    python -m benchmarks.retrieval --squad FILE --json FILE

The reference is sentence-transformers' computation: transformers' BertModel, mean pooling, normalisation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quire.rag.chunks import cut
from quire.rag.collections import DEFAULT_CHUNK_TOKENS, DEFAULT_OVERLAP_TOKENS
from quire.rag.embedder import find_embedder, load_embedder
from quire.rag.embedding import Embedder
from quire.rag.index import VectorIndex

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


def recall(
    questions: np.ndarray, answers: Sequence[int], vectors: np.ndarray, owners: Sequence[int]
) -> dict[str, float]:
    """Share of questions whose paragraph is first, or among the first five.

    Args:
        owners: the paragraph of each vector.
    """
    hits = {1: 0, 5: 0}
    for scores, answer in zip(questions @ vectors.T, answers, strict=True):
        ranked = list(dict.fromkeys(owners[index] for index in np.argsort(-scores, kind="stable")))
        for k in hits:
            hits[k] += answer in ranked[:k]
    return {f"recall_at_{k}": round(count / len(answers), 4) for k, count in hits.items()}


def measure_texts(path: Path, num_compared: int) -> dict[str, Any]:
    source = find_embedder()
    assert source.path is not None
    paragraphs: list[str] = []
    questions: list[str] = []
    answers: list[int] = []
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            questions += [each["question"] for each in paragraph["qas"]]
            answers += [len(paragraphs)] * len(paragraph["qas"])
            paragraphs.append(paragraph["context"])
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
            "ours, paragraphs": recall(mine["questions"], answers, mine["paragraphs"], each_one),
            "reference, paragraphs": recall(others["questions"], answers, others["paragraphs"], each_one),
            "ours, chunks": recall(mine["questions"], answers, embedder.embed(chunks).vectors, owners),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--squad", type=Path, help="questions and paragraphs in SQuAD's form")
    parser.add_argument("--num-compared", type=int, default=200, help="texts whose vectors are compared")
    parser.add_argument("--num-vectors", type=int, default=100_000)
    parser.add_argument("--num-queries", type=int, default=500)
    parser.add_argument("--num-threads", type=int, default=2, help="threads of each embedder")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.num_threads)
    figures: dict[str, Any] = {"search": measure_search(arguments.num_vectors, arguments.num_queries)}
    if arguments.squad:
        figures["texts"] = measure_texts(arguments.squad, arguments.num_compared)
    print(json.dumps(figures, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
