"""Check grammars in a disposable child process before they reach an engine: a schema of a few bytes can cost its
compiler minutes and gigabytes. A grammar that passes compiles within the limits."""

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

from quire.sampling_params import StructuredOutputsParams
from quire.structured.grammar import GrammarError, check, check_form, compile_grammar, grammar_text
from quire.system.fair_executor import FairExecutor, TooManyJobs
from quire.system.worker_process import Worker, WorkerError, WorkerKilled, WorkerLimits, WorkerProcess, WorkerTimeout

if TYPE_CHECKING:
    from llguidance import LLMatcher

CPU_S = 0.5  # processor time per grammar
_LIMITS = WorkerLimits(memory_bytes=512 << 20, cpu_s=None, wall_s=60.0)  # a busy machine may take seconds to start it
_MAX_VERDICTS = 1024
_MAX_WAITING = 64  # queued grammars; one owner gets at most half of the places
_NICENESS = 10  # running streams go first
_NUM_WALKS, _WALK_TOKENS = 3, 48  # sample outputs and their length
_MASK_S = 0.1  # processor time per mask over a vocabulary of bytes


class TooManyGrammars(RuntimeError):
    """The queue is full, or the machine cannot check grammars at the moment."""


class GrammarChecker:
    """Owns the child process, which restarts after a grammar that ended it. Any thread may call `check`."""

    def __init__(self) -> None:
        self._child = WorkerProcess(_make_worker, "grammar", limits=_LIMITS, niceness=_NICENESS)
        self._executor: FairExecutor | None = None
        self._lock = threading.Lock()  # guards the fields below
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()  #: grammar digest -> error, or ""
        self._is_closed = False

    async def check(self, params: StructuredOutputsParams, owner: str = "") -> None:
        """Wait for the verdict, owners round-robin. Raises GrammarError if rejected, TooManyGrammars to retry later."""
        check_form(params)
        key = sha256(json.dumps(asdict(params)).encode()).digest()
        with self._lock:
            verdict = self._verdicts.get(key)
            if verdict is None:
                if self._executor is None:
                    self._executor = FairExecutor("grammar checks", max_jobs=_MAX_WAITING)
                try:
                    pending = self._executor.submit(partial(self._ask, params, key), owner)
                except TooManyJobs as error:
                    raise TooManyGrammars(f"too many new grammars: {error}; try again later") from None
        if verdict is None:
            try:
                verdict = await asyncio.shield(asyncio.wrap_future(pending))
            except asyncio.CancelledError:
                if pending.cancelled():
                    raise TooManyGrammars("nothing is compiled any more: the server is shutting down") from None
                pending.cancel()  # the caller is gone
                raise
        if verdict:
            raise GrammarError(verdict)

    def _ask(self, params: StructuredOutputsParams, key: bytes) -> str:
        """Get the verdict from the process; runs in the checker's thread."""
        try:
            verdict = self._verdicts.get(key)  # of an equal grammar queued before
            if verdict is None:
                verdict = self._probe(params)
                with self._lock:
                    self._verdicts[key] = verdict
                    while len(self._verdicts) > _MAX_VERDICTS:
                        self._verdicts.popitem(last=False)
            return verdict
        finally:
            with self._lock:
                if self._executor is not None and self._child.pid is None and not self._is_closed:
                    with suppress(TooManyJobs):  # restart before the next grammar comes
                        self._executor.submit(self._start, is_urgent=True)

    def _probe(self, params: StructuredOutputsParams) -> str:
        """Return a grammar's error, or "". Raises TooManyGrammars for failures that a retry may not repeat."""
        try:
            self._child.ask(b"")  # start it first, so that a death from here on is the grammar's fault
        except (ValueError, OSError, RuntimeError) as error:
            raise _not_now(error) from None
        try:
            self._child.ask(json.dumps(asdict(params)).encode())
            return ""
        except ValueError as error:
            return str(error) or "it cannot be compiled"
        except (OSError, RuntimeError) as error:
            if isinstance(error, WorkerError) and not isinstance(error, WorkerTimeout | WorkerKilled):
                return f"it is too complex: compiling it takes more than {CPU_S:g} s, or too much memory"
            raise _not_now(error) from None

    def _start(self) -> None:
        with suppress(WorkerError, ValueError, OSError, RuntimeError):
            self._child.ask(b"")

    def close(self) -> None:
        """End the process and cancel pending checks."""
        with self._lock:
            self._is_closed = True
        if self._executor is not None:
            self._executor.close()
        self._child.stop()


def _not_now(error: Exception) -> TooManyGrammars:
    return TooManyGrammars(f"it cannot be checked now ({error}); try again later")


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
            sample_outputs(compile_grammar(grammar_text(params), vocabulary))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return b""

    return answer


def sample_outputs(start: LLMatcher) -> None:
    """Generate the start of a few random outputs. Raises GrammarError if nothing matches or a mask costs too much."""
    numbers = random.Random(0)
    for _ in range(_NUM_WALKS):
        matcher = start.deep_copy()
        for _ in range(_WALK_TOKENS):
            began = time.process_time()
            mask = matcher.compute_bitmask()
            if time.process_time() - began > _MASK_S:
                raise GrammarError("it is too complex: computing the allowed tokens takes too long")
            check(matcher)
            allowed = [byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1]  # without the end token
            if not allowed:
                break
            matcher.consume_token(numbers.choice(allowed))
