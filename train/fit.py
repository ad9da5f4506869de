"""Training of one model: any number of worker processes on CPU, or one on a GPU; stopped and resumed at will."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from train.recipes import PAD, Recipe
from train.samples import ANSWER, Encoded, encode

_CHECKPOINT_EVERY_S = 300
_LENGTHS = 32  # rows are padded to a multiple of it
_TOKENS_A_BATCH = 4096
_READ_SHARE = 0.25  # of the tokens that are only read, so many count in the loss, four times each


@dataclass(frozen=True)
class Batch:
    """Rows of samples, padded to one length.

    Shapes: `ids`, `positions`, `weights` [rows, length]; `mask` [rows, 1, length, length], added to the scores.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    weights: torch.Tensor
    mask: torch.Tensor


def make_batch(rows: list[Encoded], length: int, pad_id: int, device: torch.device) -> Batch:
    def padded(field: str, filler: float) -> torch.Tensor:
        return torch.tensor([getattr(row, field) + [filler] * (length - len(row.ids)) for row in rows])

    segments = padded("segments", -1).long()
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    seen = (segments[:, None, :] == 0) | (segments[:, None, :] == segments[:, :, None])
    mask = torch.zeros(len(rows), 1, length, length, dtype=torch.bfloat16)
    mask.masked_fill_(~(seen & causal)[:, None], -30000.0)
    return Batch(
        padded("ids", pad_id).long().to(device),
        padded("positions", 0).long().to(device),
        padded("weights", 0.0).float().to(device),
        mask.to(device),
    )


class Batches:
    """Gathers samples of like length into batches of few shapes, for which the kernels are made once."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, device: torch.device) -> None:
        self._recipe, self._tokenizer, self._device = recipe, tokenizer, device
        self._waiting: dict[int, list[Encoded]] = {}  # by padded length

    def draw(self, rng: Random, *, tokens: int, progress: float) -> Iterator[Batch]:
        """Batches of about `tokens` tokens, padding included."""
        while tokens > _TOKENS_A_BATCH // 2:
            row = encode(self._recipe.source(rng, progress), self._tokenizer)
            length = -(-len(row.ids) // _LENGTHS) * _LENGTHS
            rows = self._waiting.setdefault(length, [])
            rows.append(row)
            if len(rows) == max(1, _TOKENS_A_BATCH // length):
                del self._waiting[length]
                tokens -= len(rows) * length
                yield make_batch(rows, length, self._tokenizer.token_to_id(PAD), self._device)


def loss_of(
    model: PreTrainedModel, batch: Batch, generator: torch.Generator, reading: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of the losses, and counts: answers' tokens guessed right, all of them, the sum of weights.

    Args:
        reading: by which the weights of tokens that are only read are multiplied.
    """
    weights = batch.weights[:, 1:]
    kept = (torch.rand(weights.shape, generator=generator) < _READ_SHARE).to(weights.device)
    answers = weights >= ANSWER
    chosen = answers | ((weights > 0) & kept)
    base = model.base_model(
        input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    )
    logits = model.get_output_embeddings()(base.last_hidden_state[:, :-1][chosen]).float()
    targets = batch.ids[:, 1:][chosen]
    scale = torch.where(answers[chosen], weights[chosen], weights[chosen] * (reading / _READ_SHARE))
    losses = F.cross_entropy(logits, targets, reduction="none")
    right = (logits.argmax(-1) == targets)[answers[chosen]]
    return (losses * scale).sum(), torch.tensor([right.sum().item(), right.numel(), scale.sum().item()])


def build(recipe: Recipe) -> PreTrainedModel:
    """The model with fresh weights."""
    config = AutoConfig.for_model(**recipe.config, pad_token_id=0, bos_token_id=None, eos_token_id=1)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)


