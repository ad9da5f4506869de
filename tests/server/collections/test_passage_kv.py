"""KV of passages: computed ahead of requests, found after a restart, deleted with the document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.core.block_keys import collection_domain, extend_keys
from quire.engine.engine import Engine
from quire.rag.embedder import find_embedder
from quire.rag.prompt_template import join_passage
from quire.server.collections.service import CollectionService
from serving import SMALL, RunningServer, make_model, running, wait_until

CLOCKS = "Ann Verrow mends old clocks in Ashby, and never on a Sunday."
BREAD = "Tom Weber bakes bread in Marlow. He rises at three every morning."
TOWN = "/v1/collections/town"
#: The common start of all conversations fills blocks shared by all passages.
TEMPLATE = "You are the town's clerk, and answer in a few words. {% for m in messages %}[{{ m.content }}]{% endfor %}"


def test_kv_is_prepared_found_after_a_restart_and_deleted(tmp_path: Path) -> None:
    def serving(**changes: Any) -> Any:
        service = CollectionService(tmp_path / "rag", find_embedder("hashing"))
        return running(make_model(replace(SMALL, **changes), chat_template=TEMPLATE), service=service)

    def ask(server: RunningServer) -> dict[str, Any]:
        messages = [{"role": "user", "content": "Who mends clocks?"}]
        answer: dict[str, Any] = server.chat(messages=messages, retrieval={"collection": "town", "top_k": 2}).json()
        return answer

    with serving() as server:
        server.post("/v1/collections", name="town")
        documents = [{"name": "clocks", "text": CLOCKS}, {"name": "bread", "text": BREAD}]
        assert server.post(f"{TOWN}/documents", documents=documents).json()["added"] == 2
        assert "--kv-dir" in server.post(f"{TOWN}/warm").json()["error"]["message"]
    kv_dir = str(tmp_path / "kv")
    with serving(kv_dir=kv_dir) as server:
        begun = server.post(f"{TOWN}/warm")
        assert begun.status_code == 202
        wait_until(lambda: server.get(f"{TOWN}/warm").json()["data"][0]["status"] != "running")
        (warming,) = server.get(f"{TOWN}/warm").json()["data"]
        assert warming["status"] == "done", warming
        assert warming["num_done"] == warming["num_passages"] == 2
        assert warming["num_computed_tokens"] > 100
        id_ = server.get(TOWN).json()["id"]
        (head, clocks), (same_head, bread) = (keys_of(server.engine, each, id_) for each in (CLOCKS, BREAD))
        assert head == same_head != []
        wait_until(lambda: {*head, *clocks, *bread} <= set(server.engine.scheduler.swap.on_disk))
    with serving(kv_dir=kv_dir) as server:
        answer = ask(server)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens_by_tier"]["disk"] >= 48
        assert server.send("DELETE", f"{TOWN}/documents/clocks").status_code == 200
        store = server.engine.runner.disk.store  # type: ignore[attr-defined]
        wait_until(lambda: not any(key in store for key in clocks))
        assert all(key in store for key in head + bread), "others begin with the same head"
        assert [each["document"] for each in ask(server)["retrieval"]["sources"]] == ["bread"]


def keys_of(engine: Engine, passage: str, collection_id: str) -> tuple[list[bytes], list[bytes]]:
    """Return the block keys up to and including a passage."""
    assert engine.tokenizer is not None
    found = join_passage(engine.tokenizer, passage, role="user", chat_template=TEMPLATE)
    assert found is not None
    prompt, start = found
    size = engine.scheduler.config.block_size
    keys: list[bytes] = []
    spans = ((0, collection_domain(collection_id)),)
    extend_keys(keys, engine.root, spans, prompt.token_ids, size, len(prompt.token_ids) // size)
    return keys[: start // size], keys[start // size :]
