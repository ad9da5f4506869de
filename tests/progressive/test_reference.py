"""A reference model equals the engine's, and without layers it equals a smaller model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoints import ARCHITECTURES, HYBRIDS, KINDS, make_checkpoint, make_multimodal, make_reference
from parameters import quick
from quire import LLM, SamplingParams
from quire.models.model_config import UnsupportedModelError
from quire.progressive.healing.reference import AbsentLayer, decoder_layers, load_reference, remove_layers


def without_layer(model: Any, name: str, index: int) -> Any:
    """Build a model with one layer less and the weights of the others."""
    depth = "n_layer" if name == "gpt2" else "num_hidden_layers"
    settings: dict[str, Any] = {depth: len(decoder_layers(model)) - 1}
    if getattr(model.config, "first_k_dense_replace", 0):
        settings["first_k_dense_replace"] = 0
    for each in ("no_rope_layers", "layer_types", "mlp_layer_types"):
        if (values := getattr(model.config, each, None)) is not None:
            settings[each] = values[:index] + values[index + 1 :]
    shallow = make_reference(name, **settings)
    weights = {}
    for key, tensor in model.state_dict().items():
        match = re.search(r"\.(?:layers|h)\.(\d+)\.", key)
        at = int(match[1]) if match else -1
        if at != index:
            weights[key if at < index else key.replace(f".{at}.", f".{at - 1}.", 1)] = tensor
    shallow.load_state_dict(weights)
    return shallow


def generate(model: Any) -> list[list[int]]:
    torch.manual_seed(1)
    ids = torch.randint(3, 250, (2, 9))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    params = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 1}
    return model.generate(ids, attention_mask=mask, **params).tolist()


@pytest.mark.parametrize(
    "name", quick(KINDS, (name for name in ARCHITECTURES if "shared" not in name and name not in HYBRIDS))
)
def test_without_its_first_layer_a_model_generates_as_one_that_never_had_it(name: str) -> None:
    model = make_reference(name)
    whole = generate(model)
    expected = generate(without_layer(model, name, 0))
    removed = remove_layers(model, [0])  # by whose KV cache transformers counts past tokens
    assert generate(model) == expected != whole
    decoder_layers(model)[0] = removed[0]
    assert generate(model) == whole


def test_a_preset_and_an_embedded_model_are_the_engines_own() -> None:
    for name in ("random:tiny", "quire-mini"):
        model, tokenizer = load_reference(name, "float32")
        prompt = "Context: The cat is red.\nQuestion: What colour is the cat?\nAnswer:"
        ids = torch.tensor([tokenizer.encode(prompt)])
        mine = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=0
        )
        llm = LLM(name, dtype="float32", kv_cache_memory="16MiB", use_tqdm=False)
        (output,) = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
        assert mine[0, ids.shape[1] :].tolist()[: len(output.outputs[0].token_ids)] == list(output.outputs[0].token_ids)


def test_gradients_pass_where_layers_are_absent_and_peft_leaves_these_alone() -> None:
    import peft

    model = make_reference("llama", num_hidden_layers=4)
    remove_layers(model, [1, 2])
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules="all-linear"))
    ids = torch.tensor([[5, 6, 7, 8]])
    wrapped(input_ids=ids, labels=ids).loss.backward()
    trained = [name for name, parameter in wrapped.named_parameters() if parameter.grad is not None]
    assert {int(name.split(".layers.")[1].split(".")[0]) for name in trained} == {0, 3}
    assert isinstance(decoder_layers(wrapped)[1], AbsentLayer)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([3], "not among 3, each once"),
        ([-1], "not among 3, each once"),
        ([1, 1], "not among 3, each once"),
        ([0, 1, 2], "leave one in"),
    ],
)
def test_layers_that_cannot_be_removed_are_refused(out: list[int], message: str) -> None:
    model = make_reference("llama")
    with pytest.raises(ValueError, match=message):
        remove_layers(model, out)


def test_a_multimodal_model_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    model = make_multimodal(make_checkpoint("gemma3", tmp_path / "text"), tmp_path / "model")
    with pytest.raises(UnsupportedModelError, match="save its text part first: quire save --model"):
        load_reference(str(model))
