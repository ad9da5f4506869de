"""Greedy float32 output ids equal those of `transformers` with documents' KV from disk too, from any writer, by any
way. (Sharing: test_document_sharing.py. Disk failures: test_document_faults.py.)
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.documents import DOCUMENT, NUM_FULL, QUESTIONS, DocumentLLM, SpareCosts, ask, cached
from engine.harness import (
    NUM_TOKENS,
    Job,
    Preemptor,
    assert_all_greedy,
    beams,
    checkpoint,
    drive,
    greedy,
    greedy_params,
    num_preemptions,
    outputs,
    random_ids,
)
from parameters import quick
from quire import BeamSearchParams
from quire.tiers.store.layout.record import HEADER_BYTES, decode_header, encode_header
from quire.tiers.store.layout.segment import Segment
from quire.tiers.store.offline import list_namespaces

TESTS = Path(__file__).parents[1]
FAMILIES = ("llama", "qwen3", "gpt2", "opt-350m", "gemma4-shared", "mistral-window", "qwen3_5", "lfm2", "granite4")
one_of_each_family = pytest.mark.parametrize("name", quick(["llama", "gemma4-shared", "qwen3_5"], FAMILIES))


def keep_document(name: str, directory: Path, **options: Any) -> None:
    """Have an engine compute the document and exit."""
    llm = DocumentLLM(name, directory, **options)
    job = ask(0)
    assert_all_greedy(name, drive(llm, [job]))
    assert cached(job) == {}
    assert len(llm.on_disk) == NUM_FULL // 4 + llm.engine.scheduler.kv.num_state_records
    llm.close()


@one_of_each_family
def test_after_a_restart(name: str, tmp_path: Path) -> None:
    keep_document(name, tmp_path)
    llm = DocumentLLM(name, tmp_path)
    params = BeamSearchParams(3, 6, ignore_eos=True)
    jobs = drive(llm, [ask(1, greedy_params(NUM_TOKENS)), ask(2, greedy_params(6, n=3)), ask(3, params)])
    assert_all_greedy(name, jobs[:2])
    assert outputs(jobs[2]) == [list(ids) for ids in beams(name, tuple(jobs[2].prompt), params).token_ids]
    assert sum(cached(jobs[0]).values()) == NUM_FULL
    assert all(sum(cached(job).values()) == NUM_FULL for job in jobs)
    assert llm.moved["load"] == NUM_FULL // 4
    llm.close()


def test_from_another_engine_of_the_process(tmp_path: Path) -> None:
    name = "llama"
    first, second = DocumentLLM(name, tmp_path), DocumentLLM(name, tmp_path)
    for i, (giving, taking) in enumerate([(first, second), (second, first)]):
        document = random_ids(33, i)
        jobs = drive(giving, [ask(0, document=document)]) + drive(taking, [ask(1, document=document)])
        assert_all_greedy(name, jobs)
        assert [cached(job) for job in jobs] == [{}, {"disk": 32}]
        told = [job.answer.to_output().sources[0] for job in jobs if job.answer is not None]
        assert told == [("computed", len(jobs[0].prompt)), ("process", 32)]
        assert giving.engine.scheduler.swap.by_others.isdisjoint(taking.engine.scheduler.swap.by_others)
    first.close()
    second.close()


CHILD = """
import json, sys
from quire import SamplingParams
from quire.assembly import load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.prompt import Prompt
class Costs(CostModel):
    def load(self, num_bytes, tier="host"):
        return 0.0
model, directory, prompts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
config = EngineConfig(model, kv_dir=directory, device="cpu", skip_tokenizer_init=True, use_tqdm=False,
                      num_kv_blocks=64, block_size=4)
