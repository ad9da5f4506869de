"""Compiled grammars, and the matchers that follow outputs through them and mask the next token."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from quire.sampling_params import StructuredOutputsParams
from quire.structured.bits import bits_of, words_of
from quire.structured.grammar import GrammarError, check, compile_grammar, grammar_text
from quire.structured.reasoning import ReasoningMatcher, ReasoningTokens
from quire.structured.vocabulary import make_vocabulary
from quire.system.fair_executor import FairExecutor
from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer

_MAX_CACHED = 64  # compiled grammars
_TOKEN_S, _ENTRY_S = 0.002, 2e-7  # processor time per token: in any case, and for each entry of the vocabulary
_BURST = 20  # tokens' time that a matcher may use beforehand
_BATCH, _SLOW_S = 8, 0.004  # masks at once; those of matchers whose batch takes longer are computed one by one
_STEP_S = 0.005  # per step, before further masks wait for the next one


class Matcher:
    """An output's position in its grammar, rebuildable from its tokens. Owns the llguidance matcher `start`, and has a
    budget of processor time: other requests wait for its masks. Without bound, `reasoning` comes before the grammar."""

    def __init__(
        self, start: LLMatcher, vocab_size: int, end_ids: Sequence[int], reasoning: ReasoningMatcher | None = None
    ) -> None:
        self.state = start
        self.vocab_size = vocab_size
        self._reasoning = reasoning
        self._end_ids = frozenset(end_ids)
        self._end_bits = bits_of(end_ids, vocab_size)
        self._token_s = _TOKEN_S + _ENTRY_S * vocab_size
        self._over_s = 0.0  #: processor time beyond `_token_s` per token
        self.is_slow = False  #: its last mask took long, alone or in a batch
        self.words: np.ndarray | None = None  #: its next mask, once computed

    def advance(self, token_ids: Iterable[int]) -> None:
        """Append output tokens; the next `finish_mask` raises an error for tokens outside the grammar."""
        self.words = None
        for token in token_ids:
            if self._reasoning is not None and self._reasoning.take(token):
                continue
            began = time.thread_time()
            if token not in self._end_ids or self.state.validate_tokens([token]):
                self.state.consume_token(token)
            self._over_s = max(0.0, self._over_s + time.thread_time() - began - self._token_s)
        if self._reasoning is not None and not self._reasoning.is_optional:
            self.words = self._reasoning.allowed()

    def fill(self, words: np.ndarray) -> None:
        """Compute a mask for `finish_mask` within the budget."""
        began = time.thread_time()
        self.state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        took_s = time.thread_time() - began
        self._over_s += took_s
        self.is_slow, self.words = took_s > self._token_s, words

    def forced(self) -> list[int]:
        """Return the only continuation that the grammar allows, in the tokens that a tokenizer would give it."""
        if self.is_slow or (self._reasoning is not None and self._reasoning.allowed() is not None):
            return []
        began = time.thread_time()
        found: list[int] = self.state.compute_ff_tokens()
        self._over_s += time.thread_time() - began
        return list(takewhile(self.vocab_size.__gt__, found))

    def finish_mask(self, words: np.ndarray) -> None:
        """Replace the grammar's end token by the request's in a mask of `Grammars.fill_masks`. Raises GrammarError."""
        check(self.state)
        if self._over_s > _BURST * self._token_s:
            raise GrammarError("it is too complex: computing the allowed tokens takes too long")
        at, bit = self.vocab_size >> 5, np.uint32(1 << (self.vocab_size & 31))
        may_end = bool(words[at] & bit)
        words[at] &= ~bit
        if may_end:
            words[: len(self._end_bits)] |= self._end_bits
        if self._reasoning is not None and (reasoning := self._reasoning.allowed()) is not None:
            words |= reasoning


class Grammars:
    """The compiled grammars of one model. Thread-safe. `end_ids` are the model's own end tokens."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size
        self._end_ids = tuple(end_ids)
        self._vocabularies: dict[bool, LLTokenizer] = {}  #: without and with tool calls
        self._reasoning: dict[tuple[str, str], ReasoningTokens] = {}  #: by markers
        self._executor: LLExecutor | None = None
        self._lock = threading.Lock()  # guards `_cached`
        self._cached: OrderedDict[StructuredOutputsParams, Future[LLMatcher]] = OrderedDict()  #: oldest use first
        #: Includes grammars evicted from the cache but still held by a request, which may need them at any step.
        self._in_use: WeakValueDictionary[StructuredOutputsParams, Future[LLMatcher]] = WeakValueDictionary()
        self._compiler: FairExecutor | None = None

    def start_compiling(self, params: StructuredOutputsParams, owner: str = "") -> Future[LLMatcher]:
        """Compile an uncached grammar in the background, owners round-robin. The future may raise GrammarError."""
        with self._lock:
            found = self._cached.get(params) or self._in_use.get(params)
            if found is None:
                if self._compiler is None:
                    self._compiler = FairExecutor("grammars")
                found = self._in_use[params] = self._compiler.submit(partial(self._compile, params), owner)
            self._cached[params] = found
            self._cached.move_to_end(params)
            while len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return found

    def _compile(self, params: StructuredOutputsParams) -> LLMatcher:
        if (has_calls := params.alternative is not None) not in self._vocabularies:
            vocabulary = make_vocabulary(self._tokenizer, self.vocab_size, self._end_ids, has_calls=has_calls)
            self._vocabularies[has_calls] = vocabulary
        if (markers := params.reasoning) is not None and markers not in self._reasoning:
            self._reasoning[markers] = ReasoningTokens(self._tokenizer, self.vocab_size, *markers)
        return compile_grammar(grammar_text(params), self._vocabularies[has_calls])

    def matcher(
        self, params: StructuredOutputsParams, end_ids: Sequence[int], token_ids: Iterable[int] = ()
    ) -> Matcher:
        """Return a matcher positioned after an output's tokens, compiling if necessary. Raises GrammarError."""
        start: LLMatcher = self.start_compiling(params).result().deep_copy()
        reasoning = None if params.reasoning is None else ReasoningMatcher(self._reasoning[params.reasoning], end_ids)
        matcher = Matcher(start, self.vocab_size, end_ids, reasoning)
        matcher.advance(token_ids)
        return matcher

    def begin_masks(self, matchers: Sequence[Matcher]) -> None:
        """Compute masks (`Matcher.words`) until a step's time is up, those of slow matchers last: at least one batch,
        and at least one of a slow matcher."""
        began = time.perf_counter()
        missing = [matcher for matcher in matchers if matcher.words is None]
        fast = [matcher for matcher in missing if not matcher.is_slow]
        slow = [[matcher] for matcher in missing if matcher.is_slow]
        for batches in ([fast[at : at + _BATCH] for at in range(0, len(fast), _BATCH)], slow):
            for at, batch in enumerate(batches):
                if at and time.perf_counter() - began > _STEP_S:
                    break
                self._fill(batch)

    def fill_masks(self, matchers: Sequence[Matcher]) -> np.ndarray:
        """Compute all masks for `Matcher.finish_mask`: uint32 [len(matchers), words_of(vocab_size + 1)]."""
        self._fill([matcher for matcher in matchers if matcher.words is None])
        return np.array([matcher.words for matcher in matchers])

    def _fill(self, matchers: Sequence[Matcher]) -> None:
        """Compute masks on all cores."""
        words = np.zeros((len(matchers), words_of(self.vocab_size + 1)), dtype=np.uint32)
        if len(matchers) == 1:
            matchers[0].fill(words[0])
        if len(matchers) <= 1:
            return
        if self._executor is None:
            from llguidance import LLExecutor

            self._executor = LLExecutor()
        began = time.perf_counter()
        states = [(matcher.state, row) for row, matcher in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(states, words.ctypes.data, words.strides[0], len(matchers))
        is_slow = time.perf_counter() - began > _SLOW_S
        for matcher, row in zip(matchers, words, strict=True):
            matcher.is_slow, matcher.words = is_slow, row

    def close(self) -> None:
        if self._compiler is not None:
            self._compiler.close()
