"""Block tables: lookup, sharing, copies and visibility."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire.core.block_keys import PUBLIC, PUBLIC_ONLY, DomainSpans, Namespace, collection_domain, tenant_domain
from quire.core.kv_cache_manager import KVCacheManager, check_tables
from quire.core.request import KVScope, Request, Sequence
from quire.sampling_params import SamplingParams

BLOCK_SIZE = 4
_serial = count()


def make_sequence(tokens: list[int], domains: DomainSpans = PUBLIC_ONLY, root: bytes = b"") -> Sequence:
    """Return the only sequence of a new request."""
    request = Request(f"request-{next(_serial)}", tokens, SamplingParams(), kv=KVScope(root, domains))
    seq = Sequence(next(_serial), 0, request, list(tokens))
    request.unfinished.append(seq)
    return seq


def make_sibling(kv: KVCacheManager, parent: Sequence) -> Sequence:
    """Fork `parent`."""
    request = parent.request
    child = Sequence(next(_serial), len(request.unfinished), request, list(parent.token_ids))
    kv.fork(parent, child)
    request.unfinished.append(child)
    return child


def make_manager(num_blocks: int = 16, **options: object) -> KVCacheManager:
    return KVCacheManager(num_blocks, BLOCK_SIZE, **options)  # type: ignore[arg-type]


def compute(kv: KVCacheManager, seq: Sequence, num_tokens: int | None = None) -> None:
    """Run one step in which only `seq` computes tokens, by default all missing ones."""
    kv.begin_step()
    missing = len(seq.token_ids) - seq.num_computed_tokens
    assert kv.append_slots(seq, missing if num_tokens is None else num_tokens) is not None


def begin(kv: KVCacheManager, seq: Sequence) -> int:
    """Adopt cached blocks and compute the rest; return the blocks found."""
    found = kv.find_prefix(seq)
    kv.adopt_prefix(seq, found)
    compute(kv, seq)
    return len(found)


PROMPT = list(range(10))  # two full blocks and a half


def test_a_prompt_takes_as_many_blocks_as_it_fills() -> None:
    kv = make_manager()
    seq = make_sequence(PROMPT)
    assert kv.count_new_blocks(seq, 10) == 3
    compute(kv, seq, 3)
    assert (len(seq.block_table), seq.num_computed_tokens) == (1, 3)
    compute(kv, seq, 1)
    assert len(seq.block_table) == 1
    compute(kv, seq)
    assert (len(seq.block_table), seq.num_computed_tokens, kv.pool.num_used) == (3, 10, 3)
    assert (kv.num_logical_blocks, kv.num_kv_tokens) == (3, 10)
    check_tables(kv, [seq])


def test_where_there_is_no_room_nothing_changes() -> None:
    kv = make_manager(num_blocks=2)
    seq = make_sequence(PROMPT)
    kv.begin_step()
    assert kv.append_slots(seq, 10) is None
    assert (seq.block_table, seq.num_computed_tokens, kv.pool.num_available) == ([], 0, 2)
    check_tables(kv, [seq])


def test_no_room_for_a_copy_changes_nothing() -> None:
    kv = make_manager(num_blocks=3)
    parent = make_sequence(PROMPT)
    begin(kv, parent)
    child = make_sibling(kv, parent)
    child.token_ids.append(77)
    table = list(child.block_table)
    assert kv.append_slots(child, 1) is None
    assert (child.block_table, child.num_computed_tokens) == (table, 10)
    check_tables(kv, [parent, child])


class TestPrefixes:
    def test_a_prefix_is_found_in_the_step_that_writes_it(self) -> None:
        kv = make_manager()
        first, second = make_sequence(PROMPT), make_sequence([*PROMPT[:8], 77, 78])
        kv.begin_step()
        kv.append_slots(first, 10)
        assert kv.find_prefix(second) == first.block_table[:2]

    def test_only_full_blocks_are_found(self) -> None:
        kv = make_manager()
        first = make_sequence(PROMPT)
        compute(kv, first, 7)
        assert kv.find_prefix(make_sequence(PROMPT)) == first.block_table[:1]

    def test_one_token_is_always_left_to_compute(self) -> None:
        kv = make_manager()
        begin(kv, make_sequence(PROMPT[:8]))
        assert len(kv.find_prefix(make_sequence(PROMPT[:8]))) == 1
        assert len(kv.find_prefix(make_sequence(PROMPT[:9]))) == 2

    @pytest.mark.parametrize(("limit", "num_found"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, 2), (100, 2)])
    def test_a_limit_leaves_more_to_compute(self, limit: int, num_found: int) -> None:
        kv = make_manager()
        begin(kv, make_sequence(PROMPT))
        assert len(kv.find_prefix(make_sequence(PROMPT), limit)) == num_found

    def test_no_limit_leaves_less_than_one_token(self) -> None:
        kv = make_manager()
        begin(kv, make_sequence(PROMPT))
        assert len(kv.find_prefix(make_sequence(PROMPT[:8]), 8)) == 1

    def test_a_prefix_ends_at_the_first_block_that_is_gone(self) -> None:
        kv = make_manager()
        first = make_sequence(PROMPT)
        begin(kv, first)
        kv.pool.invalidate(first.block_table[0])
        assert kv.find_prefix(make_sequence(PROMPT)) == []

    def test_what_was_found_is_held_by_both_and_stays_when_one_goes(self) -> None:
        kv = make_manager()
        first, second = make_sequence(PROMPT), make_sequence(PROMPT)
        begin(kv, first)
        assert begin(kv, second) == 2
        assert first.block_table[:2] == second.block_table[:2]
        assert first.block_table[2] != second.block_table[2]
        assert (kv.pool.num_used, kv.num_logical_blocks, kv.num_kv_tokens) == (4, 6, 20)
        kv.free(first)
        check_tables(kv, [second])
        assert kv.pool.ref_counts[second.block_table[0]] == 1

    def test_a_finished_requests_prefix_is_found_until_it_is_evicted(self) -> None:
        kv = make_manager(num_blocks=4)
        first = make_sequence(PROMPT)
        begin(kv, first)
        kv.free(first)
        assert (kv.pool.num_used, kv.pool.num_cached) == (0, 2)
        other = make_sequence([50, 51, 52, 53, 54, 55, 56, 57, 58])  # needs three: the free ones and the tail
        compute(kv, other)
        assert len(kv.find_prefix(make_sequence(PROMPT))) == 1

    def test_output_tokens_make_blocks_that_a_longer_prompt_finds(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        begin(kv, seq)
        for token in range(20, 28):
            seq.token_ids.append(token)
            compute(kv, seq)
        assert len(kv.find_prefix(make_sequence([*seq.token_ids, 99]))) == 4

    def test_two_who_compute_the_same_block_share_its_name_and_not_the_block(self) -> None:
        kv = make_manager()
        first, second = make_sequence(PROMPT), make_sequence(PROMPT)
        kv.begin_step()
        kv.append_slots(first, 2)
        kv.append_slots(second, 2)
        compute(kv, first)
        compute(kv, second)
        assert not set(first.block_table) & set(second.block_table)
        assert kv.find_prefix(make_sequence(PROMPT)) == first.block_table[:2]
        kv.free(second)
        check_tables(kv, [first])
        assert kv.pool.num_cached == 0, "the nameless copies are free at once"

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=2, max_size=6))
    def test_exactly_the_common_full_blocks_are_found(self, prompts: list[list[int]]) -> None:
        kv = make_manager(num_blocks=64)
        earlier: list[list[int]] = []
        for prompt in prompts:
            longest = max((common_blocks(prompt, other) for other in earlier), default=0)
            assert len(kv.find_prefix(make_sequence(prompt))) == min(longest, (len(prompt) - 1) // BLOCK_SIZE)
            begin(kv, make_sequence(prompt))
            earlier.append(prompt)


def common_blocks(a: list[int], b: list[int]) -> int:
    full = 0
    while len(a) >= (full + 1) * BLOCK_SIZE <= len(b) and a[: (full + 1) * BLOCK_SIZE] == b[: (full + 1) * BLOCK_SIZE]:
        full += 1
    return full


class TestWithoutPrefixCaching:
    def test_other_requests_find_nothing(self) -> None:
        kv = make_manager(enable_prefix_caching=False)
        first = make_sequence(PROMPT)
        begin(kv, first)
        assert kv.find_prefix(make_sequence(PROMPT)) == []
        kv.free(first)
        assert kv.find_prefix(make_sequence(PROMPT)) == []
        assert kv.find_prefix(first) == [], "not even what it held itself"

    def test_siblings_find_each_others_blocks(self) -> None:
        kv = make_manager(enable_prefix_caching=False)
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        child = make_sibling(kv, parent)
        kv.free(child)
        assert kv.find_prefix(child) == parent.block_table[:2]


class TestCopyOnWrite:
    def test_a_shared_block_is_copied_and_the_last_holder_writes_in_place(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        half_full = parent.block_table[2]
        children = [make_sibling(kv, parent) for _ in range(2)]
        family = [parent, *children]
        assert (kv.pool.num_used, kv.num_logical_blocks) == (3, 9)
        kv.begin_step()
        for i, seq in enumerate(family):
            seq.token_ids.append(70 + i)
            is_shared = i < 2
            assert kv.count_new_blocks(seq, 11) == is_shared
            new_blocks, transfer = kv.append_slots(seq, 1) or pytest.fail("there is room")
            assert new_blocks == []
            assert (transfer is not None) == is_shared
            if transfer is not None:
                assert (transfer.kind, transfer.src, transfer.dst) == ("copy", half_full, seq.block_table[2])
        assert family[2].block_table[2] == half_full
        assert len({seq.block_table[2] for seq in family}) == 3
        assert kv.pool.num_used == 5
        check_tables(kv, family)

    def test_a_fork_at_a_block_boundary_copies_nothing(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT[:8])
        begin(kv, parent)
        child = make_sibling(kv, parent)
        kv.begin_step()
        for seq in (parent, child):
            seq.token_ids.append(seq.seq_id)
            new_blocks, transfer = kv.append_slots(seq, 1) or pytest.fail("there is room")
            assert (len(new_blocks), transfer) == (1, None)
        assert parent.block_table[:2] == child.block_table[:2]

    def test_no_copy_is_made_where_the_sibling_has_gone(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        child = make_sibling(kv, parent)
        kv.free(parent)
        parent.request.unfinished.remove(parent)
        child.token_ids.append(70)
        assert kv.append_slots(child, 1) == ([], None)

    def test_operations_are_numbered(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        ids = []
        for token in (70, 71):
            child = make_sibling(kv, parent)
            child.token_ids.append(token)
            _, transfer = kv.append_slots(child, 1) or pytest.fail("there is room")
            assert transfer is not None
            ids.append(transfer.op_id)
        assert len(set(ids)) == 2

    def test_what_a_fork_writes_has_its_own_name(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        child = make_sibling(kv, parent)
        for token in (1, 2):
            for seq in (parent, child):
                seq.token_ids.append(token + 10 * seq.index)
                compute(kv, seq)
        assert kv.find_prefix(make_sequence([*PROMPT, 1, 2, 0])) == parent.block_table
        assert kv.find_prefix(make_sequence([*PROMPT, 11, 12, 0])) == child.block_table


class TestLettingGo:
    def test_free_is_idempotent(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        begin(kv, seq)
        assert kv.free(seq) == 3
        assert kv.free(seq) == 0
        assert (kv.pool.num_available, kv.num_logical_blocks, kv.num_kv_tokens) == (16, 0, 0)
        check_tables(kv, [seq])

    def test_only_blocks_that_nobody_else_holds_become_available(self) -> None:
        kv = make_manager()
        parent = make_sequence(PROMPT)
        begin(kv, parent)
        child = make_sibling(kv, parent)
        child.token_ids.append(70)
        compute(kv, child)
        assert kv.free(child) == 1
        assert kv.free(parent) == 3

    def test_a_sequence_that_comes_back_finds_its_own_blocks(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        begin(kv, seq)
        table = list(seq.block_table)
        kv.free(seq)
        assert begin(kv, seq) == 2
        assert seq.block_table[:2] == table[:2]

    def test_its_tail_is_evicted_before_its_prefix(self) -> None:
        kv = make_manager(num_blocks=4)
        seq = make_sequence(list(range(16)))
        begin(kv, seq)
        kv.free(seq)
        for left in (3, 2, 1, 0):
            kv.pool.allocate()
            assert len(kv.find_prefix(make_sequence([*range(16), 99]))) == left


class TestFailure:
    def test_names_given_in_a_failed_step_are_withdrawn(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        compute(kv, seq, 4)
        kv.begin_step()
        kv.append_slots(seq, 6)
        kv.fail_step()
        assert kv.find_prefix(make_sequence(PROMPT)) == seq.block_table[:1], "what an earlier step wrote stays"
        check_tables(kv, [seq])

    def test_they_are_withdrawn_even_if_their_blocks_were_given_back_meanwhile(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        kv.begin_step()
        kv.append_slots(seq, 10)
        kv.free(seq)
        kv.fail_step()
        assert kv.find_prefix(make_sequence(PROMPT)) == []
        assert kv.pool.num_cached == 0
        check_tables(kv, [])

    def test_a_block_that_nobody_trusts_is_not_found(self) -> None:
        kv = make_manager()
        first, second = make_sequence(PROMPT), make_sequence(PROMPT)
        begin(kv, first)
        begin(kv, second)
        kv.invalidate(first)
        assert kv.find_prefix(make_sequence(PROMPT)) == []
        check_tables(kv, [first, second])


class TestPins:
    def test_pinned_blocks_outlive_everything(self) -> None:
        kv = make_manager(num_blocks=6)
        seq = make_sequence(PROMPT)
        begin(kv, seq)
        assert kv.pin(seq, 4) == 2
        kv.free(seq)
        for start in range(100, 200, 16):
            other = make_sequence(list(range(start, start + 16)))
            begin(kv, other)
            kv.free(other)
        assert len(kv.find_prefix(make_sequence(PROMPT))) == 2
        assert (kv.pool.num_used, len(kv.pinned)) == (2, 2)
        check_tables(kv, [])

    def test_pinning_again_holds_nothing_twice(self) -> None:
        kv = make_manager()
        seq, longer = make_sequence(PROMPT), make_sequence([*range(14)])
        begin(kv, seq)
        begin(kv, longer)
        assert [kv.pin(seq, 4), kv.pin(seq, 4)] == [2, 2]
        assert kv.pin(longer, 4) == 3
        kv.free(seq)
        kv.free(longer)
        assert (kv.pool.num_used, len(kv.pinned)) == (3, 3)
        check_tables(kv, [])

    def test_only_full_blocks_that_are_computed_are_pinned(self) -> None:
        kv = make_manager()
        seq = make_sequence(PROMPT)
        compute(kv, seq, 5)
        assert kv.pin(seq, 4) == 1


class TestCrossTalk:
    ann, bob = tenant_domain("ann", b"secret"), tenant_domain("bob", b"secret")

    @pytest.mark.parametrize(
        ("mine", "theirs", "num_found"),
        [
            (PUBLIC_ONLY, PUBLIC_ONLY, 2),
            (((0, ann),), ((0, ann),), 2),
            (((0, ann),), ((0, bob),), 0),
            (((0, ann),), PUBLIC_ONLY, 0),
            (PUBLIC_ONLY, ((0, ann),), 0),
            (((0, PUBLIC), (4, ann)), ((0, PUBLIC), (4, bob)), 1),
            (((0, PUBLIC), (5, ann)), PUBLIC_ONLY, 1),
            (((0, PUBLIC), (3, ann)), PUBLIC_ONLY, 0),
            (((0, PUBLIC), (8, ann)), ((0, PUBLIC), (8, bob)), 2),
            (((0, collection_domain("a")),), ((0, collection_domain("b")),), 0),
            (((0, ann.salted("x")),), ((0, ann.salted("x")),), 2),
            (((0, ann.salted("x")),), ((0, ann.salted("y")),), 0),
            (((0, ann.salted("x")),), ((0, ann),), 0),
            (((0, ann.salted("x")),), ((0, bob.salted("x")),), 0),
            (((0, PUBLIC), (4, PUBLIC.salted("x"))), ((0, PUBLIC), (4, PUBLIC.salted("y"))), 1),
        ],
    )
    def test_blocks_are_found_within_their_domain_only(
        self, mine: DomainSpans, theirs: DomainSpans, num_found: int
    ) -> None:
        kv = make_manager()
        begin(kv, make_sequence(PROMPT, mine))
        assert len(kv.find_prefix(make_sequence(PROMPT, theirs))) == num_found

    def test_a_tenants_request_begins_with_the_public_blocks_that_its_prompt_has(self) -> None:
        kv = make_manager()
        begin(kv, make_sequence([*PROMPT[:4], 99, 98, 97, 96]))
        mine = make_sequence(PROMPT, ((0, self.ann),))
        kv.share_public_prefix(mine.request, lambda key: False)
        assert mine.request.domains == ((0, PUBLIC), (4, self.ann))
        assert begin(kv, mine) == 1
        theirs = make_sequence(PROMPT, ((0, self.bob),))
        kv.share_public_prefix(theirs.request, lambda key: False)
        assert len(kv.find_prefix(theirs)) == 1, "what follows is each one's own"
        salted = make_sequence(PROMPT, ((0, PUBLIC.salted("x")),))
        kv.share_public_prefix(salted.request, lambda key: False)
        assert kv.find_prefix(salted) == [], "where there are no keys, public blocks may be anybody's"

    def test_requests_of_different_namespaces_find_nothing_of_each_other(self) -> None:
        namespace = {"dtype": "float32", "kv_dtype": "float32", "geometry": "g", "rope": "r", "arithmetic": "a"}
        sequences = []
        kv = make_manager()
        for weights in ("a", "b"):
            sequences.append(make_sequence(PROMPT, root=Namespace(weights, **namespace).root()))
            assert begin(kv, sequences[-1]) == 0
        assert not set(sequences[0].block_keys) & set(sequences[1].block_keys)


class ManagerMachine(RuleBasedStateMachine):
    """Sequences that begin, grow, fork and end in random order, on few blocks and tokens, against a record of every
    slot.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kv = make_manager(num_blocks=8)
        self.sequences: list[Sequence] = []
        self.slots: dict[tuple[int, int], tuple[int, ...]] = {}  #: (block, offset) -> the prefix whose KV it holds

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def begins(self, prompt: list[int]) -> None:
        seq = make_sequence(prompt)
        self.kv.adopt_prefix(seq, self.kv.find_prefix(seq))
        self.sequences.append(seq)
        self._compute(seq, len(prompt) - seq.num_computed_tokens)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), token=st.integers(0, 1))
    def grows(self, data: st.DataObject, token: int) -> None:
        seq = data.draw(st.sampled_from(self.sequences))
        seq.token_ids.append(token)
        self._compute(seq, data.draw(st.integers(1, len(seq.token_ids) - seq.num_computed_tokens)))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def forks(self, data: st.DataObject) -> None:
        self.sequences.append(make_sibling(self.kv, data.draw(st.sampled_from(self.sequences))))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(self.sequences))
        self.sequences.remove(seq)
        seq.request.unfinished.remove(seq)
        self.kv.free(seq)

    def _compute(self, seq: Sequence, num_tokens: int) -> None:
        self.kv.begin_step()
        start = seq.num_computed_tokens
        needed, available = self.kv.count_new_blocks(seq, start + num_tokens), self.kv.pool.num_available
        placed = self.kv.append_slots(seq, num_tokens)
        assert (placed is None) == (needed > available)
        if placed is None:
            return
        new_blocks, transfer = placed
        assert len(new_blocks) + (transfer is not None) == needed
        for block in [*new_blocks, *([transfer.dst] if transfer else [])]:
            for offset in range(BLOCK_SIZE):
                self.slots.pop((block, offset), None)
        if transfer is not None:
            for offset in range(BLOCK_SIZE):
                if (transfer.src, offset) in self.slots:
                    self.slots[transfer.dst, offset] = self.slots[transfer.src, offset]
        for at in range(start, start + num_tokens):
            slot = seq.block_table[at // BLOCK_SIZE], at % BLOCK_SIZE
            assert slot not in self.slots, "a slot is written twice"
            self.slots[slot] = tuple(seq.token_ids[: at + 1])

    @invariant()
    def every_sequence_reads_its_own_tokens(self) -> None:
        check_tables(self.kv, self.sequences)
        for seq in self.sequences:
            for at in range(seq.num_computed_tokens):
                slot = seq.block_table[at // BLOCK_SIZE], at % BLOCK_SIZE
                assert self.slots[slot] == tuple(seq.token_ids[: at + 1])


TestManager = ManagerMachine.TestCase
TestManager.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


@pytest.mark.slow
class TestManagerDeep(ManagerMachine.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=80, deadline=None)
