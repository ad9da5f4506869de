"""The cost model against simulated machines with known costs and noise."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape, find_crossings
from quire.core.decisions.fits import PiecewiseLinear, isotonic
from quire.simulate.hardware import cps_paper
from quire.simulate.table_costs import DecodeCosts, TableCosts

BLOCK_BYTES = 36_864 * 16  # opt-125m in float32


class World:
    """A machine with known costs: constant up to 24 tokens per step, then linear, and a link with latency."""

    def __init__(self, seed: int, *, bandwidth: float = 150e6, latency: float = 2e-3) -> None:
        self.random = random.Random(seed)
        self.bandwidth = bandwidth
        self.latency = latency
        self.slowness = 1.0
        self.c2, self.c3, self.c4 = 2e-8, 5e-7, 1e-4

    def step(self, shape: StepShape) -> float:
        fixed = 0.02 + 3e-4 * max(0, shape.num_tokens - 24)
        rest = self.c2 * shape.attended + self.c3 * shape.context_decode + self.c4 * shape.num_seqs
        return self.slowness * (fixed + rest)

    def transfer(self, num_bytes: float) -> float:
        return self.latency + num_bytes / self.bandwidth

    def seen(self, seconds: float) -> float:
        """Add noise of a tenth, and occasionally a factor of three."""
        return seconds * max(0.5, self.random.gauss(1.0, 0.1)) * (3.0 if self.random.random() < 0.05 else 1.0)

    def shape(self) -> StepShape:
        pick = self.random.randint
        num_decodes = pick(0, 32)
        context = sum(pick(10, 2000) for _ in range(num_decodes))
        if num_decodes and self.random.random() < 0.75:
            return StepShape(num_decodes, num_decodes, 0.0, context)
        decoding = StepShape(num_decodes, num_decodes, 0.0, context)
        return decoding.plus_chunk(self.random.choice((0, 0, pick(0, 2000))), pick(2, 512 - num_decodes))

    def teach_steps(self, model: CostModel, count: int) -> None:
        for _ in range(count):
            shape = self.shape()
            model.observe_step(shape, self.seen(self.step(shape)))

    def teach_transfers(self, model: CostModel, count: int) -> None:
        for number in range(count):
            num_bytes = self.random.randint(1, 100) * BLOCK_BYTES
            model.observe_transfer(("save", "load")[number % 2], num_bytes, self.seen(self.transfer(num_bytes)))

    def recompute(self, num_tokens: int, start: int, chunk: int, beside: StepShape) -> float:
        seconds = 0.0
        for at in range(start, start + num_tokens, chunk):
            count = min(chunk, start + num_tokens - at)
            seconds += self.step(beside.plus_chunk(at, count)) - self.step(beside)
        return seconds


def relative_errors(predict: Callable[[], Iterator[tuple[float]]]) -> list[float]:
    return sorted(abs(prediction / truth - 1.0) for prediction, truth in predict())


# -- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_step_costs_are_learnt_through_noise_and_outliers(seed: int) -> None:
    world, model = World(seed), CostModel()
    world.teach_steps(model, 1000)

    def unseen() -> Iterator[tuple[float]]:
        for _ in range(300):
            shape = world.shape()
            yield model.step(shape), world.step(shape)

    errors = relative_errors(unseen)
    assert errors[150] < 0.05
    assert errors[270] < 0.12
    assert model.num_refreshes == 0, "noise was taken for a change"


@pytest.mark.parametrize("seed", range(4))
def test_recomputing_is_learnt_from_steps_of_all_kinds(seed: int) -> None:
    world, model = World(seed), CostModel()
    world.teach_steps(model, 1000)
    beside = StepShape(16, 16, 0.0, 16 * 800)
    for num_tokens, start in ((256, 0), (512, 0), (1024, 512), (2000, 0)):
        predicted = model.recompute(num_tokens, start=start, chunk=496, beside=beside)
        assert predicted == pytest.approx(world.recompute(num_tokens, start, 496, beside), rel=0.15)


def test_the_coefficients_themselves_are_found_where_the_samples_can_tell_them() -> None:
    world, model = World(3), CostModel()
    world.c2, world.c3 = 4e-7, 2e-6  # attention costs as much as the rest
    world.teach_steps(model, 3000)
    c2, c3, _ = model.steps.coefficients
    assert c2 == pytest.approx(world.c2, rel=0.15)
    assert c3 == pytest.approx(world.c3, rel=0.2)


def test_a_thousand_decode_steps_do_not_push_out_what_is_known_of_prefill() -> None:
    world, model = World(5), CostModel()
    world.teach_steps(model, 600)
    for count in range(3000):
        shape = StepShape(16, 16, 0.0, 16 * (100 + count % 900))
        model.observe_step(shape, world.seen(world.step(shape)))
    prefill = StepShape(0, 0).plus_chunk(0, 500)
    assert model.step(prefill) == pytest.approx(world.step(prefill), rel=0.15)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_a_machine_that_changes_tenfold_is_followed_within_twenty_steps(factor: float) -> None:
    world, model = World(7), CostModel()
    world.teach_steps(model, 600)
    world.slowness = factor
    world.teach_steps(model, 20)
    for shape in (StepShape(16, 16, 0.0, 8000), StepShape(0, 0).plus_chunk(0, 512)):
        assert model.step(shape) == pytest.approx(world.step(shape), rel=0.3)
    assert model.num_refreshes >= 1


def test_recomputing_is_the_steps_with_the_span_less_the_steps_without() -> None:
    world, model = World(9), CostModel()
    world.teach_steps(model, 300)
    beside = StepShape(8, 8, 0.0, 4000)
    by_steps = sum(
        model.step(beside.plus_chunk(start, count)) - model.step(beside)
        for start, count in ((64, 200), (264, 200), (464, 100))
    )
    assert model.recompute(500, start=64, chunk=200, beside=beside) == pytest.approx(by_steps)
    alone = sum(model.step(StepShape(0, 0).plus_chunk(start, 250)) for start in (0, 250))
    assert model.recompute(500, chunk=250) == pytest.approx(alone)


# -- transfers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("latency", "bandwidth"), [(2e-3, 150e6), (1e-4, 10e6), (5e-2, 2e9), (1e-5, 20e9)])
def test_transfer_costs_are_learnt_through_noise_and_outliers(latency: float, bandwidth: float) -> None:
    world, model = World(1, latency=latency, bandwidth=bandwidth), CostModel()
    world.teach_transfers(model, 300)
    for num_blocks in (16, 64, 100, 400):  # the last size was never observed
        truth = world.transfer(num_blocks * BLOCK_BYTES)
        assert model.save(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.25)
        assert model.load(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.25)
    assert model.num_refreshes == 0, "noise was taken for a change"


@pytest.mark.parametrize("seed", range(5))
def test_a_link_that_changes_tenfold_is_followed_within_twenty_transfers_and_back(seed: int) -> None:
    world, model = World(seed), CostModel()
    world.teach_transfers(model, 200)
    for factor in (0.1, 10.0):
        world.bandwidth *= factor
        world.latency /= factor
        world.teach_transfers(model, 20)
        for num_blocks in (8, 50, 100):
            truth = world.transfer(num_blocks * BLOCK_BYTES)
            assert model.save(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.35)
            assert model.load(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.35)


def test_a_handful_of_transfers_is_enough_to_notice_a_change() -> None:
    world, model = World(2), CostModel()
    world.teach_transfers(model, 100)
    num_bytes = 50 * BLOCK_BYTES
    for number in range(4):
        model.observe_transfer(("save", "load")[number % 2], num_bytes, 10 * world.transfer(num_bytes))
    assert model.num_refreshes == 1
    assert model.save(num_bytes // 5) == pytest.approx(10 * world.transfer(num_bytes // 5), rel=0.3)
    for number in range(2):  # no random speedup
        model.observe_transfer(("save", "load")[number % 2], num_bytes, world.transfer(num_bytes))
    assert model.num_refreshes == 2
    assert model.load(num_bytes * 2) == pytest.approx(world.transfer(num_bytes * 2), rel=0.3)


def teach_pieces(world: World, model: CostModel, kind: str, num_blocks: int, *, latency: float = 0.0) -> None:
    """Report a transfer in pieces of one block, two, four, then eight each; the first has the latency."""
    size, left = 1, num_blocks
    while left:
        count = min(size, left)
        seconds = world.seen(count * BLOCK_BYTES / world.bandwidth + (latency if left == num_blocks else 0.0))
        model.observe_transfer(kind, count * BLOCK_BYTES, seconds, continues=left < num_blocks)
        left -= count
        size = min(8, 2 * size)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("latency", "bandwidth"), [(2e-3, 150e6), (1e-5, 20e9)])
def test_whole_transfers_are_learnt_from_their_pieces(latency: float, bandwidth: float, seed: int) -> None:
    world, model = World(seed, latency=latency, bandwidth=bandwidth), CostModel()
    for number in range(60):
        kind = ("save", "load")[number % 2]
        teach_pieces(world, model, kind, world.random.randint(1, 100), latency=latency)
    for num_blocks in (4, 16, 64, 100, 200):
        truth = world.transfer(num_blocks * BLOCK_BYTES)
        assert model.save(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.25)
        assert model.load(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.25)


def test_a_link_that_changes_during_a_transfer_is_followed_during_it() -> None:
    world, model = World(2), CostModel()
    block_s = BLOCK_BYTES / world.bandwidth
    for _ in range(20):
        for kind in ("save", "load"):
            teach_pieces(world, model, kind, 60, latency=world.latency)

    def move(slowness: float) -> None:
        model.observe_transfer("load", 4 * BLOCK_BYTES, slowness * 4 * block_s, continues=True)

    for slowness, num_pieces in ((10.0, 4), (1.0, 2), (10.0, 4)):
        refreshes = model.num_refreshes
        for _ in range(num_pieces):
            assert model.num_refreshes == refreshes
            move(slowness)
        assert model.num_refreshes == refreshes + 1
        for num_blocks in (2, 20, 60, 120):
            truth = slowness * num_blocks * block_s
            assert model.load(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.35)
            assert model.save(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.35), "it is one link"
    for _ in range(10):
        move(10.0)
    assert model.num_refreshes == 3, "it goes on as it is"
    assert model.load(60 * BLOCK_BYTES) == pytest.approx(600 * block_s, rel=0.2)


def test_a_piece_that_is_late_by_chance_tells_little_of_the_others() -> None:
    world, model = World(2), CostModel()
    block_s = BLOCK_BYTES / world.bandwidth
    for _ in range(20):
        model.observe_transfer("load", 8 * BLOCK_BYTES, world.latency + 8 * block_s)
        for _ in range(4):
            model.observe_transfer("load", 8 * BLOCK_BYTES, 8 * block_s, continues=True)
    before = model.load(40 * BLOCK_BYTES)
    assert before == pytest.approx(world.transfer(40 * BLOCK_BYTES), rel=0.05)
    model.observe_transfer("load", 8 * BLOCK_BYTES, world.latency + 8 * block_s)
    for slowness in (1.0, 20.0, 1.0, 1.0):
        model.observe_transfer("load", 8 * BLOCK_BYTES, slowness * 8 * block_s, continues=True)
    assert model.num_refreshes == 0
    assert model.load(40 * BLOCK_BYTES) == pytest.approx(before, rel=0.1)


def test_pieces_go_on_after_a_model_was_kept_and_read() -> None:
    world, model = World(2), CostModel()
    for _ in range(10):
        teach_pieces(world, model, "load", 40)
    model.observe_transfer("load", BLOCK_BYTES, BLOCK_BYTES / world.bandwidth)
    model = CostModel.from_dict(json.loads(json.dumps(model.to_dict())))
    before = model.load(40 * BLOCK_BYTES)
    for _ in range(4):
        model.observe_transfer("load", 4 * BLOCK_BYTES, 4 * BLOCK_BYTES / world.bandwidth, continues=True)
    assert model.load(40 * BLOCK_BYTES) == pytest.approx(before, rel=0.1)


def test_a_direction_that_nobody_has_seen_since_changes_with_the_other() -> None:
    world, model = World(3), CostModel()
    world.teach_transfers(model, 100)
    num_bytes = 50 * BLOCK_BYTES
    for _ in range(4):
        model.observe_transfer("save", num_bytes, 10 * world.transfer(num_bytes))
    assert 5 < model.load(num_bytes) / world.transfer(num_bytes) < 15, "by as much as four misses tell"
    for _ in range(2):  # but it had not
        model.observe_transfer("load", num_bytes, world.transfer(num_bytes))
    assert model.load(num_bytes) == pytest.approx(world.transfer(num_bytes), rel=0.35)
    assert model.save(num_bytes) == pytest.approx(world.transfer(num_bytes), rel=0.35)


def test_one_direction_may_change_while_the_other_goes_on() -> None:
    world, model = World(4), CostModel()
    world.teach_transfers(model, 100)
    num_bytes = 50 * BLOCK_BYTES
    for _ in range(10):
        model.observe_transfer("save", num_bytes, 10 * world.transfer(num_bytes))
        model.observe_transfer("load", num_bytes, world.transfer(num_bytes))
    assert model.save(num_bytes) == pytest.approx(10 * world.transfer(num_bytes), rel=0.2)
    assert model.load(num_bytes) == pytest.approx(world.transfer(num_bytes), rel=0.2)


def test_predictions_of_the_next_step_and_transfer_are_good() -> None:
    world, model = World(6), CostModel()
    errors: dict[str, list[float]] = {"step": [], "save": [], "load": []}
    for number in range(800):
        shape, num_bytes, kind = world.shape(), world.random.randint(1, 100) * BLOCK_BYTES, ("save", "load")[number % 2]
        step_s, transfer_s = world.seen(world.step(shape)), world.seen(world.transfer(num_bytes))
        if number >= 400:
            errors["step"].append(abs(model.step(shape) - step_s) / step_s)
            errors[kind].append(abs(getattr(model, kind)(num_bytes) - transfer_s) / transfer_s)
        model.observe_step(shape, step_s)
        model.observe_transfer(kind, num_bytes, transfer_s)
    for found in errors.values():
        assert median(found) < 0.15
        assert sorted(found)[len(found) * 9 // 10] < 0.4
    with pytest.raises(ValueError, match="save"):
        model.observe_transfer("copy", 1, 1.0)


# -- whatever is seen -------------------------------------------------------------------------------------------------

SECONDS = st.floats(1e-6, 1e3) | st.sampled_from((0.0, 1e-12, float("nan"), float("inf"), -1.0))
SHAPES = st.builds(
    StepShape,
    num_tokens=st.integers(0, 4096),
    num_seqs=st.integers(0, 256),
    attended=st.floats(0, 1e8),
    context_decode=st.integers(0, 10**6),
)
STEPS = st.lists(st.tuples(SHAPES, SECONDS), max_size=60)
TRANSFERS = st.lists(st.tuples(st.sampled_from(("save", "load")), st.integers(0, 10**10), SECONDS), max_size=60)


def taught(steps: list[tuple[StepShape, float]], transfers: list[tuple[str, int, float]]) -> CostModel:
    model = CostModel()
    for shape, seconds in steps:
        model.observe_step(shape, seconds)
    for kind, num_bytes, seconds in transfers:
        model.observe_transfer(kind, num_bytes, seconds)
    return model


def never_falls(values: list[float]) -> bool:
    assert all(value >= 0.0 for value in values)
    return all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairwise(values))


@settings(max_examples=50, deadline=None)
@given(STEPS, TRANSFERS, SHAPES, st.integers(1, 600), st.integers(0, 4000))
def test_predictions_are_never_negative_and_never_fall(
    steps: list[tuple[StepShape, float]],
    transfers: list[tuple[str, int, float]],
    shape: StepShape,
    chunk: int,
    start: int,
) -> None:
    model = taught(steps, transfers)
    counts = [1, 2, 3, 15, 16, 17, 100, 511, 512, 513, 1000, 5000, 20_000]
    seqs, attended, context = shape.num_seqs, shape.attended, shape.context_decode
    assert never_falls([model.step(StepShape(count, seqs, attended, context)) for count in counts])
    for beside in (None, shape):
        assert never_falls([model.recompute(n, start=start, chunk=chunk, beside=beside) for n in (0, *counts)])
    for predict in (model.save, model.load):
        assert never_falls([predict(num_bytes) for num_bytes in (0, 1, 4096, 10**5, 10**6, 10**7, 10**9, 10**11)])
    assert model.step(StepShape(0, 0)) == model.recompute(0) == model.save(0) == 0.0


@settings(max_examples=50, deadline=None)
@given(STEPS, TRANSFERS, SHAPES)
def test_what_was_learnt_survives_as_json(
    steps: list[tuple[StepShape, float]], transfers: list[tuple[str, int, float]], shape: StepShape
) -> None:
    model = taught(steps, transfers)
    model.steps.fit()
    again = CostModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert again.is_calibrated == model.is_calibrated
    assert again.to_dict() == model.to_dict()
    for num_bytes in (10**3, 10**7):
        assert again.save(num_bytes) == pytest.approx(model.save(num_bytes))
        assert again.load(num_bytes) == pytest.approx(model.load(num_bytes))


def test_a_model_that_comes_back_predicts_as_it_did() -> None:
    world, model = World(8), CostModel()
    world.teach_steps(model, 500)
    world.teach_transfers(model, 50)
    again = CostModel.from_dict(model.to_dict())
    for _ in range(100):
        shape = world.shape()
        assert again.step(shape) == pytest.approx(model.step(shape), rel=0.1)


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda data: data.update(version=0),
        lambda data: data.pop("steps"),
        lambda data: data["links"]["host"]["saves"].pop("observations"),
        lambda data: data["links"]["host"]["loads"].update(observations=[[1.0, -1.0, 1]]),
        lambda data: data["links"]["host"]["loads"].update(observations=[["a", 1.0, 1]]),
        lambda data: data["links"]["host"]["loads"].update(observations=[[float("nan"), 1.0, 1]]),
        lambda data: data["steps"].update(observations=[[1, 2, 3]]),
        lambda data: data["steps"].update(observations=[[8, 8, 0.0, 0, float("inf"), 1]]),
        lambda data: data["steps"].update(observations=[[0.5, 8, 0.0, 0, 1.0, 1]]),
        lambda data: data["steps"].update(observations=[[8, 8, 0.0, 0, 1.0, 10**9]]),
        lambda data: data["steps"].update(num_observed=None),
        lambda data: data["links"].update(disk=[]),
    ],
)
def test_what_is_no_cost_model_is_refused(corrupt: Callable[[dict[str, object]], object]) -> None:
    world, model = World(8), CostModel()
    world.teach_steps(model, 50)
    world.teach_transfers(model, 10)
    data = json.loads(json.dumps(model.to_dict()))
    corrupt(data)
    with pytest.raises(ValueError, match="no cost model"):
        CostModel.from_dict(data)


def test_a_cold_model_can_be_asked_and_says_that_it_guesses() -> None:
    model = CostModel()
    assert not model.is_calibrated
    for prediction in (model.step(StepShape(8, 8, 0.0, 100)), model.recompute(512), model.save(10**6)):
        assert prediction > 0.0
    world = World(1)
    world.teach_steps(model, 16)
    assert not model.is_calibrated, "the link has not been measured"
    world.teach_transfers(model, 8)
    assert model.is_calibrated


def test_memory_stays_bounded() -> None:
    world, model = World(1), CostModel()
    world.teach_steps(model, 500)
    pick = world.random.randint
    for number in range(1000):
        model.observe_step(StepShape(2 ** pick(0, 14), 1, 2.0 ** pick(0, 40), 0), 1.0)
        model.observe_transfer("save", 2 ** pick(0, 60), 1.0 + number)
    assert len(model.to_dict()["steps"]["observations"]) <= 300
    assert len(model.to_dict()["links"]["host"]["saves"]["observations"]) <= 800


# -- tables -----------------------------------------------------------------------------------------------------------


def test_between_a_tables_rows_and_behind_them_lie_straight_lines() -> None:
    costs = cps_paper().costs
    assert costs.recompute(768, chunk=768) == pytest.approx((8.30 + 12.30) / 2e3)
    assert costs.recompute(16384, chunk=16384) == pytest.approx((97.60 + 2 * (97.60 - 42.90)) / 1e3)


def test_the_papers_roads_cross_once_near_its_1024() -> None:
    # Between 512 and 1,024 tokens swap less recompute goes from (3.236 + 0.034 + 3.366) - 8.30 = -1.664 ms
    # to (6.257 + 0.050 + 6.379) - 12.30 = +0.386 ms: zero at 512 + 512 * 1.664 / 2.050 = 927.6, in blocks 928.
    costs = cps_paper().costs
    assert find_crossings(costs, cps_paper().bytes_per_token, 8192) == [928]
    assert find_crossings(costs, cps_paper().bytes_per_token, 8192, granularity=1) == [928]
    assert find_crossings(costs, cps_paper().bytes_per_token, 512) == []


def test_assumed_decode_costs_scale_and_published_ones_stay() -> None:
    once, twice = cps_paper().costs, cps_paper(2.0).costs
    decode = StepShape(32, 32, 0.0, 32 * 500)
    assert twice.step(decode) == pytest.approx(2 * once.step(decode))
    assert twice.recompute(1024, chunk=1024) == once.recompute(1024, chunk=1024)
    assert "decode" in cps_paper().assumed
    assert "recompute" in cps_paper().published


def test_a_table_adds_a_chunk_to_a_step_that_pays_the_fixed_cost_already() -> None:
    costs = cps_paper().costs
    decode = StepShape(16, 16, 0.0, 8000)
    both = costs.step(decode.plus_chunk(512, 256)) - costs.step(decode)
    assert costs.recompute(256, start=512, chunk=256, beside=decode) == pytest.approx(both)
    assert both == pytest.approx((12.30 - 8.30) / 2e3)


def table(swap: list[tuple[int, float]], recompute: list[tuple[int, float]]) -> TableCosts:
    half = [(tokens, seconds / 2) for tokens, seconds in swap]
    return TableCosts(half, half, recompute, 1, DecodeCosts(0.0, 0.0, 0.0))


def test_crossing_points_may_be_none_one_the_other_way_round_or_several() -> None:
    linear = [(0, 0.0), (1000, 1.0)]
    assert find_crossings(table([(0, 0.0), (1000, 0.5)], linear), 1, 1000) == []
    with_latency = table([(0, 0.25), (1000, 0.75)], linear)  # swapping improves with length: equal at 500
    assert find_crossings(with_latency, 1, 1000) == [512]
    assert find_crossings(with_latency, 1, 1000, granularity=1) == [501]
    wavy = table([(0, 0.1), (200, 0.15), (400, 0.5), (1000, 0.8)], linear)
    assert find_crossings(wavy, 1, 1000, granularity=1) == [134, 267, 601]


def test_a_learnt_models_crossing_point_is_the_worlds() -> None:
    world, model = World(2, latency=0.1, bandwidth=500e6), CostModel()
    world.teach_steps(model, 1500)
    world.teach_transfers(model, 400)
    alone = StepShape(0, 0)
    truth = next(n for n in range(16, 4096, 16) if 2 * world.transfer(36_864 * n) < world.step(alone.plus_chunk(0, n)))
    crossings = find_crossings(model, 36_864, 2048)
    assert len(crossings) == 1
    assert crossings[0] == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("rows", [[], [(512, 2.0), (512, 3.0)], [(512, 2.0), (1024, 1.0)], [(1, -1.0)]])
def test_tables_that_make_no_sense_are_refused(rows: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match=r"point|negative"):
        PiecewiseLinear(rows)
    with pytest.raises(ValueError, match=r"point|negative"):
        table(rows, [(1, 1.0)])


def test_a_table_needs_bytes_per_token() -> None:
    with pytest.raises(ValueError, match="bytes_per_token"):
        TableCosts([(1, 1.0)], [(1, 1.0)], [(1, 1.0)], 0, DecodeCosts(0.0, 0.0, 0.0))


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10)), max_size=30))
def test_isotonic_sequences_never_fall_and_keep_the_mean(pairs: list[tuple[float, float]]) -> None:
    values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
    result = isotonic(values, weights)
    assert all(a <= b for a, b in pairwise(result))
    before = sum(value * weight for value, weight in pairs)
    assert sum(v * w for v, w in zip(result, weights, strict=True)) == pytest.approx(before, abs=1e-6)
    assert isotonic(sorted(values), weights) == pytest.approx(sorted(values))


def model_of_disk(bytes_per_s: float) -> CostModel:
    model = CostModel()
    for num_bytes in (1 << 20, 1 << 22, 1 << 23, 1 << 24) * 3:
        model.observe_transfer("load", num_bytes, num_bytes / bytes_per_s, tier="disk")
    return model


def test_loads_from_disk_are_predicted_by_stored_bytes_and_decoding() -> None:
    model, num_bytes = model_of_disk(1e8), 10_000_000
    plain = model.load(num_bytes, "disk")
    assert plain == pytest.approx(0.1, rel=0.05)
    model.stored_share = 0.7
    model.decode_s_per_byte = 1e-9
    assert model.load(num_bytes, "disk") == pytest.approx(0.073, rel=0.05)
    for _ in range(100):
        model.observe_decoding(3_000_000, 0.3)
    assert model.load(num_bytes, "disk") == pytest.approx(0.37, rel=0.05)
    assert model.load(num_bytes) < plain, "no other link has coded blocks"
    before = model.decode_s_per_byte
    model.observe_decoding(0, 0.0)
    model.observe_decoding(100, float("nan"))
    assert model.decode_s_per_byte == before


def test_coding_pays_on_disks_that_are_slower_than_decoding_the_saved_bytes() -> None:
    assert not CostModel().pays_to_code, "nothing is known"
    for bytes_per_s, pays in ((1e8, True), (4e8, True), (6e8, False), (1e10, False)):
        model = model_of_disk(bytes_per_s)
        model.decode_s_per_byte = 2e-9
        assert model.pays_to_code == pays, bytes_per_s
