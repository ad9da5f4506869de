"""Invalid adapters are rejected with an error that names the file and the problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from checkpoints import make_checkpoint, make_config
from quire.kernels.loaded import load_kernels
from quire.loading import load_model, resolve_model
from quire.models.adapter import PanelAdapter, TensorAdapter, read_adapter
from quire.models.base import CausalLM
from quire.models.model_config import ModelConfigError, UnsupportedModelError
from quire.models.registry import build_model, read_model_config
from quire.ops.arrays import BFLOAT16, FLOAT32, as_numpy, as_tensor, torch_dtype

Q_PROJ = "base_model.model.model.layers.2.self_attn.q_proj"
DOWN_PROJ = "base_model.model.model.layers.0.mlp.down_proj"
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "bias": "none"}


def good_tensors() -> dict[str, Tensor]:
    return {
        f"{Q_PROJ}.lora_A.weight": torch.ones(4, 64),
        f"{Q_PROJ}.lora_B.weight": torch.ones(64, 4),
        f"{DOWN_PROJ}.lora_A.weight": torch.ones(4, 96),
        f"{DOWN_PROJ}.lora_B.weight": torch.ones(64, 4),
    }


@pytest.fixture(scope="module")
def model() -> CausalLM:
    values = make_config("llama").to_dict() | {"architectures": ["LlamaForCausalLM"]}
    return build_model(read_model_config(values), torch.float32, "meta")


def read(directory: Path, model: CausalLM, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    (directory / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "adapter_model.safetensors")
    read_adapter(directory, model, dtype=model.dtype, device="cpu", digest="")


WRONG_CONFIGS = [
    ({"peft_type": "IA3"}, "type 'IA3'"),
    ({"use_dora": True}, "use_dora=True"),
    ({"bias": "lora_only"}, "bias='lora_only'"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save=.*lm_head"),
    ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
    ({"init_lora_weights": "pissa_niter_4"}, "pissa.*change the model's own weights"),
    ({"r": 0}, "r is 0"),
    ({"lora_alpha": None}, "no 'lora_alpha'"),
    ({"rank_pattern": ["q_proj"]}, "rank_pattern"),
    ({"rank_pattern": {"q_(proj": 8}}, "rank_pattern.*regular expressions"),
    ({"alpha_pattern": {"([a-z_.0-9]+)+!": 1}}, "alpha_pattern has .*and one "),
    ({"alpha_pattern": {".*a.*b": 1}}, "alpha_pattern has .*and one "),
    ({"alpha_pattern": {"[z-a]": 1}}, "alpha_pattern has .*bad character range"),
]


@pytest.mark.parametrize(("change", "message"), WRONG_CONFIGS, ids=[next(iter(change)) for change, _ in WRONG_CONFIGS])
def test_a_config_of_something_else(change: dict[str, Any], message: str, model: CausalLM, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=f"(?s)adapter_config.json.*{message}"):
        read(tmp_path, model, CONFIG | change, good_tensors())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"r": 8}, "rank 4 at model.layers.[02].*says 8"),
        *(
            ({"rank_pattern": {key: 2}}, r"rank 4 at model.layers.2.self_attn.q_proj.*says 2")
            for key in (
                "layers.2.self_attn.q_proj",
                r"^model\.layers\.\d+\.self_attn.q_proj$",
                "k_proj|.*attn.[qv]_proj",
            )
        ),
    ],
)
def test_an_adapter_of_another_rank(change: dict[str, Any], message: str, model: CausalLM, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=f"adapter_model.safetensors.*{message}"):
        read(tmp_path, model, CONFIG | change, good_tensors())


def renamed(old: str, new: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name.replace(old, new): tensor for name, tensor in tensors.items()}


def replaced(name: str, tensor: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: tensors | {name: tensor}


WRONG_TENSORS = {
    "another model's shape": (replaced(f"{Q_PROJ}.lora_A.weight", torch.ones(4, 80)), "another model.*q_proj.*4, 80"),
    "B's rank": (replaced(f"{Q_PROJ}.lora_B.weight", torch.ones(64, 2)), "rank 2 at .*q_proj"),
    "no matrix": (replaced(f"{Q_PROJ}.lora_B.weight", torch.ones(256)), "q_proj is .256."),
    "a layer too deep": (renamed("layers.2", "layers.3"), "layers.3.self_attn.q_proj.*3 layers.*no such"),
    "no linear layer": (renamed("self_attn.q_proj", "input_layernorm"), "input_layernorm.*no such linear layer"),
    "the head": (renamed("model.layers.2.self_attn.q_proj", "lm_head"), "lm_head.*not supported"),
    "one without the other": (renamed(f"{Q_PROJ}.lora_B", f"{DOWN_PROJ}.lora_B"), "only lora_A of .*q_proj"),
    "left over": (replaced(f"{Q_PROJ}.lora_magnitude_vector", torch.ones(64)), "lora_magnitude_vector"),
    "nothing": (lambda tensors: {}, "no tensors"),
    "no numbers": (replaced(f"{Q_PROJ}.lora_A.weight", torch.full((4, 64), torch.nan)), "NaN"),
    "integers": (replaced(f"{Q_PROJ}.lora_A.weight", torch.ones(4, 64, dtype=torch.int8)), "int8"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_TENSORS.values(), ids=WRONG_TENSORS)
def test_tensors_that_do_not_fit(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str, model: CausalLM, tmp_path: Path
) -> None:
    with pytest.raises(ModelConfigError, match=f"adapter_model.safetensors.*{message}"):
        read(tmp_path, model, CONFIG, change(good_tensors()))


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_an_adapter_of_a_multimodal_model_fits_its_text_part(prefix: str, model: CausalLM, tmp_path: Path) -> None:
    tensors = {name.replace(".model.model.", f".model.{prefix}"): each for name, each in good_tensors().items()}
    with pytest.raises(ModelConfigError, match="no such linear layer"):
        read(tmp_path, model, CONFIG, tensors)
    values: dict[str, Any] = {"architectures": ["Mistral3ForConditionalGeneration"]}
    values["text_config"] = make_config("llama").to_dict() | {"architectures": ["LlamaForCausalLM"]}
    read(tmp_path, build_model(read_model_config(values), torch.float32, "meta"), CONFIG, tensors)


def test_files_that_are_missing_cut_off_or_no_json(model: CausalLM, tmp_path: Path) -> None:
    read(tmp_path, model, CONFIG, good_tensors())
    weights, config = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    whole = weights.read_bytes()

    def assert_refused(message: str) -> None:
        with pytest.raises(ModelConfigError, match=message):
            read_adapter(tmp_path, model, dtype=torch.float32, device="cpu", digest="")

    weights.write_bytes(whole[:-8])
    assert_refused(r"adapter_model.safetensors is truncated")
    weights.unlink()
    assert_refused(r"adapter_model.safetensors cannot be read: No such file")
    config.write_text("[]")
    assert_refused(r"adapter_config.json is list; expected an object")
    config.write_text("{")
    assert_refused(r"adapter_config.json is not JSON")
    config.write_text('{"a":' * 100_000)
    assert_refused(r"adapter_config.json is nested too deeply")


def test_the_kind_of_adapter_is_unsupported_rather_than_broken(model: CausalLM, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="LoRA adapters are"):
        read(tmp_path, model, CONFIG | {"peft_type": "LOHA"}, good_tensors())


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
def test_a_row_has_the_same_bits_beside_any_others_and_is_rounded_once(dtype: np.dtype) -> None:
    library = load_kernels().functions
    if library is None:
        pytest.skip("needs the kernels")
    rng = np.random.default_rng(0)
    down, up, x, y = (rng.standard_normal(shape, np.float32) for shape in ((5, 100), (5, 70), (200, 300), (200, 70)))
    x, y = x.astype(dtype)[:, 100:200], y.astype(dtype)
    adapter = PanelAdapter(down, up, dtype.name, library)
    together = adapter.add_to(y.copy(), x)
    for rows in (slice(0, 1), slice(3, 20), slice(60, 70), slice(1, 199)):
        assert adapter.add_to(y[rows].copy(), x[rows]).tobytes() == together[rows].tobytes()
    exact = y.astype(np.float64) + x.astype(np.float64) @ down.T @ up
    reference = TensorAdapter(as_tensor(down), as_tensor(up), torch_dtype(dtype.name))
    for found in (together, as_numpy(reference.add_to(as_tensor(y.copy()), as_tensor(x.copy())))):
        if dtype == BFLOAT16:
            assert (found == exact.astype(dtype)).mean() > 0.999
        else:
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "projection", "sizes", "reason"),
    [
        ("deepseek2", "self_attn.kv_b_proj", (24, 112), "adapters of kv_b_proj are not supported"),
        ("qwen3-moe", "mlp.experts.0.up_proj", (64, 32), "adapters of experts are not supported"),
    ],
)
def test_adapters_of_what_is_no_usual_projection_are_refused_by_name(
    tmp_path: Path, name: str, projection: str, sizes: tuple[int, int], reason: str
) -> None:
    loaded = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), use_tqdm=False)
    prefix = f"base_model.model.model.layers.0.{projection}"
    factors = {f"{prefix}.lora_A.weight": torch.ones(4, sizes[0]), f"{prefix}.lora_B.weight": torch.ones(sizes[1], 4)}
    with pytest.raises(ModelConfigError, match=reason):
        read(tmp_path, loaded, CONFIG, factors)
