"""Logits to tokens. Each row is processed alone, in an order of operations that its neighbours cannot change."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from quire.kernels.loaded import uses_triton
from quire.ops.arrays import Array, copy_to, is_numpy, to_host, widen
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, NOT_NUMBERS, TokenLogprobs
from quire.runner.drawing import TokenDrawer
from quire.runner.row_state import RowState
from quire.runner.token_mask import ALL, allowed_tokens, apply_mask, is_allowed
from quire.runner.top_tokens import best_tokens, top_values
from quire.structured.bits import words_of
from quire.structured.grammar import GrammarError
from quire.structured.matcher import Grammars

logger = logging.getLogger("quire")
T = TypeVar("T")

_OUT_OF_RANGE = "repetition_penalty, logit_bias or another parameter takes the logits beyond the numbers of float32"
_CHUNK = 2**14  # logits of a sum at once, within the processor's caches


class Sampler:
    """Draws tokens from logits."""

    def __init__(self, vocab_size: int, grammars: Grammars | None = None) -> None:
        self.vocab_size = vocab_size
        self._grammars = grammars
        self._drawer = TokenDrawer(vocab_size)
        self._work = np.empty(vocab_size, dtype=np.float32)  #: a row's logits, as changed by its parameters

    def sample(
        self, logits: Array, states: list[RowState]
    ) -> tuple[list[list[int]], list[list[TokenLogprobs] | None], list[str | None]]:
        """Draw each row's tokens from logits [num_rows, vocab_size], which may be overwritten. A GPU draws rows without
        log-probabilities, and the host all others and those that fail. Returns three lists over rows: tokens (several
        where a prompt forks, none for a beam), log-probabilities if requested, and the error of a failed row."""
        failed: dict[int, str] = {}
        masks = self._masks(states, failed)
        tokens: dict[int, list[int]] = {}
        logprobs: dict[int, list[TokenLogprobs] | None] = {}
        if not is_numpy(logits):
            drawn = {i: state for i, state in enumerate(states) if i not in failed and not state.needs_logprobs}
            tokens = _draw_on_device(logits, drawn, masks) if drawn else {}
        others = [i for i in range(len(states)) if i not in tokens]
        if others:
            host = logits if is_numpy(logits) else to_host(logits[others])
            values, ids = best_tokens(host)
            for i, row, best in zip(others, host, zip(values, ids.tolist(), strict=True), strict=True):
                state = states[i]
                if not math.isfinite(best[0]):
                    failed[i] = NOT_NUMBERS
                elif state.is_argmax and i not in masks:
                    tokens[i] = [best[1]] * state.num_samples
                elif i not in failed and (done := attempt(failed, i, self._sample_row, row, best, state, masks.get(i))):
                    tokens[i], logprobs[i] = done
        rows = range(len(states))
        return [tokens.get(i, []) for i in rows], [logprobs.get(i) for i in rows], [failed.get(i) for i in rows]

    def _masks(self, states: list[RowState], failed: dict[int, str]) -> dict[int, np.ndarray]:
        """Return a mask of the allowed tokens for each row with bans: uint32 [words_of(vocab_size)]."""
        banned = [i for i, state in enumerate(states) if state.has_bans and i not in failed]
        masks = dict(zip(banned, np.full((len(banned), words_of(self.vocab_size)), ALL), strict=True))
        matched = [(row, matcher) for row in banned if (matcher := states[row].matcher) is not None]
        if matched:
            assert self._grammars is not None
            filled = self._grammars.fill_masks([matcher for _, matcher in matched])
            for (row, matcher), words in zip(matched, filled, strict=True):
                attempt(failed, row, matcher.finish_mask, words)
                masks[row][:] = words[: len(masks[row])]
        for row, words in masks.items():
            attempt(failed, row, states[row].restrict, words)
        return masks

    @np.errstate(over="ignore")  # a difference or a penalty may be infinite
    def _sample_row(
        self, logits: np.ndarray, best: tuple[np.float32, int], state: RowState, words: np.ndarray | None
    ) -> tuple[list[int], list[TokenLogprobs] | None]:
        """Sample one row, with its largest logit and token `best`, and a mask of its allowed tokens."""
        info, params, allowed = state.info, state.params, None
        top, token = best
        if words is not None:
            if state.is_argmax and is_allowed(words, token):
                return [token] * state.num_samples, None
            allowed = None if info.num_candidates else allowed_tokens(words, self.vocab_size)
        if state.is_plain and allowed is not None:
            row = logits[allowed].astype(np.float32)
        else:
            row = logits if state.is_argmax else self._widen(logits)
            _apply_biases(row, state)
            if allowed is not None:
                row = row[allowed]
            elif words is not None:
                apply_mask(row, words)
        if words is not None or not state.is_plain:
            top, token = _best_of(row)
        if info.num_candidates:
            return [], [_entry(row, _log_sum(row), token, info.num_candidates)]
        tokens = (
            [token] * state.num_samples if params.is_greedy else self._drawer.draw(row, top, state, state.num_samples)
        )
        if allowed is not None:
            tokens = allowed[tokens].tolist()
        if params.logprobs is None:
            return tokens, None
        raw = row if words is None and state.is_plain else self._widen(logits)
        normaliser = _log_sum(raw)
        return tokens, [_entry(raw, normaliser, each, params.logprobs, params.logprob_token_ids) for each in tokens]

    def _widen(self, logits: np.ndarray) -> np.ndarray:
        """Return a row as float32 in this sampler's memory, until the next call."""
        copy_to(self._work, logits)
        return self._work


