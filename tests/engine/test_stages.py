"""Greedy float32 output ids with missing layers and an adapter equal those of `transformers` and PEFT."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from checkpoints import ARCHITECTURES, CACHES, HYBRIDS, make_reference
from engine.harness import (
    CLOSE,
    PROMPTS,
    Greedy,
    Job,
    assert_same_greedy,
    checkpoint,
    drive,
    generate_greedy,
    greedy,
    greedy_params,
    make_llm,
    outputs,
    temporary_directory,
)
from models.test_same_logits import attend_to_one_sequence
from parameters import quick
from quire.loading import load_model, resolve_model
from quire.models.adapter import read_adapter
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear
from quire.models.stages import PassLayer, ServableStage
from quire.ops.module import Module
from quire.outputs import NewSequence, SchedulerOutput
from tensors import logits_of_tokens

ABSENT = 1  # of three layers or four
NUM_TOKENS = 10
# Adapters do not depend on rotary positions, and no stage lacks a layer whose KV others read.
NAMES = tuple(
    name for name in ARCHITECTURES if ("rope" not in name or name == "ministral3-rope") and "shared" not in name
)

TARGETS = {
    "gpt2": ["c_attn", "c_fc", "mlp.c_proj"],
    "opt": ["q_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "opt-350m": ["q_proj", "k_proj", "v_proj", "fc2", "project_in", "project_out"],
} | {
    name: ["q_proj", "k_proj", "v_proj", "o_proj"]
    for name in ("qwen2-moe", "qwen3-moe", "mixtral", "glm4_moe", *HYBRIDS)
}
TARGETS |= {"deepseek2": ["q_proj", "kv_a_proj_with_mqa", "o_proj"]} | {
    name: ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj"]
    for name in ("deepseek2-groups", "deepseek3", "glm4_moe_lite")
}
ALL_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SETTINGS: dict[str, dict[str, Any]] = {
    "qwen2": {"use_rslora": True},
    "qwen3": {"rank_pattern": {"v_proj": 2, "layers.2.self_attn.q_proj": 6}, "alpha_pattern": {"[qk]_proj": 3}},
    "mistral": {"target_modules": ["k_proj", "gate_proj"]},
    "gpt2": {"fan_in_fan_out": True},
    "opt-galactica": {"target_modules": ["q_proj", "v_proj", "fc1"]},
}


@cache
def adapted(name: str) -> tuple[Any, Path]:
    """Return the reference without a layer, with a random adapter, and the adapter's PEFT directory."""
    model = make_reference(name)
    num_layers = model.config.num_hidden_layers
    lists = (module for module in model.modules() if isinstance(module, torch.nn.ModuleList))
    layers = next(module for module in lists if len(module) == num_layers)
    layers[ABSENT] = torch.nn.Identity()
    settings = {"target_modules": TARGETS.get(name, ALL_TARGETS), "r": 4, "lora_alpha": 8} | SETTINGS.get(name, {})
    torch.manual_seed(5)
    with_adapter = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
    with torch.no_grad():
        for parameter_name, parameter in with_adapter.named_parameters():
            if "lora_" in parameter_name:
                parameter.normal_(0.0, 0.1)
    directory = temporary_directory(name)
    with_adapter.save_pretrained(directory)
    del layers[ABSENT]
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [kind for i, kind in enumerate(model.config.layer_types) if i != ABSENT]
    for index, layer in enumerate(layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = index
    return with_adapter, directory


@cache
def healed(name: str) -> list[Greedy]:
    return generate_greedy(adapted(name)[0], PROMPTS, NUM_TOKENS)


@cache
def bare(name: str) -> list[Greedy]:
    with adapted(name)[0].disable_adapter():
        return generate_greedy(adapted(name)[0], PROMPTS, NUM_TOKENS)


def make_stage(name: str, model: CausalLM) -> ServableStage:
    adapter = read_adapter(adapted(name)[1], model, dtype=model.dtype, device="cpu", digest="")
    return ServableStage(1, without_a_layer(model), adapter)


def without_a_layer(model: CausalLM) -> list[Module]:
    return [PassLayer() if index == ABSENT else layer for index, layer in enumerate(model.layers)]


@pytest.mark.parametrize(
    ("name", "is_packed"),
    quick(
        [*((name, True) for name in (*CACHES, "gpt2")), ("gpt2", False)],
        [*((name, True) for name in NAMES), ("llama-biases", False), ("gpt2", False)],
    ),
)
def test_a_stage_gives_the_tokens_of_transformers_without_its_layers(
    name: str, is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert min(gap for expected in healed(name) for gap in expected.gaps) > CLOSE
    changed = [a.token_ids != b.token_ids for a, b in zip(healed(name), bare(name), strict=True)]
    assert sum(changed) > len(changed) // 2, "the adapter hardly does anything"
    if not is_packed:
        monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
    llm = make_llm(name, max_num_batched_tokens=7)
    runner = llm.engine.runner
    runner.add_stage(make_stage(name, runner.model))
    jobs = drive(llm, [Job(prompt, greedy_params(NUM_TOKENS), arrival=2 * i) for i, prompt in enumerate(PROMPTS)])
    for job, expected in zip(jobs, healed(name), strict=True):
        assert_same_greedy(name, job.prompt, expected, outputs(job)[0])


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_stages_that_take_turns_step_by_step_give_the_tokens_of_each_alone(name: str) -> None:
    llm = make_llm(name)
    runner, model = llm.engine.runner, llm.engine.runner.model
    runner.add_stage(make_stage(name, model))
    runner.add_stage(ServableStage(2, without_a_layer(model)))
    runner.add_stage(ServableStage(3, list(model.layers)))
    prompt = PROMPTS[4]
    params = greedy_params(NUM_TOKENS)
    found: dict[int, list[int]] = {stage: [] for stage in runner.stages}
    for step in range(NUM_TOKENS):
        for stage, token_ids in found.items():
            new = []
            if step == 0:
                table = list(range(3 * stage, 3 * stage + 3))
                new = [NewSequence(stage, 0, list(prompt), len(prompt), 0, table, params, seed=0)]
            count = 1 if step else len(prompt)
            out = SchedulerOutput(step, [stage], [count], new, total_tokens=count, stage=stage)
            token_ids += runner.execute(out).sampled[0]
    expected = {1: healed(name)[4], 2: bare(name)[4], 3: greedy(name, prompt)}
    for stage, token_ids in found.items():
        assert_same_greedy(name, prompt, expected[stage], token_ids)
    assert len({tuple(token_ids) for token_ids in found.values()}) == 3
    runner.drop_stage(1)
    assert all(module.adapter is None for module in model.modules() if isinstance(module, Linear))
    assert set(runner.stages) == {2, 3}


@pytest.mark.parametrize("num_tokens", [12, 200], ids=["few rows", "many rows"])
@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
def test_bfloat16_stays_as_close_to_float32_as_pefts(name: str, num_tokens: int) -> None:
    ids = torch.randint(0, 256, (num_tokens,), generator=torch.Generator().manual_seed(1))
    exact = adapted(name)[0]
    theirs = copy.deepcopy(exact).bfloat16()
    for (parameter_name, parameter), original in zip(theirs.named_parameters(), exact.parameters(), strict=True):
        if "lora_" in parameter_name:
            parameter.data = original.data  # in float32, as PEFT loads them
    model = load_model(resolve_model(str(checkpoint(name))), dtype="bfloat16", use_tqdm=False)
    model.switch_to(make_stage(name, model))
    with torch.inference_mode():
        expected = exact(input_ids=ids[None]).logits[0]
        ours = logits_of_tokens(model, ids, torch.arange(num_tokens), attend_to_one_sequence(model))
        errors = [(logits.float() - expected).pow(2).mean() for logits in (ours, theirs(input_ids=ids[None]).logits[0])]
    assert errors[0] < 2 * errors[1]
