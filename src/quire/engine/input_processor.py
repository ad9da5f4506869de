"""Validate and encode a client's prompt and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

from quire.config import SchedulerConfig
from quire.core.block_keys import check_domains
from quire.core.request import NO_OWNER, Owner, check_limits
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.structured.grammar import check_form
from quire.system.child_process import ChildProcess
from quire.text.tokenizer import Tokenizer, encode_bad_words
from quire.text.tokenizer_process import IsolatedTokenizer


@dataclass(frozen=True, slots=True)
class ProcessedRequest:
    prompt: Prompt  #: encoded
    sampling_params: SamplingParams  #: with `beam`, only its end rules count
    beam: BeamSearchParams | None = None
    priority: int = 0
    min_stage: int = 1  #: the request is blocked until the model reaches this stage
    owner: Owner = NO_OWNER

    @property
    def n(self) -> int:
        return self.beam.beam_width if self.beam is not None else self.sampling_params.n

    @property
    def max_tokens(self) -> int | None:
        return self.beam.max_tokens if self.beam is not None else self.sampling_params.max_tokens

    @property
    def ignore_eos(self) -> bool:
        return self.beam.ignore_eos if self.beam is not None else self.sampling_params.ignore_eos


class InputProcessor:
    """Checks requests against one model and its limits. Immutable and picklable. Without a tokenizer it accepts token
    ids only. `system_fingerprint` names the KV namespace: all that changes the arithmetic."""

    def __init__(
        self,
        limits: SchedulerConfig,
        vocab_size: int,
        tokenizer: Tokenizer | None = None,
        sampling_defaults: dict[str, Any] | None = None,
        system_fingerprint: str | None = None,
        pooling: str = "last",
        num_stages: int = 1,
        last_stage: int | None = None,
    ) -> None:
        self.limits = limits
        self.max_model_len = limits.max_model_len
        self.vocab_size = vocab_size
        self.tokenizer = tokenizer
        self.sampling_defaults = sampling_defaults or {}
        self.system_fingerprint = system_fingerprint
        self.num_stages = num_stages
        self.last_stage = num_stages if last_stage is None else last_stage
        self.pooling = pooling  #: of embeddings, unless one is given

    def isolated(self, name: str, child: ChildProcess | None = None) -> InputProcessor:
        """Return a copy that renders and encodes in a child process of its own, with limits; `name` is for errors.
        `child` is a started process."""
        other = copy(self)
        if self.tokenizer is not None:
            other.tokenizer = IsolatedTokenizer(self.tokenizer, name, child)
        return other

    def prepare(self) -> None:
        """Start the child process of an isolated one."""
        if isinstance(self.tokenizer, IsolatedTokenizer):
            self.tokenizer.start()

    def close(self) -> None:
        """End the child process of an isolated one, and its running texts."""
        if isinstance(self.tokenizer, IsolatedTokenizer):
            self.tokenizer.close()

    def accept(
        self,
        prompt: PromptLike,
        params: SamplingParams | BeamSearchParams | None = None,
        *,
        priority: int = 0,
        min_stage: int = 1,
        owner: Owner = NO_OWNER,
    ) -> ProcessedRequest:
        """Encode and check a request (`Engine.add_request`). Raises ValueError if it can never be served."""
        prompt = self._encode(Prompt.of(prompt))
        if not isinstance(priority, int):
            raise ValueError(f"priority={priority!r} is not an integer; smaller goes first")
        if not isinstance(min_stage, int) or not 1 <= min_stage <= self.last_stage:
            raise ValueError(
                f"min_stage={min_stage!r} is no stage of this model; its stages are 1 to {self.last_stage}"
            )
        check_domains(prompt.domains)
        _check_documents(prompt)
        beam = params if isinstance(params, BeamSearchParams) else None
        sampling = _end_of(beam) if beam is not None else self._complete(params)  # type: ignore[arg-type]
        width = beam.beam_width if beam is not None else sampling.n
        check_limits(self.limits, len(prompt.token_ids), width, is_beam=beam is not None)
        self._check_tokens(prompt.token_ids)
        if prompt.prediction and max(prompt.prediction) >= self.vocab_size:  # some tokenizers have more tokens
            prompt = replace(prompt, prediction=tuple(takewhile(self.vocab_size.__gt__, prompt.prediction)))
        return ProcessedRequest(prompt, sampling, beam, priority, min_stage, owner)

    def default_sampling_params(self, **given: Any) -> SamplingParams:
        """Return the defaults of `generation_config.json`, overridden by `given`."""
        return SamplingParams(**{**self.sampling_defaults, **given})

    def _encode(self, prompt: Prompt) -> Prompt:
        if not isinstance(prompt.token_ids, (list, tuple)):
            raise ValueError(f"a prompt is text or a list of token ids, not {type(prompt.token_ids).__name__}")
        if prompt.text is None or prompt.token_ids:
            return prompt
        if self.tokenizer is None:
            raise ValueError("there is no tokenizer (skip_tokenizer_init); give prompt_token_ids, not text")
        return replace(prompt, token_ids=self.tokenizer.encode(prompt.text))

    def _check_tokens(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self.vocab_size:
                last = self.vocab_size - 1
                raise ValueError(f"prompt token {token!r} is not an id of this model; its ids are 0 to {last}")

    def _complete(self, params: SamplingParams | None) -> SamplingParams:
        if params is None:
            params = self.default_sampling_params()
        if not isinstance(params, SamplingParams):
            raise ValueError(f"sampling parameters must be SamplingParams(...), not {params!r:.80}")
        if self.tokenizer is None and (params.stop or params.bad_words):
            name = "stop" if params.stop else "bad_words"
            raise ValueError(f"{name} needs a tokenizer, and there is none (skip_tokenizer_init)")
        if params.structured_outputs is not None:
            if self.tokenizer is None or self.tokenizer.pieces is None:
                raise ValueError(
                    "structured_outputs needs a tokenizer whose tokens are pieces of text, and there is none"
                )
            check_form(params.structured_outputs)
        if params.bad_words and self.tokenizer is not None:
            words = encode_bad_words(self.tokenizer, params.bad_words)
            params = replace(params, bad_words_token_ids=(*params.bad_words_token_ids, *map(tuple, words)))
        params.check_vocabulary(self.vocab_size)
        return params


def _check_documents(prompt: Prompt) -> None:
    ends = (0, *prompt.documents)
    if any(a >= b for a, b in pairwise(ends)) or ends[-1] > len(prompt.token_ids):
        raise ValueError(
            f"documents={prompt.documents!r} must be ascending ends of documents within the prompt's "
            f"{len(prompt.token_ids)} tokens"
        )


def _end_of(beam: BeamSearchParams) -> SamplingParams:
    same = {name: getattr(beam, name) for name in ("max_tokens", "ignore_eos", "skip_special_tokens")}
    return SamplingParams(temperature=0, **same)
