"""Quantized weights for a GPU, decoded, also as weights of a reference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quire.models.linear.triton_encodings import round_weight
from quire.models.linear.triton_weight import TritonWeight


def decoded(weight: TritonWeight) -> Tensor:
    """Decode the packed bytes by their definition: float64 [out_features, in_features]."""
    encoded = weight.encoded
    assert encoded.scales is not None
    packed, scales = encoded.numbers.cpu().view(torch.uint8).int(), encoded.scales.cpu().double()
    if encoded.form.bits == 8:
        values = (packed - 256 * (packed > 127)) * scales[:, None]
    else:
        pairs = packed.unflatten(1, (-1, 64))
        groups = torch.stack((pairs % 16, pairs // 16), dim=2).flatten(1, 2)  # [out_features, groups, 64]
        scale, low = (each.T[..., None] for each in (scales[:, 0], scales[:, 1]))
        values = (groups * scale + low).flatten(1)
    return values[:, : encoded.depth].to(weight.device)


@torch.no_grad()
def round_weights(model: Any, quantization: str) -> None:
    """Give a transformers model the weights that an engine with a quantization computes with."""
    if model.config.tie_word_embeddings:
        model.get_output_embeddings().weight = torch.nn.Parameter(model.get_input_embeddings().weight.clone())
    for name, parameter in model.named_parameters():
        is_kept = parameter.dim() == 1 or any(part in name for part in ("embed_tokens", "lora_", "mlp.gate.weight"))
        if not is_kept:
            bits = 8 if "lm_head" in name or quantization == "int8" else 4
            rounded = decoded(TritonWeight(round_weight(parameter.flatten(0, -2), bits), parameter.dtype))
            parameter.copy_(rounded.reshape(parameter.shape))
