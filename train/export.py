"""From a training folder to a model folder in the Hugging Face format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from train.fit import build
from train.recipes import PAD, Recipe
from train.samples import END


def export(recipe: Recipe, training: Path, folder: Path, halfway_from: Path | None = None) -> None:
    """Write config, weights (bfloat16) and tokenizer of a trained model.

    Takes the newest state in `training`: `weights.pt` of a finished training, else the checkpoint of a running one.
    With `halfway_from`, a model's folder, the weights are the mean of its and the trained ones, which keeps more of
    what it did well (Wortsman et al., 2022, "Robust fine-tuning of zero-shot models", eq. 1).

    Raises:
        FileNotFoundError: there is neither.
    """
    model = build(recipe)
    model.load_state_dict(newest_weights(training))
    for name, start in load_file(halfway_from / "model.safetensors").items() if halfway_from else ():
        model.get_parameter(name).data.lerp_(start.float(), 0.5)
    model.config.architectures = [type(model).__name__]
    model.to(torch.bfloat16).save_pretrained(folder)
    greedy = {"do_sample": False, "eos_token_id": 1, "pad_token_id": 0}  # save_pretrained leaves do_sample out
    (folder / "generation_config.json").write_text(json.dumps(greedy))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(training / "tokenizer.json")),
        pad_token=PAD,
        eos_token=END,
        model_max_length=recipe.context_length,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = recipe.chat_template
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    for file in folder.glob("*.json"):  # as a person would lay them out, and with a final newline
        if file.name != "tokenizer.json":
            file.write_text(json.dumps(json.loads(file.read_text()), indent=2, ensure_ascii=False) + "\n")


def newest_weights(training: Path) -> dict[str, torch.Tensor]:
    """The weights of a finished training, else those of its last checkpoint."""
    finished = training / "weights.pt"
    if finished.exists():
        return torch.load(finished, map_location="cpu", weights_only=True)
    checkpoints = sorted(training.glob("checkpoint-0-of-*.pt"), key=lambda file: file.stat().st_mtime)
    if not checkpoints:
        raise FileNotFoundError(f"{training} holds neither weights.pt nor a checkpoint; train first")
    return torch.load(checkpoints[-1], map_location="cpu", weights_only=True)["model"]
