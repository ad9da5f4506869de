"""Mamba-2 layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quire.models.base import Attend
from quire.models.layers import RMSNorm, select_rows
from quire.models.linear.layer import Linear
from quire.models.model_config import ConfigReader, ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share
from quire.models.rotary import Rotation
from quire.models.states.config import MambaConfig
from quire.models.states.linear_attention import LinearAttention, rms
from quire.models.states.short_conv import float_copy
from quire.ops.arrays import Array

_NO_LIMITS: tuple[Any, ...] = (None, [0.0, float("inf")], [0.0, {"__float__": "Infinity"}])


def read_mamba(reader: ConfigReader, hidden: int) -> MambaConfig:
    groups, heads = reader.integer("mamba_n_groups", 1), reader.integer("mamba_n_heads", 128)
    key_dim, inner = reader.integer("mamba_d_state", 256), reader.integer("mamba_expand", 2) * hidden
    is_given = reader.get("mamba_d_head", "auto") != "auto"
    value_dim = reader.integer("mamba_d_head") if is_given else inner // heads
    reader.refuse_if(heads % groups, f"{heads} heads of Mamba in {groups} groups")
    reader.refuse_if(key_dim % 16 or value_dim % 32, f"Mamba with states of {key_dim} and heads of {value_dim}")
    reader.refuse_if(reader.integer("mamba_d_conv", 4) != 4, "another mamba_d_conv than 4")
    limit = reader.get("time_step_limit")
    reader.refuse_if(limit not in _NO_LIMITS, f"time_step_limit {limit!r:.100}")
    reader.refuse_if(reader.flag("mamba_proj_bias", False), "mamba_proj_bias=true")
    return MambaConfig(groups, heads, key_dim, value_dim, has_conv_bias=reader.flag("mamba_conv_bias", True))


class Mamba2(LinearAttention):
    """As `LinearAttention`, with all inputs in one product. Heads of a group share keys and queries, and a norm."""

    kernel_name = "quire_mamba2"
    vectors = ("dt_bias", "A_log", "D")
    D: Array

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        assert isinstance(config.state, MambaConfig)
        size, self._group = config.state, split.group
        values = split.state_heads(size.num_value_heads)
        keys = split.state_heads(size.num_key_heads) if size.num_key_heads > 1 else Share.of(1)
        super().__init__(config, split, index, keys, values, **factory)
        inputs = Share.joined(self.values, self.channels, values)  # z; x, B and C; a
        self.in_proj = Linear(config.hidden_size, inputs, bias=False, **factory)
        self.norm = RMSNorm(self.values, config.norm_eps, **factory)
        self.norms_all_ranks = size.num_key_heads == 1 < split.group.size

    @property
    def channels(self) -> Share:
        return Share.joined(self.values, self.keys, self.keys)

    def __call__(self, x: Array, rotation: Rotation | None, attend: Attend, rows: Array | None) -> Array:
        out = select_rows(attend(self.index, self.in_proj(x), None, None, self._rule), rows)
        return self.out_proj(self.norm.of_share(out, self._group) if self.norms_all_ranks else out)

    def float_weights(self) -> Mapping[str, Array | None]:
        def in_order(x: np.ndarray) -> np.ndarray:
            """Return channels in the kernel's order."""
            values, keys, queries = np.split(x, [self.values.size, self.values.size + self.keys.size], -1)
            return np.concatenate((queries, keys, values), -1)

        given, bias = dict(super().float_weights()), self.conv1d.bias
        given["conv"], given["skip"] = in_order(self.conv1d.by_tap()), self.D
        given["conv_bias"] = None if bias is None else in_order(float_copy(bias))
        given["norm"] = None if self.norms_all_ranks else self.norm.weight
        return given

    def places(self) -> dict[str, tuple[int, int, int]]:
        values, keys = self.groups * self.size.value_dim, self.size.key_dim
        return self._places({"z": values, "v": values, "k": keys, "q": keys, "a": self.groups})

    def update(
        self, matrix: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray, weight: np.ndarray
    ) -> np.ndarray:
        matrix *= decay
        matrix += k * (v * weight)[:, :, None]
        return (q * matrix).sum(2, dtype=np.float64)

    def finish(self, o: np.ndarray, z: np.ndarray, norm: np.ndarray | None) -> np.ndarray:
        y = (o * z).reshape(len(o), self.num_key_heads, -1)
        return y if norm is None else y / rms(y, self.norm.eps) * norm.reshape(self.num_key_heads, -1)
