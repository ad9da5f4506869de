"""Tiny checkpoints with a draft head, and a reference of what it guesses: numpy around a decoder layer of
`transformers`, all in float64."""

from __future__ import annotations

import copy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from checkpoints import FACTORS, STD, make_checkpoint, make_config, make_reference, randomize

_OF_QWEN = {"fc": "mtp.fc", "embedding": "mtp.pre_fc_norm_embedding", "hidden": "mtp.pre_fc_norm_hidden",
            "layer": "mtp.layers.0", "norm": "mtp.norm"}  # fmt: skip
_OF_DEEPSEEK = {"fc": "model.layers.3.eh_proj", "embedding": "model.layers.3.enorm", "hidden": "model.layers.3.hnorm",
                "layer": "model.layers.3", "norm": "model.layers.3.shared_head.norm"}  # fmt: skip
_OF_ONE_HYBRID: dict[str, Any] = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
_OF_ONE_LATENT: dict[str, Any] = {"num_hidden_layers": 1, "first_k_dense_replace": 0}
#: By variant: the names of the head's parts in a checkpoint, and the config of a model with its layer only.
_FAMILIES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "qwen3_5": (_OF_QWEN, _OF_ONE_HYBRID),
    "qwen3_5-moe": (_OF_QWEN, _OF_ONE_HYBRID),
    "qwen3_next": (_OF_QWEN, {**_OF_ONE_HYBRID, "mlp_only_layers": []}),
    "deepseek3": (_OF_DEEPSEEK, _OF_ONE_LATENT),
    "glm4_moe": (_OF_DEEPSEEK, _OF_ONE_LATENT),
    "glm4_moe_lite": (_OF_DEEPSEEK, {**_OF_ONE_LATENT, "mlp_layer_types": ["sparse"]}),
}
FAMILIES_WITH_HEADS = tuple(_FAMILIES)
_SEED = 7

_directories: list[tempfile.TemporaryDirectory[str]] = []  # alive until the tests end


@cache
def head_tensors(name: str) -> dict[str, torch.Tensor]:
    """Return the head's tensors by their names in a checkpoint."""
    names, of_one = _FAMILIES[name]
    with tempfile.TemporaryDirectory() as directory:
        layer = load_file(make_checkpoint(name, directory, _SEED, **of_one) / "model.safetensors")
    draw = torch.Generator().manual_seed(_SEED)
    size = len(layer["model.norm.weight"])
    mean = layer["model.norm.weight"].mean().round()  # 0 where 1 is added
    tensors = {f"{names['fc']}.weight": torch.randn(size, 2 * size, generator=draw) * STD}
    for norm in ("embedding", "hidden"):
        tensors[f"{names[norm]}.weight"] = mean + 0.1 * torch.randn(size, generator=draw)
    tensors[f"{names['norm']}.weight"] = layer["model.norm.weight"]
    prefix = "model.layers.0"
    return tensors | {
        names["layer"] + each.removeprefix(prefix): tensor for each, tensor in layer.items() if each.startswith(prefix)
    }


@cache
def head_checkpoint(name: str, without: str = "-") -> Path:
    """Return a variant's checkpoint with a head, except for tensors with `without` in their names."""
    _directories.append(tempfile.TemporaryDirectory(prefix=f"quire-{name}-head-"))
    directory = make_checkpoint(name, _directories[-1].name)
    file = directory / "model.safetensors"
    own = {each: tensor for each, tensor in head_tensors(name).items() if without not in each}
    save_file(load_file(file) | own, file, {"format": "pt"})
    return directory


