"""Reranking and scoring: the probabilities of transformers, and their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from quire.config import EngineConfig
from quire.loading.source import resolve_model
from serving import RunningServer, make_model, running

QUERY = "Where is the key to the barn?"
TEXTS = [
    "Cats sleep for most of the day.",
    "The key to the barn hangs behind the kitchen door.",
    "A barn keeps hay dry.",
    "She sold the old car in spring.",
]
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
    'answer can only be "yes" or "no".'
)
LEADS = {"quire-chat": "", "quire-mini": " "}  #: blanks with which their answers begin
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


@pytest.fixture(scope="module", params=LEADS)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    config = EngineConfig(request.param, dtype="float32", kv_cache_memory="32MiB", use_tqdm=False)
    with running(make_model(config, name=request.param)) as server:
        yield server


def reference(folder: Path, query: str, text: str) -> float:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    question = f"<Instruct>: {INSTRUCTION}\n<Query>: {query}\n<Document>: {text}"
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    ids = tokenizer.encode(shown, add_special_tokens=False)
    yes, no = (tokenizer.encode(LEADS[folder.name] + word, add_special_tokens=False) for word in ("yes", "no"))
    first, second = next(pair for pair in zip(yes, no, strict=False) if pair[0] != pair[1])
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    return float(torch.sigmoid(logits[first] - logits[second]))


def test_scores_and_order_are_those_of_transformers(server: RunningServer) -> None:
    name = server.registry.get(None).name
    folder = resolve_model(name).path
    expected = [reference(folder, QUERY, text) for text in TEXTS]
    answer = server.post("/v1/score", text_1=QUERY, text_2=TEXTS).json()
    assert (answer["model"], answer["scoring"]) == (name, "yes_no")
    assert [card["score"] for card in answer["data"]] == pytest.approx(expected, rel=1e-4)
    ranked = server.post(
        "/v1/rerank", query=QUERY, documents=[*TEXTS[:2], *({"text": each} for each in TEXTS[2:])]
    ).json()
    order = sorted(range(4), key=lambda index: -expected[index])
    assert [result["index"] for result in ranked["results"]] == order
    assert [result["document"]["text"] for result in ranked["results"]] == [TEXTS[index] for index in order]
    best = server.post("/rerank", query=QUERY, documents=TEXTS, top_n=1, return_documents=False).json()
    assert best["results"] == [{"index": order[0], "relevance_score": ranked["results"][0]["relevance_score"]}]
    assert best["usage"]["total_tokens"] == best["usage"]["prompt_tokens"] > 100


def test_pairs_that_do_not_match_and_long_texts_are_refused(server: RunningServer) -> None:
    refused = server.post("/v1/score", text_1=["a", "b"], text_2=["c"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text_1")
    refused = server.post("/v1/rerank", query="a", documents=["short", "word " * 5000])
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert server.post("/v1/rerank", query="a", documents=[]).status_code == 400
    assert server.post("/v1/rerank", model="none", query="a", documents=["b"]).status_code == 404
