"""Each architecture computes the same as `transformers` from the same checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from checkpoints import ARCHITECTURES, KINDS, ONE_OF_EACH_KIND, make_checkpoint, make_config, randomize
from parameters import quick
from quire.attention.interface import LayerState, StateRule
from quire.attention.states import LayerStates, StatePlan
from quire.loading import load_model, resolve_model
from quire.models.base import CausalLM
from quire.models.stages import PassLayer, ServableStage
from tensors import hidden_states, logits_of_tokens

NUM_TOKENS = 200  # longer than the original context of the tiny RoPE scalings


def attend_to_one_sequence(model: CausalLM) -> Callable[..., Tensor]:
    """Return plain causal attention over a single sequence, the simplest case."""
    layers, stored = model.attention_layers(), dict[int, tuple[Tensor, Tensor]]()

    def attend(
        layer_index: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | StateRule | None = None
    ) -> Tensor:
        layer = layers[layer_index]
        if isinstance(layer, LayerState):
            assert callable(sinks)
            state = np.zeros((1, layer.num_floats), np.float32)
            return sinks(LayerStates(state, 0, layer.num_floats, StatePlan.of_text(len(q))), q, k, v)
        assert not callable(sinks)
        if k is not None:
            stored[layer_index] = k, k[..., : layer.value_dim] if v is None else v
        groups = layer.num_heads // layer.num_kv_heads
        k, v = (
            x.repeat_interleave(groups, 1)
            for x in stored[layer_index if layer.reads_layer is None else layer.reads_layer]
        )
        dtype = q.dtype
        q, k, v = (x.transpose(0, 1).to(torch.promote_types(dtype, torch.float32)) for x in (q, k, v))
        distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
        mask = (distance >= 0) & (distance < (layer.window or len(distance)))
        scores = q @ k.transpose(1, 2) * layer.scale
        if layer.softcap:
            scores = layer.softcap * (scores / layer.softcap).tanh()
        scores = scores.masked_fill(~mask, -torch.inf)
        if sinks is not None:
            scores = torch.cat((scores, sinks[:, None, None].expand(-1, len(distance), 1)), -1)
        return (scores.softmax(-1)[..., : len(distance)] @ v).transpose(0, 1).to(dtype)

    return attend


def reference_logits(directory: Path, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, experts_implementation="eager").eval()
    with torch.no_grad():
        return reference(ids[None]).logits[0]


def our_logits(directory: Path, ids: Tensor, dtype: str = "auto") -> Tensor:
    model = load_model(resolve_model(str(directory)), dtype=dtype, use_tqdm=False)
    with torch.inference_mode():
        return logits_of_tokens(model, ids, torch.arange(len(ids)), attend_to_one_sequence(model))


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / (theirs.max() - theirs.min())).item()


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 256, (NUM_TOKENS,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    ours, theirs = our_logits(directory, ids), reference_logits(directory, ids)
    exact = reference_logits(directory, ids, torch.float64)  # these weights amplify roundings, in OPT the most
    assert (ours - exact).pow(2).mean() < 2 * (theirs - exact).pow(2).mean()
    assert relative_error(ours, theirs) < 1e-3
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_the_tiny_checkpoints_can_tell_right_from_wrong(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    changed = torch.cat(((ids[:16] + 7) % 256, ids[16:]))
    end = 32 if name.endswith("-window") else NUM_TOKENS
    best, best_changed = (our_logits(directory, x).argmax(-1) for x in (ids, changed))
    assert len(best[16:].unique()) > 50, "it repeats itself"
    assert (best != best_changed)[16:end].float().mean() > 0.7, "it does not care what came before"


@pytest.mark.parametrize(
    "name", [name for name in ARCHITECTURES if name.startswith(("llama", "qwen", "mistral", "gpt-oss"))]
)
def test_a_config_in_the_dialect_of_transformers_4_means_the_same(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    expected = our_logits(directory, ids)
    config = json.loads((directory / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    config["rope_scaling"] = None if rope_type == "default" else {"type": rope_type, **rope}
    config["torch_dtype"] = config.pop("dtype")
    (directory / "config.json").write_text(json.dumps(config))
    assert torch.equal(our_logits(directory, ids), expected)


def check_text_of(model: transformers.PreTrainedModel, directory: Path, ids: Tensor) -> None:
    """Compare the logits of a multimodal model's checkpoint with its own."""
    with torch.no_grad():
        theirs = model(ids[None]).logits[0]
    ours = our_logits(directory, ids, dtype="float32")
    assert relative_error(ours, theirs) < 1e-3
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize(
    "layout", ["hub", "transformers 5"], ids=lambda layout: f"Mistral3ForConditionalGeneration-{layout}"
)
def test_a_multimodal_checkpoint_is_opened_for_its_text(layout: str, tmp_path: Path, ids: Tensor) -> None:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 16,
    }
    config = transformers.Mistral3Config(
        text_config=make_config("ministral3-rope").to_dict(),
        vision_config={"model_type": "pixtral", "image_size": 28, "patch_size": 14, "head_dim": 16, **vision},
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = transformers.Mistral3ForConditionalGeneration(config).eval()
    randomize(model)
    model.save_pretrained(tmp_path)
    if layout == "transformers 5":
        save_file({name: each.clone() for name, each in model.state_dict().items()}, tmp_path / "model.safetensors")
    check_text_of(model, tmp_path, ids)


@pytest.mark.parametrize(
    "name",
    ["gemma3", "gemma4-moe", "gemma4-shared"],
    ids=lambda name: f"Gemma{name[5]}ForConditionalGeneration-{name}",
)
def test_a_multimodal_gemma_is_opened_for_its_text(name: str, tmp_path: Path, ids: Tensor) -> None:
    kind = "Gemma3" if name == "gemma3" else "Gemma4"
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14} if kind == "Gemma3" else {"head_dim": 16, "num_key_value_heads": 2}
    text = make_config(name, pad_token_id=0, final_logit_softcapping=None).to_dict()
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    randomize(model, {"q_norm": 2, "post_attention": 4, "norm": 1, "embed_tokens": 0.1})
    model.save_pretrained(tmp_path)
    check_text_of(model, tmp_path, ids)


