"""The engine: schedule, execute, update, until every request has ended.

The one place where `core` and `runner` meet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from quire.config import SchedulerConfig
from quire.core.block_keys import Namespace, extend_keys
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver
from quire.core.decisions.recovery_interface import RecoveryPolicy
from quire.core.forecaster import Forecaster
from quire.core.request import Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.engine.input_processor import InputProcessor, ProcessedRequest
from quire.engine.pinned_prefix import PinnedPrefix
from quire.engine.promotion import Promoter
from quire.engine.request_state import RequestState
from quire.engine.step_figures import StepFigures
from quire.outputs import BROKEN_GRAMMAR, Resumption, Stats, StepOutput
from quire.prompt import Prompt, PromptLike
from quire.runner.model_runner import Runner, RunnerLost
from quire.runner.random import derived_seed
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.structured.matcher import Grammars
from quire.system.interrupts import interrupts_put_off
from quire.text.tokenizer import Tokenizer

logger = logging.getLogger("quire")

_STAGE_POLL_S = _GRAMMAR_POLL_S = 0.01
_BEFORE_ALL = 1 << 62  # more requests than any engine gets
_FRESH = Resumption(seed=0)


class Engine:
    """Requests in, outputs out, one step at a time. Not thread-safe: one thread owns it.

    Args:
        scheduler_config: limits and pool size.
        runner: executes steps.
        vocab_size: of the model.
        tokenizer: None takes and gives token ids only.
        eos_token_ids: the model's own end tokens.
        namespace: of the KV blocks.
        seed: for requests that bring none.
        sampling_defaults: that the model's own files recommend.
        clock: seconds, monotonic.
        recovery: whom to preempt, and how the victim recovers; None always recomputes.
        cost_model: learns from every step; None is a fresh one.
        keeps_prompts: whether whole prompts are kept on disk, beside documents.
        promoter: of a model that arrives in stages.
        promotion_policy: see `Scheduler`.
        grammars: that `runner` samples by; None refuses structured outputs.
    """

    def __init__(
        self,
        scheduler_config: SchedulerConfig,
        runner: Runner,
        *,
        vocab_size: int,
        tokenizer: Tokenizer | None = None,
        eos_token_ids: Sequence[int] = (),
        namespace: Namespace | None = None,
        seed: int = 0,
        sampling_defaults: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        recovery: RecoveryPolicy | None = None,
        cost_model: CostModel | None = None,
        keeps_prompts: bool = False,
        promoter: Promoter | None = None,
        promotion_policy: str = "cost",
        grammars: Grammars | None = None,
    ) -> None:
        self.cost_model = cost_model = cost_model or CostModel()
        self.scheduler = Scheduler(scheduler_config, recovery, cost_model, promotion_policy)
        self.costs = CostObserver(cost_model, self.scheduler.recovery.log)
        self.forecaster = Forecaster(self.scheduler, cost_model)
        self.figures = StepFigures(self.scheduler, self.forecaster)
        self.runner = runner
        self.vocab_size = vocab_size
        self.tokenizer = tokenizer
        self.eos_token_ids = tuple(eos_token_ids)
        self.seed = seed
        self.promoter = promoter
        if promoter is None:
            self.scheduler.stages.start(1, namespace.root() if namespace is not None else b"")
        else:
            promoter.start(self.scheduler, cost_model)
        last_root = self.root if promoter is None else promoter.roots[-1]
        self.system_fingerprint = f"fp_{last_root.hex()[:10]}" if last_root else None
        self.input_processor = InputProcessor(
            scheduler_config,
            vocab_size,
            tokenizer,
            sampling_defaults,
            self.system_fingerprint,
            promoter.num_stages if promoter is not None else 1,
            promoter.last_stage if promoter is not None else None,
        )
        self.clock = clock
        self.max_model_len = scheduler_config.max_model_len
        self.keeps_prompts = keeps_prompts
        self.last_stats: Stats | None = None
        self.on_stats: list[Callable[[Stats], None]] = []
        self._states: dict[str, RequestState] = {}
        self._serial = 0
        self._prefix: PinnedPrefix | None = None
        self.on_close: list[Callable[[], None]] = []
        self.grammars = grammars
        self._compiling: dict[str, Future[Any]] = {}  #: by request id, grammars that requests wait for
        if grammars is not None:
            self.on_close.append(grammars.close)

    # -- requests ----------------------------------------------------------------------------------------------------

    def add_request(
        self,
        prompt: PromptLike,
        params: SamplingParams | BeamSearchParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> RequestState:
        """Queue a request.

        Args:
            prompt: text, token ids or a `Prompt`.
            params: how to choose tokens; None takes the model's own defaults.
            request_id: unique among unfinished requests; made up if None.
            priority: smaller goes first.

        Raises:
            ValueError: it can never be served; the message says why.
        """
        processed = self.input_processor.accept(prompt, params, priority=priority)
        if (wanted := processed.sampling_params.structured_outputs) is not None and self.grammars is not None:
            self.grammars.start_compiling(wanted, processed.prompt.owner).result()
        return self.add(processed, request_id=request_id)

    def add(
        self,
        processed: ProcessedRequest,
        *,
        request_id: str | None = None,
        arrival_time: float | None = None,
        resumption: Resumption | None = None,
        serial: int | None = None,
    ) -> RequestState:
        """Queue a request that `input_processor` has processed.

        Args:
            processed: by this engine's `input_processor`, in whatever thread.
            request_id: unique among those alive; made up if None.
            arrival_time: when it came, in seconds on the engine's clock; None is now.
            resumption: it goes on behind the tokens that another engine has made. Its place in the queue is before all
                that have not begun, and its progress (`RequestState.take_progress`) is what comes after them. One
                whose outputs have all ended comes back finished.
            serial: its number, by which its seed is derived where it brings none; None is counted here.

        Raises:
            ValueError: the id is in use, or the request cannot be resumed here.
        """
        if request_id is not None and not isinstance(request_id, str):
            raise ValueError(f"request_id={request_id!r} is not a string")
        sampling = processed.sampling_params
        eos = () if processed.ignore_eos else self.eos_token_ids
        so_far = resumption or _FRESH
        seed = resumption.seed if resumption is not None else sampling.seed
        if seed is None:
            seed = derived_seed(self.seed, self._serial if serial is None else serial)
        request = Request(
            request_id if request_id is not None else self._free_id(),
            processed.prompt.token_ids,
            sampling,
            beam=processed.beam,
            arrival=self._serial - (_BEFORE_ALL if resumption is not None else 0),
            priority=processed.priority,
            seed=seed,
            max_tokens=processed.max_tokens if processed.max_tokens is not None else self.max_model_len,
            stop_token_ids=(*eos, *sampling.stop_token_ids),
            eos_token_ids=eos,
            domains=processed.prompt.domains,
            documents=processed.prompt.documents,
            keeps_prompt=self.keeps_prompts,
            min_stage=min(max(processed.min_stage, so_far.stage), self.input_processor.last_stage),
            needs_grammar=sampling.structured_outputs is not None,
            outputs=so_far.outputs,
        )
        if so_far.outputs:
            request.cached_tokens = dict(so_far.cached_tokens or {})  # its reader has been told
        grammar = None
        if not so_far.is_complete:
            self.scheduler.add(request)
            if sampling.structured_outputs is not None:
                assert self.grammars is not None, "the input processor refuses it"
                grammar = self.grammars.start_compiling(sampling.structured_outputs, processed.prompt.owner)
                self._compiling[request.request_id] = grammar
        self._serial += 1
        arrived = self.clock() if arrival_time is None else arrival_time
        is_staged = self.promoter is not None
        state = RequestState(request, processed.prompt, self.tokenizer, arrived, is_staged=is_staged, grammar=grammar)
        state.metrics.is_resumed = resumption is not None
        if so_far.outputs:
            state.restore(so_far)
        if so_far.is_complete:
            request.status = RequestStatus(so_far.outputs[-1].finish_reason)
            state.finish(self.clock())
            return state
        self._states[request.request_id] = state
        return state

    def _free_id(self) -> str:
        number = self._serial
        while f"request-{number}" in self._states:  # a caller may have named one so
            number += 1
        return f"request-{number}"

    def default_sampling_params(self, **given: Any) -> SamplingParams:
        """What `generation_config.json` recommends, with `given` over it."""
        return self.input_processor.default_sampling_params(**given)

    def abort(self, request_id: str) -> RequestState | None:
        """End a request wherever it is; its blocks are free at once. None where it has ended already."""
        state = self._states.pop(request_id, None)
        if state is not None:
            self.scheduler.finish_request(request_id, RequestStatus.FINISHED_ABORTED)
            state.finish(self.clock())
        return state

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished()

    def has_work(self) -> bool:
        """Whether a step would do anything: requests may be there that only wait for a stage of the model."""
        return self.scheduler.has_work()

    @property
    def stage(self) -> int:
        """Of the model, that new requests compute with."""
        return self.scheduler.stages.current

    @property
    def root(self) -> bytes:
        """Namespace key of new requests' KV."""
        return self.scheduler.stages.root or b""

    def watch(self, tell: Callable[[str], None]) -> None:
        """Have somebody told, from any thread, when what executes the steps ends by itself."""
        if (watch := getattr(self.runner, "watch", None)) is not None:
            watch(tell)

    def close(self) -> None:
        """Nothing more will be asked of this engine: whatever works for it in the background ends."""
        for listener in self.on_close:
            listener()

    def pause(self) -> None:
        """No step follows for now: what works in the background need not wait for its turn."""
        if self.promoter is not None:
            self.promoter.arrivals.turns.pause()

    def take_promotion(self) -> None:
        """Go to the last stage of the model that has arrived; to be called between two steps, which do so, too."""
        promoter, prefix = self.promoter, self._prefix
        if promoter is not None and promoter.advance(self.scheduler, self.cost_model) and prefix is not None:
            prefix.begin()

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self) -> list[RequestState]:
        """Run one step. Returns the requests that grew or ended in it.

        Where the runner raises, the requests of the step end with an error and the others go on; the exception is
        logged. No block that the failed step was to write is ever found by its key. Ctrl-C waits for the step's end.
        """
        with interrupts_put_off():
            turns = None if self.promoter is None else self.promoter.arrivals.turns
            failed = self._take_grammars() if self._compiling else []
            if turns is not None:
                turns.begin_step()
            try:
                changed = failed + self._step()
            except BaseException:
                self.pause()
                raise
            if self._prefix is not None:
                changed = self._take_prefix(self._prefix, changed)
            if turns is not None:
                turns.end_step(goes_on=self.has_work())
            return changed

    def _take_grammars(self) -> list[RequestState]:
        """Queue the requests whose grammars are there. Returns those whose grammars will never be."""
        compiling = self._compiling
        if self.scheduler.queue.requests.keys() <= compiling.keys():  # nobody has anything else to do
            self.pause()
            wait(compiling.values(), _GRAMMAR_POLL_S, FIRST_COMPLETED)
        failed = []
        for request_id, future in list(compiling.items()):
            if not future.done():
                continue
            del compiling[request_id]
            if future.cancelled() or (error := future.exception()) is not None:
                why = "the engine ends" if future.cancelled() else str(error)
                message = f"{BROKEN_GRAMMAR}: {why}"
                if self.scheduler.finish_request(request_id, RequestStatus.FINISHED_ERROR, message) is not None:
                    failed.append(request_id)
            else:
                self.scheduler.grammar_ready(request_id)
        return self._end(failed)

    def _step(self) -> list[RequestState]:
        scheduler = self.scheduler
        self.take_promotion()
        if self.promoter is not None and not scheduler.has_work():
            time.sleep(_STAGE_POLL_S)  # all that is there waits for a stage
        if (changes := self.runner.poll_store()) is not None:
            scheduler.apply_store_changes(changes)
        self.figures.begin()
        started = self.clock()
        out = scheduler.schedule()
        scheduled = self.clock()
        num_idle = len(scheduler.queue.requests) - len(scheduler.queue.blocked)
        if not out.seq_ids and num_idle and not scheduler.swap.num_under_way:
            raise AssertionError("requests are waiting, and nothing could be scheduled")
        stats = Stats(
            out.step_id,
            num_scheduled_seqs=len(out.seq_ids),
            num_scheduled_tokens=out.total_tokens,
            schedule_s=scheduled - started,
        )
        for new in out.new_sequences:
            request = scheduler.request_of(new.seq_id)
            metrics = self._states[request.request_id].metrics
            if metrics.first_scheduled_time is None:
                metrics.first_scheduled_time = scheduled
                stats.num_prompt_tokens += len(request.prompt_token_ids)
        try:
            result = self.runner.execute(out)
        except RunnerLost as error:
            scheduler.fail_step(_describe(error))
            raise
        except Exception as error:
            logger.exception("step %d failed; its requests end with an error", out.step_id)
            return self._end([r.request_id for r in scheduler.fail_step(_describe(error))])
        except BaseException:
            scheduler.fail_step("interrupted")
            raise
        executed = self.clock()
        stats.execute_s, stats.stall_s = executed - scheduled, result.stall_s
        with self.cost_model.at_stage(out.stage):
            self.costs.note(scheduler.step_shape, stats.busy_s, result.transfers)
        changed = self._update(result, executed, stats.token_gaps)
        stats.time = self.clock()
        stats.update_s = stats.time - executed
        self.figures.finish(stats, out, result.transfers)
        self.last_stats = stats
        for listener in tuple(self.on_stats):  # one may go when it has been told
            listener(stats)
        return changed

    def _take_prefix(self, prefix: PinnedPrefix, changed: list[RequestState]) -> list[RequestState]:
        """Keep the prefix once it is computed. Returns the other requests, which somebody waits for."""
        others = [state for state in changed if not prefix.is_computed_by(state)]
        was_pending = prefix.is_pending
        prefix.take()
        if was_pending and prefix.error is not None and prefix.num_blocks is not None:
            logger.error("the pinned prefix is not kept at stage %d: %s", self.stage, prefix.error)
        return others

    def _update(self, result: StepOutput, now: float, token_gaps: list[float]) -> list[RequestState]:
        scheduler = self.scheduler
        for seq_id, entries in result.prompt_logprobs.items():
            self._states[scheduler.request_of(seq_id).request_id].add_prompt_logprobs(entries)
        failed = [scheduler.request_of(seq_id).request_id for seq_id in result.failed]
        changed: dict[str, RequestState] = {}
        ended: list[str] = list(failed)
        for update in scheduler.update(result):
            request = update.sequence.request
            state = self._states[request.request_id]
            changed[request.request_id] = state
            if request.error is not None:
                continue  # one of its samples went wrong just before
            if (last := state.last_token_time(update.sequence.index)) is not None:
                token_gaps.append(now - last)
            try:
                stop = state.add(update, now)
            except Exception as error:  # a text that cannot be made fails its own request alone
                logger.exception("request %s: its answer could not be written", request.request_id)
                scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ERROR, _describe(error))
                request.status, request.error = RequestStatus.FINISHED_ERROR, _describe(error)
                ended.append(request.request_id)
                continue
            if stop is not None:
                scheduler.finish_sequence(update.sequence, RequestStatus.FINISHED_STOPPED, stop)
            if request.status.is_finished:
                ended.append(request.request_id)
        for state in self._end(ended):
            changed[state.request.request_id] = state
        return list(changed.values())

    def _end(self, request_ids: list[str]) -> list[RequestState]:
        now = self.clock()
        states = []
        for request_id in request_ids:
            state = self._states.pop(request_id, None)
            if state is not None:
                state.finish(now)
                states.append(state)
                if state.request.error is not None:
                    logger.error("request %s failed: %s", request_id, state.request.error)
        return states

    def snapshot(self) -> Stats:
        """The engine's state now, as the figures of a step that did nothing: after aborts between two steps, say."""
        return self.figures.snapshot(self.last_stats.step_id if self.last_stats is not None else 0, self.clock())

    def reset_prefix_cache(self) -> int:
        """Have the device forget what no request holds: for measuring. Other tiers keep what they have.

        Returns:
            How many blocks were forgotten.
        """
        return self.scheduler.kv.pool.forget_cached()

    def forget(self, prompts: Sequence[tuple[Prompt, int]]) -> int:
        """Delete the KV of the prompts' documents, and of what was computed after them, from disk, for every process.

        Args:
            prompts: each with its first document's first token: blocks before it are other prompts', too.

        Returns:
            How many blocks were deleted.

        Raises:
            ValueError: the directory cannot be written to.
            OSError: the disk failed; some may still be found.
        """
        disk = getattr(self.runner, "disk", None)
        if disk is None:
            return 0
        size = self.scheduler.config.block_size
        roots = [self.root] if self.promoter is None else self.promoter.roots
        return disk.store.delete(
            {
                key
                for prompt, start in prompts
                for root in roots
                for key in self._document_keys(prompt, root)[start // size :]
            }
        )

    def document_keys(self, prompt: Prompt) -> list[bytes]:
        """The names of a prompt's full blocks at the stage that serves, up to the last document's end."""
        return self._document_keys(prompt, self.root)

    def _document_keys(self, prompt: Prompt, root: bytes) -> list[bytes]:
        size = self.scheduler.config.block_size
        keys: list[bytes] = []
        extend_keys(keys, root, prompt.domains, prompt.token_ids, size, prompt.documents[-1] // size)
        return keys

    # -- a pinned prefix ----------------------------------------------------------------------------------------------

    def pin_prefix(self, prompt: PromptLike) -> int:
        """Compute a prefix and keep its full blocks for good.

        Returns:
            The number of tokens kept: full blocks only.

        Raises:
            ValueError: it does not fit, or nothing would find it.
            RuntimeError: computing it failed.
        """
        prefix = self._prefix = PinnedPrefix(self, prompt)  # a promotion meanwhile has it begin again
        try:
            prefix.begin()
            while prefix.is_pending:
                self.step()
            if prefix.error is not None:
                raise prefix.error
        except BaseException:
            prefix.give_up()
            self._prefix = None
            raise
        return (prefix.num_blocks or 0) * self.scheduler.config.block_size


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