engine = make_engine(config, load(config), cost_model=Costs())
params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
found = []
for token_ids, end in prompts:
    state = engine.add_request(Prompt(token_ids=token_ids, documents=(end,)), params)
    while engine.has_unfinished():
        engine.step()
    found.append([state.to_output().outputs[0].token_ids, state.request.num_cached_tokens])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_from_another_process_and_back(tmp_path: Path) -> None:
    name = "llama"
    other = random_ids(41, 5)
    llm = DocumentLLM(name, tmp_path)
    assert_all_greedy(name, drive(llm, [ask(0)]))
    prompts = [((*DOCUMENT, *QUESTIONS[1]), len(DOCUMENT)), ((*other, *QUESTIONS[1]), len(other))]
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(checkpoint(name)), str(tmp_path), json.dumps(prompts)],
        env={"PYTHONPATH": str(TESTS.parent / "src"), "XDG_CACHE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    expected = [list(greedy(name, prompt).token_ids[:8]) for prompt, _ in prompts]
    told = json.loads(child.stdout)
    assert [ids for ids, _ in told] == expected
    assert [num_cached for _, num_cached in told] == [NUM_FULL, 0]
    job = ask(2, document=other)
    assert_all_greedy(name, drive(llm, [job]))
    assert cached(job) == {"disk": 40}
    llm.close()


def test_after_a_copy_to_another_directory(tmp_path: Path) -> None:
    """The model has another path."""
    keep_document("qwen3", tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    llm = DocumentLLM(shutil.copytree(checkpoint("qwen3"), tmp_path / "model"), tmp_path / "there")
    job = ask(1)
    assert_all_greedy("qwen3", drive(llm, [job]))
    assert cached(job) == {"disk": NUM_FULL}
    llm.close()


@pytest.mark.parametrize(
    ("way", "costs"),
    [
        ("load", {"token_s": 1.0, "byte_s": 0.0}),
        ("compute", {"token_s": 1e-9, "byte_s": 1.0}),
        ("both", {"token_s": 1.0, "byte_s": 1 / 768}),  # these models have 768 bytes of KV per token
    ],
)
@pytest.mark.parametrize("budget", [3, 64])
def test_loaded_computed_or_the_front_computed_while_the_back_is_loaded(
    tmp_path: Path, way: str, costs: dict[str, float], budget: int
) -> None:
    keep_document("llama", tmp_path)
    llm = DocumentLLM("llama", tmp_path, max_num_batched_tokens=budget, **costs)
    assert llm.store.block_bytes == 768 * 4
    jobs = drive(llm, [ask(0), ask(1, arrival=3)])
    assert_all_greedy("llama", jobs)
    assert llm.ways[way] >= 1
    found = cached(jobs[0]).get("disk", 0)
    assert {"load": found == NUM_FULL, "compute": found == 0, "both": 8 <= found <= 28}[way], found
    llm.close()


def test_loaded_while_its_request_waits_for_a_seat(tmp_path: Path) -> None:
    keep_document("llama", tmp_path)
    llm = DocumentLLM("llama", tmp_path, max_num_seqs=1)

    def wait_for_news(step: int) -> None:
        if len(llm.engine.scheduler.swap.transfers):
            llm.engine.runner.disk.has_reports.wait(10)  # type: ignore[attr-defined]

    first = Job(random_ids(5, 1), greedy_params(NUM_TOKENS))
    jobs = drive(llm, [first, ask(0), ask(1, greedy_params(6, n=1))], wait_for_news)
    assert_all_greedy("llama", jobs)
    assert llm.ways == {"ahead": 1}
    assert [cached(job) for job in jobs] == [{}, {"disk": NUM_FULL}, {"device": NUM_FULL}]
    assert llm.moved["load"] == NUM_FULL // 4
    llm.close()


@one_of_each_family
def test_computed_while_the_request_waits(name: str, tmp_path: Path) -> None:
    llm = DocumentLLM(name, tmp_path, max_num_seqs=1)
    llm.engine.scheduler.decider.costs = SpareCosts(1.0, 0.0)
    jobs = [Job(QUESTIONS[9], greedy_params(60)), ask(1), ask(2, document=random_ids(30, 80)), ask(3)]
    assert_all_greedy(name, drive(llm, jobs))
    assert llm.engine.scheduler.counts.ahead_tokens == NUM_FULL + 30 // 4 * 4
    assert [cached(job) for job in jobs[1:]] == [{}, {}, {"device": NUM_FULL}], "a hit is what another one computed"
    num_states = 2 if llm.engine.scheduler.kv.num_state_records else 0
    assert llm.moved["save"] == NUM_FULL // 4 + 30 // 4 + num_states
    llm.close()


def jobs_about_documents(num_jobs: int, seed: int) -> list[Job]:
    """Requests about three documents that outgrow a small pool together, one of them a prefix of another."""
    chance = random.Random(seed)
    documents = [random_ids(length, 70 + length) for length in (40, 33)]
    documents.append([*documents[0][:20], *random_ids(17, 80)])
    jobs = []
    for i in range(num_jobs):
        params = greedy_params(chance.choice((6, 10, 14)), n=chance.choice((1, 1, 2)))
        jobs.append(ask(i % 10, params, document=chance.choice(documents), arrival=i // 2))
    return jobs


@pytest.mark.parametrize(
    ("name", "budget", "swap"),
    [
        pytest.param("llama", 64, "host", marks=pytest.mark.slow),
        pytest.param("llama", 7, "no swap tier", marks=pytest.mark.slow),
        pytest.param("gpt2", 7, "disk", marks=pytest.mark.slow),
        ("qwen3_5", 64, "host"),
        pytest.param("qwen3_5", 7, "disk", marks=pytest.mark.slow),
    ],
)
def test_preempted_in_a_small_pool(tmp_path: Path, name: str, budget: int, swap: str) -> None:
    options: dict[str, Any] = {"num_kv_blocks": 28, "max_num_batched_tokens": budget}
    if swap != "no swap tier":
        options["swap_space"] = 1 << 20
    if swap == "disk":
        options["swap_dir"] = str(tmp_path / "swap")
        (tmp_path / "swap").mkdir()
    for num_starts, num_jobs in enumerate((3, 8)):
        llm = DocumentLLM(name, tmp_path / "kv", **options)
        preemptor, moments = Preemptor(llm, budget), random.Random(budget)

        def before_step(step: int, preemptor: Preemptor = preemptor, moments: random.Random = moments) -> None:
            if step < 150 and moments.random() < 0.2:
                preemptor.preempt_someone()

        jobs = drive(llm, jobs_about_documents(num_jobs, num_starts), before_step)
        assert_all_greedy(name, jobs)
        if num_starts:
            assert num_preemptions(jobs) > 2
            assert llm.moved["load"] > 0
        llm.close()


def rewrite(segment: Path, row: int, at: int) -> None:
    """Replace a record's content, with valid checksums."""
    (namespace,) = list_namespaces(segment.parents[1])
    root = bytes.fromhex(namespace.root)
    data = bytearray(segment.read_bytes())
    whole = Segment(0, segment, root, namespace.block_bytes)
    assert whole.load_index()
    start = whole.offset(row)
    end = start + HEADER_BYTES + namespace.block_bytes
    told = decode_header(root, namespace.block_bytes, data[start : start + HEADER_BYTES])
    assert told is not None
    assert data[start + HEADER_BYTES + at] != 0x45
    data[start + HEADER_BYTES + at] = 0x45  # thousands of them, as a float's last byte
    data[start : start + HEADER_BYTES] = encode_header(root, told, bytes(data[start + HEADER_BYTES : end]))
    segment.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "row"),
    quick(
        [("llama", 4), ("qwen3_5", 4), ("qwen3_5", 8)],
        [
            *product(("llama", "qwen3", "gpt2", "opt-350m", "qwen3_5"), [4]),
            ("qwen3_5", 8),
            ("lfm2", 8),
            ("granite4-moe", 9),
        ],
    ),
)  # windows hide early blocks; rows from 8 are parts of states
def test_a_wrong_byte_in_one_block_would_show(name: str, row: int, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    keep_document(name, tmp_path, kv_dir_coding="off")
    (segment,) = tmp_path.glob("*/*.seg")
    rewrite(segment, row=row, at=3)
    llm = DocumentLLM(name, tmp_path)
    jobs = drive(llm, [ask(i, greedy_params(NUM_TOKENS)) for i in range(2)])
    assert sum(cached(jobs[0]).values()) == NUM_FULL
    expected = [list(greedy(name, tuple(job.prompt)).token_ids) for job in jobs]
    assert [outputs(job)[0] for job in jobs] != expected
    llm.close()
