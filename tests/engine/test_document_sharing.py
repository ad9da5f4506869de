"""Sharing of a document's KV: who finds it, and that it is computed and loaded once for all requests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import quire.assembly.runner
from engine.documents import DOCUMENT, NUM_FULL, QUESTIONS, DocumentLLM, ask, cached
from engine.harness import Job, assert_all_greedy, checkpoint, drive, greedy_params, random_ids
from quire import SamplingParams
from quire.assembly import load
from quire.config import EngineConfig
from quire.core import disk_tier
from quire.core.block_keys import PUBLIC, Domain, DomainSpans, Namespace, collection_domain, tenant_domain

FULL = NUM_FULL // 4
ONE = greedy_params(1)


def num_found(llm: DocumentLLM, job: Job) -> int:
    """Run a request to its end and return its cached tokens."""
    drive(llm, [job])
    assert job.output.error is None
    return sum(cached(job).values())


# -- never mixed -----------------------------------------------------------------------------------------------------


def copy_of(directory: Path, seed: int) -> Path:
    """Write weights of this seed under a path that may have held others."""
    shutil.copytree(checkpoint("llama", seed), directory, dirs_exist_ok=True)
    return directory


def load_fresh(directory: Path) -> Any:
    return load(EngineConfig(str(directory), device="cpu", skip_tokenizer_init=True, use_tqdm=False))


def test_another_model_dtype_block_size_or_adapter_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv_dir = tmp_path / "kv"
    namespace_of = quire.assembly.runner.make_namespace

    def with_adapter(*arguments: Any, **more: Any) -> Namespace:
        return replace(namespace_of(*arguments, **more), layers=Namespace.name_layers(range(3), 3, "an adapter"))

    served: list[tuple[str, dict[str, Any]]] = [
        ("llama", {}),
        ("llama-tied", {}),
        ("llama-rope-linear", {}),  # the same weights, other positions
        ("llama", {"dtype": "bfloat16"}),
        ("llama", {"block_size": 12}),
        ("llama", {"adapter": True}),
    ]
    keys: list[set[bytes]] = []
    for name, options in served:
        with monkeypatch.context() as patch:
            if options.pop("adapter", False):
                patch.setattr(quire.assembly.runner, "make_namespace", with_adapter)
            llm = DocumentLLM(name, kv_dir, **options)
        assert num_found(llm, ask(0)) == 0, (name, options)
        assert num_found(llm, ask(1)) == NUM_FULL
        keys.append(llm.on_disk)
        llm.close()
    assert len(set().union(*keys)) == sum(map(len, keys))
    assert len(list(kv_dir.glob("*/namespace.json"))) == len(served)


def test_changed_weights_under_one_path_find_what_is_theirs(tmp_path: Path) -> None:
    """Identity follows the digest of the weights, not their name, size or date."""
    tokens = []
    for seed, expected in [(0, 0), (1, 0), (0, NUM_FULL), (1, NUM_FULL)]:
        directory = copy_of(tmp_path / "model", seed)
        llm = DocumentLLM(directory, tmp_path / "kv", loaded=load_fresh(directory))
        job = ask(0)
        assert num_found(llm, job) == expected
        tokens.append(job.output.outputs[0].token_ids)
        llm.close()
    assert tokens[:2] == tokens[2:]
    assert tokens[0] != tokens[1]


ANN, BOB = (tenant_domain(name, b"secret") for name in ("ann", "bob"))
PAPERS, LETTERS = collection_domain("papers"), collection_domain("letters")


def belonging(document: Domain, question: Domain) -> DomainSpans:
    return ((0, document),) if document == question else ((0, document), (len(DOCUMENT), question))


@pytest.fixture(params=["on the device", "from disk"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return a factory of engines that store whole prompts: always the same one, or one with an empty device."""
    llms: list[DocumentLLM] = []

    def server() -> DocumentLLM:
        if request.param == "from disk" or not llms:
            llms.append(DocumentLLM("llama", tmp_path, kv_dir_keep_prompts=True))
        return llms[-1]

    yield server
    for llm in llms:
        llm.close()


def test_a_document_is_found_by_those_who_may_and_a_question_by_its_tenant_alone(servers: Any) -> None:
    question = random_ids(12, 7)  # three full blocks after the block of the document's last token
    asked = [
        (PUBLIC, ANN, 0),
        (PUBLIC, ANN, NUM_FULL + 12),  # including her own question
        (PUBLIC, BOB, NUM_FULL),  # the same words
        (PUBLIC, ANN.salted("a"), NUM_FULL),
        (PUBLIC, BOB, NUM_FULL + 12),
        (PAPERS, ANN, 0),  # the same words in a collection
        (PAPERS, BOB, NUM_FULL),  # the recipient
        (LETTERS, BOB, 0),  # another
        (ANN, ANN, 0),  # a document of her own
        (BOB, BOB, 0),
        (ANN, ANN, NUM_FULL + 12),
        (PUBLIC.salted("a"), ANN, 0),
        (PUBLIC.salted("b"), ANN, 0),
        (PUBLIC.salted("a"), BOB, NUM_FULL),
        (PUBLIC, PUBLIC, 0),
    ]
    own = random_ids(len(DOCUMENT), 44)  # without public blocks, which everyone could find
    for document, tenant, expected in asked:
        job = ask(question, ONE, document=own if document == tenant else DOCUMENT, domains=belonging(document, tenant))
        assert num_found(servers(), job) == expected, (document, tenant)
        assert_all_greedy("llama", [job])  # the same words, hence the same token