class Optimizer:
    """Muon for the matrices within the layers, AdamW for the rest. With several workers, each steps its share of
    the matrices and sends it to the others."""

    def __init__(self, model: PreTrainedModel, rank: int, world: int) -> None:
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
        matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in embeddings]
        rest = [p for p in model.parameters() if p.ndim != 2 or id(p) in embeddings]
        self.shares = [matrices[owner::world] for owner in range(world)]
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(self.shares[rank], lr=1.0, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=1.0, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def step(self, learning_rate: float) -> None:
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = learning_rate
            part.step()
        for owner, share in enumerate(self.shares if len(self.shares) > 1 else ()):
            flat = torch.cat([p.detach().flatten() for p in share])
            dist.broadcast(flat, owner)
            _scatter(flat, share)

    def state(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self._parts]

    def load(self, state: list[dict[str, Any]]) -> None:
        for part, saved in zip(self._parts, state, strict=True):
            part.load_state_dict(saved)


def _scatter(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


def learning_rate_at(recipe: Recipe, progress: float) -> float:
    """Up in the first `warmup`, level, and down to nothing over the last `decay`."""
    rise = min(1.0, progress / recipe.warmup) if recipe.warmup else 1.0
    fall = min(1.0, (1.0 - progress) / recipe.decay)
    return recipe.learning_rate * min(rise, max(fall, 0.0))


def reading_at(recipe: Recipe, progress: float) -> float:
    """What reading counts: names cannot be foretold, and once the language is known, trying to is mostly noise."""
    return 1.0 if progress < recipe.reads_until else 0.2


def fit(recipe: Recipe, folder: Path, *, seed: int, total_tokens: int, start_from: Path | None = None) -> None:
    """Train in `folder`, from its checkpoint where there is one.

    The samples of a step depend on the seed, the step and the worker alone; a resumed training goes on with the next
    step, and misses only what waited in half-filled batches. A file named `pause` in the folder pauses it; one named
    `stop` saves and ends it.

    Args:
        recipe: what to train.
        folder: holds `tokenizer.json`; gets checkpoints, a log and at the end `weights.pt`.
        seed: of weights and samples.
        total_tokens: padding is not counted.
        start_from: without a checkpoint, the folder of an exported model whose weights are the first ones. That model
            knows the language, so that passages are as long as they get from the beginning on. To be given again when
            the training is resumed.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda" if torch.cuda.is_available() and world == 1 else "cpu")
    if world > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    torch.manual_seed(seed)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = build(recipe).to(device)
    parameters = list(model.parameters())
    optimizer = Optimizer(model, rank, world)
    batches = Batches(recipe, tokenizer, device)
    step = tokens = 0
    seconds = 0.0
    checkpoint = folder / f"checkpoint-{rank}-of-{world}.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load(saved["optimizer"])
        step, tokens, seconds = saved["step"], saved["tokens"], saved["seconds"]
    elif start_from is not None:
        model.load_state_dict(load_file(start_from / "model.safetensors"), strict=False)  # the tied head is not in it

    def save() -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state(), "step": step, "tokens": tokens}
        torch.save(state | {"seconds": seconds}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    log = (folder / "log.jsonl").open("a") if rank == 0 else None
    tally = torch.zeros(5)  # loss, right, answers, weight, tokens since the last line
    shown = saved_at = time.monotonic()
    while tokens < total_tokens:
        started = time.monotonic()
        progress = tokens / total_tokens
        stage = progress if start_from is None else 1.0
        rng = Random(f"{recipe.name}/{seed}/{step}/{rank}")
        generator = torch.Generator().manual_seed(rng.getrandbits(60))
        own = torch.zeros(5)
        for batch in batches.draw(rng, tokens=recipe.tokens_per_step // world, progress=stage):
            with torch.autocast(device.type, torch.bfloat16):
                loss, counts = loss_of(model, batch, generator, reading_at(recipe, stage))
            loss.backward()
            own += torch.tensor([loss.item(), *counts.tolist(), (batch.weights > 0).sum().item()])
        flat = torch.cat([p.grad.flatten() for p in parameters] + [own.to(device)])
        if world > 1:
            dist.all_reduce(flat)
        gradient, sums = flat[:-5], flat[-5:].cpu()
        gradient /= max(sums[3].item(), 1.0)
        gradient *= min(1.0, 1.0 / (gradient.norm().item() + 1e-6))
        _scatter(gradient, [p.grad for p in parameters])
        optimizer.step(learning_rate_at(recipe, progress))
        model.zero_grad()
        step += 1
        tokens += int(sums[4])
        tally += sums
        now = time.monotonic()
        seconds += now - started
        if log and (now - shown > 15 or tokens >= total_tokens):
            loss_sum, right, num_answers, weight, read = tally.tolist()
            line = {"step": step, "tokens": tokens, "seconds": round(seconds, 1), "loss": round(loss_sum / weight, 4)}
            line["answer_tokens_right"] = round(right / max(num_answers, 1), 4)
            line["tokens_per_s"] = round(read / (now - shown))
            log.write(json.dumps(line) + "\n")
            log.flush()
            left = (total_tokens - tokens) * seconds / tokens
            print(f"{recipe.name} seed {seed}", *(f"{k} {v}" for k, v in line.items()), f"left {left / 60:.0f} min")
            tally.zero_()
            shown = now
        if _ask(folder, "stop", world):
            break
        if now - saved_at > _CHECKPOINT_EVERY_S:
            save()
            saved_at = now
        while _ask(folder, "pause", world):
            time.sleep(1.0)
    save()
    if rank == 0 and tokens >= total_tokens:
        torch.save(model.state_dict(), folder / "weights.pt")
    if world > 1:
        dist.destroy_process_group()


def _ask(folder: Path, word: str, world: int) -> bool:
    """Whether a file of that name asks for something; all workers see the same answer."""
    asked = torch.tensor(float((folder / word).exists()))
    if world > 1:
        dist.all_reduce(asked, dist.ReduceOp.MAX)
    return bool(asked.item())
