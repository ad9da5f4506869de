"""Answers with retrieval: search, routing, prompts, KV domains, and warming."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quire.config import EngineConfig
from quire.rag.chunks import Chunk
from quire.rag.collections import Collections
from quire.rag.embedder import HashingEmbedder, find_embedder
from quire.rag.records import NewDocument
from quire.routing import Router, RoutingConfig
from quire.server.collections.service import CollectionService
from serving import MODEL, SMALL, RunningServer, make_model, running

CLOCKS = "Ann Verrow mends old clocks in Ashby, and never on a Sunday."
BREAD = "Tom Weber bakes bread in Marlow. He rises at three every morning."
TWO = {"one": SMALL, "two": SMALL}


def fill(directory: Path, texts: dict[str, str], *, owner: str = "", name: str = "town") -> int:
    """Create a collection with one chunk per document; return the first document's id."""
    collections, embedder = Collections(directory), HashingEmbedder()
    collection = collections.create(name, embedder.facts, owner=owner)
    documents = [
        NewDocument(
            title,
            title,
            {"kind": title},
            text,
            text.encode(),
            [Chunk(0, len(text), 20)],
            embedder.embed([text]).vectors,
        )
        for title, text in texts.items()
    ]
    collection.change(documents)
    first = collection.documents()[0].id
    collections.close()
    return first


@contextmanager
def serving(
    directory: Path, configs: dict[str, EngineConfig] | None = None, policy: str | None = None
) -> Iterator[RunningServer]:
    configs = configs or {MODEL: SMALL}
    router = None if policy is None else Router(RoutingConfig(policy, {name: name for name in configs}), list(configs))
    models = [make_model(config, name=name) for name, config in configs.items()]
    with running(*models, service=CollectionService(directory, find_embedder("hashing")), router=router) as server:
        yield server


def asked(**fields: Any) -> dict[str, Any]:
    return {"retrieval": {"collection": "town", **fields}}


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp("rag")
    fill(directory, {"clocks": CLOCKS, "bread": BREAD})
    with serving(directory) as server:
        yield server


def test_the_nearest_passage_is_first_and_reported(town: RunningServer) -> None:
    ask = partial(town.complete, temperature=0, return_token_ids=True)
    answer = ask(prompt="Who bakes bread?", **asked()).json()
    (source,) = answer["retrieval"]["sources"]
    assert 0 < source.pop("score") <= 1
    assert source.pop("document_id") > 0
    assert source.pop("num_tokens") == 20
    at = {"start": 0, "end": len(BREAD), "page": None}
    assert source == {"text": BREAD, "document": "bread", "metadata": {"kind": "bread"}, **at}
    plain = ask(prompt=f"Context: {BREAD}\nQuestion: Who bakes bread?\nAnswer:").json()
    assert answer["choices"] == plain["choices"]


def test_any_question_finds_the_passages_kv(town: RunningServer) -> None:
    def cached(question: str) -> int:
        usage = town.complete(prompt=question, **asked(query="mends clocks")).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    cached("Where?")
    assert cached("On which day does she rest?") >= 48


def test_a_conversation_says_its_sources_in_the_first_chunk(town: RunningServer) -> None:
    with town.client() as client:
        messages = [{"role": "user", "content": "Who mends clocks?"}]
        ask: Any = partial(client.chat.completions.create, model=MODEL, messages=messages, max_tokens=4, temperature=0)
        whole = ask(extra_body=asked(top_k=2))
        chunks = list(ask(stream=True, extra_body=asked(top_k=2)))
    assert [each["document"] for each in whole.retrieval["sources"]] == ["clocks", "bread"]
    assert chunks[0].retrieval == whole.retrieval
    assert all(getattr(chunk, "retrieval", None) is None for chunk in chunks[1:])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content


def test_passages_that_do_not_fit_are_left_out(town: RunningServer) -> None:
    def sources(question: str, **body: Any) -> list[str]:
        answer = town.complete(prompt=question, **body, **asked(top_k=2)).json()
        return [each["document"] for each in answer["retrieval"]["sources"]]

    question = "bread?" + " x" * 25
    assert sources(question, max_tokens=10) == ["bread", "clocks"]
    assert sources(question, max_tokens=4000) == ["bread"], "a quarter of the context is the answer's"
    refused = town.complete(prompt="bread?" + " x" * 80, **asked()).json()["error"]
    assert refused["param"] == "retrieval"
    assert "the model takes 256" in refused["message"]


def test_a_filter_that_nothing_fits_gives_the_plain_answer(town: RunningServer) -> None:
    answer = town.complete(prompt="Hello", temperature=0, **asked(filter={"kind": "none"})).json()
    assert answer["retrieval"] == {"collection": "town", "sources": []}
    assert answer["choices"][0]["text"] == town.complete(prompt="Hello", temperature=0).json()["choices"][0]["text"]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"retrieval": {"collection": "nowhere"}}, "retrieval.collection", "there is no collection 'nowhere'"),
        (asked(template="{question}"), "retrieval.template", "{documents} once"),
        (asked(top_k=0), "retrieval.top_k", "number of passages"),
        ({**asked(), "echo": True}, "echo", "does not go with retrieval"),
        ({**asked(), "prompt": ["a", "b"]}, "prompt", "one text"),
        ({**asked(), "prompt": " "}, "retrieval.query", "no question"),
        ({"slo": {"ttft_s": 1}}, "slo", "--routing"),
        ({"model": "auto"}, "model", "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_by_name(town: RunningServer, body: dict[str, Any], param: str, words: str) -> None:
    error = town.complete(**body).json()["error"]
    assert error["param"] == param
    assert words in error["message"]


def test_a_server_without_collections_says_how_to_have_them(server: RunningServer) -> None:
    answer = server.complete(**asked())
    assert answer.status_code == 404
    assert "--rag-dir" in answer.json()["error"]["message"]


def test_auto_takes_turns_and_says_why(tmp_path: Path) -> None:
    with serving(tmp_path, TWO, "round-robin") as server:
        assert [card["id"] for card in server.get("/v1/models").json()["data"]] == ["one", "two", "auto", "hashing"]
        assert server.get("/v1/models/auto").json()["state"] == "ready"
        answers = [server.complete(model="auto").json() for _ in range(2)]
        assert [answer["model"] for answer in answers] == ["one", "two"]
        assert answers[0]["routing"]["policy"] == "round-robin"
        assert answers[0]["routing"]["why"]
        assert "text" in server.complete(model="auto", prompt=[1, 2]).json()["error"]["message"]
        streamed = server.chat(model="auto", stream=True).text
        assert json.loads(streamed.partition("data: ")[2].partition("\n")[0])["routing"]["policy"] == "round-robin"
        server.registry.get("one").async_engine.shutdown()
        instead = [server.complete(model="auto").json() for _ in range(2)]
        assert [answer["model"] for answer in instead] == ["two"] * 2
        assert any("but one is draining" in answer["routing"]["why"] for answer in instead)


def test_the_policy_slo_hears_of_the_request(tmp_path: Path) -> None:
    with serving(tmp_path, TWO, "slo") as server:
        routing = server.complete(model="auto", slo={"ttft_s": 3600, "tpot_s": 3600}).json()["routing"]
        assert "the best one predicted to keep the SLO" in routing["why"]
        assert routing["numbers"]["one: TTFT s"] >= 0
        missed = server.complete(model="auto", slo={"ttft_s": 1e-9}).json()["routing"]
        assert "none is predicted to keep the SLO" in missed["why"]
