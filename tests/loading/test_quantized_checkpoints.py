"""Quantized safetensors: every layer has the weights that its tensors mean, and what is broken is one error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from checkpoints import make_checkpoint
from engine.harness import NUM_TOKENS, assert_same_greedy, generate_greedy, greedy_params, random_ids
from parameters import quick
from quire import LLM
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.loading.errors import ModelLoadError
from quire.loading.presets import preset_config
from quire.models.base import CausalLM
from quire.models.linear.block_weight import BlockWeight
from quire.models.model_config import ModelConfigError, UnsupportedModelError
from quire.models.parallel import ParallelGroup
from quire.models.registry import build_model, read_model_config
from ranks import logits_of, on_ranks

SHAPE = {"num_hidden_layers": 1, "hidden_size": 256, "intermediate_size": 384, "vocab_size": 257, "dtype": "float16"}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the columns of a word's nibbles
Tensors = dict[str, np.ndarray]
Encode = Callable[[np.random.Generator, int, int], tuple[Tensors, np.ndarray]]
"""Return a layer's tensors, and its weight by the format's definition, from outputs and inputs."""


def pack(integers: np.ndarray, bits: int = 4, order: Iterable[int] = range(8)) -> np.ndarray:
    """Pack the last dimension into words."""
    per_word = 32 // bits
    words = np.zeros((*integers.shape[:-1], -(-integers.shape[-1] // per_word)), np.uint32)
    for place, column in enumerate([*order][:per_word]):
        part = integers[..., column::per_word].astype(np.uint32)
        words[..., : part.shape[-1]] |= part << np.uint32(bits * place)
    return words.view(np.int32)


def grouped(
    random: np.random.Generator, outputs: int, groups: int, inputs: int, bits: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random integers, zero points and float16 scales."""
    most = 2**bits
    scales = (0.005 + 0.01 * random.random((outputs, groups))).astype(np.float16)
    return random.integers(0, most, (outputs, inputs)), random.integers(0, most, (outputs, groups)), scales


def weight_of(integers: np.ndarray, zeros: np.ndarray, scales: np.ndarray, of_input: np.ndarray) -> np.ndarray:
    return ((integers - zeros[:, of_input]) * scales.astype(np.float64)[:, of_input]).astype(np.float32)