class HeadReference:
    """Guesses of a variant's head after some tokens."""

    def __init__(self, name: str) -> None:
        names, of_one = _FAMILIES[name]
        self._served = make_reference(name).double()
        layer = make_reference(name, _SEED, **of_one).double()
        for model in (self._served, layer):
            model.set_experts_implementation("eager")  # others have no float64
        self._layer = layer.model
        self._offset = 1.0 if name.startswith("qwen") else 0.0
        found = head_tensors(name)
        self._fc, self._embedding_norm, self._hidden_norm = (
            found[f"{names[part]}.weight"].double().numpy() for part in ("fc", "embedding", "hidden")
        )

    @torch.no_grad()
    def logits(self, tokens: list[int], num_drafts: int) -> np.ndarray:
        """Return the logits of the token after `tokens`, of which the last `num_drafts` were guesses."""
        ids = torch.tensor([tokens])
        hidden = self._served.model(ids[:, : len(tokens) - num_drafts - 1]).last_hidden_state[0].numpy()
        table = self._served.model.embed_tokens.weight.numpy()
        while True:
            after = table[tokens[1 : len(hidden) + 1]]
            both = [_norm(after, self._embedding_norm + self._offset), _norm(hidden, self._hidden_norm + self._offset)]
            inputs = torch.from_numpy(np.concatenate(both, axis=1) @ self._fc.T)
            last = self._layer(inputs_embeds=inputs[None]).last_hidden_state[0, -1:].numpy()
            if len(hidden) == len(tokens) - 1:
                return (last @ self._served.lm_head.weight.numpy().T)[0]
            hidden = np.concatenate([hidden, last])


def _norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6) * weight


_ASSISTANT_SEED = 3


@cache
def _assistant(name: str) -> Any:
    """Return an assistant of a variant of Gemma 4 in transformers."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    small = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}
    text = make_config(
        name, **small, num_kv_shared_layers=3, layer_types=kinds, hidden_size_per_layer_input=0,
        use_double_wide_mlp=False, enable_moe_block=False,
    )  # fmt: skip
    text.vocab_size_per_layer_input = 0
    config = transformers.Gemma4AssistantConfig(text_config=text, backbone_hidden_size=64)
    torch.manual_seed(_ASSISTANT_SEED)
    # This version of transformers expects another layer's KV in the model itself.
    with patch.object(transformers.Gemma4TextConfig, "kv_sharing_modes", ["reuse"] * 3):
        model = transformers.Gemma4AssistantForCausalLM(config)
    randomize(model, FACTORS["Gemma4Text"])
    return model.eval()


@cache
def assistant_checkpoint(name: str) -> Path:
    _directories.append(tempfile.TemporaryDirectory(prefix=f"quire-{name}-assistant-"))
    _assistant(name).save_pretrained(_directories[-1].name)
    return Path(_directories[-1].name)


class AssistantReference:
    """Guesses of a variant's assistant after some tokens."""

    def __init__(self, name: str) -> None:
        self._served, self._assistant = make_reference(name).double(), copy.deepcopy(_assistant(name)).double()
        self._served.set_experts_implementation("eager")
        self._window = self._served.config.sliding_window
        for layer in self._served.model.layers:  # the last of each kind
            layer.self_attn.store_full_length_kv = not layer.self_attn.is_kv_shared_layer

    @torch.no_grad()
    def logits(self, tokens: list[int], num_drafts: int) -> np.ndarray:
        """Return the logits of the token after `tokens`, of which the last `num_drafts` were guesses."""
        known = len(tokens) - num_drafts
        found = self._served.model(torch.tensor([tokens[: known - 1]]), return_shared_kv_states=True)
        shared = dict(found.shared_kv_states)
        shared["sliding_attention"] = tuple(each[:, :, -self._window :] for each in shared["sliding_attention"])
        hidden, at = found.last_hidden_state[:, -1:], torch.tensor([[known - 1]])
        for token in tokens[known - 1 :]:
            embedding = self._served.model.embed_tokens(torch.tensor([[token]]))
            inputs = torch.cat([embedding, hidden], dim=-1)
            guess = self._assistant(inputs_embeds=inputs, position_ids=at, shared_kv_states=shared)
            hidden = guess.last_hidden_state
        return guess.logits[0, 0].numpy()
