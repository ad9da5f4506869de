"""Logits to tokens. Each row is processed alone, in an order of operations that its neighbours cannot change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, TokenLogprobs
from quire.runner.drawing import TokenDrawer
from quire.runner.row_state import RowState
from quire.runner.token_mask import ALL, allowed_tokens, apply_masks
from quire.runner.top_tokens import best_tokens, top_values
from quire.structured.bits import words_of
from quire.structured.grammar import GrammarError
from quire.structured.matcher import Grammars

logger = logging.getLogger("quire")
T = TypeVar("T")

_NO_NUMBERS = "the model's logits are not numbers (NaN or infinite)"
_OUT_OF_RANGE = "repetition_penalty, logit_bias or another parameter takes the logits beyond the numbers of float32"


@dataclass(slots=True)
class _Rows:
    logits: torch.Tensor  #: [num_rows, vocab_size]
    states: list[RowState]
    best: list[int]  #: token with the largest logit, by row
    failed: dict[int, str] = field(default_factory=dict)  #: error by row
    raw: dict[int, torch.Tensor] = field(default_factory=dict)  #: unchanged logits, where log-probabilities are due
    allowed: dict[int, torch.Tensor] = field(default_factory=dict)  #: allowed tokens of rows that allow few


class Sampler:
    """Draws tokens from logits."""

    def __init__(self, vocab_size: int, grammars: Grammars | None = None) -> None:
        self.vocab_size = vocab_size
        self._grammars = grammars
        self._drawer = TokenDrawer(vocab_size)

    def sample(
        self, logits: torch.Tensor, states: list[RowState]
    ) -> tuple[list[list[int]], list[list[TokenLogprobs] | None], list[str | None]]:
        """Draw each row's tokens from logits [num_rows, vocab_size], which may be overwritten. Returns three lists over
        rows: tokens (several where a prompt forks, none for a beam), log-probabilities if requested, and the error of a
        failed row."""
        best_values, best_ids = best_tokens(logits)
        rows = _Rows(logits, states, best_ids.tolist())
        rows.failed = {i: _NO_NUMBERS for i, value in enumerate(best_values.tolist()) if not math.isfinite(value)}
        if not all(state.is_argmax for state in states):
            rows.logits, best_values = logits.float(), best_values.float()
        again = _bias(rows)
        if banned := [i for i, state in enumerate(states) if state.has_bans and i not in rows.failed]:
            again = sorted({*again, *self._ban(rows, banned)})
        for first, end in _runs(again) if again else ():  # a slice copies no rows
            best_values[first:end], best_ids = best_tokens(rows.logits[first:end])
            rows.best[first:end] = best_ids.tolist()
        for i in again:
            if not math.isfinite(value := float(best_values[i])):
                rows.failed.setdefault(i, EVERY_TOKEN_IS_BANNED if value == -math.inf else _OUT_OF_RANGE)
        tokens: list[list[int]] = []
        logprobs: list[list[TokenLogprobs] | None] = []
        for i, state in enumerate(states):
            drawn, entries = [], None
            if i not in rows.failed:
                if state.is_argmax:
                    drawn = [rows.best[i]] * state.num_samples
                elif sampled := attempt(rows.failed, i, self._sample_row, rows, i, best_values[i]):
                    drawn, entries = sampled
            tokens.append(drawn)
            logprobs.append(entries)
        return tokens, logprobs, [rows.failed.get(i) for i in range(len(states))]

    def _ban(self, rows: _Rows, banned: list[int]) -> list[int]:
        """Set banned logits to minus infinity in place, unless only the best token is needed and found without
        (`rows.best`). Returns rows whose best token is banned and has yet to be found."""
        masks = self._masks(rows, banned)
        written, again = [], []
        for at, (row, words) in enumerate(zip(banned, masks, strict=True)):
            state, best = rows.states[row], rows.best[row]
            is_best_allowed = (int(words[best >> 5]) >> (best & 31)) & 1
            if state.is_argmax and is_best_allowed:
                continue
            listed = allowed_tokens(words, self.vocab_size) if rows.logits.is_cpu else None
            tokens = torch.from_numpy(listed) if listed is not None and len(listed) else None
            if state.is_argmax and tokens is not None:
                value, index = rows.logits[row, tokens].max(0)
                rows.best[row] = int(tokens[index])
                if value == -math.inf:
                    rows.failed.setdefault(row, EVERY_TOKEN_IS_BANNED)
                continue
            if tokens is not None:
                rows.allowed[row] = tokens
            if state.params.logprobs is not None and row not in rows.raw:
                rows.raw[row] = rows.logits[row].clone()
            written.append(at)
            if not is_best_allowed:
                again.append(row)
        if written:
            apply_masks(rows.logits, [banned[at] for at in written], masks[written])
        return again

    def _masks(self, rows: _Rows, banned: list[int]) -> np.ndarray:
        """Return a mask of the allowed tokens for each row with bans: uint32 [len(banned), words_of(vocab_size)]."""
        masks = np.full((len(banned), words_of(self.vocab_size)), ALL)
        matched = [(at, matcher) for at, row in enumerate(banned) if (matcher := rows.states[row].matcher) is not None]
        if matched:
            assert self._grammars is not None
            filled = self._grammars.fill_masks([matcher for _, matcher in matched])
            for (at, matcher), words in zip(matched, filled, strict=True):
                attempt(rows.failed, banned[at], matcher.finish_mask, words)
                masks[at] = words[: masks.shape[1]]
        for row, words in zip(banned, masks, strict=True):
            attempt(rows.failed, row, rows.states[row].restrict, words)
        return masks

    def _sample_row(self, rows: _Rows, i: int, top: torch.Tensor) -> tuple[list[int], list[TokenLogprobs] | None]:
        """Sample one row, whose largest logit is `top`."""
        row, state, best = rows.logits[i], rows.states[i], rows.best[i]
        info, params = state.info, state.params
        if info.num_candidates:
            return [], [_entry(row, best, info.num_candidates)]
        raw = rows.raw.get(i, row)
        tokens = (
            [best] * state.num_samples
            if params.is_greedy
            else self._drawer.draw(row, top, state, state.num_samples, rows.allowed.get(i))
        )
        if params.logprobs is None:
            return tokens, None
        return tokens, [_entry(raw, token, params.logprobs, params.logprob_token_ids) for token in tokens]


def attempt(failed: dict[int, str], key: int, work: Callable[..., T], *args: Any) -> T | None:
    """Do the work of one row. Its exception fails this row alone: `failed` gets the error under the row's key."""
    try:
        return work(*args)
    except Exception as error:
        failed[key] = describe_failure(error)
    return None


