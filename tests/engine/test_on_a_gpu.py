"""Engines with device=cuda, on a GPU or a simulated one: what reaches it, and what comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from adapters import greedy_with, lora
from draft_heads import assistant_checkpoint, head_checkpoint
from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
    assert_all_greedy,
    assert_same_greedy,
    checkpoint,
    drive,
    greedy_params,
    make_llm,
    outputs,
    run,
)
from engine.test_precision_stages import original
from gguf_files import write_gguf
from loading import test_quantized_checkpoints as quantized
from parameters import quick
from quire import LLM, BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.assembly import load, make_engine
from quire.config import EngineConfig
from quire.models.linear.triton_weight import TritonWeight
from quire.outputs import TransferReport
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from quire.prompt import Prompt
from simulated_gpu import fake_graphs, simulated_gpu

SMALL: dict[str, Any] = {"device": "cuda", "block_size": 4, "max_num_batched_tokens": 24, "enforce_eager": True}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 1, "max_tokens": 4}
PARAMS: dict[str, SamplingParams | BeamSearchParams] = {
    "logprobs": SamplingParams(**SAMPLED, top_k=20, n=2, logprobs=3, prompt_logprobs=2),
    "nucleus": SamplingParams(**SAMPLED, top_p=0.9, min_p=0.01),
    "penalties": SamplingParams(**SAMPLED, repetition_penalty=1.3, presence_penalty=0.4, logit_bias={3: 5.0}),
    "bans": SamplingParams(temperature=0, max_tokens=4, min_tokens=3, allowed_token_ids=tuple(range(50))),
    "beams": BeamSearchParams(beam_width=3, max_tokens=4),
    "pooling": SamplingParams(max_tokens=1, pooling="mean"),
}
ENCODED = (
    "awq", "gptq-act-order", "fp8-blocks", "w8a8", "w4a16", "llama Q4_0", "qwen3-moe Q8_0", "gpt-oss-window Q4_1",
    "qwen2 Q8_0",
)  # fmt: skip
PLACES: dict[str, dict[str, Any]] = {
    "host": {"swap_space": "8MiB", "recovery_policy": "swap", "num_kv_blocks": 20, "watermark": 0},
    "file": {"swap_dir": True, "recovery_policy": "swap", "num_kv_blocks": 20, "watermark": 0},
    "disk": {"kv_dir": True, "kv_dir_keep_prompts": True},
}


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    with simulated_gpu(monkeypatch):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma4-moe", "deepseek3", "gemma4-shared", "gpt2", "gpt-oss-window", "opt"])
def test_models(name: str) -> None:
    llm = make_llm(name, **SMALL)
    assert_all_greedy(name, drive(llm, [Job(prompt, greedy_params(4)) for prompt in PROMPTS[5:7]]))


@pytest.mark.parametrize("kind", quick(["logprobs"], PARAMS))
def test_answers_are_those_of_a_cpu(kind: str) -> None:
    def run_on(device: str) -> list[Any]:
        llm = make_llm("llama", **SMALL | {"device": device})
        jobs = drive(llm, [Job(prompt, PARAMS[kind]) for prompt in PROMPTS[1:3]])
        return [completion for job in jobs for completion in job.output.outputs]

    for found, expected in zip(run_on("cuda"), run_on("cpu"), strict=True):
        assert found.token_ids == expected.token_ids
        if found.logprobs is not None:
            for one, other in zip(found.logprobs, expected.logprobs, strict=True):
                assert [*one] == [*other]
                assert [each.logprob for each in one.values()] == pytest.approx(
                    [each.logprob for each in other.values()], abs=1e-4
                )


@pytest.mark.parametrize("place", quick(["host"], PLACES))
def test_blocks_come_back_from_elsewhere(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {name: str(tmp_path) if value is True and name.endswith("dir") else value
               for name, value in PLACES[place].items()}  # fmt: skip
    moved: set[str] = set()
    for _ in range(2 if place == "disk" else 1):
        llm: Any = make_llm("llama", **SMALL | options)
        runner = llm.engine.runner
        worker = runner.disk.worker if place == "disk" else runner.transfer_worker
        add = worker._add

        def note(report: TransferReport, add: Callable[[TransferReport], None] = add) -> None:
            if not report.failed and not report.is_cancelled:
                moved.add(report.kind)
            add(report)

        monkeypatch.setattr(worker, "_add", note)

        assert_all_greedy("llama", drive(llm, [Job(prompt, greedy_params(12)) for prompt in PROMPTS[2:5]]))
    assert moved == {"save", "load"}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["llama", "deepseek3", "gemma2", "lfm2", "qwen3-moe"])
def test_random_schedules(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUDA graphs, preemptions, swapping and aborts."""
    random = Random(f"{name}/{seed}")
    options = {
        "block_size": [4, 8],
        "num_kv_blocks": [24, 64],
        "max_num_batched_tokens": [12, 24],
        "swap_space": [0, 2**23],
    }
    chosen = {option: random.choice(values) for option, values in options.items()}
    with contextlib.nullcontext() if torch.cuda.is_available() else fake_graphs(monkeypatch):
        llm = make_llm(name, **SMALL | chosen | {"watermark": 0, "enforce_eager": False})
        preemptor, jobs = Preemptor(llm, seed), []
        for _ in range(5):
            params, end = greedy_params(random.randint(2, 9)), random.choice([None, None, None, 10])
            jobs.append(Job(random.choice(PROMPTS), params, random.randint(0, 8), abort_at=end))
        drive(llm, jobs, lambda step: preemptor.preempt_someone() if random.random() < 0.25 else None)
    assert_all_greedy(name, [job for job in jobs if job.abort_at is None])


