"""The engine: schedule, execute, update, until every request has ended. Here `core` and `runner` meet."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from quire.config import SchedulerConfig
from quire.core.block_keys import Namespace, adapter_root, extend_keys
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.core.forecaster import Forecaster
from quire.core.request import EndRules, KVScope, Order, Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.engine.adapters import EngineAdapters
from quire.engine.failed_step import describe, fail_step
from quire.engine.input_processor import InputProcessor, ProcessedRequest
from quire.engine.promotion import Promoter
from quire.engine.request_state import RequestState
from quire.engine.step_stats import StepStats
from quire.outputs import BROKEN_GRAMMAR, Resumption, SchedulerOutput, Stats, StepOutput, StoreChanges
from quire.prompt import Prompt, PromptLike
from quire.runner.model_runner import Runner, RunnerLost
from quire.runner.random import derived_seed
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.structured.matcher import Grammars
from quire.system.interrupts import interrupts_deferred
from quire.text.tokenizer import Tokenizer

logger = logging.getLogger("quire")

_STAGE_POLL_S = _GRAMMAR_POLL_S = 0.01
_BEFORE_ALL = 1 << 62  # more requests than any engine gets
_FRESH = Resumption(seed=0)
_Changed = dict[str, RequestState]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    vocab_size: int
    tokenizer: Tokenizer | None = None  #: None: token ids in, token ids out
    eos_token_ids: tuple[int, ...] = ()
    namespace: Namespace | None = None  #: of its KV blocks
    sampling_defaults: dict[str, Any] = field(default_factory=dict)  #: from the model's own files
    pooling: str = "last"  #: likewise; see `SamplingParams`


class Auditor(Protocol):
    """Checks found KV while the engine is idle (`engine.kv_auditor.KVAuditor`)."""

    def note(self, request: Request, now: float) -> None:
        """Remember an ended request whose prefix was found; `now` is on the engine's clock."""
        ...

    def wait_s(self) -> float | None:
        """Seconds until an idle engine should `begin`; None if there is nothing to audit."""
        ...

    def begin(self) -> None:
        """Begin an audit, if possible."""
        ...

    def check(self) -> None:
        """After a step: conclude the audit if it is computed."""
        ...

    def cancel(self) -> None:
        """Drop the audit under way: a request has come."""
        ...


