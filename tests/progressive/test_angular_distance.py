"""Distances compare a block's input and output at a text's last token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from checkpoints import ONE_OF_EACH_KIND, make_checkpoint, make_reference
from progressive.models import random_texts
from quire.loading import load_model, resolve_model
from quire.progressive.angular_distance import AngularDistances, measure_distances


def raw_states(model: Any, text: list[int]) -> np.ndarray:
    """Return [num_layers + 1, hidden_size] at the last token, recorded by transformers, without the final norm."""
    body = getattr(model.base_model, "decoder", model.base_model)
    for name in ("norm", "ln_f", "final_layer_norm", "embedding_norm", "project_out"):
        if getattr(body, name, None) is not None:
            setattr(body, name, nn.Identity())
    states = model.base_model(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states
    return np.stack([state[0, -1].detach().numpy() for state in states]).astype(np.float64)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_distances_are_the_angles_between_the_states_of_transformers(name: str, tmp_path: Path) -> None:
    model = make_reference(name)
    loaded = load_model(resolve_model(str(make_checkpoint(name, tmp_path))), dtype="float32", use_tqdm=False)
    texts = random_texts(5)
    found = measure_distances(loaded, texts)
    count = loaded.config.num_layers + 1
    assert (found.num_layers, found.num_texts) == (count - 1, 5)
    expected = np.zeros((count, count))
    for text in texts:
        x = raw_states(model, text)
        cosines = x @ x.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(x, axis=1))
        expected += np.arccos(np.clip(cosines, -1, 1)) / np.pi / len(texts)
    for size in (1, 2, 3):
        mine = [found.of(start, start + size).distance for start in range(count - size)]
        np.testing.assert_allclose(mine, [expected[start, start + size] for start in range(count - size)], atol=1e-5)


def test_the_best_block_of_a_size_is_the_first_with_the_least_distance() -> None:
    distances = AngularDistances(3, 1, ((0.2, 0.1, 0.1), (0.3, 0.25), (0.4,)), np.ones((1, 1)))
    best = [distances.best(size) for size in (1, 2, 3)]
    assert [(block.start, block.end, block.distance) for block in best] == [(1, 2, 0.1), (1, 3, 0.25), (0, 3, 0.4)]


def test_activations_that_are_not_finite_are_refused() -> None:
    model = load_model(resolve_model("random:tiny"), use_tqdm=False)
    model.layers[1].post_attention_layernorm.weight[...] = float("inf")
    with pytest.raises(ValueError, match="not finite"):
        measure_distances(model, random_texts(2))
