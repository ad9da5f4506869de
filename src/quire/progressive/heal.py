"""Healing: a LoRA adapter is trained for one stage, so that it answers better while layers are missing.

The layers that are out are identities, those in place keep their weights, and the adapter on them learns (the paper's
adapters A and AB). With no layer out it is the control: what an adapter alone brings on the same data.

An interrupted run ends in the same bytes. The order of the data is a function of seed and step, the model is in eval
mode, so that nothing else is drawn after the adapter's beginning, and a checkpoint has adapter, optimizer and step.
(Another number of threads adds up in another order: the bytes differ then.)
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quire.loading import ModelSource, resolve_model
from quire.progressive.calibration_text import write_texts
from quire.progressive.heal_run import HealRun
from quire.progressive.heal_samples import Row, read_rows, rows_digest, text_rows
from quire.progressive.heal_settings import HealSettings
from quire.progressive.reference import decoder_layers, load_reference, remove_layers
from quire.system.threads import default_num_threads
from quire.text.tokenizer import Tokenizer

_WARM_UP = 0.03  # of the steps
_LARGEST_NORM = 1.0  # of a gradient
_BATCHES_SORTED = 16  # whose rows are sorted by length together
_SMOOTHING = 0.95  # of the loss that is shown


@dataclass(frozen=True)
class HealProgress:
    """How far a training has come."""

    step: int  #: steps done
    num_steps: int
    loss: float  #: a token's, smoothed over some twenty steps; NaN before the first
    tokens_per_s: float  #: that were read
    seconds_left: float


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
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
) -> Healed:
    """Train an adapter and leave it in PEFT's format, with the layers' indices in the full model.

    Args:
        model: a directory, a hub id, an embedded name or a preset.
        layers_out: indices of the layers that the stage lacks; none for the control.
        out: a directory that is empty or not there, or with `resume` one of an interrupted run.
        data: files; see `heal_samples.read_rows`.
        num_generated: texts that the full model writes itself, beside `data` or in its place.
        start: what those begin with.
        advance: told of each step.
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
        rows += _generated_rows(run, source, reference, tokenizer, num_generated, start, settings)
    remove_layers(reference, layers_out)
    adapted = _adapt(reference, layers_out, targets, settings)
    trainer = _Trainer(adapted, reference, rows, settings)
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


class _Trainer:
    """AdamW on the adapter, with the learning rate and the data of a step found by its number."""

    def __init__(self, adapted: Any, reference: Any, rows: Sequence[Row], settings: HealSettings) -> None:
        self.step = 0  # steps done
        self.loss = math.nan
        self._adapted, self._rows, self._settings = adapted, rows, settings
        self._epoch, self._batches = -1, list[list[int]]()
        self._decoder = getattr(reference, reference.base_model_prefix)
        self._head = reference.get_output_embeddings()
        self._parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, betas=(0.9, 0.999), weight_decay=0.0)

    def train(self) -> Any:
        """Does one step after the other, and tells of each."""
        started, num_tokens, first = time.monotonic(), 0, self.step
        while self.step < self._settings.steps:
            chosen = self._batch()
            loss = self._step(chosen)
            self.step += 1
            self.loss = loss if math.isnan(self.loss) else _SMOOTHING * self.loss + (1 - _SMOOTHING) * loss
            num_tokens += sum(row.num_tokens for row in chosen)
            seconds = time.monotonic() - started
            left = seconds / (self.step - first) * (self._settings.steps - self.step)
            yield HealProgress(self.step, self._settings.steps, self.loss, num_tokens / seconds, left)

    def _batch(self) -> list[Row]:
        size = self._settings.batch_size
        epoch, number = divmod(self.step, math.ceil(len(self._rows) / size))
        if self._epoch != epoch:
            lengths = [row.num_tokens for row in self._rows]
            self._epoch, self._batches = epoch, epoch_batches(epoch, lengths, size, self._settings.seed)
        return [self._rows[i] for i in self._batches[number]]

    def _step(self, rows: Sequence[Row]) -> float:
        batch = make_batch(rows)
        hidden = self._decoder(
            input_ids=batch.input_ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
        ).last_hidden_state  # [num_rows, length, hidden_size]
        logits = self._head(hidden[batch.predicting])  # [num_targets, vocab_size]
        loss = F.cross_entropy(logits, batch.targets)
        if not math.isfinite(loss.item()):
            raise ValueError(f"the loss of step {self.step + 1} is {loss.item()}; try a lower --learning-rate")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, _LARGEST_NORM)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self._settings.steps, self._settings.learning_rate)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.item()

    def adapter(self) -> dict[str, Tensor]:
        """By the names that PEFT's files have."""
        from peft import get_peft_model_state_dict

        return dict(get_peft_model_state_dict(self._adapted, save_embedding_layers=False))

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "loss": self.loss,
            "parameters": [parameter.detach() for parameter in self._parameters],
            "optimizer": self._optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.step, self.loss = state["step"], state["loss"]
        with torch.no_grad():
            for parameter, saved in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])


