"""Play a schedule of requests on the real scheduler and check its invariants after every step.

The emulated runner computes no model, but checks that each sequence reads its own KV. An oracle without batches and
blocks predicts every token.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import currently_in_test_context, event

from emulated_runner import Contents, DomainOf, EmulatedRunner, StepFailed, likeliest, mix, next_token
from quire.config import SchedulerConfig
from quire.core.beam_search import BeamSearch
from quire.core.block_keys import PUBLIC, PUBLIC_ONLY, TENANT, DomainSpans, domain_of_block, extend_keys, state_keys
from quire.core.decisions.costs import Costs, StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import MAX_PREEMPTIONS, RecoveryPolicy
from quire.core.request import NO_OWNER, EndRules, KVScope, Order, Owner, Request, RequestStatus, Sequence
from quire.core.scheduler import Scheduler
from quire.core.speculation.drafts import Draft
from quire.outputs import SchedulerOutput
from quire.sampling_params import BeamSearchParams, SamplingParams

EOS = 0
STOP = 1
MAX_STEPS = 20_000


@dataclass(frozen=True)
class Plan:
    """A request and the actions of its client."""

    prompt: tuple[int, ...]
    arrives: int = 0  #: step of arrival
    n: int = 1
    beam: BeamSearchParams | None = None
    max_tokens: int = 8
    min_tokens: int = 0
    stops: bool = True  #: EOS and the client's STOP end it
    priority: int = 0
    owner: Owner = NO_OWNER
    domains: DomainSpans = PUBLIC_ONLY
    documents: tuple[int, ...] = ()
    keeps_prompt: bool = False
    wants_prompt_logprobs: bool = False
    min_stage: int = 1
    aborted_at: int | None = None  #: step of the abort, unless it has ended
    is_aborted_in_flight: bool = False  #: between schedule and update


@dataclass(frozen=True)
class Schedule:
    config: SchedulerConfig
    plans: tuple[Plan, ...]
    failing: dict[int, str] = field(default_factory=dict)  #: step -> kind of failure; "full" is retried
    poisoned: dict[int, tuple[int, ...]] = field(default_factory=dict)  #: step -> sequence indices with NaN logits
    whim: int | None = None  #: seed of random preemptions by any mode, in place of last in, first out
    link_seed: int = 1  #: seed of transfer times
    link_fails: int = 0  #: one in `link_fails` transfers fails; 0 for none
    forgets_every: int = 0  #: steps after which the device drops its cached blocks; 0 for never
    warm: tuple[tuple[int, ...], ...] = ()  #: public documents on disk at the start
    promotions: tuple[int, ...] = ()  #: steps before which the model is promoted
    promotion_policy: str = "cost"
    leaves_older: tuple[int, ...] = ()  #: steps before which an older stage times out
    drafting: tuple[int, int] = (1, 0)  #: seed of draft tokens, and how many of four are right


class WhimsicalCosts:
    """Predicts at random."""

    is_link_usable = True

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._num_draws = 0

    def step(self, shape: StepShape) -> float:
        return self._draw()

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return num_tokens * self._draw() / 2

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes * self._draw()

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes * self._draw()

    def _draw(self) -> float:
        """Return a random factor that stays the same for 40 draws."""
        self._num_draws += 1
        return 1.0 + mix(self._seed, self._num_draws // 40) % 4


class Adversary:
    """Proposes draft tokens of which some are right."""

    def __init__(self, seed: int, num_right: int, size: int) -> None:
        self._seed, self._num_right, self._size = seed, num_right, size

    def propose(self, seq: Sequence, most: int) -> Draft | None:
        spans, tokens, num_prompt = seq.request.domains, list(seq.token_ids), seq.num_prompt_tokens
        contents = Contents(
            self._size, lambda block: domain_of_block(spans, (block + 1) * self._size), seq.request.stage
        )
        self._seed = mix(self._seed)
        while len(tokens) - len(seq.token_ids) < 1 + self._seed // 64 % most:
            is_early = len(tokens) - num_prompt < seq.request.sampling_params.min_tokens
            token = next_token(contents.follow(tokens)[-1], seq.index, seq.stop_token_ids if is_early else ())
            self._seed = mix(self._seed)
            tokens.append(token if self._seed // 8 % 4 < self._num_right else self._seed // 64 % 8)
        return Draft(tokens[len(seq.token_ids) :], "adversary") if self._seed // 4096 % 4 else None


class Whimsical(RecoveryPolicy):
    """A policy that preempts any request and recovers it by any mode, at random."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose_victim(self, running: Seq[Request]) -> Request:
        self.seed = mix(self.seed)
        self.always_loads = self.seed // 256 % 2 > 0
        return running[self.seed % len(running)]

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        mode = tuple(RecoveryMode)[self.seed // 8 % 3]
        return RecoveryPlan(mode, self.seed // 32 % (victim.num_full_blocks + 1))


def note(what: str) -> None:
    """Count an event in hypothesis' statistics."""
    if currently_in_test_context():
        event(what)


# -- the oracle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    tokens: tuple[int, ...]
    reason: RequestStatus
    stop_reason: int | None = None


StageOf = Callable[[int, int], int]  # (sample index, token index) -> stage of the token
FIRST_STAGE: StageOf = lambda index, at: 1  # noqa: E731


def content_after(plan: Plan, tokens: list[int], block_size: int, stage: int = 1) -> int:
    spans = plan.domains
    contents = Contents(block_size, lambda block: domain_of_block(spans, (block + 1) * block_size), stage)
    return contents.follow(tokens)[-1]


def predict_samples(plan: Plan, config: SchedulerConfig, stage_of: StageOf = FIRST_STAGE) -> list[Outcome]:
    """Predict each sample, token by token, as if the request were alone."""
    max_tokens = min(plan.max_tokens, config.max_model_len - len(plan.prompt))
    stops = (EOS, STOP) if plan.stops else ()
    outcomes = []
    for index in range(plan.n):
        made: list[int] = []
        while True:
            banned = stops if len(made) < plan.min_tokens else ()
            content = content_after(plan, [*plan.prompt, *made], config.block_size, stage_of(index, len(made)))
            token = next_token(content, index, banned)
            made.append(token)
            if token in stops:
                outcomes.append(Outcome(tuple(made), RequestStatus.FINISHED_STOPPED, STOP if token == STOP else None))
                break
            if len(made) == max_tokens:
                outcomes.append(Outcome(tuple(made), RequestStatus.FINISHED_LENGTH))
                break
    return outcomes


def predict_beams(plan: Plan, config: SchedulerConfig, stage_of: StageOf) -> BeamSearch:
    assert plan.beam is not None
    max_tokens = min(plan.max_tokens, config.max_model_len - len(plan.prompt))
    search = BeamSearch(plan.beam, frozenset((EOS,) if plan.stops else ()), max_tokens)
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    while not search.is_done:
        asked = []
        for tokens, total in beams:
            content = content_after(plan, [*plan.prompt, *tokens], config.block_size, stage_of(0, len(tokens)))
            asked.append((tokens, total, likeliest(content, search.num_candidates)))
        going_on = search.advance(asked)
        beams = [([*beams[c.beam][0], c.token_id], c.sum_logprob) for c in going_on]
    return search


# -- playing a schedule ----------------------------------------------------------------------------------------------


def make_request(plan: Plan, arrival: int) -> Request:
    return Request(
        f"request-{arrival}",
        plan.prompt,
        SamplingParams(
            n=plan.n,
            min_tokens=min(plan.min_tokens, plan.max_tokens),
            max_tokens=plan.max_tokens,
            prompt_logprobs=0 if plan.wants_prompt_logprobs else None,
        ),
        beam=plan.beam,
        order=Order(plan.priority, arrival, plan.owner),
        ends=EndRules(plan.max_tokens, (EOS, STOP) if plan.stops else (), (EOS,) if plan.stops else ()),
        kv=KVScope(b"root", plan.domains, plan.documents, plan.keeps_prompt),
        min_stage=plan.min_stage,
    )


class Player:
    """Plays a schedule and checks the invariants after every step.

    Args:
        recovery: recovery policy, in place of the schedule's whim.
        costs: cost predictions for schedules without a whim.
    """

    def __init__(self, schedule: Schedule, recovery: RecoveryPolicy | None = None, costs: Costs | None = None) -> None:
        self.schedule = schedule
        self.config = replace(schedule.config, promotion_policy=schedule.promotion_policy)
        if recovery is None and schedule.whim is not None:
            recovery = Whimsical(schedule.whim)
        if schedule.whim is not None:
            costs = WhimsicalCosts(schedule.whim)
        self.scheduler = Scheduler(self.config, recovery, costs)
        adversary = Adversary(*schedule.drafting, self.config.block_size)
        self.scheduler.speculator.make_sources = lambda seq: (adversary,)
        self.runner = EmulatedRunner(self.config, self._domains_of, schedule.link_seed, schedule.link_fails)
        self.requests: list[Request] = []
        self.prompt_positions: dict[str, set[int]] = {}
        self.ended: dict[str, int] = {}  #: request -> step of its end
        self.owners: dict[int, Request] = {}  #: seq_id -> request, for all sequences ever scheduled
        self.stages: dict[tuple[str, int], list[int]] = {}  #: (request, sample) -> stage of each token
        self.step = 0
        for document in schedule.warm:
            self._put_on_disk(document)

    def _put_on_disk(self, document: tuple[int, ...]) -> None:
        size = self.config.block_size
        values = Contents(size, lambda block: PUBLIC).follow(document)
        keys: list[bytes] = []
        extend_keys(keys, b"root", PUBLIC_ONLY, document, size, len(document) // size)
        contents = {key: np.array(values[at * size :][:size], dtype=np.uint64) for at, key in enumerate(keys)}
        store, num_states = self.runner.transfer_worker.store, self.scheduler.kv.num_state_records
        store.begin_with(contents)
        for at in range(0 if num_states else len(keys), len(keys), 2):
            state = np.full(size, values[(at + 1) * size - 1], dtype=np.uint64)
            store.begin_with({keys[at]: contents[keys[at]], **dict.fromkeys(state_keys(keys[at], num_states), state)})

    def _domains_of(self, seq_id: int) -> DomainOf:
        spans = self.owners[seq_id].domains
        return lambda block: domain_of_block(spans, (block + 1) * self.config.block_size)

    def play(self) -> list[Request]:
        last_arrival = max(plan.arrives for plan in self.schedule.plans)
        while self.step <= max(last_arrival, *self.schedule.promotions, 0) or self.scheduler.has_unfinished():
            assert self.step < MAX_STEPS, "the scheduler makes no progress"
            self._add_arrivals()
            self._abort(in_flight=False)
            self._check()
            self._change_stage()
            self._check()
            self._run_step()
            self._check()
            self.step += 1
        assert all(request.status.is_finished for request in self.requests)
        self.step = MAX_STEPS  # after all injected failures
        self._run_step()  # the runner drops the last sequences
        while self.scheduler.has_unfinished():  # transfers of finished requests remain
            self._run_step()
        assert not self.runner.batch.row_of, "the runner keeps finished sequences"
        assert self.scheduler.kv.pool.num_used == 0
        assert len(self.scheduler.swap.transfers) == 0
        assert self.scheduler.swap.tier.num_available == self.config.num_swap_slots, "swap slots leak"
        assert self.scheduler.kv.num_logical_blocks == self.scheduler.kv.num_kv_tokens == 0
        assert not self.scheduler.queue.blocked
        assert not self.runner.transfer_worker.store.claimed, "a claim leaks"
        return self.requests

    def _add_arrivals(self) -> None:
        for plan in self.schedule.plans:
            if plan.arrives == self.step:
                request = make_request(plan, len(self.requests))
                self.requests.append(request)
                self.scheduler.add(request)

    def _change_stage(self) -> None:
        scheduler, due = self.scheduler, sum(at <= self.step for at in self.schedule.promotions)
        if due >= scheduler.stages.current:
            number = due + 1
            scheduler.promote(number, b"root of stage %d" % number)
            note("promoted")
            if scheduler.stages.older is not None:
                note("pinned")
            if any(request.num_promotions for request in scheduler.queue.requests.values()):
                note("computed again at a promotion")
        if self.step in self.schedule.leaves_older:
            scheduler.restart_pinned()

    def _abort(self, *, in_flight: bool) -> None:
        for plan, request in zip(self.plans, self.requests, strict=True):
            if plan.aborted_at == self.step and plan.is_aborted_in_flight == in_flight:
                was_finished = request.status.is_finished
                found = self.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)
                assert (found is None) == was_finished
                assert self.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED) is None

    @property
    def plans(self) -> list[Plan]:
        """The plans of arrived requests, in order of arrival."""
        arrived = [plan for plan in self.schedule.plans if plan.arrives <= self.step]
        return sorted(arrived, key=lambda plan: plan.arrives)[: len(self.requests)]

    def _run_step(self) -> None:
        scheduler = self.scheduler
        had_ended = set(self.ended)
        preemptions = {id(request): request.num_preemptions for request in self.requests}
        yields = {id(request): request.num_yields for request in self.requests}
        if self.config.has_disk_tier and (changes := self.runner.transfer_worker.store.poll()) is not None:
            scheduler.apply_store_changes(pickle.loads(pickle.dumps(changes)))
            for key in changes.deleted:
                assert scheduler.kv.pool.find(key) is None
                assert not scheduler.swap.can_load(key)
            self._check()
        if self.schedule.forgets_every and self.step % self.schedule.forgets_every == 0:
            scheduler.kv.pool.drop_cached()
        running = scheduler.queue.running
        oldest = running[0] if running and not scheduler.queue.holds_back(running[0]) else None
        out = self._schedule()
        self._check(in_flight=True)
        ahead = {seq.seq_id for seq in scheduler.documents.sequences}  # their requests go on waiting
        self.owners.update((seq_id, scheduler.request_of(seq_id)) for seq_id in out.seq_ids)
        self._check_step(out, oldest, preemptions, yields)
        sent = pickle.loads(pickle.dumps(out))
        assert sent == out
        self._abort(in_flight=True)
        how = self.schedule.failing.get(self.step, "")
        try:
            poisoned = [i for i in self.schedule.poisoned.get(self.step, ()) if i < len(out.seq_ids)]
            result = self.runner.execute(sent, fails=how.replace("full", "late"), poisoned=poisoned)
        except StepFailed:
            owners = [self.owners[seq_id] for seq_id in out.seq_ids if seq_id not in ahead]
            hit = {id(request) for request in owners if not request.status.is_finished}
            failed = scheduler.retry_step("injected") if how == "full" else scheduler.fail_step("injected")
            if how == "full":
                hit = {each for each in hit if each not in {id(request) for request in scheduler.queue.trials}}
            assert {id(request) for request in failed} == hit
            assert all(request.error == "injected" for request in failed)
        else:
            received = pickle.loads(pickle.dumps(result))
            assert received == result
            for seq_id, entries in received.prompt_logprobs.items():
                positions = self.prompt_positions.setdefault(self.owners[seq_id].request_id, set())
                positions.update(position for position, _ in entries)
            beams = {r.request_id: r for r in scheduler.queue.requests.values() if r.beam is not None}
            lengths = {name: _beam_length(request) for name, request in beams.items()}
            updates = scheduler.update(received)
            while updates:
                for update in updates:
                    sequence = update.sequence
                    assert sequence.request.request_id not in had_ended, "a request that had ended got tokens"
                    self.stages.setdefault((sequence.request.request_id, sequence.index), []).append(sent.stage)
                self._check(in_flight=True)
                updates = scheduler.update_next()
            for name, request in beams.items():
                if not request.status.is_finished and _beam_length(request) > lengths[name]:
                    self.stages.setdefault((name, 0), []).append(sent.stage)
        assert sent == out, "a step was changed after it was sent"

    def _schedule(self) -> SchedulerOutput:
        return self.scheduler.schedule()

    def _check_step(
        self, out: SchedulerOutput, oldest: Request | None, preemptions: dict[int, int], yields: dict[int, int]
    ) -> None:
        scheduler, config = self.scheduler, self.config
        assert sum(out.num_scheduled_tokens) == out.total_tokens <= config.max_num_batched_tokens
        num_spare = scheduler.queue.num_spare_seqs
        num_seats = config.max_num_seqs + num_spare
        assert len(out.seq_ids) == len(set(out.seq_ids)) <= num_seats + len(scheduler.documents.sequences)
        assert num_spare == 0 or scheduler.queue.turns.are_taken
        assert all(count > 0 for count in out.num_scheduled_tokens)
        served = {self.owners[seq_id].request_id for seq_id in out.seq_ids}
        loading = {
            r.request_id for r in scheduler.queue.running if any(seq.loading is not None for seq in r.unfinished)
        }
        served |= loading
        if scheduler.stages.older is not None:
            assert served or not scheduler.queue.running or scheduler.swap.transfers, "requests run, and none gets on"
            return  # the stages alternate, and each has its oldest request
        if len(scheduler.queue.requests) > len(scheduler.queue.blocked) and not (
            len(scheduler.swap.transfers) and not out.seq_ids
        ):
            # Otherwise all wait for blocks held by a load of an aborted request.
            assert served, "requests wait, and nothing runs"
            assert scheduler.queue.running[0].request_id in served, "the oldest makes no progress"
        if oldest is not None:
            assert oldest in scheduler.queue.running, "the oldest was preempted"
            assert oldest.num_preemptions == preemptions[id(oldest)], "the oldest was preempted"
        served_orders = [request.order for request in scheduler.queue.running if request.request_id in served]
        for request in self.requests:
            if request.num_preemptions > preemptions[id(request)]:
                note("preempted")
                if request.num_yields > yields[id(request)]:
                    note("preempted for another tenant")
                    continue
                is_waiting = not served_orders and len(scheduler.swap.transfers)
                assert is_waiting or min(served_orders) < request.order, "a preemption helps no request"

    def stage_of(self, request: Request) -> StageOf:
        """Return the stage of each token of a request; tokens that it did not get count for the last stage."""

        def find(index: int, at: int) -> int:
            stages = self.stages.get((request.request_id, index), [])
            return stages[at] if at < len(stages) else request.stage

        return find

    def _check(self, *, in_flight: bool = False) -> None:
        self.scheduler.check_integrity()
        for request in self.requests:
            assert request.num_preemptions - request.num_yields <= MAX_PREEMPTIONS
            is_there = request.request_id in self.scheduler.queue.requests
            assert is_there != request.status.is_finished
            if request.status.is_finished:
                self.ended.setdefault(request.request_id, self.step)
                assert not request.unfinished
                assert all(not seq.block_table for seq in request.sequences)


def _beam_length(request: Request) -> int:
    return max((seq.num_output_tokens for seq in request.unfinished), default=0)


def check_outcomes(schedule: Schedule, player: Player) -> None:
    """Compare tokens, reasons and scores with the oracle's."""
    plans = sorted(schedule.plans, key=lambda plan: plan.arrives)
    may_fail = bool(schedule.failing or schedule.poisoned)
    for plan, request in zip(plans, player.requests, strict=True):
        note(f"ended by {request.status.value}")
        if request.domains != plan.domains:  # it began with public blocks, and the rest is the tenant's
            note("began with public blocks")
            ((_, own),) = plan.domains
            assert own.level == TENANT
            assert [domain for _, domain in request.domains] == [PUBLIC, own]
            plan = replace(plan, domains=request.domains)
        stage_of = player.stage_of(request)
        assert may_fail or request.status is not RequestStatus.FINISHED_ERROR
        assert (request.error is not None) == (request.status is RequestStatus.FINISHED_ERROR)
        is_cut = request.status in (RequestStatus.FINISHED_ABORTED, RequestStatus.FINISHED_ERROR)
        assert not is_cut or may_fail or plan.aborted_at is not None
        if plan.beam is not None:
            if not is_cut:
                assert request.beams.finished == predict_beams(plan, schedule.config, stage_of).finished
            continue
        predicted = predict_samples(plan, schedule.config, stage_of)
        assert is_cut or len(request.sequences) == plan.n
        for seq, outcome in zip(request.sequences, predicted, strict=False):
            tokens = tuple(seq.output_token_ids)
            if is_cut and seq.finish_reason is request.status:
                assert tokens == outcome.tokens[: len(tokens)]
            else:
                assert Outcome(tokens, seq.finish_reason, seq.stop_reason) == outcome
        if plan.wants_prompt_logprobs and not is_cut:
            positions = player.prompt_positions.get(request.request_id, set())
            assert positions == set(range(1, len(plan.prompt))), "log-probabilities of prompt tokens are missing"


def play(schedule: Schedule) -> Player:
    player = Player(schedule)
    player.play()
    check_outcomes(schedule, player)
    counts = player.scheduler.speculator.counts
    if counts.accepted.total():
        note("drafts were right")
    if counts.accepted.total() < counts.draft_tokens:
        note("drafts were wrong")
    if player.runner.num_copies:
        note("copied on write")
    if player.scheduler.counts.prefix_hits:
        note("prefix hit")
    if player.runner.transfer_worker.num_loads:
        note("loaded from the swap tier")
    store = player.runner.transfer_worker.store
    for what, is_so in (
        ("saved to disk", store.parents),
        ("loaded from disk", store.num_loads),
        ("waited for a claim", store.num_waited),
        ("deleted from disk", store.deleted),
        ("computed the front while the back loaded", player.scheduler.prefixes.ways["both"]),
        ("loaded while it waited", player.scheduler.prefixes.ways["ahead"]),
        ("computed while it waited", player.scheduler.counts.ahead_tokens),
    ):
        if is_so:
            note(what)
    if player.runner.transfer_worker.num_cancelled:
        note("cancelled a transfer")
    return player