@pytest.mark.parametrize(
    "name",
    ["qwen3_5", "qwen3_5-moe"],
    ids=lambda name: f"Qwen3_5{'Moe' if 'moe' in name else ''}ForConditionalGeneration-{name}",
)
def test_a_multimodal_qwen3_5_is_opened_for_its_text(name: str, tmp_path: Path, ids: Tensor) -> None:
    kind = "Qwen3_5Moe" if "moe" in name else "Qwen3_5"
    vision = {"hidden_size": 32, "intermediate_size": 48, "depth": 1, "num_heads": 2, "out_hidden_size": 64}
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 2, 2],
            "mrope_interleaved": True}  # fmt: skip
    text = make_config(name, rope_parameters=rope).to_dict()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")._from_config(
        config, experts_implementation="eager"
    ).eval()  # fmt: skip
    randomize(model, {"linear_attn.norm": 1, "A_log": 6, "q_norm": 4, "norm": 0, "o_proj": 3})
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file(load_file(file) | {"mtp.norm.weight": torch.zeros(64)}, file, {"format": "pt"})
    check_text_of(model, tmp_path, ids)


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "opt-350m"])
def test_bfloat16_stays_close_to_float32(name: str, tmp_path: Path, ids: Tensor) -> None:
    directory = make_checkpoint(name, tmp_path)
    logits = our_logits(directory, ids, dtype="bfloat16")
    assert logits.dtype == torch.bfloat16
    exact = reference_logits(directory, ids)
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        theirs = reference(ids[None]).logits[0]
    assert (logits.float() - exact).pow(2).mean() < 2 * (theirs.float() - exact).pow(2).mean()


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_batch_is_flattened_without_padding(name: str, tmp_path: Path, ids: Tensor) -> None:
    """Two sequences side by side, separated only by `positions` and `attend`."""
    model = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False)
    lengths, attend_alone = [5, 11], attend_to_one_sequence(model)

    backends = [attend_to_one_sequence(model) for _ in lengths]

    def attend_to_each(layer_index: int, *arrays: Tensor | None) -> Tensor:
        qkv, sinks = arrays[:3], arrays[3:]
        parts = zip(*([None, None] if x is None else x.split(lengths) for x in qkv), strict=True)
        return torch.cat([attend(layer_index, *part, *sinks) for attend, part in zip(backends, parts, strict=True)])

    ids = ids[: sum(lengths)]
    with torch.inference_mode():
        alone = [hidden_states(model, part, torch.arange(len(part)), attend_alone) for part in ids.split(lengths)]
        positions = torch.cat([torch.arange(n) for n in lengths])
        together = hidden_states(model, ids, positions, attend_to_each)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "num_tokens"), quick(zip(KINDS, cycle([20, NUM_TOKENS])), product(ARCHITECTURES, [20, NUM_TOKENS]))
)
def test_rows_that_are_wanted_are_what_they_are_among_all(
    name: str, num_tokens: int, tmp_path: Path, ids: Tensor
) -> None:
    model = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False)
    ids, positions = ids[:num_tokens], torch.arange(num_tokens)
    seen: list[tuple[int, int]] = []
    attend_alone = attend_to_one_sequence(model)

    def attend(layer_index: int, q: Tensor, k: Tensor | None, *others: Tensor | None) -> Tensor:
        seen.append((layer_index, num_tokens if k is None else len(k)))
        return attend_alone(layer_index, q, k, *others)

    with torch.inference_mode():
        of_all = hidden_states(model, ids, positions, attend)
        for places in ([], [num_tokens - 1], [3, 11, num_tokens - 1]):
            rows = torch.tensor(places, dtype=torch.int64)
            found = hidden_states(model, ids, positions, attend, rows=rows)
            torch.testing.assert_close(found, of_all[rows], rtol=1e-4, atol=1e-4)
    every_layer = [(index, num_tokens) for index in range(model.config.num_layers)]
    assert seen == 4 * every_layer, "each layer keeps K and V of every token"


@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
def test_identities_know_which_rows_are_wanted(name: str, tmp_path: Path, ids: Tensor) -> None:
    model = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False)
    positions, rows = torch.arange(NUM_TOKENS), torch.tensor([7, NUM_TOKENS - 1])
    attend = attend_to_one_sequence(model)
    model.switch_to(ServableStage(1, [*model.layers[:-1], PassLayer()]))
    with torch.inference_mode():
        of_all = hidden_states(model, ids, positions, attend)
        found = hidden_states(model, ids, positions, attend, rows=rows)
    torch.testing.assert_close(found, of_all[rows], rtol=1e-4, atol=1e-4)
