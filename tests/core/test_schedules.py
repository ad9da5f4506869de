"""Invariants under random schedules on the real scheduler and pool."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emulated_runner import mix
from quire.config import BlockWindow, SchedulerConfig
from quire.core.block_keys import PUBLIC, PUBLIC_ONLY, DomainSpans, collection_domain, tenant_domain
from quire.core.request import BACKGROUND, NO_OWNER, Owner
from quire.sampling_params import BeamSearchParams
from schedule_player import Plan, Schedule, play

DOMAINS: tuple[DomainSpans, ...] = (
    ((0, PUBLIC),),
    ((0, tenant_domain("ann", b"secret")),),
    ((0, PUBLIC), (5, tenant_domain("ann", b"secret"))),
    ((0, PUBLIC), (5, tenant_domain("bob", b"secret"))),
    ((0, collection_domain("papers")), (6, tenant_domain("bob", b"secret"))),
)
BASES = tuple(tuple(mix(base, i) % 8 for i in range(64)) for base in range(2))


@st.composite
def plans(draw: st.DrawFn, config: SchedulerConfig, tenants: tuple[str, ...] = ()) -> Plan:
    longest = config.max_model_len - 1
    length = draw(st.integers(1, longest) | st.integers(1, max(1, longest // 3)))
    shared = draw(st.sampled_from((0, length // 2, length, longest)))
    own = draw(st.integers(0, 1000))
    prompt = (*draw(st.sampled_from(BASES))[: min(shared, length)], *(mix(own, i) % 8 for i in range(length)))[:length]
    width = min(draw(st.sampled_from((1, 2, 3, 4))), config.max_num_seqs)
    max_tokens = draw(st.sampled_from((24, 18, 12, 6, 1)))
    plan = Plan(
        prompt=prompt,
        arrives=draw(st.sampled_from((0, 0, 0, 1, 2, 4, 8, 16))),
        max_tokens=max_tokens,
        stops=draw(st.sampled_from((False, False, True))),
        priority=draw(st.sampled_from((0, 0, 0, 1, -1, BACKGROUND))),
        owner=Owner(draw(st.sampled_from(tenants)), draw(st.sampled_from((0, 0, -9, 9)))) if tenants else NO_OWNER,
        domains=draw(st.sampled_from((PUBLIC_ONLY,) * 5 + DOMAINS)),
        aborted_at=draw(st.sampled_from((None,) * 40 + (0, 1, 2, 3, 5, 8, 13, 21))),
        is_aborted_in_flight=draw(st.booleans()),
    )
    if draw(st.sampled_from((False, False, True))):
        early = draw(st.sampled_from((True, False, "never")))
        penalty = draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0)))
        return replace(plan, beam=BeamSearchParams(width, max_tokens, length_penalty=penalty, early_stopping=early))
    min_tokens = draw(st.sampled_from((0, 0, 3)))
    return replace(plan, n=width, min_tokens=min(min_tokens, max_tokens), wants_prompt_logprobs=draw(st.booleans()))


def with_window(draw: st.DrawFn, config: SchedulerConfig) -> SchedulerConfig:
    """Let the model have windows, and the pool little more memory than the longest sequence needs with them."""
    tokens = draw(st.integers(1, config.max_model_len))
    num_whole = -(-(tokens + config.max_num_batched_tokens) // config.block_size) + 1
    window = BlockWindow(tokens, draw(st.sampled_from((2048, 11000, 32768, 49152))), num_whole)
    num_blocks = window.room(-(-config.max_model_len // config.block_size)) + draw(st.integers(1, 4))
    return replace(config, num_blocks=num_blocks, window=window)


def with_states(draw: st.DrawFn, config: SchedulerConfig) -> SchedulerConfig:
    """Let the model have recurrent states."""
    thin, num_records = draw(st.sampled_from((300, 20000, 60000))), draw(st.sampled_from((2, 3)))
    window = BlockWindow(2, thin, 3, has_states=True, num_records=num_records)
    num_blocks = window.room(-(-config.max_model_len // config.block_size)) + draw(st.integers(1, 6))
    return replace(config, num_blocks=num_blocks, window=window)


@st.composite
def schedules(draw: st.DrawFn, may_fail: bool = False, tenants: tuple[str, ...] = ()) -> Schedule:
    """Schedules under pressure: pools hold little more than the longest sequence."""
    block_size = draw(st.sampled_from((2, 1, 3, 4)))
    max_model_len = draw(st.integers(4, 40))
    least = -(-max_model_len // block_size)
    config = SchedulerConfig(
        num_blocks=least + draw(st.integers(0, least // 2)),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((16, 8, 6, 4, 1))),
        max_num_batched_tokens=draw(st.sampled_from((16, 64, 8, 5, 3, 2, 1))),
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.sampled_from((True, True, False))),
        watermark_blocks=draw(st.integers(0, 2)),
        num_swap_slots=draw(st.sampled_from((0, 64, 3, 8))),
        max_tokens_beside_streams=draw(st.sampled_from((None, 1, 4, 20))),
        num_speculative_tokens=draw(st.sampled_from((0, 1, 3, 8))),
    )
    kind = draw(st.sampled_from(("plain", "window", "states")))
    if kind != "plain":
        config = with_window(draw, config) if kind == "window" else with_states(draw, config)
    whim = draw(st.none() | st.integers(1, 1000))
    if whim is not None:
        config = replace(config, target_itl_s=draw(st.sampled_from((None, 0.01, 1.0))))
    chosen = draw(st.lists(plans(config, tenants), min_size=draw(st.integers(1, 6)), max_size=8))
    link = draw(st.integers(1, 1000)), draw(st.sampled_from((0, 0, 5, 2)))
    drafting = draw(st.integers(1, 1000)), draw(st.integers(0, 4))
    if not may_fail:
        return Schedule(config, tuple(chosen), {}, {}, whim, *link, drafting=drafting)
    steps = st.integers(0, 40)
    failing = draw(st.dictionaries(steps, st.sampled_from(("early", "late", "full")), max_size=4))
    places = st.lists(st.integers(0, 4), min_size=1, max_size=2).map(tuple)
    return Schedule(
        config, tuple(chosen), failing, draw(st.dictionaries(steps, places, max_size=3)), whim, *link, drafting=drafting
    )


def deep(max_examples: int) -> settings:
    return settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))


@deep(25)
@given(schedules())
def test_tokens_and_blocks_are_right_whatever_the_schedule(schedule: Schedule) -> None:
    play(schedule)


@deep(16)
@given(schedules(may_fail=True))
def test_a_failing_step_fails_only_its_own_requests(schedule: Schedule) -> None:
    play(schedule)


@deep(25)
@given(schedules(tenants=("ann", "bob", "")) | schedules(may_fail=True, tenants=("ann", "bob")))
def test_tokens_and_blocks_are_right_and_every_request_ends_where_tenants_take_turns(schedule: Schedule) -> None:
    play(schedule)


@st.composite
def swapping_schedules(draw: st.DrawFn) -> Schedule:
    """Requests that together outgrow the pool, resume by any mode, and use an unreliable link."""
    block_size = draw(st.sampled_from((2, 1, 4)))
    max_model_len = draw(st.integers(16, 40))
    config = SchedulerConfig(
        num_blocks=-(-max_model_len // block_size) + draw(st.integers(0, 4)),
        block_size=block_size,
        max_num_seqs=8,
        max_num_batched_tokens=draw(st.sampled_from((64, 16, 5))),
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.booleans()),
        num_swap_slots=draw(st.sampled_from((200, 200, 12, 4))),
        num_speculative_tokens=draw(st.sampled_from((0, 5))),
    )
    config = draw(st.sampled_from((lambda _, config: config, with_window, with_states)))(draw, config)
    chosen = draw(st.lists(plans(config), min_size=3, max_size=6))
    longer = tuple(replace(plan, arrives=min(plan.arrives, 2), max_tokens=24, stops=False) for plan in chosen)
    longer = tuple(plan if plan.beam is None else replace(plan, max_tokens=plan.beam.max_tokens) for plan in longer)
    link = draw(st.integers(1, 1000)), draw(st.sampled_from((0, 0, 7, 2)))
    failing = draw(st.dictionaries(st.integers(4, 40), st.sampled_from(("early", "late", "full")), max_size=2))
    drafting = draw(st.integers(1, 1000)), draw(st.integers(1, 4))
    return Schedule(config, longer, failing, {}, draw(st.integers(1, 1000)), *link, drafting=drafting)


@deep(20)
@given(swapping_schedules())
def test_what_comes_back_from_the_swap_tier_is_what_went_in(schedule: Schedule) -> None:
    play(schedule)


@st.composite
def document_schedules(draw: st.DrawFn) -> Schedule:
    """Requests about a few documents, on a disk tier shared with other processes."""
    block_size = draw(st.sampled_from((2, 1, 3)))
    max_model_len = draw(st.integers(12, 40))
    config = SchedulerConfig(
        num_blocks=-(-max_model_len // block_size) * draw(st.sampled_from((1, 1, 2, 4))) + draw(st.integers(0, 6)),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((8, 4, 2, 1))),
        max_num_batched_tokens=draw(st.sampled_from((16, 64, 5))),
        max_model_len=max_model_len,
        num_swap_slots=draw(st.sampled_from((0, 0, 64, 4))),
        block_bytes=block_size,
        has_disk_tier=True,
        num_speculative_tokens=draw(st.sampled_from((0, 5))),
    )
    config = draw(st.sampled_from((lambda _, config: config, with_window, with_states)))(draw, config)
    chosen = draw(st.lists(plans(config), min_size=4, max_size=8))
    asked = []
    for plan in chosen:
        base = draw(st.sampled_from(BASES))[: max_model_len - 2 - draw(st.integers(0, 4))]
        arrives = draw(st.sampled_from((0, 15, 30)) | st.integers(0, 40))
        plan = replace(plan, prompt=(*base, plan.prompt[0]), arrives=arrives)
        ends = draw(st.lists(st.integers(1, len(plan.prompt)), max_size=2, unique=True))
        domains: DomainSpans = ((0, PUBLIC),)
        if ends and max(ends) < len(plan.prompt):
            domains = ((0, PUBLIC), (max(ends), tenant_domain("ann", b"secret")))
        keeps = draw(st.sampled_from((False, False, True)))
        asked.append(replace(plan, documents=tuple(sorted(ends)), keeps_prompt=keeps, domains=domains))
    failing = draw(st.dictionaries(st.integers(1, 40), st.sampled_from(("early", "late", "full")), max_size=2))
    places = st.lists(st.integers(0, 4), min_size=1, max_size=1).map(tuple)
    poisoned = draw(st.dictionaries(st.integers(1, 40), places, max_size=1))
    link = draw(st.integers(1, 1000)), draw(st.sampled_from((0, 0, 7, 2)))
    whim, warm = draw(st.none() | st.integers(1, 1000)), draw(st.sampled_from((BASES, ())))
    forgets_every, drafting = draw(st.sampled_from((0, 2, 5))), (draw(st.integers(1, 1000)), draw(st.integers(1, 4)))
    return Schedule(config, tuple(asked), failing, poisoned, whim, *link, forgets_every, warm, drafting=drafting)


@deep(16)
@given(document_schedules())
def test_what_comes_from_disk_is_right_whatever_others_do_to_it(schedule: Schedule) -> None:
    play(schedule)


@st.composite
def queueing_schedules(draw: st.DrawFn) -> Schedule:
    """Questions about documents that are nowhere wait for a few seats or for blocks, in a pool with some to spare."""
    block_size, max_model_len = draw(st.sampled_from((2, 1, 4))), draw(st.integers(16, 40))
    config = SchedulerConfig(
        num_blocks=-(-max_model_len // block_size) * draw(st.sampled_from((2, 3, 4))),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((1, 2, 3))),
        max_num_batched_tokens=draw(st.sampled_from((64, 16))),
        max_model_len=max_model_len,
        num_swap_slots=draw(st.sampled_from((0, 64))),
        block_bytes=block_size,
        has_disk_tier=draw(st.booleans()),
        num_speculative_tokens=draw(st.sampled_from((0, 5))),
    )
    config = draw(st.sampled_from((lambda _, config: config, with_window, with_states)))(draw, config)
    asked = []
    for plan in draw(st.lists(plans(config, ("ann", "bob", "")), min_size=4, max_size=8)):
        prompt = (*draw(st.sampled_from(BASES))[: max_model_len - 9], plan.prompt[0])
        width = min(plan.n, 2, config.max_num_seqs)
        plan = replace(plan, prompt=prompt, n=width, beam=None, max_tokens=8, min_tokens=0, stops=False)
        end = draw(st.sampled_from((len(prompt), len(prompt) - 1, len(prompt) // 2)))
        asked.append(replace(plan, documents=(end,), domains=PUBLIC_ONLY, wants_prompt_logprobs=False))
    failing = draw(st.dictionaries(st.integers(1, 40), st.sampled_from(("early", "late", "full")), max_size=2))
    promotions = draw(st.sampled_from(((), (), (9,))))
    return Schedule(
        config, tuple(asked), failing, whim=draw(st.integers(1, 1000)), promotions=promotions,
        forgets_every=draw(st.sampled_from((0, 0, 3))), drafting=(draw(st.integers(1, 1000)), draw(st.integers(1, 4))),
    )  # fmt: skip


@deep(16)
@given(queueing_schedules())
def test_documents_computed_for_waiting_requests_change_no_token_and_keep_no_block(schedule: Schedule) -> None:
    play(schedule)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@deep(4000)
@given(
    schedules()
    | schedules(may_fail=True, tenants=("ann", "bob", ""))
    | swapping_schedules()
    | document_schedules()
    | queueing_schedules()
)
def test_tokens_and_blocks_are_right_over_thousands_of_schedules(schedule: Schedule) -> None:
    play(schedule)


@st.composite
def lone_requests(draw: st.DrawFn) -> Schedule:
    """One request with many sequences, in a pool for only one at full length."""
    block_size = draw(st.sampled_from((1, 2, 3, 4)))
    max_model_len = draw(st.integers(6, 24))
    config = SchedulerConfig(
        num_blocks=-(-max_model_len // block_size),
        block_size=block_size,
        max_num_seqs=8,
        max_num_batched_tokens=draw(st.sampled_from((1, 3, 8, 64))),
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.booleans()),
        watermark_blocks=draw(st.integers(0, 2)),
    )
    kind = draw(st.sampled_from(("plain", "window", "states")))
    if kind != "plain":
        config = with_window(draw, config) if kind == "window" else with_states(draw, config)
    prompt = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=max_model_len - 2)))
    width = draw(st.integers(2, 8))
    plan = Plan(prompt, max_tokens=max_model_len, stops=draw(st.booleans()))
    if draw(st.booleans()):
        return Schedule(config, (replace(plan, n=width),))
    width = min(width, 5)
    early = draw(st.sampled_from((True, False, "never")))
    return Schedule(config, (replace(plan, beam=BeamSearchParams(width, max_model_len, early_stopping=early)),))


@deep(12)
@given(lone_requests())
@example(
    Schedule(  # a beam copies a block that another one gives up and a third one takes within the step
        SchedulerConfig(4, 2, 16, 16, max_model_len=13, window=BlockWindow(2, 300, 3, has_states=True, num_records=2)),
        (
            Plan(
                (2, 2, 7, 2, 7, 6, 3, 7, 7, 7),
                max_tokens=24,
                stops=False,
                beam=BeamSearchParams(3, 24, length_penalty=-1.0, early_stopping=True),
            ),
        ),
    )
)
def test_a_lone_request_that_outgrows_the_pool_runs_its_sequences_in_turns(schedule: Schedule) -> None:
    player = play(schedule)
    assert player.scheduler.counts.preemptions == 0, "there is no other request to preempt"


@st.composite
def promoting_schedules(draw: st.DrawFn) -> Schedule:
    """A model that is promoted while requests run, swap, and wait for documents and stages."""
    block_size = draw(st.sampled_from((2, 1, 4)))
    max_model_len = draw(st.integers(12, 40))
    has_disk_tier = draw(st.booleans())
    config = SchedulerConfig(
        num_blocks=-(-max_model_len // block_size) * draw(st.sampled_from((1, 2, 4))) + draw(st.integers(0, 6)),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((8, 4, 16))),
        max_num_batched_tokens=draw(st.sampled_from((16, 64, 5))),
        max_model_len=max_model_len,
        enable_prefix_caching=has_disk_tier or draw(st.booleans()),
        num_swap_slots=draw(st.sampled_from((0, 64, 4))),
        block_bytes=block_size,
        has_disk_tier=has_disk_tier,
    )
    config = draw(st.sampled_from((lambda _, config: config, with_window, with_states)))(draw, config)
    chosen = []
    for plan in draw(st.lists(plans(config), min_size=3, max_size=8)):
        end = len(plan.prompt) * draw(st.integers(0, 2)) // 2 if has_disk_tier else 0
        min_stage = draw(st.sampled_from((1, 1, 1, 1, 2, 3)))
        chosen.append(replace(plan, documents=(end,) if end else (), min_stage=min_stage))
    return Schedule(
        config,
        tuple(chosen),
        draw(st.dictionaries(st.integers(0, 40), st.sampled_from(("early", "late", "full")), max_size=1)),
        {},
        draw(st.none() | st.integers(1, 1000)),
        draw(st.integers(1, 1000)),
        draw(st.sampled_from((0, 0, 5))),
        promotions=(draw(st.integers(0, 12)), draw(st.integers(8, 30))),
        promotion_policy=draw(st.sampled_from(("cost", "pin", "recompute"))),
        leaves_older=draw(st.sampled_from(((), (16,), (10, 20)))),
    )


@deep(25)
@given(promoting_schedules())
def test_no_kv_crosses_stages_and_each_token_is_of_its_own(schedule: Schedule) -> None:
    play(schedule)
