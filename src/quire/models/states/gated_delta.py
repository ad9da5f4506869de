"""Layers with the gated delta rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from quire.models.base import Attend
from quire.models.layers import RMSNorm, select_rows
from quire.models.linear.layer import Linear, MergedLinear
from quire.models.model_config import ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.rotary import Rotation
from quire.models.states.config import DeltaConfig
from quire.models.states.linear_attention import LinearAttention, rms
from quire.ops.arrays import Array


class GatedDeltaNet(LinearAttention):
    """As `LinearAttention`, with queries, keys, values and z in one product, b and a in another."""

    kernel_name = "quire_gated_delta"

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        assert isinstance(config.state, DeltaConfig)
        size, hidden = config.state, config.hidden_size
        heads, groups = split.state_heads(size.num_key_heads), size.num_value_heads // size.num_key_heads
        super().__init__(config, split, index, heads, heads.of_size(groups), **factory)
        self._has_joint_gates = size.is_interleaved
        self._has_joint_inputs = size.is_interleaved and not size.inputs_apart
        if self._has_joint_inputs:
            per_head = 2 * size.key_dim + 2 * groups * size.value_dim
            self.in_proj_qkvz = Linear(hidden, heads.of_size(per_head), bias=False, **factory)
        else:
            parts = {"in_proj_qkv": self.channels, "in_proj_z": self.values}
            self.in_proj_qkvz = MergedLinear(hidden, parts, bias=False, **factory)
        self.in_proj_ba: Linear
        if self._has_joint_gates:
            self.in_proj_ba = Linear(hidden, heads.of_size(2 * groups), bias=False, **factory)
        else:
            gates = ("in_proj_b", "in_proj_a")
            self.in_proj_ba = MergedLinear(hidden, dict.fromkeys(gates, self.value_heads), bias=False, **factory)
        self.in_proj_ba.is_quantizable = False
        self.norm = RMSNorm(size.value_dim, config.norm_eps, **factory)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        out = attend(self.index, self.in_proj_qkvz(x), self.in_proj_ba(x), None, self._rule)
        return self.out_proj(select_rows(out, rows))

    def places(self) -> dict[str, tuple[int, int, int]]:
        values, keys = self.groups * self.size.value_dim, self.size.key_dim
        inputs, gates = {"q": keys, "k": keys, "v": values, "z": values}, {"b": self.groups, "a": self.groups}
        return self._places(inputs, self._has_joint_inputs) | self._places(gates, self._has_joint_gates)

    def update(
        self, matrix: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        q, k = (each / np.sqrt((each * each).sum(2, keepdims=True) + np.float32(1e-6)) for each in (q, k))
        matrix *= decay
        matrix += k * ((v - (k * matrix).sum(2)) * weight)[:, :, None]
        return (q * matrix).sum(2) * np.float32(self.size.key_dim**-0.5)

    def finish(self, o: np.ndarray, z: np.ndarray, norm: np.ndarray | None) -> np.ndarray:
        return o / rms(o, self.norm.eps) * norm * z
