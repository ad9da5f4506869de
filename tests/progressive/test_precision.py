"""Fewer mantissa bits turn the last hidden states as a model with truncated weights would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.stage_quality.variants import truncated
from checkpoints import make_checkpoint, make_reference
from progressive.models import random_texts
from progressive.test_angular_distance import raw_states
from quire.loading import load_model, resolve_model
from quire.models.linear.layer import WeightLayer
from quire.progressive.angular_distance import measure_distances
from quire.progressive.plans import model_bytes, plan_precision
from quire.progressive.precision import measure_precisions, most_mantissa_bits, share_of_bytes, spread_bits


@pytest.mark.parametrize("name", ["llama", "llama-tied", "qwen3-moe", "qwen3_5"])
def test_distances_are_those_of_a_reference_with_truncated_weights(name: str, tmp_path: Path) -> None:
    loaded = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), dtype="float32", use_tqdm=False)
    texts, model = random_texts(3), make_reference(name)
    whole_states = measure_distances(loaded, texts).last_states
    found = measure_precisions(loaded, texts, whole_states)
    assert found == measure_precisions(loaded, texts, whole_states), "the weights were not restored"
    assert list(found) == sorted(found, reverse=True)
    assert 0 < found[6] < found[0] / 4
    if name.startswith("llama"):  # others have matrices, such as routers, that stay whole
        whole = np.stack([raw_states(model, text)[-1] for text in texts])
        for bits in (0, 2, 5):
            with truncated(model, bits):
                other = np.stack([raw_states(model, text)[-1] for text in texts])
            cosines = (whole * other).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(other, axis=1)
            expected = (np.arccos(cosines.clip(-1, 1)) / np.pi).mean()
            assert found[bits] == pytest.approx(expected, rel=0.02), bits


def test_as_many_bits_as_fit_are_chosen() -> None:
    assert share_of_bytes("bfloat16", 1) == pytest.approx(0.29, abs=0.005)
    assert share_of_bytes("bfloat16", 7) == pytest.approx(0.666, abs=0.005)
    assert share_of_bytes("float32", 7) == pytest.approx(0.833, abs=0.005)
    assert most_mantissa_bits("bfloat16", 1000, 300) == 1
    assert most_mantissa_bits("bfloat16", 1000, 999) == 6
    with pytest.raises(ValueError, match="without any mantissa bit"):
        most_mantissa_bits("bfloat16", 1000, 200)
    with pytest.raises(ValueError, match="float16 weights have no precision stages"):
        share_of_bytes("float16", 1)


def test_the_next_bit_goes_where_it_helps_as_far_as_the_bytes_last(tmp_path: Path) -> None:
    model = make_checkpoint("llama", tmp_path)
    tensors = load_file(model / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim > 1 and "layers.1." not in name:  # the midpoint without mantissa bits: nothing is lost at first
            tensors[name] = torch.ldexp(1.5 * tensor.sign(), torch.frexp(tensor).exponent - 1)
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    source = resolve_model(str(model))
    loaded, sizes, plan = load_model(source, dtype="float32", use_tqdm=False), model_bytes(source), plan_precision(3, 0)
    least = share_of_bytes("float32", 0) * sizes.total
    one_bit = share_of_bytes("float32", 1) * sizes.total - least
    found = []
    for extra in (0.0, 1.01 * one_bit * sizes.layers[1] / sizes.total, one_bit):
        spread = spread_bits(plan, loaded, random_texts(3), sizes, "float32", int(least + extra) + 1)
        found.append((spread.mantissa_bits, spread.layer_bits))
    assert found == [(0, ()), (0, (0, 1, 0)), (1, ())]
    assert not any(layer.views for layer in loaded.modules() if isinstance(layer, WeightLayer))