# -- what a step works on ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Rows side by side, padded at their ends."""

    input_ids: Tensor  #: int64 [num_rows, length]
    positions: Tensor  #: int64 [num_rows, length], each token's place in its own text
    mask: Tensor  #: float32 [num_rows, 1, length, length], added to the scores of attention
    predicting: Tensor  #: bool [num_rows, length]: the tokens whose successors are learned
    targets: Tensor  #: int64 [num_targets]: those successors


def make_batch(rows: Sequence[Row]) -> Batch:
    """A token sees its row's shared part and its own branch, up to itself."""
    length = max(row.num_tokens for row in rows)
    ids, positions, branch_of = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(3))
    predicting = torch.zeros(len(rows), length, dtype=torch.bool)
    branch_of -= 1  # padding, which sees what it likes, and which nothing sees
    targets: list[int] = []
    for i, row in enumerate(rows):
        pieces = [(row.shared, 0, len(row.shared) + 1)]
        pieces += [(branch.ids, len(row.shared), branch.first_target) for branch in row.branches]
        start = 0
        for number, (piece, position, first_target) in enumerate(pieces):
            end = start + len(piece)
            ids[i, start:end] = torch.tensor(piece, dtype=torch.long)
            positions[i, start:end] = torch.arange(position, position + len(piece))
            branch_of[i, start:end] = number
            predicting[i, max(start, start + first_target - 1) : max(start, end - 1)] = number > 0
            targets += piece[first_target:]
            start = end
    seen = (branch_of[:, None, :] == 0) | (branch_of[:, None, :] == branch_of[:, :, None])  # [num_rows, query, key]
    seen &= torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(seen.shape).masked_fill_(~seen, torch.finfo(torch.float32).min)
    return Batch(ids, positions, mask[:, None], predicting, torch.tensor(targets))


def epoch_batches(epoch: int, lengths: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """All rows once, in batches of a random order; of rows that come near each other, those of like length together,
    so that there is little padding.

    Args:
        epoch: from 0; each has an order of its own.
        lengths: tokens of each row.

    Returns:
        the rows of each batch, by their numbers.
    """
    rng = Random(f"{seed}/{epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    size = batch_size * _BATCHES_SORTED
    batches = []
    for start in range(0, len(order), size):
        near = sorted(order[start : start + size], key=lambda number: lengths[number])
        group = [near[first : first + batch_size] for first in range(0, len(near), batch_size)]
        batches += rng.sample(group, len(group))
    return batches


def learning_rate(step: int, num_steps: int, highest: float) -> float:
    """Up in a line over the first steps, then down to nothing along a cosine. `step` counts from 0."""
    warm_up = math.ceil(_WARM_UP * num_steps)
    if step < warm_up:
        return highest * (step + 1) / warm_up
    return highest * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, num_steps - warm_up)))


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
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
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


def _read_rows(source: ModelSource, tokenizer: Tokenizer, data: Sequence[Path], settings: HealSettings) -> list[Row]:
    end = source.eos_token_ids[:1] or tokenizer.encode("\n", add_special_tokens=False)
    return read_rows(
        data, tokenizer, end=end, context_length=source.config.context_length, max_length=settings.max_length
    )


def _generated_rows(
    run: HealRun,
    source: ModelSource,
    reference: Any,
    tokenizer: Tokenizer,
    count: int,
    start: str,
    settings: HealSettings,
) -> list[Row]:
    """What the model knows, it says: texts that it samples while all its layers are in place. They are kept for the
    case that the run is resumed."""
    texts = run.generated()
    if texts is None:
        length = min(settings.max_length, source.config.context_length)
        texts = write_texts(reference, tokenizer, count, length, start=start, seed=settings.seed)
        run.keep_generated(texts)
    return [row for text in texts for row in text_rows(text, settings.max_length)]


def _check_layers(layers_out: Sequence[int], num_layers: int, model: str) -> None:
    if any(not 0 <= layer < num_layers for layer in layers_out):
        raise ValueError(f"{model} has {num_layers} layers, and the plan leaves out {sorted(layers_out)}: of another?")


def _model_digest(source: ModelSource) -> str:
    if source.path is None:
        return source.name
    from quire.loading.known_digest import checkpoint_digest

    return checkpoint_digest(source.path)
