"""The map is the least squares solution over all tokens without padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from checkpoints import make_checkpoint, make_reference
from progressive.models import random_texts
from quire.loading import load_model, resolve_model
from quire.models.base import CausalLM
from quire.progressive.linear_map import HELD_OUT_EVERY, GapMap, fit_linear_map


def load(directory: Path, **overrides: Any) -> CausalLM:
    make_checkpoint("llama", directory, **overrides)
    return load_model(resolve_model(str(directory)), dtype="float32", use_tqdm=False)


def test_a_fit_is_what_numpy_finds_and_survives_its_file(tmp_path: Path) -> None:
    model, texts = make_reference("llama", num_hidden_layers=4), random_texts(48)
    found, fit = fit_linear_map(load(tmp_path, num_hidden_layers=4), texts, 1, 3, ridge=1e-12)
    xs, ys = [], []
    for text in texts:
        states = model(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states
        xs.append(states[1][0].detach().double().numpy())
        ys.append(states[3][0].detach().double().numpy())
    held_out = [index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 for index in range(len(texts))]
    x, y = (np.concatenate([v for v, out in zip(values, held_out, strict=True) if not out]) for values in (xs, ys))
    assert fit.num_tokens == len(x)
    ones = np.ones((len(x), 1))
    solution, *_ = np.linalg.lstsq(np.hstack([x, ones]), y, rcond=None)
    np.testing.assert_allclose(found.weight, solution[:-1].T, atol=1e-3)
    np.testing.assert_allclose(found.bias, solution[-1], atol=1e-3)
    x, y = (np.concatenate([v for v, out in zip(values, held_out, strict=True) if out]) for values in (xs, ys))
    missed = y - x @ solution[:-1] - solution[-1]
    assert fit.error == pytest.approx((missed**2).sum() / ((y - x) ** 2).sum(), rel=1e-3)

    found.save(tmp_path / "map.safetensors", model="llama")
    again = GapMap.load(tmp_path / "map.safetensors", 64)
    assert all(np.array_equal(getattr(again, name), getattr(found, name)) for name in ("weight", "bias"))
    with pytest.raises(ValueError, match=r"map\.safetensors holds .*a map for this model has"):
        GapMap.load(tmp_path / "map.safetensors", 128)


def test_a_strong_ridge_leaves_the_identity(tmp_path: Path) -> None:
    found, fit = fit_linear_map(load(tmp_path), random_texts(24), 0, 2, ridge=1e12)
    np.testing.assert_allclose(found.weight, np.eye(64), atol=1e-6)
    assert fit.error == pytest.approx(1, abs=0.1)  # only the bias is fitted


def test_too_little_text_and_a_file_of_something_else_are_refused(tmp_path: Path) -> None:
    model = load(tmp_path)
    with pytest.raises(ValueError, match="too few for a map of width 64"):
        fit_linear_map(model, random_texts(4), 0, 1)
    with pytest.raises(ValueError, match="no block 2:4 in 3 layers"):
        fit_linear_map(model, random_texts(4), 2, 4)
    save_file({"weight": torch.zeros(64, 64)}, tmp_path / "half.safetensors")
    for name, message in (("half.safetensors", "holds"), ("none.safetensors", "is not a linear map")):
        with pytest.raises(ValueError, match=message):
            GapMap.load(tmp_path / name, 64)