def describe_failure(error: Exception) -> str:
    """Return the error for the request of a row, and log an unexpected one."""
    if isinstance(error, GrammarError):
        return f"{BROKEN_GRAMMAR}: {error}"
    if isinstance(error, FloatingPointError):
        return str(error)
    logger.error("a row of a step failed; its request ends with an error", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _bias(rows: _Rows) -> list[int]:
    """Apply biases and penalties to the rows that have some, in place. Returns these rows."""
    changed = [i for i, state in enumerate(rows.states) if not state.is_plain and i not in rows.failed]
    for i in changed:
        if rows.states[i].params.logprobs is not None:
            rows.raw[i] = rows.logits[i].clone()
        attempt(rows.failed, i, _apply_biases, rows.logits[i], rows.states[i])
    return changed


def _apply_biases(row: torch.Tensor, state: RowState) -> None:
    params = state.params
    if params.logit_bias:
        ids, bias = state.rules.bias(row.device)
        row[ids] += bias
    if not state.has_penalties:
        return
    seen, counts = state.seen()
    tokens = torch.from_numpy(seen).to(row.device)
    values = row[tokens].cpu().numpy()  # so few that torch operations are all overhead
    if params.repetition_penalty != 1.0:
        factor = np.float32(params.repetition_penalty)
        with np.errstate(over="ignore"):  # the sampler looks for infinity afterwards
            values = np.where(values > 0, values / factor, values * factor)
    if params.frequency_penalty != 0.0:
        values -= counts * np.float32(params.frequency_penalty)
    if params.presence_penalty != 0.0:
        values -= (counts > 0) * np.float32(params.presence_penalty)
    row[tokens] = torch.from_numpy(values).to(row.device)


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Group ascending rows into ranges (first row, end)."""
    starts = [row for at, row in enumerate(rows) if not at or rows[at - 1] != row - 1]
    ends = [row + 1 for at, row in enumerate(rows) if at + 1 == len(rows) or rows[at + 1] != row + 1]
    return list(zip(starts, ends, strict=True))


def _entry(row: torch.Tensor, token: int, k: int, token_ids: tuple[int, ...] | None = None) -> TokenLogprobs:
    """Return the log-probabilities of a token and of the k likeliest (-1: all) or of `token_ids`."""
    normaliser = row.logsumexp(0)
    if not math.isfinite(normaliser):
        raise FloatingPointError(_NO_NUMBERS)
    chosen = row[token]
    rank = int((row > chosen).sum()) + 1
    ids: list[int] = []
    logprobs: list[float] = []
    if token_ids:
        positions = torch.tensor(sorted(set(token_ids)), device=row.device)
        values, order = row[positions].sort(descending=True, stable=True)
        ids, logprobs = positions[order].tolist(), (values - normaliser).tolist()
    elif k:
        values, positions = top_values(row, k if k > 0 else row.shape[0])
        ids, logprobs = positions.tolist(), (values - normaliser).tolist()
    return TokenLogprobs(ids, logprobs, token, float(chosen - normaliser), rank)


def token_logprobs(logits: torch.Tensor, tokens: list[int], k: int) -> list[TokenLogprobs]:
    """Return the log-probabilities of the given token of each row and of its k likeliest (-1: all)."""
    return [_entry(row, token, k) for row, token in zip(logits, tokens, strict=True)]
