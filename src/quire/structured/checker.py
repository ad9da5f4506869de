"""Tries a grammar before it comes near an engine: in a child process, which may be killed.

A schema of a few bytes can take its compiler minutes and gigabytes, and nothing but the process's end stops that. What
passes here compiles within the limits, and the first steps of its outputs are quick.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from quire.sampling_params import StructuredOutputsParams
from quire.structured.grammar import GrammarError, check, check_form, compile_grammar, grammar_text
from quire.system.child import Child, ChildError, ChildKilled, ChildTimeout, Limits, Worker
from quire.system.fair_thread import FairThread, TooManyJobs

if TYPE_CHECKING:
    from llguidance import LLMatcher

CPU_S = 0.5  # of processor time that a grammar may take
_LIMITS = Limits(memory_bytes=512 << 20, cpu_s=None, wall_s=60.0)  # a busy machine may take seconds to start it
_MAX_KEPT = 1024  # verdicts
_MAX_WAITING = 64  # grammars that wait for the process; one owner has half of them
_NICENESS = 10  # of the process: a new grammar can wait, streams cannot
_NUM_WALKS, _WALK_TOKENS = 3, 48  # outputs that are tried, and how far
_MASK_S = 0.1  # processor time that a mask may take over a vocabulary of bytes


class TooManyGrammars(RuntimeError):
    """As many grammars wait to be tried as may, or the machine can try none at the moment."""


class GrammarChecker:
    """Owns the child process, which starts with the first grammar and again after one that ended it. Any thread and any
    event loop may ask."""

    def __init__(self) -> None:
        self._child = Child(_make_worker, "grammar", limits=_LIMITS, niceness=_NICENESS)
        self._thread: FairThread[str] | None = None
        self._lock = threading.Lock()  # over what stands below
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()  #: by a grammar's digest: what is wrong, or nothing
        self._is_closed = False

    async def check(self, params: StructuredOutputsParams, owner: str = "") -> None:
        """Wait for the verdict on a grammar; nobody else's work waits meanwhile. Owners are served in turns.

        Raises:
            GrammarError: it cannot be served; the message says why.
            TooManyGrammars: too many wait already, or it cannot be tried now; another time it may be.
        """
        check_form(params)
        key = sha256(json.dumps(asdict(params)).encode()).digest()
        with self._lock:
            verdict = self._verdicts.get(key)
            if verdict is None:
                if self._thread is None:
                    self._thread = FairThread("grammar checks", _MAX_WAITING)
                try:
                    asked = self._thread.submit(owner, partial(self._ask, params, key))
                except TooManyJobs as error:
                    raise TooManyGrammars(f"too many new grammars: {error}; try again later") from None
        if verdict is None:
            try:
                verdict = await asyncio.shield(asyncio.wrap_future(asked))
            except asyncio.CancelledError:
                if asked.cancelled():
                    raise TooManyGrammars("nothing is compiled any more: the server is shutting down") from None
                asked.cancel()  # whoever asked has gone
                raise
        if verdict:
            raise GrammarError(verdict)

    def _ask(self, params: StructuredOutputsParams, key: bytes) -> str:
        """The verdict, from the process. In a thread of its own."""
        try:
            verdict = self._verdicts.get(key)  # of one that came at the same time
            if verdict is None:
                verdict = self._try(params)
                with self._lock:
                    self._verdicts[key] = verdict
                    while len(self._verdicts) > _MAX_KEPT:
                        self._verdicts.popitem(last=False)
            return verdict
        finally:
            with self._lock:
                if self._thread is not None and self._child.pid is None and not self._is_closed:
                    self._thread.add(self._start)  # the next one need not wait for it

    def _try(self, params: StructuredOutputsParams) -> str:
        """What is wrong with a grammar, or nothing. Raises TooManyGrammars where that says nothing about another time:
        a busy machine may take all of its time, and a machine without memory the process."""
        try:
            self._child.ask(b"")  # so that it has started, and what ends it from here on is the grammar
        except (ValueError, OSError, RuntimeError) as error:
            raise _not_now(error) from None
        try:
            self._child.ask(json.dumps(asdict(params)).encode())
            return ""
        except ValueError as error:
            return str(error) or "it cannot be compiled"
        except (OSError, RuntimeError) as error:
            if isinstance(error, ChildError) and not isinstance(error, ChildTimeout | ChildKilled):
                return f"it is too complex: compiling it takes more than {CPU_S:g} s, or too much memory"
            raise _not_now(error) from None

    def _start(self) -> None:
        with suppress(ChildError, ValueError, OSError, RuntimeError):
            self._child.ask(b"")

    def close(self) -> None:
        """End the process, and whoever waits for it."""
        with self._lock:
            self._is_closed = True
        if self._thread is not None:
            self._thread.close()
        self._child.stop()


def _not_now(error: Exception) -> TooManyGrammars:
    return TooManyGrammars(f"it cannot be tried now ({error}); try again later")


# -- in the process --------------------------------------------------------------------------------------------------


def _make_worker() -> Worker:
    from quire.structured.vocabulary import byte_vocabulary

    vocabulary = byte_vocabulary()

    def answer(question: bytes) -> bytes:
        if not question:
            return b""
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # ends the process
        try:
            params = StructuredOutputsParams(**json.loads(question))
            try_out(compile_grammar(grammar_text(params), vocabulary))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return b""

    return answer


def try_out(start: LLMatcher) -> None:
    """Write the beginnings of a few outputs at random.

    Raises:
        GrammarError: nothing matches, or a mask takes too long or too much.
    """
    numbers = random.Random(0)
    for _ in range(_NUM_WALKS):
        matcher = start.deep_copy()
        for _ in range(_WALK_TOKENS):
            began = time.process_time()
            mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            if time.process_time() - began > _MASK_S:
                raise GrammarError("it is too complex: finding out what may follow takes too long")
            check(matcher)
            allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little"))
            allowed = allowed[allowed < 256]  # the end is no byte
            if not len(allowed):
                break
            matcher.consume_token(int(numbers.choice(allowed)))
