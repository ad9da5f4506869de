"""Random LoRA adapters in PEFT's format of the tiny checkpoints, and PEFT's outputs with them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import peft
import torch

from checkpoints import make_reference
from engine.harness import PROMPTS, Greedy, generate_greedy, temporary_directory

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ATTENTION = ALL_LINEAR[:4]
TARGETS = {"gpt2": ["c_attn", "c_fc", "mlp.c_proj"], "qwen3-moe": ATTENTION}
#: Settings of each adapter; the second changes some layers only.
SETTINGS: dict[str, dict[str, Any]] = {
    "first": {"r": 4, "lora_alpha": 8},
    "second": {"r": 2, "lora_alpha": 6, "layers_to_transform": [1]},
    "third": {"r": 7, "lora_alpha": 7, "use_rslora": True},
}
NUM_TOKENS = 10


@cache
def adapted(name: str) -> tuple[Any, dict[str, str]]:
    """Return the reference with all adapters, and their directories by name."""
    directories: dict[str, str] = {}
    model: Any = None
    for number, (adapter, settings) in enumerate(SETTINGS.items()):
        config = peft.LoraConfig(target_modules=TARGETS.get(name, ALL_LINEAR), **settings)
        torch.manual_seed(number)
        if model is None:
            model = peft.get_peft_model(make_reference(name), config, adapter).eval()
        else:
            model.add_adapter(adapter, config)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if f".{adapter}." in parameter_name:
                    parameter.normal_(0.0, 0.1)
        directory = temporary_directory(adapter)
        model.save_pretrained(directory, selected_adapters=[adapter])
        directories[adapter] = str(directory / adapter)
    return model, directories


def lora(name: str) -> tuple[str, ...]:
    """Return the option of the checkpoint's adapters."""
    return tuple(f"{adapter}={directory}" for adapter, directory in adapted(name)[1].items())


@cache
def greedy_with(name: str, adapter: str) -> list[Greedy]:
    """Generate with the reference and an adapter, or none."""
    model = adapted(name)[0]
    if not adapter:
        with model.disable_adapter():
            return generate_greedy(model, PROMPTS, NUM_TOKENS)
    model.set_adapter(adapter)
    return generate_greedy(model, PROMPTS, NUM_TOKENS)


def copy_of(directory: str, to: Path) -> Path:
    """Copy an adapter, to be changed."""
    to.mkdir()
    for file in Path(directory).iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to
