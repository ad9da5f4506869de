"""A GGUF file opens as the checkpoint that it was made of."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from checkpoints import HYBRIDS, KINDS, make_checkpoint, make_reference
from command_line import app
from engine.harness import NUM_TOKENS, assert_same_greedy, generate_greedy, greedy_params, random_ids
from gguf_files import write_gguf
from parameters import in_turns, quick
from quire import LLM
from quire.config import format_size
from quire.gguf_header import read_gguf_header
from quire.kernels.loaded import load_kernels
from quire.loading import ModelLoadError, resolve_model
from quire.loading.checkpoint import read_headers
from quire.loading.known_digest import checkpoint_digest, write_manifest
from quire.loading.save import save_model
from quire.loading.source import embedded_path
from quire.models.encodings import BLOCKS
from quire.models.model_config import UnsupportedModelError
from quire.text.tokenizer import Tokenizer
from ranks import load, logits_of, on_ranks

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
DEEPSEEK_ROPE = {
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.707,
    "mscale_all_dim": 0.707,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-biases": {},
    "llama-tied": {},
    "llama-rope-llama3": {"rope_parameters": LLAMA3_ROPE},
    "llama-rope-linear": {},
    "llama-rope-yarn": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "phi3": {},
    "phi3-rope-longrope": {},
    "glm4": {},
    "olmo2": {},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
    "seed_oss": {},
    "ministral3-rope": {},
    "olmo3-window": {},
    "exaone4": {},
    "exaone4-window": {},
    "granite": {},
    "qwen2-moe": {"mlp_only_layers": []},
    "qwen3-moe": {},
    "mixtral": {},
    "gpt-oss-window": {"swiglu_limit": 7.0},
    "gemma2": {"query_pre_attn_scalar": 24, "tie_word_embeddings": True},
    "gemma3": {"query_pre_attn_scalar": 24},
    "gemma4": {"tie_word_embeddings": True},
    "gemma4-moe": {},
    "gemma4-shared": {},
    "deepseek2": {},
    "deepseek2-groups": {},
    "deepseek3": {},
    "deepseek3-rope-yarn": {"rope_parameters": DEEPSEEK_ROPE},
    "glm4_moe": {},
    "glm4_moe_lite": {},
    "qwen3_5": {},
    "qwen3_5-moe": {},
    "qwen3_next": {"mlp_only_layers": []},
    "lfm2": {},
    "lfm2-moe": {"tie_word_embeddings": True},
    "granite4": {"intermediate_size": 96},
    "granite4-moe": {},
}

WIDE = {"hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 2}  # halves of whole blocks of 256


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("variant", [*VARIANTS, "deepseek3-old", "qwen3_next-old"])
def test_its_logits_are_those_of_the_checkpoint(variant: str, tmp_path: Path) -> None:
    own = variant.removesuffix("-old")
    directory = make_checkpoint(own, tmp_path / "model", **VARIANTS[own])
    path = write_gguf(directory, tmp_path / "model.gguf", old=own != variant)
    expected = load(directory)
    found = load(path)
    differing = {"architecture", "bos_token_id", "eos_token_ids", "initializer_range", "dtype"}
    differing |= {"state"} if variant == "qwen3_next" else set()
    differing |= {"max_position_embeddings", "gate_and_up_apart"} if "granite4" in variant else set()
    for name, value in vars(expected.config).items():
        assert name in differing or getattr(found.config, name) == value, name
    if own in HYBRIDS and "lfm2" not in own:  # the logarithms of rates are rounded
        torch.testing.assert_close(logits_of(found), logits_of(expected), rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(logits_of(found), logits_of(expected))


@pytest.mark.parametrize(
    "variant", quick(KINDS, ["deepseek3", "glm4_moe", "glm4_moe_lite", *sorted(VARIANTS.keys() & set(HYBRIDS))])
)
def test_its_tokens_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    path = write_gguf(make_checkpoint(variant, tmp_path / "model", **VARIANTS[variant]), tmp_path / "model.gguf")
    llm = LLM(str(path), num_kv_blocks=64, skip_tokenizer_init=True, use_tqdm=False)
    prompts = [random_ids(length, seed) for seed, length in enumerate((5, 40, 70))]
    outputs = llm.generate([{"prompt_token_ids": each} for each in prompts], greedy_params(), use_tqdm=False)
    expected = generate_greedy(make_reference(variant, **VARIANTS[variant]), prompts, NUM_TOKENS)
    for prompt, output, each in zip(prompts, outputs, expected, strict=True):
        assert_same_greedy(variant, prompt, each, output.outputs[0].token_ids)


def halve(directory: Path) -> Path:
    """Round a checkpoint's matrices to float16, and write them as float32."""
    file = directory / "model.safetensors"
    tensors = {name: each.half().float() if each.ndim > 1 else each for name, each in load_file(file).items()}
    save_file(tensors, file)
    return directory


