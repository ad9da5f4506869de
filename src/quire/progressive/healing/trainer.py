"""Training steps that depend only on rows, seed and `Trainer.state`; eval mode draws no random numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from quire.progressive.healing.samples import TrainingRow
from quire.progressive.healing.settings import HealSettings

_WARM_UP = 0.03  # fraction of the steps
_MAX_NORM = 1.0  # of the gradient
_BATCHES_SORTED = 16  # sorted by length together
_SMOOTHING = 0.95  # of the displayed loss


@dataclass(frozen=True)
class HealProgress:
    step: int  #: finished steps
    num_steps: int
    loss: float  #: per token, smoothed over some twenty steps; NaN before the first
    tokens_per_s: float
    seconds_left: float


class Trainer:
    """AdamW on the adapter; a step's number determines its learning rate and data."""

    def __init__(self, adapted: Any, reference: Any, rows: Sequence[TrainingRow], settings: HealSettings) -> None:
        self.step = 0  # finished steps
        self.loss = math.nan
        self._adapted, self._rows, self._settings = adapted, rows, settings
        self._epoch, self._batches = -1, list[list[int]]()
        self._decoder = getattr(reference, reference.base_model_prefix)
        self._head = reference.get_output_embeddings()
        self._parameters = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(self._parameters, betas=(0.9, 0.999), weight_decay=0.0)

    def train(self) -> Iterator[HealProgress]:
        """Run the remaining steps, and yield the progress after each."""
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

    def _batch(self) -> list[TrainingRow]:
        size = self._settings.batch_size
        epoch, number = divmod(self.step, math.ceil(len(self._rows) / size))
        if self._epoch != epoch:
            lengths = [row.num_tokens for row in self._rows]
            self._epoch, self._batches = epoch, epoch_batches(epoch, lengths, size, self._settings.seed)
        return [self._rows[i] for i in self._batches[number]]

    def _step(self, rows: Sequence[TrainingRow]) -> float:
        batch = make_batch(rows)
        hidden = self._decoder(
            input_ids=batch.input_ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
        ).last_hidden_state  # [num_rows, length, hidden_size]
        logits = self._head(hidden[batch.predicting])  # [num_targets, vocab_size]
        loss = F.cross_entropy(logits, batch.targets)
        if not math.isfinite(loss.item()):
            raise ValueError(f"the loss of step {self.step + 1} is {loss.item()}; try a lower --learning-rate")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, _MAX_NORM)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self._settings.steps, self._settings.learning_rate)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.item()

    def adapter(self) -> dict[str, Tensor]:
        """The adapter's tensors by their names in PEFT's files."""
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


@dataclass(frozen=True)
class TrainingBatch:
    """Rows padded at their ends."""

    input_ids: Tensor  #: int64 [num_rows, length]
    positions: Tensor  #: int64 [num_rows, length], each token's position in its own text
    mask: Tensor  #: float32 [num_rows, 1, length, length], added to the attention scores
    predicting: Tensor  #: bool [num_rows, length], tokens whose successors are learned
    targets: Tensor  #: int64 [num_targets], these successors


def make_batch(rows: Sequence[TrainingRow]) -> TrainingBatch:
    """Build a batch in which a token attends to its row's shared part and its own branch, up to itself."""
    length = max(row.num_tokens for row in rows)
    ids, positions, branch_of = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(3))
    predicting = torch.zeros(len(rows), length, dtype=torch.bool)
    branch_of -= 1  # padding, which no token attends to
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
    return TrainingBatch(ids, positions, mask[:, None], predicting, torch.tensor(targets))


def epoch_batches(epoch: int, lengths: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Return batches of all row numbers in random order, sorted in groups by `lengths` to reduce padding."""
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
    """Linear warm-up, then cosine decay to zero. `step` counts from 0."""
    warm_up = math.ceil(_WARM_UP * num_steps)
    if step < warm_up:
        return highest * (step + 1) / warm_up
    return highest * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, num_steps - warm_up)))