def _draw_on_device(logits: Array, states: dict[int, RowState], masks: dict[int, np.ndarray]) -> dict[int, list[int]]:
    """Draw the tokens of rows by Triton, or only those that are the largest by torch. Returns them by row."""
    if uses_triton(logits.device.type):
        from quire.runner.triton_drawing import draw_rows  # imports torch and Triton

        return draw_rows(logits, states, masks)
    values, ids = best_tokens(logits)
    rows = [row for row, state in states.items() if state.is_argmax and row not in masks and math.isfinite(values[row])]
    return {row: [int(ids[row])] * states[row].num_samples for row in rows}


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


def _apply_biases(row: np.ndarray, state: RowState) -> None:
    """Add the biases and penalties of a row in place."""
    params = state.params
    if params.logit_bias:
        tokens, bias = state.rules.bias()
        row[tokens] += bias
    if not state.has_penalties:
        return
    tokens, counts = state.seen()
    values = row[tokens]
    if params.repetition_penalty != 1.0:
        factor = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / factor, values * factor)
    if params.frequency_penalty != 0.0:
        values -= counts * np.float32(params.frequency_penalty)
    if params.presence_penalty != 0.0:
        values -= (counts > 0) * np.float32(params.presence_penalty)
    row[tokens] = values


def _best_of(row: np.ndarray) -> tuple[np.float32, int]:
    """Return the largest of changed logits and its position. FloatingPointError if there is none."""
    if len(row):
        (top,), (place,) = best_tokens(row[None])
        if math.isfinite(top):
            return top, int(place)
        if top != -math.inf:
            raise FloatingPointError(_OUT_OF_RANGE)
    raise FloatingPointError(EVERY_TOKEN_IS_BANNED)


def _log_sum(row: np.ndarray) -> np.float32:
    """Return the logarithm of the sum of a row's exponentials. FloatingPointError if it is not finite."""
    top = row.max()
    if not math.isfinite(top):
        raise FloatingPointError(NOT_NUMBERS)
    chunks = (row[at : at + _CHUNK] for at in range(0, len(row), _CHUNK))
    return np.float32(top + math.log(sum(float(np.exp(chunk - top).sum()) for chunk in chunks)))


def _entry(
    row: np.ndarray, normaliser: np.float32, token: int, k: int, token_ids: tuple[int, ...] | None = None
) -> TokenLogprobs:
    """Return the log-probabilities of a token and of the k likeliest (-1: all) or of `token_ids`."""
    chosen = row[token]
    rank = int(np.count_nonzero(row > chosen)) + 1
    values, ids = row[:0], np.empty(0, dtype=np.int64)
    if token_ids:
        ids = np.unique(token_ids)
        ids = ids[np.argsort(-row[ids], kind="stable")]
        values = row[ids]
    elif k:
        values, ids = top_values(row, k if k > 0 else len(row))
    return TokenLogprobs(ids.tolist(), (values - normaliser).tolist(), token, float(chosen - normaliser), rank)


def token_logprobs(logits: np.ndarray, tokens: list[int], k: int) -> list[TokenLogprobs]:
    """Return the log-probabilities of the given token of each row and of its k likeliest (-1: all)."""
    rows = map(widen, logits)
    return [_entry(row, _log_sum(row), token, k) for row, token in zip(rows, tokens, strict=True)]
