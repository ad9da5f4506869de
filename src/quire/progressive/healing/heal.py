"""Healing: train a LoRA adapter for one stage, so that the model answers better while layers are missing: absent layers
are identities, and the adapter on the present ones learns (adapters A and AB of the ProgressiveServe paper). An
interrupted run ends in the same bytes (`trainer.py`), given the same number of threads."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from quire.loading import ModelSource, resolve_model
from quire.loading.known_digest import checkpoint_digest
from quire.progressive.calibration_text import write_texts
from quire.progressive.healing.reference import decoder_layers, load_reference, remove_layers
from quire.progressive.healing.run import HealRun
from quire.progressive.healing.samples import TrainingRow, read_rows, rows_digest, text_rows
from quire.progressive.healing.settings import HealSettings
from quire.progressive.healing.trainer import HealProgress, Trainer
from quire.system.threads import default_num_threads


@dataclass(frozen=True)
class Healed:
    step: int  #: finished steps, earlier runs included
    loss: float  #: as in `HealProgress`
    is_finished: bool  #: False if it was stopped and left a checkpoint


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
    """Train an adapter for the stage without `layers_out`, and write it in PEFT's format to `out`.

    `out` is new or empty; with `resume`, it is the directory of an interrupted run. The training texts are those of
    `data` (`samples.read_rows`) and `num_generated` texts of the full model, each beginning with `start`. The run ends
    with a checkpoint once `should_stop` returns True. Raises ModelLoadError, and ValueError for unsuitable data,
    targets or directories.
    """
    if not data and not num_generated:
        raise ValueError("there is nothing to learn from; give files by --data, or --generate N for the model's texts")
    run = HealRun(out, resume=resume)
    torch.set_num_threads(settings.num_threads or default_num_threads())
    source = resolve_model(model)
    reference, tokenizer = load_reference(model, "float32")
    num_layers, context_length = len(decoder_layers(reference)), source.config.context_length
    if any(not 0 <= layer < num_layers for layer in layers_out):
        raise ValueError(f"{model} has {num_layers} layers, but the plan leaves out {sorted(layers_out)}; use its plan")
    targets = _choose_targets(reference, layers_out, settings.targets)
    end = source.eos_token_ids[:1] or tokenizer.encode("\n", add_special_tokens=False)
    rows = read_rows(data, tokenizer, end=end, context_length=context_length, max_length=settings.max_length)
    run.check_same(_identity(source, layers_out, rows, [num_generated, start], settings))
    if (loss := run.final_loss()) is not None:
        return Healed(settings.steps, loss, is_finished=True)
    if num_generated:
        if (texts := run.generated()) is None:
            length = min(settings.max_length, context_length)
            texts = write_texts(model, num_generated, length, start=start, seed=settings.seed, advance=advance_texts)
            run.save_generated(texts)
        rows += [row for text in texts for row in text_rows(text, settings.max_length)]
    remove_layers(reference, layers_out)
    adapted = _adapt(reference, layers_out, targets, settings)
    trainer = Trainer(adapted, reference, rows, settings)
    if is_finished := _train(trainer, run, settings.steps, advance, should_stop, checkpoint_seconds):
        run.finish(_config_of(adapted, model), trainer.adapter(), loss=trainer.loss)
    return Healed(trainer.step, trainer.loss, is_finished)


def _identity(
    source: ModelSource,
    layers_out: Sequence[int],
    rows: Sequence[TrainingRow],
    generated: list[Any],
    settings: HealSettings,
) -> dict[str, Any]:
    choices = {name: value for name, value in asdict(settings).items() if name != "num_threads"}
    digest = source.name if source.path is None else checkpoint_digest(source.path)
    facts = {"model": digest, "layers_out": sorted(layers_out), "data": rows_digest(rows)}
    return {**facts, "generated": generated, **choices}


def _train(
    trainer: Trainer,
    run: HealRun,
    num_steps: int,
    advance: Callable[[HealProgress], None],
    should_stop: Callable[[], bool],
    checkpoint_seconds: float,
) -> bool:
    if (state := run.load_checkpoint()) is not None:
        trainer.load(state)
    saved = time.monotonic()
    for progress in trainer.train():
        advance(progress)
        if trainer.step == num_steps:
            break
        is_stopping = should_stop()
        if is_stopping or time.monotonic() - saved >= checkpoint_seconds:
            run.save_checkpoint(trainer.state())
            saved = time.monotonic()
        if is_stopping:
            return False
    return True


def _choose_targets(reference: Any, layers_out: Sequence[int], chosen: Sequence[str] | None) -> dict[str, type]:
    from transformers.pytorch_utils import Conv1D

    there = {
        name.rpartition(".")[2]: type(module)
        for index, layer in enumerate(decoder_layers(reference))
        if index not in layers_out
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and not name.endswith("kv_b_proj")  # which latent attention absorbs
    }
    if unknown := [name for name in chosen or () if name not in there]:
        raise ValueError(f"no layer in place has a {unknown[0]!r} for --targets; there are {', '.join(sorted(there))}")
    return {name: there[name] for name in sorted(chosen or there)}


def _adapt(reference: Any, layers_out: Sequence[int], targets: dict[str, type], settings: HealSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    in_place = [index for index in range(len(decoder_layers(reference))) if index not in layers_out]
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=list(targets),
        layers_to_transform=in_place if layers_out else None,
        fan_in_fan_out=nn.Linear not in targets.values(),  # transformers' Conv1D stores its weight transposed
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PEFT uses parts deprecated in transformers
        torch.manual_seed(settings.seed)
        return get_peft_model(reference, config).eval()


def _config_of(adapted: Any, name: str) -> dict[str, Any]:
    """The content of PEFT's `adapter_config.json`, in a stable order."""
    values = adapted.peft_config["default"].to_dict()
    values |= {"inference_mode": True, "base_model_name_or_path": name}
    return {name: sorted(value) if isinstance(value, set) else value for name, value in values.items()}
