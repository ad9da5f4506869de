"""First stages have the states of a reference with fewer layers and truncated weights; the best are chosen."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from benchmarks.stage_quality.variants import truncated
from checkpoints import make_checkpoint, make_reference
from progressive.models import random_texts
from progressive.test_angular_distance import raw_states
from quire.loading import load_model, resolve_model
from quire.progressive.angular_distance import measure_distances
from quire.progressive.frontier import FirstStage, first_stages, frontier, states_of
from quire.progressive.healing.reference import remove_layers
from quire.progressive.plans import ModelBytes
from quire.progressive.precision import share_of_bytes, turn


def test_both_axes_are_measured_as_by_a_reference(tmp_path: Path) -> None:
    loaded = load_model(resolve_model(str(make_checkpoint("llama", tmp_path))), dtype="float32", use_tqdm=False)
    texts, model = random_texts(3), make_reference("llama")
    num_layers = loaded.config.num_layers
    distances = measure_distances(loaded, texts)
    states = states_of(distances, loaded.config, has_planes=True)
    sizes = ModelBytes((1000,) * num_layers, 500)
    found = first_stages(
        loaded, states, sizes, "bfloat16", lambda layers: turn(loaded, texts, distances.last_states, layers)
    )
    whole = np.stack([raw_states(model, text)[-1] for text in texts])
    block = max(stage.block_out for stage in found if stage.block_out is not None)
    remove_layers(model, range(*block))
    for bits in (0, 2, None):
        stage = next(each for each in found if each.block_out == block and each.mantissa_bits == bits)
        left = sizes.total - 1000 * (block[1] - block[0])
        assert stage.num_bytes == int(left * (1 if bits is None else share_of_bytes("bfloat16", bits)))
        with nullcontext() if bits is None else truncated(model, bits):
            other = np.stack([raw_states(model, text)[-1] for text in texts])
        cosines = (whole * other).sum(1) / np.linalg.norm(whole, axis=1) / np.linalg.norm(other, axis=1)
        assert stage.loss == pytest.approx((np.arccos(cosines.clip(-1, 1)) / np.pi).mean(), rel=0.02), bits
    again = measure_distances(loaded, texts)
    assert again == distances, "the model was not restored"


def test_the_frontier_has_what_nothing_beats() -> None:
    stages = [
        FirstStage(None, 1, 30, 0.2),
        FirstStage((1, 2), 1, 25, 0.3),
        FirstStage((1, 2), 2, 30, 0.25),
        FirstStage((1, 2), None, 90, 0.1),
        FirstStage(None, 7, 60, 0.0),
    ]
    assert frontier(stages) == [stages[1], stages[0], stages[4]]
