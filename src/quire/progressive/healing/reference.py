"""Load a model in `transformers` with the engine's weights and token ids, to observe and to train it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quire.loading import ModelLoadError, ModelSource, resolve_model
from quire.loading.checkpoint import checkpoint_dtype, read_headers
from quire.loading.modules.fill import fill_random
from quire.loading.modules.fitting import choose_dtype
from quire.loading.stage_manifest import is_plane_pack
from quire.models.model_config import UnsupportedModelError
from quire.models.registry import ARCHITECTURES, build_model
from quire.text.tokenizer import Tokenizer

_LAYERS = {  # attribute path from the model to its list of decoder layers, where it is not model.layers
    "GPT2LMHeadModel": ("transformer", "h"),
    "OPTForCausalLM": ("model", "decoder", "layers"),
}


def load_reference(name: str, dtype: str = "auto") -> tuple[Any, Tokenizer]:
    """Load a model of `transformers` in eval mode on the CPU, with Quire's tokenizer; a preset gets the engine's
    weights for seed 0. Raises UnsupportedModelError, ModelConfigError, ModelLoadError, or ValueError without a
    tokenizer."""
    source = resolve_model(name)
    config = source.config  # rejects unsupported models before transformers is imported
    if config.text_of:
        raise UnsupportedModelError(f"{name} is multimodal; save its text part first: quire save --model {name} DIR")
    import transformers

    if source.path is None:
        return _random_reference(source, dtype), Tokenizer.byte_level(config.vocab_size)
    tokenizer = Tokenizer.from_dir(source.path)
    transformers.utils.logging.disable_progress_bar()
    wanted = getattr(torch, choose_dtype(dtype, config, checkpoint_dtype(read_headers(source.path))))
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(source.path, dtype=wanted, local_files_only=True)
    except (OSError, RuntimeError) as error:
        hint = "`quire stages unpack` restores its original files" if is_plane_pack(source.path) else error
        raise ModelLoadError(f"transformers cannot load {source.path}: {hint}") from None
    return model.eval(), tokenizer


def _random_reference(source: ModelSource, dtype: str) -> Any:
    import transformers

    values = dict(source.hf_config)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    stored = getattr(
        torch, choose_dtype("auto", source.config, None)
    )  # the dtype in which the engine draws random weights
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=stored)
    tensors = model.state_dict()
    names = build_model(source.config, stored, "meta").checkpoint_tensors()
    fill_random({name: tensors[name] for name in names}, std=source.config.initializer_range, seed=0)
    return model.to(getattr(torch, choose_dtype(dtype, source.config, None))).eval()


def decoder_layers(model: Any) -> nn.ModuleList:
    """Return a model's mutable list of decoder layers; PEFT may wrap the model."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if type(base).__name__ not in ARCHITECTURES:
        raise ValueError(f"{type(base).__name__} is not one of {', '.join(ARCHITECTURES)}")
    found = base
    for attribute in _LAYERS.get(type(base).__name__, ("model", "layers")):
        found = getattr(found, attribute)
    return found


class AbsentLayer(nn.Module):
    """An identity in place of a decoder layer; caches one number per token, as transformers counts them."""

    def __init__(self, index: int, *, returns_tuple: bool) -> None:
        super().__init__()
        self.index = index
        self.returns_tuple = returns_tuple

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor]:
        cache = next((value for value in (*args, *kwargs.values()) if hasattr(value, "get_seq_length")), None)
        if cache is not None:
            counted = hidden_states.new_zeros(hidden_states.shape[0], 1, hidden_states.shape[1], 1)
            cache.update(counted, counted, self.index)
        return (hidden_states,) if self.returns_tuple else hidden_states


def remove_layers(model: Any, out: Sequence[int]) -> dict[int, nn.Module]:
    """Replace layers in place by `AbsentLayer`s and return them by index. ValueError if layers are missing, or none is
    left."""
    layers = decoder_layers(model)
    indices = sorted(out)
    if len(set(indices)) != len(indices) or not all(0 <= index < len(layers) for index in indices):
        raise ValueError(f"the layers {list(out)} are not among {len(layers)}, each once, counted from 0")
    if any(isinstance(layers[index], AbsentLayer) for index in indices):
        raise ValueError(f"some of the layers {indices} are out already")
    if not indices:
        return {}
    if len(indices) == sum(not isinstance(layer, AbsentLayer) for layer in layers):
        raise ValueError(f"all {len(indices)} layers cannot be out; leave one in")
    returns_tuple = _returns_tuple(model, layers[indices[0]])
    removed = {index: layers[index] for index in indices}
    for index in indices:
        layers[index] = AbsentLayer(index, returns_tuple=returns_tuple)
    return removed


def _returns_tuple(model: Any, layer: nn.Module) -> bool:
    """Probe with one token whether a decoder layer returns a tuple, which depends on transformers' version."""
    seen: list[bool] = []
    handle = layer.register_forward_hook(lambda module, args, output: seen.append(isinstance(output, tuple)))
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)
    finally:
        handle.remove()
        model.train(was_training)
    return seen[0]