@pytest.mark.slow
def test_adapters_of_one_batch() -> None:
    names = ("", *(each.split("=")[0] for each in lora("llama")))
    llm = make_llm("llama", lora=lora("llama"), **SMALL)
    jobs = drive(llm, [Job(PROMPTS[i], greedy_params(4), adapter=name) for i, name in enumerate(names)])
    for i, job in enumerate(jobs):
        assert_same_greedy("llama", job.prompt, greedy_with("llama", job.adapter)[i], outputs(job)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "deepseek3", "gemma4", "qwen3_5"])
def test_draft_models_and_heads(name: str) -> None:
    path, draft = {
        "llama": (checkpoint, lambda name: str(checkpoint(name))),
        "deepseek3": (head_checkpoint, lambda _: "mtp"),
        "qwen3_5": (head_checkpoint, lambda _: "mtp"),
        "gemma4": (checkpoint, lambda name: str(assistant_checkpoint(name))),
    }[name]
    options = {"speculation": "lookup", "speculative_model": draft(name), "speculative_tokens": 3}
    llm = make_llm(name, path(name), **SMALL | options)
    speculator = llm.engine.scheduler.speculator
    speculator.costs, speculator.make_sources = None, lambda seq: ()
    assert_all_greedy(name, drive(llm, [Job(PROMPTS[4], greedy_params(8))]))


@pytest.mark.slow
def test_a_grammar() -> None:
    rule, options = StructuredOutputsParams(regex="[ab]{3}c+d"), SMALL | {"max_model_len": 64, "num_kv_blocks": 64}
    texts = [
        LLM("random:tiny", dtype="float32", use_tqdm=False, **options | {"device": each})
        .generate("hello", SamplingParams(temperature=0.8, seed=3, max_tokens=12, structured_outputs=rule))[0]
        .outputs[0].text
        for each in ("cuda", "cpu")
    ]  # fmt: skip
    assert texts[0] == texts[1]


def write_encoded(name: str, path: Path) -> Path:
    """Write a small model whose weights are quantized, or in blocks: a folder or a GGUF file."""
    if name in quantized.FORMATS:
        quantized.write(path, name)
        return path
    architecture, encoding = name.split()
    return write_gguf(checkpoint(architecture), path.with_suffix(".gguf"), encoding)


@pytest.mark.parametrize("name", quick(["llama Q4_0"], ENCODED))
def test_encoded_weights_stay_as_small_and_mean_what_they_should(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tokens, sizes = write_encoded(name, tmp_path / "model"), [], []
    monkeypatch.setenv("QUIRE_BACKEND", "torch")  # which decodes them on a CPU
    for device in ("cuda", "cpu"):
        llm = make_llm(name, path, dtype="float32", **SMALL | {"device": device})
        sizes.append(llm.engine.runner.model.weight_bytes())
        tokens.append(outputs(drive(llm, [Job(range(10), greedy_params(5))])[0]))
    assert tokens[0] == tokens[1]
    assert sizes[0] < 0.7 * sizes[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "llama", "qwen3-moe", "deepseek3"])
def test_weights_of_12_bits_are_those_of_the_checkpoint(name: str) -> None:
    models, answers = [], []
    for weights in ("plain", "packed12"):
        llm = make_llm(name, dtype="bfloat16", weights=weights, **SMALL)
        (job,) = drive(llm, [Job(PROMPTS[2], SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0))])
        answers.append([each.logprob for place in job.output.prompt_logprobs[1:] for each in place.values()])
        models.append(dict(llm.engine.runner.model.weighted_layers()))
    off = sorted(abs(one / other - 1) for one, other in zip(*answers, strict=True))
    assert off[len(off) // 2] < 0.02  # in bfloat16, where a near tie may choose another expert
    num_packed = 0
    for path, layer in models[1].items():
        if isinstance(packed := layer.packed, TritonWeight):
            num_packed += 1
            assert torch.equal(packed.encoded.decode().bfloat16().cpu(), models[0][path].weight.cpu()), path
    assert num_packed > 10
    assert name != "qwen2" or isinstance(models[1]["model.embed_tokens"].packed, TritonWeight)  # tied


@pytest.mark.slow
@pytest.mark.parametrize("precision_bits", [None, 1])
def test_packs_are_served_in_stages(precision_bits: int | None, tmp_path: Path) -> None:
    pack(str(original()), StagePlan(3, ((0, 2), (1,)), precision_bits), tmp_path / "pack", use_tqdm=False)
    config = EngineConfig(str(tmp_path / "pack"), num_kv_blocks=32, use_tqdm=False, **SMALL)
    tokens = []
    for is_progressive in (False, True):
        loaded: Any = load(config, is_progressive=is_progressive)
        engine = make_engine(config, loaded)
        while engine.stage < loaded.loader.last_stage:
            engine.step()
        answer = engine.add_request(Prompt(None, [*range(5, 15)]), greedy_params(6))
        tokens.append(run(engine, [answer])[0].outputs[0].token_ids)
    assert tokens[0] == tokens[1]