def awq(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Tensors, np.ndarray]:
    integers, zeros, scales = grouped(random, outputs, inputs // 128, inputs)
    tensors = {
        "qweight": pack(integers.T, 4, AWQ_ORDER),
        "qzeros": pack(zeros.T, 4, AWQ_ORDER),
        "scales": scales.T.copy(),
    }
    return tensors, weight_of(integers, zeros, scales, np.arange(inputs) // 128)


def gptq(*, group: int = 64, bits: int = 4, shuffled: bool = False, added: int = 1, symmetric: bool = False) -> Encode:
    def encode(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        integers, zeros, scales = grouped(random, outputs, -(-inputs // group), inputs, bits)
        if symmetric:
            zeros[...] = 2 ** (bits - 1)
        of_input = np.arange(inputs) // group
        if shuffled:
            of_input = np.random.default_rng(inputs).permutation(of_input)
        tensors = {
            "qweight": pack(integers.T.swapaxes(0, 1), bits).T.copy(),
            "qzeros": pack((zeros.T - added) % 2**bits, bits),
            "scales": scales.T.copy(),
            "g_idx": of_input.astype(np.int32),
        }
        return tensors, weight_of(integers, zeros, scales, of_input)

    return encode


def packed(*, group: int, bits: int = 4, symmetric: bool = True, ordered: bool = False) -> Encode:
    def encode(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        size = group or inputs
        integers, zeros, scales = grouped(random, outputs, inputs // size, inputs, bits)
        tensors = {
            "weight_packed": pack(integers, bits),
            "weight_scale": scales.astype(ml_dtypes.bfloat16),
            "weight_shape": np.array([outputs, inputs]),
        }
        if symmetric:
            zeros[...] = 2 ** (bits - 1)
        else:
            tensors["weight_zero_point"] = pack(zeros.T, bits).T.copy()
        of_input = np.arange(inputs) // size
        if ordered:
            of_input = np.random.default_rng(outputs).permutation(of_input)
            tensors["weight_g_idx"] = of_input.astype(np.int32)
        return tensors, weight_of(integers, zeros, tensors["weight_scale"], of_input)

    return encode


def int8(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Tensors, np.ndarray]:
    integers, _, scales = grouped(random, outputs, 1, inputs, 8)
    tensors = {"weight": (integers - 128).astype(np.int8), "weight_scale": scales.astype(np.float32)}
    return tensors, weight_of(integers, np.full_like(scales, 128, int), scales, np.zeros(inputs, int))


def fp8(*, block: tuple[int, int], suffix: str = "", scalar: bool = False) -> Encode:
    def encode(random: np.random.Generator, outputs: int, inputs: int) -> tuple[Tensors, np.ndarray]:
        weight = random.standard_normal((outputs, inputs)).astype(ml_dtypes.float8_e4m3fn)
        rows, columns = block[0] or outputs, block[1] or inputs
        scales = (0.01 + 0.01 * random.random((-(-outputs // rows), -(-inputs // columns)))).astype(np.float32)
        every = scales[np.arange(outputs)[:, None] // rows, np.arange(inputs) // columns]
        stored = scales.reshape(()) if scalar else scales
        return {"weight": weight, f"weight_scale{suffix}": stored}, weight.astype(np.float32) * every

    return encode


def compressed(file_format: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {"quant_method": "compressed-tensors", "format": file_format, "config_groups": groups, "ignore": ["lm_head"]}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64}
GROUPS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
FORMATS: dict[str, tuple[dict[str, Any], Encode]] = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, awq),
    "gptq": (GPTQ, gptq()),
    "gptq-sym": (GPTQ | {"sym": True, "group_size": 32}, gptq(group=32, symmetric=True)),
    "gptq-v2": (GPTQ | {"checkpoint_format": "gptq_v2"}, gptq(added=0)),
    "gptq-act-order": (GPTQ | {"desc_act": True}, gptq(shuffled=True)),
    "gptq-8-bits": (GPTQ | {"bits": 8, "group_size": 128}, gptq(bits=8, group=128, symmetric=True)),
    "w4a16": (compressed("pack-quantized", **GROUPS), packed(group=128)),
    "w4a16-asym": (compressed("pack-quantized", **GROUPS, symmetric=False), packed(group=128, symmetric=False)),
    "w4a16-act-order": (compressed("pack-quantized", **GROUPS, actorder="group"), packed(group=128, ordered=True)),
    "w8a16": (compressed("pack-quantized", num_bits=8, strategy="channel"), packed(group=0, bits=8)),
    "w8a8": (compressed("int-quantized", num_bits=8, strategy="channel"), int8),
    "fp8": ({"quant_method": "fp8"}, fp8(block=(0, 0), scalar=True)),
    "fp8-blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8(block=(128, 128), suffix="_inv")),
    "fp8-channels": (compressed("float-quantized", num_bits=8, type="float", strategy="channel"), fp8(block=(1, 0))),
}
each_format = pytest.mark.parametrize("name", FORMATS)


def write(folder: Path, name: str, change: Callable[[Tensors], None] = lambda tensors: None, **config: Any) -> Tensors:
    """Write a Llama whose linear layers but the head and gate_proj are quantized. Return the weights by layer."""
    quantization, encode = FORMATS[name]
    values = preset_config("random:tiny") | SHAPE | {"tie_word_embeddings": False}
    random = np.random.default_rng(0)
    tensors: Tensors = {}
    weights: Tensors = {}
    for path, view in build_model(read_model_config(values), np.dtype(np.float32), "meta").checkpoint_tensors().items():
        layer = path.removesuffix(".weight")
        if "proj" in path and "gate_proj" not in path:
            encoded, weights[layer] = encode(random, *view.shape)
            tensors |= {f"{layer}.{kind}": np.ascontiguousarray(tensor) for kind, tensor in encoded.items()}
        else:
            tensors[path] = (0.05 * random.standard_normal(view.shape)).astype(np.float16)
            weights[layer] = tensors[path].astype(np.float32)
    change(tensors)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values | {"quantization_config": quantization} | config))
    return weights


#: As in published checkpoints of Qwen3.5, whose gates stay in floats.
PREFIX = "model.language_model.layers.0.linear_attn"
HYBRIDS: dict[str, tuple[dict[str, Any], Encode]] = {
    "awq": (FORMATS["awq"][0] | {"modules_to_not_convert": ["in_proj_a", "in_proj_b", "visual"]}, awq),
    "gptq": (GPTQ | {"dynamic": {"lm_head": {}, "-:.*attn.*": {}, "-:.*visual.*": {}}, "sym": True}, gptq()),
    "gptq-attention": (GPTQ, gptq()),
    "gptq-experts": (GPTQ | {"dynamic": {"-:.*attn.*": {}, "-:.*shared_expert.*": {}}}, gptq()),
    "auto-round": (
        {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "group_size": 32,
         "sym": True, "extra_config": {f"{PREFIX}.in_proj_a": {"bits": 16, "data_type": "fp"}}},
        gptq(group=32, symmetric=True),
    ),
    "auto-round-awq": (
        {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4, "group_size": 128}, awq
    ),
    "w4a16": (compressed("pack-quantized", **GROUPS) | {"ignore": [f"{PREFIX}.in_proj_a"]}, packed(group=128)),
    "w8a8": (compressed("int-quantized", num_bits=8, strategy="channel") | {"ignore": ["re:.*in_proj_[ab]$"]}, int8),
    "fp8-blocks": (
        FORMATS["fp8-blocks"][0] | {"modules_to_not_convert": [f"{PREFIX}.conv1d"]}, FORMATS["fp8-blocks"][1]
    ),
}  # fmt: skip


def write_quantized(folder: Path, plain: Path, encode: Encode, quantized: str) -> Tensors:
    """Write a text model's weights as a multimodal checkpoint's, those that match `quantized` encoded. Decoded ones
    take their place in the text model; return them all."""
    random, tensors, weights = np.random.default_rng(0), Tensors(), load_file(plain / "model.safetensors")
    for path, tensor in sorted(weights.items()):
        own = path.replace("model.", "model.language_model.", 1)
        if re.search(quantized, path):
            encoded, weights[path] = encode(random, *tensor.shape)
            own = own.removesuffix(".weight")
            tensors |= {f"{own}.{kind}": np.ascontiguousarray(part) for kind, part in encoded.items()}
        else:
            tensors[own] = tensor
    save_file(weights, plain / "model.safetensors")
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return weights


def write_hybrid(folder: Path, name: str) -> tuple[Path, Tensors]:
    """Write Qwen3.5 with a picture part's prefix, quantized, and as a text model that is decoded. Return the decoded
    one's folder and weights."""
    quantization, encode = HYBRIDS[name]
    sizes, has_experts = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}, name == "gptq-experts"
    sizes |= {"moe_intermediate_size": 128} if has_experts else {}
    plain = make_checkpoint("qwen3_5-moe" if has_experts else "qwen3_5", folder.with_name("decoded"), **sizes)
    quantized = {"gptq": "mlp", "gptq-experts": r"\.experts\."}.get(name, "_proj(?!_a|_b)")
    weights = write_quantized(folder, plain, encode, quantized)
    text = json.loads((plain / "config.json").read_text())
    architecture = f"Qwen3_5{'Moe' if has_experts else ''}ForConditionalGeneration"
    config = {"architectures": [architecture], "text_config": text}
    (text if name == "w4a16" else config)["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config))
    return plain, weights


def write_hybrid_mixture(folder: Path, name: str) -> Path:
    """Write the multimodal checkpoint of a Qwen3.5 with experts, and return a folder with its text part in floats."""
    quantization, encode = FORMATS[name]
    sizes = {"hidden_size": 256, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128, "head_dim": 32}
    plain = make_checkpoint("qwen3_5-moe", folder.with_name("decoded"), **sizes)
    write_quantized(folder, plain, encode, "proj(?!_a|_b)")
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "quantization_config": quantization}
    config["text_config"] = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    return plain


def load(folder: Path, group: ParallelGroup | None = None) -> CausalLM:
    options = {} if group is None else {"group": group}
    return load_model(resolve_model(str(folder)), dtype="float32", use_tqdm=False, **options)


def outputs_of(model: CausalLM, x: np.ndarray, inner: np.ndarray) -> Tensors:
    layer = model.layers[0]
    parts = {"qkv": layer.self_attn.qkv_proj, "o": layer.self_attn.o_proj, "up": layer.mlp.up_proj}
    return {name: linear(x) for name, linear in parts.items()} | {"down": layer.mlp.down_proj(inner)}


@pytest.mark.skipif(load_kernels().functions is None, reason="quantized weights need kernels")
@each_format
def test_layers_compute_with_the_weights_that_are_meant(name: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "model", name)
    model = load(tmp_path / "model")
    prefix = "model.layers.0."
    qkv = np.concatenate([weights[f"{prefix}self_attn.{part}_proj"] for part in "qkv"])
    expected = {"qkv": qkv, "o": weights[f"{prefix}self_attn.o_proj"]}
    expected |= {part: weights[f"{prefix}mlp.{part}_proj"] for part in ("up", "down")}
    random = np.random.default_rng(1)
    x, inner = (random.standard_normal((5, size)).astype(np.float32) for size in (256, 384))
    for part, found in outputs_of(model, x, inner).items():
        exact = (inner if part == "down" else x).astype(np.float64) @ expected[part].T
        error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert error < 0.01, part
    keeps_integers = load_kernels().functions is not None and "fp8" not in name
    layer = model.layers[0]
    assert isinstance(layer.mlp.up_proj.packed, BlockWeight) == keeps_integers
    keeps_order = keeps_integers and name != "w4a16-act-order"  # whose q_proj and k_proj differ
    assert isinstance(layer.self_attn.qkv_proj.packed, BlockWeight) == keeps_order
    assert isinstance(layer.mlp.gate_proj.packed, BlockWeight) is False


@each_format
def test_without_kernels_weights_are_decoded_exactly(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    weights = write(tmp_path / "model", name)
    for path, projection in load(tmp_path / "model").projections().items():
        if path in weights:
            np.testing.assert_array_equal(np.asarray(projection.linear.weight[projection.rows]), weights[path], path)


@pytest.mark.parametrize("name", quick(["awq", "gptq-act-order", "w4a16", "fp8-blocks"], FORMATS))
def test_hybrids_with_experts_compute_with_the_weights_that_are_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = write_hybrid_mixture(tmp_path / "model", name)
    if load_kernels().functions is not None:
        model = load(tmp_path / "model")
        similarities = torch.nn.functional.cosine_similarity(logits_of(model), logits_of(load(plain)))
        assert similarities.median() > 0.95  # some tokens choose another expert
        layer = model.layers[0]
        for linear in (layer.linear_attn.out_proj, layer.mlp.experts[3].up_proj, layer.mlp.shared_expert.up_proj):
            assert isinstance(linear.packed, BlockWeight) == ("fp8" not in name)
        for linear in (layer.linear_attn.in_proj_ba, layer.mlp.gate):
            assert not isinstance(linear.packed, BlockWeight)
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    assert torch.equal(logits_of(load(tmp_path / "model")), logits_of(load(plain)))


@pytest.mark.skipif(load_kernels().functions is None, reason="quantized weights need kernels")
def test_gates_of_another_order_are_multiplied_by_themselves(tmp_path: Path) -> None:
    weights = write(tmp_path / "model", "w4a16-act-order")
    mlp, x = load(tmp_path / "model").layers[0].mlp, np.random.default_rng(1).standard_normal((3, 256), np.float32)
    gate, up = (x @ weights[f"model.layers.0.mlp.{part}_proj"].T for part in ("gate", "up"))
    expected = gate / (1 + np.exp(-gate)) * up
    np.testing.assert_allclose(mlp.gate_proj.gated(x, mlp.up_proj), expected, atol=0.02 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["awq", "gptq", "w4a16-asym", "w8a8", "fp8", "fp8-blocks", "fp8-channels"])
def test_ranks_have_their_parts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    weights = write(tmp_path / "model", name)
    for rank in range(2):
        if name in ("awq", "w4a16-asym", "fp8-blocks"):  # 384 / 2 = 192 inputs
            with pytest.raises(UnsupportedModelError, match=r"_proj is in groups of 128.*tensor_p"):
                load(tmp_path / "model", ParallelGroup(rank, 2))
            continue
        model = load(tmp_path / "model", ParallelGroup(rank, 2))
        mlp, part = model.layers[0].mlp, slice(192 * rank, 192 * (rank + 1))
        np.testing.assert_array_equal(np.asarray(mlp.up_proj.weight), weights["model.layers.0.mlp.up_proj"][part])
        np.testing.assert_array_equal(
            np.asarray(mlp.down_proj.weight), weights["model.layers.0.mlp.down_proj"][:, part]
        )


def test_ignored_layers_are_expected_in_floats(tmp_path: Path) -> None:
    names = ("model.layers.0.mlp.up_proj", "mlp.up_proj", r"re:.*up_proj$")
    lists = [("w4a16", FORMATS["w4a16"][0] | {"ignore": ["lm_head", ignored]}) for ignored in names]
    lists.append(("gptq", GPTQ | {"dynamic": {r"-:.*up_proj$": {}}}))
    for index, (name, quantization) in enumerate(lists):
        write(tmp_path / str(index), name, quantization_config=quantization)
        with pytest.raises(ModelLoadError, match=r"missing: model.layers.0.mlp.up_proj.weight;.*unexpected: .*up_proj"):
            load(tmp_path / str(index))


@pytest.mark.parametrize("name", quick(["gptq-experts", "auto-round", "w4a16", "fp8-blocks"], HYBRIDS))
def test_quantized_hybrids_have_the_tokens_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, weights = write_hybrid(tmp_path / "model", name)
    if load_kernels().functions is not None:
        model = load(tmp_path / "model")
        layer, prefix, x = model.layers[0].linear_attn, "model.layers.0.linear_attn", np.eye(256, dtype=np.float32)
        parts = {layer.in_proj_qkvz: ("in_proj_qkv", "in_proj_z"), layer.in_proj_ba: ("in_proj_b", "in_proj_a")}
        for linear, names in {**parts, layer.out_proj: ("out_proj",)}.items():
            is_stored = name not in ("gptq", "gptq-experts", "fp8-blocks") and linear is not layer.in_proj_ba
            assert isinstance(linear.packed, BlockWeight) == is_stored
            exact = np.concatenate([weights[f"{prefix}.{part}.weight"] for part in names])
            np.testing.assert_allclose(linear(x).T, exact, rtol=1e-4, atol=1e-6)
        if name == "gptq-experts":
            found = model.layers[0].mlp.experts[3].down_proj.packed.rows(np.arange(256))
            np.testing.assert_allclose(found, weights["model.layers.0.mlp.experts.3.down_proj.weight"], rtol=1e-6)
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    for path, projection in load(tmp_path / "model").projections().items():
        if f"{path}.weight" in weights:
            found = np.asarray(projection.linear.weight[projection.rows])
            np.testing.assert_array_equal(found, weights[f"{path}.weight"], path)
    reference = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32).eval()
    llm = LLM(str(tmp_path / "model"), num_kv_blocks=64, skip_tokenizer_init=True, use_tqdm=False, dtype="float32")
    prompts = [random_ids(length, seed) for seed, length in enumerate((5, 40, 70))]
    outputs = llm.generate([{"prompt_token_ids": each} for each in prompts], greedy_params(), use_tqdm=False)
    for prompt, output, each in zip(prompts, outputs, generate_greedy(reference, prompts, NUM_TOKENS), strict=True):
        assert_same_greedy("qwen3_5", prompt, each, output.outputs[0].token_ids)
    if not name.endswith(("awq", "blocks")):  # whose groups two ranks would cut
        expected = logits_of(load(plain))
        for found in on_ranks(2, lambda group: logits_of(load(tmp_path / "model", group))):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


UP = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gptq", lambda tensors: tensors.pop(f"{UP}.scales"), r"1 of \d+ tensors are missing: .*up_proj.scales"),
        ("awq", lambda tensors: tensors.pop(f"{UP}.qzeros"), r"1 of \d+ tensors are missing: .*up_proj.qzeros"),
        ("w4a16", lambda tensors: tensors.pop(f"{UP}.weight_scale"), "missing: .*up_proj.weight_scale"),
        ("fp8", lambda tensors: tensors.pop(f"{UP}.weight_scale"), "missing: .*up_proj.weight_scale"),
        (
            "gptq",
            lambda tensors: tensors.update({f"{UP}.qweight": tensors[f"{UP}.qweight"][:-1].copy()}),
            r"up_proj.qweight is \[31, 384\], expected \[32, 384\]",
        ),
        (
            "fp8-blocks",
            lambda tensors: tensors.update({f"{UP}.weight_scale_inv": np.ones((3, 1), np.float32)}),
            r"weight_scale_inv is \[3, 1\], expected \[3, 2\]",
        ),
        (
            "awq",
            lambda tensors: tensors.update({f"{UP}.qweight": tensors[f"{UP}.qweight"].astype(np.int16)}),
            "1 tensors have another type: .*up_proj.qweight is I16",
        ),
        ("awq", lambda tensors: tensors[f"{UP}.scales"].fill(np.nan), r"up_proj.scales .*NaN or infinite"),
        (
            "gptq-act-order",
            lambda tensors: tensors[f"{UP}.g_idx"].fill(4),
            "g_idx .* from 4 to 4, but .* 4 groups",
        ),
    ],
)
def test_a_broken_checkpoint_is_one_error(
    name: str, change: Callable[[Tensors], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", name, change)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("quantization", "error", "message"),
    [
        ({"quant_method": "hqq"}, UnsupportedModelError, r"quantized with hqq \(not one of awq, gptq, .*use one in bf"),
        ({"quant_method": ["awq"]}, UnsupportedModelError, "not one of awq"),
        ([4], ModelConfigError, "expected an object"),
        (GPTQ | {"bits": 3}, UnsupportedModelError, r"gptq \(3 bits, 'gptq'\) is not supported"),
        (GPTQ | {"bits": "four"}, ModelConfigError, "bits is 'four'; expected a positive integer"),
        (GPTQ | {"checkpoint_format": "marlin"}, UnsupportedModelError, "4 bits, 'marlin'"),
        (GPTQ | {"dynamic": {"x": 1}}, UnsupportedModelError, "rules by layer: x"),
        (GPTQ | {"dynamic": {"+:.*lm_head": {"bits": 8}}}, UnsupportedModelError, r"rules by layer: \+:.*lm_head"),
        (GPTQ | {"dynamic": {"-:(": {}}}, ModelConfigError, r"dynamic is \['re:\('\]"),
        (GPTQ | {"dynamic": ["x"]}, ModelConfigError, r"dynamic is \['x'\]; expected an object"),
        ({"quant_method": "auto-round", "packing_format": "mlx"}, UnsupportedModelError, r"auto-round \(mlx, 'int'\)"),
        (compressed("marlin-24", **GROUPS), UnsupportedModelError, "4 bits by group .* in format marlin-24"),
        (compressed("pack-quantized", **GROUPS | {"num_bits": 2}), UnsupportedModelError, "2 bits by group"),
        (compressed("nvfp4-pack-quantized", num_bits=4, type="float"), UnsupportedModelError, "nvfp4-pack-quantized"),
        ({"quant_method": "compressed-tensors"}, UnsupportedModelError, "more than one group of layers, or none"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, ModelConfigError, "expected two positive integers"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, UnsupportedModelError, "fp8 .'e5m2'"),
        (compressed("pack-quantized", **GROUPS) | {"ignore": ["re:("]}, ModelConfigError, r"ignore is \['re:\('\]"),
        (compressed("pack-quantized", **GROUPS) | {"ignore": "lm_head"}, ModelConfigError, "expected a list of names"),
    ],
)
def test_other_quantizations_are_refused_by_name(quantization: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_model_config(preset_config("random:tiny") | {"quantization_config": quantization})
