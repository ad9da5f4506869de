"""The block pool against a model of lists and sets."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire.config import BlockWindow
from quire.core.block_pool import BlockPool, WindowedBlockPool

NUM_BLOCKS = 6
KEYS = [bytes([i]) * 4 for i in range(8)]


class PoolMachine(RuleBasedStateMachine):
    """Every operation on pool and model, compared after each."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.holds: dict[int, int] = {}  #: used blocks
        self.names: dict[int, bytes] = {}
        self.cached: list[int] = []  #: the first one is evicted first

    @property
    def free(self) -> set[int]:
        return set(range(NUM_BLOCKS)) - set(self.holds) - set(self.cached)

    @precondition(lambda self: self.free or self.cached)
    @rule()
    def allocate(self) -> None:
        free = self.free
        block = self.pool.allocate()
        if free:
            assert block in free, "something cached was evicted while blocks were free"
        else:
            assert block == self.cached.pop(0), "not the oldest was evicted"
            del self.names[block]
        self.holds[block] = 1

    @precondition(lambda self: self.holds or self.cached)
    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted([*self.holds, *self.cached])))
        self.pool.acquire(block)
        if block in self.cached:
            self.cached.remove(block)
        self.holds[block] = self.holds.get(block, 0) + 1

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.holds)))
        self.pool.release(block)
        self.holds[block] -= 1
        if self.holds[block] == 0:
            del self.holds[block]
            if block in self.names:
                self.cached.append(block)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def register(self, data: st.DataObject, key: bytes) -> None:
        block = data.draw(st.sampled_from(sorted(self.holds)))
        is_new = key not in self.names.values() and block not in self.names
        assert self.pool.register(block, key) == is_new
        if is_new:
            self.names[block] = key

    @rule(block=st.integers(0, NUM_BLOCKS - 1))
    def withdraw(self, block: int) -> None:
        self.pool.invalidate(block)
        self.names.pop(block, None)
        if block in self.cached:
            self.cached.remove(block)

    @invariant()
    def is_as_the_model_says(self) -> None:
        pool = self.pool
        pool.check_integrity()
        assert pool.ref_counts == [self.holds.get(block, 0) for block in range(NUM_BLOCKS)]
        assert (pool.num_used, pool.num_cached) == (len(self.holds), len(self.cached))
        assert pool.num_available == len(self.free) + len(self.cached) == NUM_BLOCKS - pool.num_used
        found = {key: pool.find(key) for key in KEYS}
        assert {block: key for key, block in found.items() if block is not None} == self.names


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=30, stateful_step_count=60, deadline=None)


@pytest.mark.slow
class TestPoolDeep(PoolMachine.TestCase):
    settings = settings(max_examples=3000, stateful_step_count=100, deadline=None)


def cached_chain(pool: BlockPool, keys: list[bytes]) -> list[int]:
    """Cache blocks of one sequence and free them as a sequence does: last one first."""
    blocks = [pool.allocate() for _ in keys]
    for block, key in zip(blocks, keys, strict=True):
        pool.register(block, key)
    for block in reversed(blocks):
        pool.release(block)
    return blocks


def test_a_tail_is_evicted_before_its_prefix() -> None:
    pool = BlockPool(4)
    cached_chain(pool, KEYS[:4])
    for num_evicted in range(1, 5):
        pool.allocate()
        found = [pool.find(key) is not None for key in KEYS[:4]]
        assert found == [True] * (4 - num_evicted) + [False] * num_evicted


def test_a_sequence_that_was_used_lately_outlives_one_that_was_not() -> None:
    pool = BlockPool(4)
    old, new = cached_chain(pool, KEYS[:2]), cached_chain(pool, KEYS[2:4])
    for block in old:
        pool.acquire(block)
    for block in reversed(old):
        pool.release(block)
    assert [pool.allocate() for _ in range(4)] == [new[1], new[0], old[1], old[0]]


def test_free_blocks_are_taken_before_anything_is_evicted() -> None:
    pool = BlockPool(3)
    cached_chain(pool, KEYS[:1])
    pool.allocate()
    pool.allocate()
    assert pool.find(KEYS[0]) is not None
    pool.allocate()
    assert pool.find(KEYS[0]) is None


def test_giving_back_more_often_than_taken_is_an_error() -> None:
    pool = BlockPool(1)
    block = pool.allocate()
    pool.release(block)
    with pytest.raises(AssertionError, match="released too often"):
        pool.release(block)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda pool: pool._free.append(pool._free[0]),
        lambda pool: pool._free.pop(),
        lambda pool: pool.ref_counts.__setitem__(0, 0),
        lambda pool: pool.ref_counts.__setitem__(3, -1),
        lambda pool: pool._block_of_key.clear(),
        lambda pool: pool._keys.__setitem__(3, b"name"),
        lambda pool: pool._cached.clear(),
        lambda pool: pool._free.append(1),
    ],
)
def test_the_check_finds_what_is_broken(break_it) -> None:
    pool = BlockPool(5)
    used, cached = pool.allocate(), pool.allocate()
    assert (used, cached) == (0, 1)
    pool.register(cached, KEYS[0])
    pool.release(cached)
    pool.check_integrity()
    break_it(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity()


def test_blocks_come_out_of_the_middle_of_a_large_pool() -> None:
    """No timing is asserted, but walking the pool in any operation would take hours."""
    pool = BlockPool(200_000)
    blocks = [pool.allocate() for _ in range(pool.num_blocks)]
    for block in blocks:
        pool.register(block, block.to_bytes(4, "little"))
    for block in blocks:
        pool.release(block)
    for block in blocks[1::2]:
        pool.acquire(block)
    for block in blocks[::4]:
        pool.invalidate(block)
    assert (pool.num_used, pool.num_cached, pool.num_available) == (100_000, 50_000, 100_000)
    pool.check_integrity()


def test_where_memory_is_missing_the_longest_unread_windows_and_cached_blocks_go_first() -> None:
    pool = WindowedBlockPool(4, BlockWindow(tokens=4, thin=BlockWindow.WHOLE // 4, num_whole=2))
    first, second, third, fourth = pool.allocate_all(4)
    pool.register_all([first, second, third], KEYS[:3])
    pool.outgrow([first])
    pool.release(second)
    pool.outgrow([third])
    assert (pool.num_available, pool.num_cached) == (2, 1)  # 1 whole block and 2 quarters are needed
    assert pool.allocate() == second, "a thin block frees too little"
    assert pool.thin == {first}
    assert pool.find(KEYS[1]) is None
    pool.release(second)
    pool.release(fourth)
    pool.allocate_all(3)
    assert pool.thin == {first, third}
    assert pool.num_available == 0
    pool.release_outgrown([first])
    assert pool.find(KEYS[0]) == first
    pool.check_integrity()
    pool.acquire_outgrown([first])
    assert pool.num_available == 0
    pool.release_outgrown([first])
    pool.release_outgrown([third])
    pool.allocate()
    assert pool.returned == [(first, False), (third, False), (first, True), (third, True)]
    pool.check_integrity()
