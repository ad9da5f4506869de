"""Which tokens may come next: compiled grammars, and how far each output has come in its own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from quire.sampling_params import StructuredOutputsParams
from quire.structured.bits import bits_of, words_of
from quire.structured.grammar import check, compile_grammar, grammar_text
from quire.structured.vocabulary import make_vocabulary
from quire.system.fair_thread import FairThread
from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher, LLTokenizer

_MAX_KEPT = 64  # compiled grammars


class Matcher:
    """How far one output has come in its grammar. It is no more than the output's tokens say, so it may be lost at any
    time and made again from them.

    Args:
        start: at the grammar's start; this matcher's own.
        vocab_size: of the model.
        end_ids: tokens that end the output. Where the grammar may not end yet, they are allowed only as the text that
            they are, if they are text at all.
    """

    def __init__(self, start: LLMatcher, vocab_size: int, end_ids: Sequence[int]) -> None:
        self.state = start
        self.vocab_size = vocab_size
        self._end_ids = frozenset(end_ids)
        self._end_bits = bits_of(end_ids, vocab_size)

    def advance(self, token_ids: Iterable[int]) -> None:
        """The output has grown. What the grammar does not allow is an error of the next `take_mask`."""
        for token in token_ids:
            if token not in self._end_ids or self.state.validate_tokens([token]):
                self.state.consume_token(token)

    def take_mask(self, words: np.ndarray) -> None:
        """Make the mask of the tokens that may follow from what llguidance wrote.

        Args:
            words: as `Grammars.fill` left them. uint32 [words_of(vocab_size + 1)]

        Raises:
            GrammarError: the output has left its grammar, or the grammar is too complex to go on.
        """
        check(self.state)
        at, bit = self.vocab_size >> 5, np.uint32(1 << (self.vocab_size & 31))
        may_end = bool(words[at] & bit)
        words[at] &= ~bit
        if may_end:
            words[: len(self._end_bits)] |= self._end_bits


class Grammars:
    """The compiled grammars of one model. Any thread may use them.

    Args:
        tokenizer: of the model.
        vocab_size: of the model's logits.
        end_ids: the model's own end tokens.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = vocab_size
        self._end_ids = tuple(end_ids)
        self._vocabulary: LLTokenizer | None = None
        self._executor: LLExecutor | None = None
        self._lock = threading.Lock()  # over `_kept`
        self._kept: OrderedDict[StructuredOutputsParams, Future[LLMatcher]] = OrderedDict()  #: least used first
        #: Also those that were pushed out and that a request still holds: it may need its own again at any step.
        self._in_use: WeakValueDictionary[StructuredOutputsParams, Future[LLMatcher]] = WeakValueDictionary()
        self._compiler: FairThread[LLMatcher] | None = None

    def begin(self, params: StructuredOutputsParams, owner: str = "") -> Future[LLMatcher]:
        """Have a grammar compiled in the background, if it is not there. Its future raises a GrammarError where that
        cannot be done.

        Args:
            owner: whose it is; owners are served in turns.
        """
        with self._lock:
            found = self._kept.get(params) or self._in_use.get(params)
            if found is None:
                if self._compiler is None:
                    self._compiler = FairThread("grammars")
                found = self._in_use[params] = self._compiler.submit(owner, partial(self._compile, params))
            self._kept[params] = found
            self._kept.move_to_end(params)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return found

    def _compile(self, params: StructuredOutputsParams) -> LLMatcher:
        if self._vocabulary is None:
            self._vocabulary = make_vocabulary(self._tokenizer, self.vocab_size, self._end_ids)
        return compile_grammar(grammar_text(params), self._vocabulary)

    def matcher(
        self, params: StructuredOutputsParams, end_ids: Sequence[int], token_ids: Iterable[int] = ()
    ) -> Matcher:
        """A matcher behind an output's tokens. Waits for the grammar where it is not there (any more).

        Raises:
            GrammarError: it cannot be compiled.
        """
        start: LLMatcher = self.begin(params).result().deep_copy()
        matcher = Matcher(start, self.vocab_size, end_ids)
        matcher.advance(token_ids)
        return matcher

    def fill(self, matchers: Sequence[Matcher]) -> np.ndarray:
        """Masks of the tokens that may follow, for `Matcher.take_mask`; on all cores, without the interpreter.

        Returns:
            uint32 [len(matchers), words_of(vocab_size + 1)]
        """
        words = np.zeros((len(matchers), words_of(self.vocab_size + 1)), dtype=np.uint32)
        if len(matchers) == 1:
            matchers[0].state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            return words
        if self._executor is None:
            from llguidance import LLExecutor

            self._executor = LLExecutor()
        rows = [(matcher.state, row) for row, matcher in enumerate(matchers)]
        self._executor.unsafe_compute_mask_ptr(rows, words.ctypes.data, words.strides[0], len(matchers))
        return words

    def close(self) -> None:
        """Compile nothing more."""
        if self._compiler is not None:
            self._compiler.close()