class Engine:
    """Requests in, outputs out, one step at a time, by one thread. `clock` is monotonic, in seconds; `recovery` None
    always recomputes; `promoter` is for a model in stages; without `grammars` structured outputs are refused."""

    def __init__(
        self,
        config: SchedulerConfig,
        runner: Runner,
        model: ModelFacts,
        *,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        recovery: RecoveryPolicy | None = None,
        cost_model: CostModel | None = None,
        promoter: Promoter | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        self.cost_model = cost_model or CostModel()
        self.scheduler = Scheduler(config, recovery, self.cost_model)
        self.costs = CostObserver(self.cost_model, self.scheduler.recovery.log)
        self.forecaster = Forecaster(self.scheduler, self.cost_model)
        self.step_stats = StepStats(self.scheduler, self.forecaster)
        self.runner = runner
        self.vocab_size, self.tokenizer, self.eos_token_ids = model.vocab_size, model.tokenizer, model.eos_token_ids
        self.max_model_len = config.max_model_len
        self.seed, self.clock, self.promoter = seed, clock, promoter
        if promoter is None:
            self.scheduler.stages.start(1, model.namespace.root() if model.namespace is not None else b"")
        else:
            promoter.start(self.scheduler, self.cost_model)
        last_root = self.root if promoter is None else promoter.roots[-1]
        self.input_processor = InputProcessor(
            config,
            model.vocab_size,
            model.tokenizer,
            model.sampling_defaults,
            f"fp_{last_root.hex()[:10]}" if last_root else None,
            model.pooling,
            *((1, None) if promoter is None else (promoter.num_stages, promoter.last_stage)),
        )
        self.adapters = EngineAdapters(self.scheduler, runner, promoter)
        self.last_stats: Stats | None = None
        self.on_stats: list[Callable[[Stats], None]] = []
        self.on_scheduled: Callable[[SchedulerOutput], None] = lambda out: None  #: called before each step executes
        self.on_close: list[Callable[[], None]] = []
        self.auditor: Auditor | None = None
        self.grammars = grammars
        if grammars is not None:
            self.on_close.append(grammars.close)
        self._compiling: dict[str, Future[Any]] = {}  #: pending grammars, by request id
        self._states: dict[str, RequestState] = {}
        self._serial = 0
        _apply_changes(self, runner.poll_store() or StoreChanges())  # before other processes write more

    def add_request(
        self,
        prompt: PromptLike,
        params: SamplingParams | BeamSearchParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> RequestState:
        """Queue a request; smaller `priority` goes first, None are the model's defaults. ValueError if it can never be
        served."""
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
        """Queue a request that this engine's `input_processor` has processed, in any thread.

        Args:
            request_id: unique among unfinished requests; None generates one.
            arrival_time: seconds on the engine's clock; None is now.
            resumption: outputs of another engine to continue; `RequestState.pop_deltas` begins after them. The request
                precedes all that have not begun. If all outputs have ended, it is returned finished.
            serial: number to derive a seed from where the request has none; None counts requests.

        Raises:
            ValueError: the id is in use, or the request cannot be resumed here.
        """
        if self.auditor is not None:
            self.auditor.cancel()
        so_far = resumption or _FRESH
        request = self._make_request(processed, request_id, resumption, serial)
        request.prediction = processed.prompt.prediction
        if so_far.outputs:
            request.sources = list((so_far.cached_tokens or {}).items())  # the client knows them already
        grammar = None
        if not so_far.is_complete:
            self.scheduler.add(request)
            if (wanted := processed.sampling_params.structured_outputs) is not None:
                assert self.grammars is not None, "the input processor refuses it"
                grammar = self.grammars.start_compiling(wanted, processed.prompt.owner)
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
        else:
            self._states[request.request_id] = state
        return state

    def _make_request(
        self, processed: ProcessedRequest, request_id: str | None, resumption: Resumption | None, serial: int | None
    ) -> Request:
        if request_id is not None and not isinstance(request_id, str):
            raise ValueError(f"request_id={request_id!r} is not a string")
        if request_id is None:  # a caller may have named one so
            names = (f"request-{number}" for number in count(self._serial))
            request_id = next(name for name in names if name not in self._states)
        sampling, prompt = processed.sampling_params, processed.prompt
        so_far = resumption or _FRESH
        seed = resumption.seed if resumption is not None else sampling.seed
        if seed is None:
            seed = derived_seed(self.seed, self._serial if serial is None else serial)
        eos = () if processed.ignore_eos else self.eos_token_ids
        max_tokens = processed.max_tokens if processed.max_tokens is not None else self.max_model_len
        arrival = self._serial - (_BEFORE_ALL if resumption is not None else 0)
        adapter, last_stage = self.adapters.find(prompt.adapter), self.input_processor.last_stage
        min_stage = last_stage if adapter or sampling.pooling else max(processed.min_stage, so_far.stage)
        return Request(
            request_id,
            prompt.token_ids,
            sampling,
            beam=processed.beam,
            order=Order(processed.priority, arrival, processed.owner),
            seed=seed,
            ends=EndRules(max_tokens, (*eos, *sampling.stop_token_ids), eos),
            kv=KVScope(self.root, prompt.domains, prompt.documents, self.scheduler.config.keep_prompts, adapter),
            min_stage=min(min_stage, last_stage),
            outputs=so_far.outputs,
        )

    def abort(self, request_id: str) -> RequestState | None:
        """End a request wherever it stands, and free its blocks. None where it has ended already."""
        state = self._states.pop(request_id, None)
        if state is not None:
            self.scheduler.finish_request(request_id, RequestStatus.FINISHED_ABORTED)
            state.finish(self.clock())
        return state

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished()

    def has_work(self) -> bool:
        """Whether a step can do anything: requests may be waiting for a stage of the model only."""
        return self.scheduler.has_work()

    @property
    def stage(self) -> int:
        return self.scheduler.stages.current

    @property
    def root(self) -> bytes:
        """Namespace key of new requests' KV."""
        return self.scheduler.stages.root or b""

    @property
    def system_fingerprint(self) -> str | None:
        """Name of the KV's namespace: weights, dtype and all else that changes the arithmetic."""
        return self.input_processor.system_fingerprint

    def default_sampling_params(self, **given: Any) -> SamplingParams:
        """Return the defaults of `generation_config.json`, overridden by `given`."""
        return self.input_processor.default_sampling_params(**given)

    def close(self) -> None:
        """Stop all background work of this engine, after its last step."""
        for listener in self.on_close:
            listener()

    def pause(self) -> None:
        """Let background work run: no step follows for now."""
        if self.promoter is not None:
            self.promoter.arrivals.throttle.pause()

    def promote_if_ready(self) -> None:
        """Promote to the last stage that has arrived. Steps do so too; call it between two steps."""
        if self.promoter is not None:
            self.promoter.advance(self.scheduler, self.cost_model)

    def step(self) -> list[RequestState]:
        """Run one step; return the requests that grew or ended. If the runner raises, the step's requests end with an
        error, their blocks are never found, and the others go on. Ctrl-C waits for the step's end."""
        with interrupts_deferred():
            throttle = None if self.promoter is None else self.promoter.arrivals.throttle
            failed = self._poll_grammars() if self._compiling else []
            if throttle is not None:
                throttle.begin_step()
            try:
                changed = failed + self._step()
            except BaseException:
                self.pause()
                raise
            if throttle is not None:
                throttle.end_step(goes_on=self.has_work())
            return changed

    def _poll_grammars(self) -> list[RequestState]:
        """Unblock the requests whose grammars are compiled. Returns the requests with invalid grammars."""
        compiling = self._compiling
        if self.scheduler.queue.requests.keys() <= compiling.keys():  # there is nothing else to do
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
        self.adapters.sweep()
        self.promote_if_ready()
        if self.promoter is not None and not scheduler.has_work():
            time.sleep(_STAGE_POLL_S)  # all requests wait for a stage
        _apply_changes(self, self.runner.poll_store())
        self.step_stats.begin()
        started = self.clock()
        out = scheduler.schedule()
        out.codes_saves = self.cost_model.pays_to_code
        scheduled = self.clock()
        num_ready = len(scheduler.queue.requests) - len(scheduler.queue.blocked)
        sequences = scheduler.queue.sequences.values()
        is_busy = out.seq_ids or scheduler.swap.transfers or any(seq.is_unsampled for seq in sequences)
        if num_ready and not is_busy:
            raise AssertionError("requests are waiting, and none could be scheduled")
        stats = Stats(
            out.step_id,
            num_scheduled_seqs=len(out.seq_ids),
            num_scheduled_tokens=out.total_tokens,
            schedule_s=scheduled - started,
        )
        self._record_first_scheduled(out, scheduled, stats)
        self.on_scheduled(out)
        try:
            result = self.runner.execute(out)
        except RunnerLost as error:
            scheduler.fail_step(describe(error))
            raise
        except Exception as error:
            return self._end([request.request_id for request in fail_step(scheduler, out, error)])
        except BaseException:
            scheduler.fail_step("interrupted")
            raise
        executed = self.clock()
        stats.execute_s, stats.stall_s = executed - scheduled, result.stall_s
        with self.cost_model.at_stage(out.stage):
            self.costs.observe(scheduler.step_shape, stats.busy_s - result.drafting_s, result.transfers)
        changed = self._update(result, executed, stats.token_gaps)
        if self.auditor is not None:
            self.auditor.check()
        stats.time = self.clock()
        stats.update_s = stats.time - executed
        self.step_stats.finish(stats, out, result.transfers)
        self.last_stats = stats
        for listener in tuple(self.on_stats):  # a listener may remove itself
            listener(stats)
        return changed

    def _record_first_scheduled(self, out: SchedulerOutput, now: float, stats: Stats) -> None:
        for new in out.new_sequences:
            request = self.scheduler.request_of(new.seq_id)
            if request.status is not RequestStatus.RUNNING:  # a part of its document, while it waits
                continue
            metrics = self._states[request.request_id].metrics
            if metrics.first_scheduled_time is None:
                metrics.first_scheduled_time = now
                stats.num_prompt_tokens += len(request.prompt_token_ids)

    def _update(self, result: StepOutput, now: float, token_gaps: list[float]) -> list[RequestState]:
        scheduler = self.scheduler
        for seq_id, entries in result.prompt_logprobs.items():
            self._states[scheduler.request_of(seq_id).request_id].add_prompt_logprobs(entries)
        for seq_id, vector in result.pooled.items():
            self._states[scheduler.request_of(seq_id).request_id].pooled = vector
        failed = [scheduler.request_of(seq_id) for seq_id in result.failed]
        changed: _Changed = {}
        updates = scheduler.update(result)
        ended = [request.request_id for request in failed if request.status.is_finished]
        while updates:
            ended += self._add_tokens(updates, now, token_gaps, changed)
            updates = scheduler.update_next()
        changed.update((state.request.request_id, state) for state in self._end(ended))
        return list(changed.values())

    def _add_tokens(self, updates: list[SequenceUpdate], now: float, gaps: list[float], changed: _Changed) -> list[str]:
        """Add one token to each of some sequences. Returns the requests that ended."""
        scheduler, ended = self.scheduler, []
        for update in updates:
            request = update.sequence.request
            state = changed[request.request_id] = self._states[request.request_id]
            if request.error is not None:
                continue  # another of its samples has just failed
            if (last := state.last_token_time(update.sequence.index)) is not None:
                gaps.append(now - last)
            try:
                stop = state.add(update, now)
            except Exception as error:  # fails this request alone
                logger.exception("request %s: its text could not be decoded", request.request_id)
                scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ERROR, describe(error))
                request.status, request.error = RequestStatus.FINISHED_ERROR, describe(error)
                stop = None
            if stop is not None:
                scheduler.finish_sequence(update.sequence, RequestStatus.FINISHED_STOPPED, stop)
            if request.status.is_finished:
                ended.append(request.request_id)
        return ended

    def _end(self, request_ids: list[str]) -> list[RequestState]:
        now = self.clock()
        ended = [self._states.pop(each) for each in dict.fromkeys(request_ids) if each in self._states]
        for state in ended:
            state.finish(now)
            if self.cost_model.steps.is_calibrated:
                state.metrics.missed_s = self.forecaster.predict_misses(state.request)
            self.scheduler.prefixes.record_first_token(state.request.request_id, state.metrics.prefill_s)
            if self.auditor is not None:
                self.auditor.note(state.request, now)
            if state.request.error is not None:
                logger.error("request %s failed: %s", state.request.request_id, state.request.error)
        return ended

    def snapshot(self) -> Stats:
        """Return the current state as the stats of an empty step, for example after an abort."""
        return self.step_stats.snapshot(self.last_stats.step_id if self.last_stats is not None else 0, self.clock())

    def reset_prefix_cache(self) -> int:
        """Drop the device's cached blocks, for measurements. Other tiers keep theirs. Returns their number."""
        return self.scheduler.kv.pool.drop_cached()

    def quarantine(self, key: bytes, *, closes_disk: bool) -> None:
        """Drop all cached blocks in memory, and on disk the block of a key with all that follow it, or the whole tier
        for this engine. Only between steps, without requests."""
        self.reset_prefix_cache()
        self.scheduler.swap.tier.clear()
        if self.runner.disk is None or self.scheduler.disk is None:
            return
        try:
            if not closes_disk:
                self.runner.disk.store.delete({key})
        except (OSError, ValueError) as error:
            logger.error("the blocks could not be deleted: %s", error)
            closes_disk = True
        if closes_disk:
            logger.error("the KV directory is not used any more by this engine; its files stay as they are")
            self.scheduler.disk.close()

    def delete_documents(self, prompts: Sequence[tuple[Prompt, int]]) -> int:
        """Delete the KV of documents from disk, also that of loaded adapters; return the number of deleted blocks. Each
        prompt comes with its document's first token; earlier blocks, which other prompts share, stay. ValueError if the
        KV directory is not writable, and OSError if the disk failed."""
        if self.runner.disk is None:
            return 0
        size = self.scheduler.config.block_size
        own = [self.root] if self.promoter is None else self.promoter.roots
        roots = [*own, *(adapter_root(own[-1], each.digest) for each in self.adapters)]
        return self.runner.disk.store.delete(
            {
                key
                for prompt, start in prompts
                for root in roots
                for key in self.document_keys(prompt, root)[start // size :]
            }
        )

    def document_keys(self, prompt: Prompt, root: bytes | None = None) -> list[bytes]:
        """Return the keys of a prompt's full blocks up to the last document's end; by default at the current stage."""
        size = self.scheduler.config.block_size
        keys: list[bytes] = []
        root = self.adapters.root_of(prompt.adapter) if root is None else root
        extend_keys(keys, root, prompt.domains, prompt.token_ids, size, prompt.documents[-1] // size)
        return keys


def _apply_changes(engine: Engine, changes: StoreChanges | None) -> None:
    if changes is not None:
        engine.scheduler.apply_store_changes(changes)
        if changes.stored_share is not None:
            engine.cost_model.stored_share = engine.step_stats.stored_share = changes.stored_share