# -- single flight ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DocumentLLM, DocumentLLM]]:
    """Two engines on one directory, the first in its fifth step of a document.

    Claims outlive the test, unless it shortens them.
    """
    pair = DocumentLLM("llama", tmp_path, max_num_batched_tokens=8), DocumentLLM("llama", tmp_path)
    yield pair
    for llm in pair:
        if hasattr(llm, "engine"):
            llm.close()


@pytest.mark.parametrize(("budget", "arrival"), [(16, 0), (16, 2), (512, 0)])
def test_ten_requests_compute_one_document_once(tmp_path: Path, budget: int, arrival: int) -> None:
    llm = DocumentLLM("llama", tmp_path, max_num_batched_tokens=budget, num_kv_blocks=100)
    jobs = drive(llm, [ask(i, ONE, arrival=i * arrival) for i in range(10)])
    assert_all_greedy("llama", jobs[:4])
    assert llm.num_computed == NUM_FULL + sum(1 + len(question) for question in QUESTIONS)
    assert llm.moved == {"save": FULL}
    llm.close()


def test_ten_requests_load_one_document_once(pair: tuple[DocumentLLM, DocumentLLM]) -> None:
    first, second = pair
    document = random_ids(101, 8)
    drive(first, [ask(0, ONE, document=document)])
    jobs = drive(second, [ask(i, ONE, document=document, arrival=i // 2) for i in range(10)])
    assert_all_greedy("llama", jobs[:3])
    assert second.store.stats.reads == second.moved["load"] == 25
    assert second.num_computed == sum(1 + len(question) for question in QUESTIONS)
    assert second.moved["save"] == 0


def test_ten_requests_compute_once_what_is_missing_on_disk(tmp_path: Path) -> None:
    """As after a process was killed while storing a document."""
    killed = DocumentLLM("llama", tmp_path)
    drive(killed, [ask(0, ONE, document=DOCUMENT[:20])])
    killed.close()
    llm = DocumentLLM("llama", tmp_path)
    jobs = drive(llm, [ask(i, ONE) for i in range(10)])
    assert_all_greedy("llama", jobs[:4])
    assert llm.num_computed == NUM_FULL - 20 + sum(1 + len(question) for question in QUESTIONS)
    assert llm.moved == {"load": 5, "save": FULL - 5}
    llm.close()


def begin(llm: DocumentLLM, job: Job) -> None:
    """Step until a request has its claim and runs."""
    job.send(llm.engine)
    while not llm.engine.scheduler.queue.running:
        llm.engine.step()


def wait_beside(llm: DocumentLLM, job: Job, num_steps: int = 3) -> None:
    """Step for a while in which a request waits for another one's claim."""
    job.send(llm.engine)
    for _ in range(num_steps):
        llm.engine.step()
        assert list(llm.engine.scheduler.queue.blocked) == [job.answer.request.request_id]  # type: ignore[union-attr]
    assert llm.num_computed == 0


def finish(llm: DocumentLLM, *jobs: Job) -> None:
    while llm.engine.has_unfinished():
        llm.engine.step()
    assert_all_greedy("llama", jobs)


def test_a_document_that_another_engine_computes_is_waited_for(pair: tuple[DocumentLLM, DocumentLLM]) -> None:
    first, second = pair
    theirs, ours, other = ask(0), ask(1), ask(2, document=random_ids(20, 3))
    begin(first, theirs)
    wait_beside(second, ours)
    other.send(second.engine)  # while no other request waits
    while not other.answer.is_finished:  # type: ignore[union-attr]
        second.engine.step()
    assert ours.answer.metrics.first_scheduled_time is None  # type: ignore[union-attr]
    finish(first, theirs)
    finish(second, ours, other)
    assert cached(ours) == {"disk": NUM_FULL}
    assert first.store.stats.writes + second.store.stats.writes == FULL + 5


@pytest.mark.parametrize("end", ["abort", "vanish"])
def test_who_waits_goes_on_when_the_first_is_gone(pair: tuple[DocumentLLM, DocumentLLM], end: str) -> None:
    first, second = pair
    theirs, ours = ask(0), ask(1)
    begin(first, theirs)
    wait_beside(second, ours)
    if end == "abort":
        first.engine.abort(theirs.answer.request.request_id)  # type: ignore[union-attr]
        while first.engine.has_unfinished():
            first.engine.step()
    else:
        first.vanish()
    finish(second, ours)
    assert cached(ours).get("disk", 0) <= 8, "what was kept before"
    assert len(second.on_disk) == FULL


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = DocumentLLM("llama", tmp_path)
    second = DocumentLLM("llama", tmp_path, token_s=1e-6)
    monkeypatch.setattr(disk_tier, "_LEAST_PATIENCE_S", 0.05)
    theirs, ours = ask(0), ask(1)
    begin(first, theirs)
    ours.send(second.engine)
    finish(second, ours)
    assert cached(ours) == {}
    assert len(second.on_disk) == FULL, "it keeps what it has computed"
    finish(first, theirs)
    first.close()
    second.close()


def test_a_request_that_waits_and_is_aborted_leaves_nothing(pair: tuple[DocumentLLM, DocumentLLM]) -> None:
    first, second = pair
    theirs, ours = ask(0), ask(1)
    begin(first, theirs)
    wait_beside(second, ours)
    second.engine.abort(ours.answer.request.request_id)  # type: ignore[union-attr]
    finish(second)
    finish(first, theirs)
    again = ask(2, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    finish_jobs = drive(second, [again])
    assert_all_greedy("llama", finish_jobs)
    assert cached(again) == {"disk": NUM_FULL}