@pytest.mark.parametrize("variant", ["llama-tied", "qwen3"])
def test_float16_weights_are_widened_on_a_cpu(variant: str, tmp_path: Path) -> None:
    directory = halve(make_checkpoint(variant, tmp_path / "model"))
    found = load(write_gguf(directory, tmp_path / "model.gguf", "F16"))
    assert found.config.dtype == "float16"
    assert torch.equal(logits_of(found), logits_of(load(directory, dtype="float32")))


@pytest.mark.parametrize("encoding", BLOCKS)
def test_every_encoding_is_decoded_as_by_the_gguf_package(encoding: str, tmp_path: Path) -> None:
    """Through headers, reading, permuted rows and packing without kernels."""
    directory = make_checkpoint("llama", tmp_path / "model", **WIDE)
    path = write_gguf(directory, tmp_path / "model.gguf", encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.models.linear.stored_weight.StoredParts.pack", lambda *_: None)
        patch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
        model = load(path, dtype="float32")
    found = {name: np.asarray(view) for name, view in model.checkpoint_tensors().items()}
    reader = gguf.GGUFReader(path)
    tensors = {each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_layers)
    for name, values in found.items():
        expected = tensors[str(names.get_name(name, (".weight",)))]
        if (part := name.split(".")[-2]) in ("q_proj", "k_proj"):
            heads = model.config.num_heads if part == "q_proj" else model.config.num_kv_heads
            shape = (heads, len(expected) // heads // 2, 2, expected.shape[1])
            expected = expected.reshape(shape).swapaxes(1, 2).reshape(expected.shape)
        np.testing.assert_array_equal(values, expected, err_msg=name)


def mixed(name: str) -> str:
    """As Q4_K_M: some layers' v and down, and the embedding, have more bits."""
    return "Q6_K" if "attn_v" in name or "blk.1.ffn_down" in name or "token_embd" in name else "Q4_K"


def test_encodings_may_differ_between_the_projections_of_a_layer(tmp_path: Path) -> None:
    directory = make_checkpoint("llama-tied", tmp_path / "model", **WIDE)
    path = write_gguf(directory, tmp_path / "model.gguf", mixed)
    model = load(path)
    assert model.config.dtype == "bfloat16"
    assert logits_of(model).isfinite().all()
    assert {entry.dtype for entry in read_headers(path).values()} == {"F32", "Q4_K", "Q6_K"}


@pytest.mark.skipif(load_kernels().functions is None, reason="without kernels, weights are decoded")
@pytest.mark.parametrize(
    ("variant", "stack", "rows"),
    [("qwen3-moe", "ffn_up_exps", 0), ("gemma4-moe", "ffn_gate_up_exps", 256), ("deepseek3", "ffn_up_exps", 0)],
)
def test_experts_keep_their_encoding(variant: str, stack: str, rows: int, tmp_path: Path) -> None:
    directory = make_checkpoint(variant, tmp_path / "model", hidden_size=256, moe_intermediate_size=256)
    path = write_gguf(directory, tmp_path / "model.gguf", lambda name: "Q4_K" if "exps" in name else "F32")
    layer: Any = load(path, dtype="float32").layers[1]
    expert = (layer if variant == "gemma4-moe" else layer.mlp).experts[5].up_proj
    assert expert.weight is None
    encoded = next(each for each in gguf.GGUFReader(path).tensors if each.name == f"blk.1.{stack}.weight")
    expected = gguf.quants.dequantize(encoded.data[5], encoded.tensor_type)[rows:]
    np.testing.assert_array_equal(expert.packed.rows(np.arange(256)), expected)


def test_keys_and_values_of_heads_are_joined(tmp_path: Path) -> None:
    """Whole, on ranks, and saved; beside a layer that predicts a second token."""
    sizes = {"qk_nope_head_dim": 32, "kv_lora_rank": 64, "v_head_dim": 24}
    directory = make_checkpoint("glm4_moe_lite", tmp_path / "model", **sizes)
    plain = write_gguf(directory, tmp_path / "plain.gguf")
    for found in on_ranks(2, lambda group: logits_of(load(plain, group))):
        torch.testing.assert_close(found, logits_of(load(directory)), rtol=1e-3, atol=1e-3)
    path = write_gguf(
        directory, tmp_path / "m.gguf", lambda name: "F32" if "k_b" not in name and "v_b" not in name else "Q8_0"
    )
    tensors = gguf.GGUFReader(path).tensors
    encoded = {each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in tensors}
    expected = [encoded["blk.2.attn_k_b.weight"].swapaxes(1, 2), encoded["blk.2.attn_v_b.weight"]]
    save_model(resolve_model(str(path)), tmp_path / "saved", dtype="float32", use_tqdm=False)
    saved = load_file(tmp_path / "saved" / "model.safetensors")["model.layers.2.self_attn.kv_b_proj.weight"]
    np.testing.assert_array_equal(saved.numpy(), np.concatenate(expected, 1).reshape(-1, 64))
    assert torch.equal(logits_of(load(path, dtype="float32")), logits_of(load(tmp_path / "saved")))
    changed = write_gguf(directory, tmp_path / "changed.gguf", change={"deepseek2.attention.key_length_mla": 72})
    with pytest.raises(ModelLoadError, match="have another shape"):
        load(changed)
    more = write_gguf(directory, tmp_path / "more.gguf", change={"deepseek2.nextn_predict_layers": 1})
    assert load(more).config.num_layers == 2


@pytest.mark.skipif(load_kernels().functions is None, reason="without kernels, weights are decoded")
def test_value_heads_are_put_in_order(tmp_path: Path) -> None:
    """On ranks, encoded, and saved."""
    directory = make_checkpoint("qwen3_5", tmp_path / "model", hidden_size=256, intermediate_size=256, head_dim=64)
    plain = write_gguf(directory, tmp_path / "plain.gguf")
    expected = logits_of(load(directory))
    for found in on_ranks(2, lambda group: logits_of(load(plain, group))):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    save_model(resolve_model(str(plain)), tmp_path / "plain", use_tqdm=False)
    saved = load_file(tmp_path / "plain" / "model.safetensors")
    assert saved.keys() == load_file(directory / "model.safetensors").keys()
    for name, tensor in load_file(directory / "model.safetensors").items():
        torch.testing.assert_close(saved[name], tensor, rtol=1e-6, atol=1e-6)
    for encoding in ("Q8_0", "Q4_K"):
        path = write_gguf(directory, tmp_path / "m.gguf", lambda name, of=encoding: "F32" if "conv1d" in name else of)
        save_model(resolve_model(str(path)), tmp_path / encoding, dtype="float32", use_tqdm=False)
        prefix, saved = "model.layers.2.linear_attn", load_file(tmp_path / encoding / "model.safetensors")
        model: Any = load(path, dtype="float32")
        layer = model.layers[2].linear_attn
        for linear, names in ((layer.in_proj_qkvz, ("qkv", "z")), (layer.in_proj_ba, ("b", "a"))):
            assert linear.weight is None
            rows = torch.cat([saved[f"{prefix}.in_proj_{name}.weight"] for name in names]).numpy()
            np.testing.assert_array_equal(linear.packed.rows(np.arange(len(rows))), rows)
        assert layer.out_proj.weight is None
        columns = layer.out_proj(np.eye(256, dtype=np.float32))
        np.testing.assert_allclose(columns, saved[f"{prefix}.out_proj.weight"].numpy().T, rtol=1e-4, atol=1e-6)
        found, decoded = logits_of(model), logits_of(load(tmp_path / encoding))
        assert torch.nn.functional.cosine_similarity(found, decoded).mean() > 0.99
        with pytest.raises(ValueError, match="would cut") if encoding == "Q4_K" else nullcontext():
            found = on_ranks(2, lambda group, path=path: logits_of(load(path, group, dtype="float32")))[0]
        assert torch.nn.functional.cosine_similarity(found, decoded).mean() > 0.99


@pytest.mark.skipif(load_kernels().functions is None, reason="without kernels, weights are decoded")
@pytest.mark.parametrize(("variant", "encoding"), in_turns(["lfm2", "granite4"], ["Q8_0", "Q4_K"]))
def test_projections_of_hybrids_keep_their_encoding(variant: str, encoding: str, tmp_path: Path) -> None:
    more = {} if variant == "lfm2" else {"shared_intermediate_size": 512, "mamba_n_heads": 16}
    directory = make_checkpoint(variant, tmp_path / "model", hidden_size=512, intermediate_size=512, **more)
    path = write_gguf(directory, tmp_path / "m.gguf", encoding)
    model = load(path, dtype="float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.models.linear.stored_weight.StoredParts.pack", lambda *_: None)
        patch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)
        decoded = load(path, dtype="float32")
    for (name, layer), (_, plain) in zip(model.weighted_layers(), decoded.weighted_layers(), strict=True):
        assert layer.weight is None, name
        np.testing.assert_array_equal(layer.packed.rows(np.arange(len(plain.weight))), plain.weight, err_msg=name)
    for found in (logits_of(model), on_ranks(2, lambda group: logits_of(load(path, group, dtype="float32")))[0]):
        assert torch.nn.functional.cosine_similarity(found, logits_of(decoded)).mean() > 0.9  # 8-bit inputs


@pytest.mark.parametrize("variant", ["qwen3_next", "granite4"])
def test_joint_inputs_are_not_saved_apart(variant: str, tmp_path: Path) -> None:
    directory = make_checkpoint(variant, tmp_path / "model", **VARIANTS[variant])
    path = write_gguf(directory, tmp_path / "m.gguf")
    with pytest.raises(ValueError, match="expects joint inputs"):
        save_model(resolve_model(str(path)), tmp_path / "saved")


def test_embeddings_of_layers_keep_their_encoding(tmp_path: Path) -> None:
    directory = make_checkpoint("gemma4-shared", tmp_path / "model")
    path = write_gguf(directory, tmp_path / "model.gguf", lambda name: "Q8_0" if "per_layer_token" in name else "F32")
    model: Any = load(path, dtype="float32")
    encoded = next(each for each in gguf.GGUFReader(path).tensors if each.name == "per_layer_token_embd.weight")
    expected = gguf.quants.dequantize(encoded.data, encoded.tensor_type)
    np.testing.assert_array_equal(model.embed_tokens_per_layer(np.arange(256)), expected)


def test_keys_of_layers_that_read_those_of_others_are_left_out(tmp_path: Path) -> None:
    """Published files of Gemma 4 E2B and E4B have them."""
    directory = make_checkpoint("gemma4-shared", tmp_path / "model")
    expected = logits_of(load(directory))
    file, names = directory / "model.safetensors", ("k_proj", "v_proj", "k_norm")
    tensors = load_file(file)
    more = {f"model.layers.3.self_attn.{name}.weight": f"model.layers.1.self_attn.{name}.weight" for name in names}
    save_file(tensors | {name: tensors[source].clone() for name, source in more.items()}, file)
    for path in (directory, write_gguf(directory, tmp_path / "model.gguf")):
        assert torch.equal(logits_of(load(path)), expected)
    own = "model.layers.3.self_attn.v_proj.weight"
    save_file(tensors | {own.replace("3", "7"): tensors[own.replace("3", "1")].clone()}, file)
    with pytest.raises(ModelLoadError, match="1 tensors are unexpected"):
        load(directory)


@pytest.mark.skipif(load_kernels().functions is None, reason="without kernels, weights are decoded")
def test_encoded_experts_compute_what_decoded_ones_do(tmp_path: Path) -> None:
    directory = make_checkpoint("qwen3-moe", tmp_path / "model", hidden_size=256, moe_intermediate_size=256)
    encodings = {"gate": "Q4_0", "up": "Q8_0", "down": "Q5_0"}
    path = write_gguf(
        directory, tmp_path / "m.gguf", lambda name: encodings[name.split("_")[1]] if "exps" in name else "F32"
    )
    mixture = load(path, dtype="float32").layers[1].mlp
    x = np.random.default_rng(0).standard_normal((9, 256), np.float32)
    logits = mixture.gate(x)
    expected = mixture.experts._reference(torch.from_numpy(x), torch.from_numpy(logits), None, None)
    torch.testing.assert_close(torch.from_numpy(mixture(x)), expected, rtol=1e-4, atol=1e-4)


def test_a_rank_reads_its_part(tmp_path: Path) -> None:
    directory = make_checkpoint("llama", tmp_path / "model", **WIDE)
    for encoding in ("F32", "Q8_0", "Q4_K"):
        path = write_gguf(directory, tmp_path / f"{encoding}.gguf", encoding)
        expected = logits_of(load(path, dtype="float32"))
        for found in on_ranks(2, lambda group, path=path: logits_of(load(path, group, dtype="float32"))):
            if encoding == "F32":
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
            else:  # sums of ranks round otherwise, and the next layer rounds its inputs to 8 bits
                assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999
    narrow = make_checkpoint("llama", tmp_path / "narrow", **WIDE | {"intermediate_size": 768})
    path = write_gguf(narrow, tmp_path / "narrow.gguf", "Q4_K")
    with pytest.raises(UnsupportedModelError, match=r"down_proj is in blocks of 256 values \(Q4_K\)"):
        on_ranks(2, lambda group: load(path, group))


def test_the_parts_of_a_split_file_are_one_model(tmp_path: Path) -> None:
    directory = make_checkpoint("qwen3", tmp_path / "model")
    (tmp_path / "split").mkdir()
    first = write_gguf(directory, tmp_path / "split" / "m.gguf", split=12)
    parts = sorted(first.parent.iterdir())
    assert len(parts) > 2
    expected = logits_of(load(directory))
    for named in (first, parts[1], first.parent):  # any part, or the directory
        assert torch.equal(logits_of(load(named)), expected)
    assert checkpoint_digest(first).startswith("sha256:")
    parts[1].unlink()
    with pytest.raises(ModelLoadError, match=rf"is one of 0000{len(parts)} parts, of which {parts[1].name} is missing"):
        resolve_model(str(first))


def test_the_end_of_a_turn_ends_an_output(tmp_path: Path) -> None:
    directory = make_checkpoint("llama", tmp_path / "model", vocab_size=300)
    Tokenizer.byte_level(300).save(directory)
    llm = LLM(str(write_gguf(directory, tmp_path / "m.gguf")), num_kv_blocks=16, use_tqdm=False)
    assert llm.tokenizer.backend.token_to_id("<|im_end|>") in llm.engine.eos_token_ids


def test_quire_info_describes_it(tmp_path: Path) -> None:
    path = write_gguf(make_checkpoint("llama", tmp_path / "model"), tmp_path / "model.gguf")
    shown = run("info", str(path))
    assert "F32 100%" in shown
    assert "tokens a second" in shown
    q8 = write_gguf(tmp_path / "model", tmp_path / "q8.gguf", "Q8_0")
    encoded = run("info", str(q8))
    assert "weights stay encoded" in encoded
    sizes = [format_size(load(q8, dtype=dtype).weight_bytes()) for dtype in ("float32", "bfloat16")]
    assert re.search(rf"as loaded \(CPU\) +{sizes[0]} +{sizes[1]}", encoded)
    assert "LlamaForCausalLM (supported)" in shown
    assert "sha256:" in run("digest", str(path))
    with pytest.raises(ModelLoadError, match="a manifest lies in a directory"):
        write_manifest(path)


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    room = tmp_path_factory.mktemp("whole")
    directory = make_checkpoint("llama", room / "model")
    Tokenizer.byte_level(300).save(directory)
    return write_gguf(directory, room / "model.gguf").read_bytes()


def open_all(path: Path) -> None:
    """Read config, tensors and tokenizer."""
    source = resolve_model(str(path))
    _ = source.config
    load(path)
    Tokenizer.from_dir(path).encode("Hello")


def test_a_file_cut_at_any_byte_is_one_error(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    open_all(path)
    for size in [*range(0, 400, 7), *range(400, len(whole) - 1, len(whole) // 61), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError, match="truncated"):
            open_all(path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 6000), value=st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), count=st.sampled_from([1, 4, 8]))
def test_changed_bytes_never_crash(at: int, value: int, count: int, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[:at] + bytes([value]) * count + whole[at + count :])
    with suppress(ValueError):
        open_all(path)


HOSTILE = {
    "tensors": struct.pack("<IIQQ", 0x46554747, 3, 2**63, 0),
    "metadata": struct.pack("<IIQQ", 0x46554747, 3, 0, 2**62),
    "a string": struct.pack("<IIQQQ4sIQ", 0x46554747, 3, 0, 1, 4, b"name", 8, 2**40),
    "strings": struct.pack("<IIQQQ4sIIQ", 0x46554747, 3, 0, 1, 4, b"name", 9, 8, 2**60),
    "numbers": struct.pack("<IIQQQ4sIIQ", 0x46554747, 3, 0, 1, 4, b"name", 9, 10, 2**61),
    "arrays": struct.pack("<IIQQQ4sIIQ", 0x46554747, 3, 0, 1, 4, b"name", 9, 9, 2),
    "an old version": struct.pack("<IIQQ", 0x46554747, 1, 0, 0),
    "big-endian": struct.pack(">IIQQ", 0x47475546, 3, 0, 0),
}


def test_lengths_beyond_the_file_are_refused_at_once(tmp_path: Path) -> None:
    for what, content in HOSTILE.items():
        with (tmp_path / f"{what}.gguf").open("wb") as file:  # sparse: the lengths fit into its size
            file.write(content)
            file.truncate(2**42)
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from pathlib import Path
from quire import gguf_header
gguf_header._MAX_HEADER_BYTES //= 8  # a second's strings
for path in map(Path, sys.argv[1:]):
    try:
        gguf_header.read_gguf_header(path)
    except ValueError as error:
        print(error)
"""
    paths = [str(tmp_path / f"{what}.gguf") for what in HOSTILE]
    shown = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=20)
    for path, line in zip(paths, shown.stdout.splitlines(), strict=True):
        assert line.startswith(path), shown.stderr[-2000:]
        assert "truncated or no GGUF file" in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "mamba as a GGUF file is not supported"),
        ({"general.architecture": 7}, "7 as a GGUF file is not supported"),
        ({"llama.block_count": "many"}, "num_hidden_layers is 'many'"),
        ({"llama.block_count": 2**31 - 1}, "at most 10000"),
        ({"llama.attention.head_count": 3}, "no heads of|multiple"),
        ({"llama.embedding_length": 72}, r"is \[300, 64\], expected \[300, 72\]"),
        ({"llama.rope.scaling.type": "spiral"}, "RoPE type 'spiral' is not supported"),
        ({"tokenizer.ggml.model": "rwkv"}, "its tokenizer is of type 'rwkv'"),
        ({"tokenizer.ggml.pre": "unheard-of"}, "split as by 'unheard-of'"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "300 tokens and 2 types"),
        ({"tokenizer.ggml.tokens": []}, "0 tokens and 300 types"),
    ],
)
def test_metadata_that_does_not_fit_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    directory = make_checkpoint("llama", tmp_path / "model", vocab_size=300)
    Tokenizer.byte_level(300).save(directory)
    path = write_gguf(directory, tmp_path / "model.gguf", change=change)
    with pytest.raises(ValueError, match=message):
        open_all(path)


@pytest.mark.parametrize(("number", "name"), [(16, "IQ2_XXS"), (5, "type 5"), (250, "type 250")])
def test_unknown_encodings_are_refused_by_name(number: int, name: str, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    entry = b"token_embd.weight" + struct.pack("<IQQ", 2, 64, 256)
    at = whole.index(entry) + len(entry)
    path.write_bytes(whole[:at] + struct.pack("<I", number) + whole[at + 4 :])
    with pytest.raises(ModelLoadError, match=f"token_embd.weight is encoded as {name}, which is not supported"):
        open_all(path)


def test_the_reader_of_headers_agrees_with_the_package_s(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole)
    header, reader = read_gguf_header(path, has_lists=True), gguf.GGUFReader(path)
    assert {each.name: (list(each.shape), each.start) for each in header.tensors} == {
        each.name: (each.shape.tolist()[::-1], each.data_offset) for each in reader.tensors
    }
    for name, field in reader.fields.items():
        if not name.startswith("GGUF."):
            expected = field.contents()
            assert header.values[name] == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_a_file_is_saved_as_a_checkpoint_with_a_tokenizer(tmp_path: Path) -> None:
    directory = embedded_path("quire-mini")
    assert directory is not None
    path = write_gguf(directory, tmp_path / "m.gguf", "Q8_0")
    run("save", str(tmp_path / "saved"), "--model", str(path), "--dtype", "float32")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    encoded = next(each for each in gguf.GGUFReader(path).tensors if each.name == "blk.1.ffn_down.weight")
    decoded = gguf.quants.dequantize(encoded.data, encoded.tensor_type)
    assert np.array_equal(saved["model.layers.1.mlp.down_proj.weight"].numpy(), decoded)
    text = "Context: The cat is red. What colour?"
    assert Tokenizer.from_dir(tmp_path / "saved").encode(text) == Tokenizer.from_dir(path).encode(text)
