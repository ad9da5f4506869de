"""Healing: a LoRA adapter is trained for one stage, so that it answers better while layers are missing.

The layers that are out are identities, those in place keep their weights, and the adapter on them learns (the paper's
adapters A and AB). With no layer out it is the control: what an adapter alone brings on the same data.

An interrupted run ends in the same bytes: a step is a function of what a checkpoint holds and of the data (see
`trainer.py`). Another number of threads adds up in another order: the bytes differ then.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quire.loading import ModelSource, resolve_model
from quire.progressive.calibration_text import write_texts
from quire.progressive.healing.run import HealRun
from quire.progressive.healing.samples import TrainingRow, read_rows, rows_digest, text_rows
from quire.progressive.healing.settings import HealSettings
from quire.progressive.healing.trainer import HealProgress, Trainer
from quire.progressive.reference import decoder_layers, load_reference, remove_layers
from quire.system.threads import default_num_threads
from quire.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Healed:
    """What a run ended in."""

    step: int  #: steps done, in this run and those before it
    loss: float  #: as in `HealProgress`
    is_finished: bool  #: False where it was told to stop: a checkpoint is there


def heal(
    model: str,
    layers_out: Sequence[int],
    out: Path,
    settings: HealSettings,
    *,
    data: Sequence[Path] = (),
    num_generated: int = 0,
    start: str = "",
    resume: bool = False,
    advance: Callable[[HealProgress], None] = lambda progress: None,
    advance_texts: Callable[[int], None] = lambda count: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Healed:
    """Train an adapter and leave it in PEFT's format, with the layers' indices in the full model.

    Args:
        model: a directory, a hub id, an embedded name or a preset.
        layers_out: indices of the layers that the stage lacks; none for the control.
        out: a directory that is empty or not there, or with `resume` one of an interrupted run.
        data: files; see `samples.read_rows`.
        num_generated: texts that the full model writes itself, beside `data` or in its place.
        start: what those begin with.
        advance: told of each step.
        advance_texts: told how many more texts are written.
        should_stop: asked after each step; True ends the run with a checkpoint.
        checkpoint_seconds: between checkpoints.

    Raises:
        ValueError: the data, the targets or the directory will not do; the message says what would.
        ModelLoadError: there is no such model.
    """
    if not data and not num_generated:
        raise ValueError("what to learn from? Give files by --data, or --generate N for texts of the model itself")
    if find_spec("peft") is None:
        raise ValueError("healing needs peft: pip install 'quire[heal]'")
    run = HealRun(out, resume=resume)
    torch.set_num_threads(settings.num_threads or default_num_threads())
    source = resolve_model(model)
    reference, tokenizer = load_reference(model, "float32")
    _check_layers(layers_out, len(decoder_layers(reference)), model)
    targets = _choose_targets(reference, layers_out, settings.targets)
    rows = _read_rows(source, tokenizer, data, settings)
    choices = {name: value for name, value in asdict(settings).items() if name != "num_threads"}
    about = {
        "model": _model_digest(source),
        "layers_out": sorted(layers_out),
        "data": rows_digest(rows),
        "generated": [num_generated, start],
        **choices,
    }
    run.check_same(about)
    if (loss := run.final_loss()) is not None:
        return Healed(settings.steps, loss, is_finished=True)
    if num_generated:
        texts = run.generated()  # of the run that is resumed
        if texts is None:
            length = min(settings.max_length, source.config.context_length)
            texts = write_texts(
                reference, tokenizer, num_generated, length, start=start, seed=settings.seed, advance=advance_texts
            )
            run.keep_generated(texts)
        rows += [row for text in texts for row in text_rows(text, settings.max_length)]
    remove_layers(reference, layers_out)
    adapted = _adapt(reference, layers_out, targets, settings)
    trainer = Trainer(adapted, reference, rows, settings)
    if (state := run.load_checkpoint()) is not None:
        trainer.load(state)
    saved = time.monotonic()
    for progress in trainer.train():
        advance(progress)
        if trainer.step == settings.steps:
            break
        is_told = should_stop()
        if is_told or time.monotonic() - saved >= checkpoint_seconds:
            run.save_checkpoint(trainer.state())
            saved = time.monotonic()
        if is_told:
            return Healed(trainer.step, trainer.loss, is_finished=False)
    run.finish(_config_of(adapted, model), trainer.adapter(), loss=trainer.loss)
    return Healed(trainer.step, trainer.loss, is_finished=True)


# -- the adapter -------------------------------------------------------------------------------------------------------


def _choose_targets(reference: Any, layers_out: Sequence[int], chosen: Sequence[str] | None) -> dict[str, type]:
    """The linear layers that get an adapter, by the last part of their names, and what kind each is."""
    from transformers.pytorch_utils import Conv1D

    there = {
        name.rpartition(".")[2]: type(module)
        for index, layer in enumerate(decoder_layers(reference))
        if index not in layers_out
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    }
    if unknown := [name for name in chosen or () if name not in there]:
        raise ValueError(f"no layer in place has a {unknown[0]!r} for --targets; there are {', '.join(sorted(there))}")
    return {name: there[name] for name in sorted(chosen or there)}


def _adapt(reference: Any, layers_out: Sequence[int], targets: dict[str, type], settings: HealSettings) -> Any:
    """Put PEFT's LoRA layers into the decoder layers that are there; everything else is frozen."""
    from peft import LoraConfig, get_peft_model

    in_place = [index for index in range(len(decoder_layers(reference))) if index not in layers_out]
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=list(targets),
        layers_to_transform=in_place if layers_out else None,
        fan_in_fan_out=nn.Linear not in targets.values(),  # transformers' Conv1D has its weight transposed
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers for what it will not have in version 6
        torch.manual_seed(settings.seed)
        return get_peft_model(reference, config).eval()


def _config_of(adapted: Any, name: str) -> dict[str, Any]:
    """As PEFT's `adapter_config.json` has it, in an order of its own."""
    values = adapted.peft_config["default"].to_dict()
    values |= {"inference_mode": True, "base_model_name_or_path": name}
    return {name: sorted(value) if isinstance(value, set) else value for name, value in values.items()}


# -- what it is trained on ---------------------------------------------------------------------------------------------


def _read_rows(
    source: ModelSource, tokenizer: Tokenizer, data: Sequence[Path], settings: HealSettings
) -> list[TrainingRow]:
    end = source.eos_token_ids[:1] or tokenizer.encode("\n", add_special_tokens=False)
    return read_rows(
        data, tokenizer, end=end, context_length=source.config.context_length, max_length=settings.max_length
    )


def _check_layers(layers_out: Sequence[int], num_layers: int, model: str) -> None:
    if any(not 0 <= layer < num_layers for layer in layers_out):
        raise ValueError(f"{model} has {num_layers} layers, and the plan leaves out {sorted(layers_out)}: of another?")


def _model_digest(source: ModelSource) -> str:
    if source.path is None:
        return source.name
    from quire.loading.known_digest import checkpoint_digest

    return checkpoint_digest(source.path)
