"""Call models, which may compute on numpy arrays, with tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from quire.models.base import CausalLM
from quire.ops.arrays import as_numpy, as_tensor, is_numpy


def hidden_states(
    model: CausalLM, ids: Tensor, positions: Tensor, attend: Callable[..., Any], rows: Tensor | None = None
) -> Tensor:
    """Return hidden states, as the model does. `attend` takes and returns tensors."""
    if not is_numpy(model.dtype):
        return model(ids, positions, attend, rows=rows)

    def attend_to_arrays(layer: int, *arrays: Any) -> Any:
        return as_numpy(attend(layer, *(None if each is None else as_tensor(each) for each in arrays)).contiguous())

    given = None if rows is None else as_numpy(rows)
    return as_tensor(model(as_numpy(ids), as_numpy(positions), attend_to_arrays, rows=given))


def logits_of_tokens(model: CausalLM, ids: Tensor, positions: Tensor, attend: Callable[..., Any]) -> Tensor:
    """Return logits of all tokens."""
    hidden = hidden_states(model, ids, positions, attend)
    return as_tensor(model.compute_logits(as_numpy(hidden) if is_numpy(model.dtype) else hidden))


def tensors_of(model: CausalLM) -> dict[str, Tensor]:
    """Return a model's checkpoint tensors."""
    return {name: as_tensor(view) for name, view in model.checkpoint_tensors().items()}
