"""Two blocks have the same key if and only if their content and everything before them is equal."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from quire.core.block_keys import (
    PUBLIC,
    PUBLIC_ONLY,
    Domain,
    DomainSpans,
    Namespace,
    check_domains,
    collection_domain,
    domain_of_block,
    extend_keys,
    next_key,
    tenant_domain,
)

NAMESPACE = Namespace(
    weights="sha256:abc",
    dtype="float32",
    kv_dtype="float32",
    geometry="2x2x8x16",
    rope="default",
    arithmetic="eps=1",
)
ANN, BOB = tenant_domain("ann", b"secret"), tenant_domain("bob", b"secret")
SALTED = ANN.salted("pepper")
PAPERS = collection_domain("papers")


tokens = st.lists(st.integers(0, 2), max_size=12) | st.lists(st.integers(0, 2**40), max_size=12)
block_sizes = st.integers(1, 4)
examples = settings(max_examples=50, deadline=None)


def chain(ids: list[int], block_size: int, spans: DomainSpans = PUBLIC_ONLY, root: bytes = b"root") -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, root, spans, ids, block_size, len(ids) // block_size)
    return keys


@examples
@given(tokens, tokens, block_sizes)
def test_keys_are_equal_exactly_as_far_as_the_prefixes_are(a: list[int], b: list[int], block_size: int) -> None:
    keys_a, keys_b = chain(a, block_size), chain(b, block_size)
    for i, (key_a, key_b) in enumerate(zip(keys_a, keys_b, strict=False)):
        end = (i + 1) * block_size
        assert (key_a == key_b) == (a[:end] == b[:end])


@examples
@given(tokens, block_sizes, st.data())
def test_one_other_token_changes_its_key_and_all_later_ones(
    ids: list[int], block_size: int, data: st.DataObject
) -> None:
    assume(ids)
    at = data.draw(st.integers(0, len(ids) - 1))
    other = [*ids[:at], ids[at] + 1, *ids[at + 1 :]]
    same = [a == b for a, b in zip(chain(ids, block_size), chain(other, block_size), strict=True)]
    assert same == [i < at // block_size for i in range(len(same))]


@examples
@given(tokens, block_sizes, st.data())
def test_a_chain_is_the_same_whether_it_grows_at_once_or_bit_by_bit(
    ids: list[int], block_size: int, data: st.DataObject
) -> None:
    keys: list[bytes] = []
    for num_blocks in sorted(data.draw(st.lists(st.integers(0, len(ids) // block_size), max_size=4))):
        extend_keys(keys, b"root", PUBLIC_ONLY, ids, block_size, num_blocks)
        assert len(keys) == num_blocks
    assert keys == chain(ids, block_size)[: len(keys)]


def test_keys_of_all_short_sequences_differ() -> None:
    """Keys of the same tokens in other blocks, and all initial digests of chains, differ."""
    roots = [b"", b"r", b"root", NAMESPACE.root()]
    domains = [PUBLIC, PAPERS, ANN, BOB, Domain(1, b""), Domain(2, b""), Domain(1, b"\0"), Domain(0, b"\0")]
    blocks = [[], [0], [0, 0], [1], [1, 0], [256], [2**32], [2**32, 0], [0, 2**32]]
    keys = [next_key(root, domain, block) for root in roots for domain in domains for block in blocks]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}


@examples
@given(st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8))
def test_bytes_never_move_from_one_field_to_the_next(a: bytes, b: bytes, c: bytes, d: bytes) -> None:
    assume((a, b) != (c, d))
    assert next_key(a, Domain(1, b), [1]) != next_key(c, Domain(1, d), [1])


@pytest.mark.parametrize("name", [f.name for f in fields(Namespace)])
def test_every_field_of_the_namespace_changes_every_key(name: str) -> None:
    other = replace(NAMESPACE, **{name: "other"})
    ids = list(range(12))
    assert not set(chain(ids, 4, root=NAMESPACE.root())) & set(chain(ids, 4, root=other.root()))


@examples
@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_text_never_moves_from_one_field_of_the_namespace_to_the_next(a: str, b: str, c: str, d: str) -> None:
    assume((a, b) != (c, d))
    assert replace(NAMESPACE, dtype=a, kv_dtype=b).root() != replace(NAMESPACE, dtype=c, kv_dtype=d).root()


def test_the_full_stage_is_the_plain_model_and_any_other_is_not() -> None:
    assert NAMESPACE.layers == Namespace.name_layers([0, 1, 2], 3) == ""
    stages = [([0, 1], ""), ([0, 2], ""), ([0], ""), ([0, 1, 2], "lora"), ([0, 1], "lora"), ([0, 1], "other")]
    names = [Namespace.name_layers(layers, 3, adapter) for layers, adapter in stages]
    names += [Namespace.name_layers(range(3), 3, bits=bits) for bits in ((1,), (2,), (1, 1, 1, 2), (1, 1, 2, 1))]
    assert len({"", *names}) == len(names) + 1
    assert Namespace.name_layers(range(2), 2) == "", "of two layers, two are all"


def test_another_domain_changes_its_block_and_all_later_ones() -> None:
    ids = list(range(16))
    shared = chain(ids, 4)
    for start in range(1, 16):
        private = chain(ids, 4, ((0, PUBLIC), (start, ANN)))
        same = [a == b for a, b in zip(shared, private, strict=True)]
        assert same == [i < start // 4 for i in range(4)], "a block with one private token is private"


@pytest.mark.parametrize("other", [BOB, PAPERS, PUBLIC, Domain(1, ANN.name)])
def test_nobody_finds_a_tenants_blocks_but_the_tenant(other: Domain) -> None:
    ids = list(range(8))
    assert chain(ids, 4, ((0, ANN),)) == chain(ids, 4, ((0, ANN),))
    assert not set(chain(ids, 4, ((0, ANN),))) & set(chain(ids, 4, ((0, other),)))


def test_a_document_is_shared_and_the_question_after_it_is_not() -> None:
    ids = list(range(12))
    of_ann = chain(ids, 4, ((0, PUBLIC), (3, PAPERS), (8, ANN)))
    of_bob = chain(ids, 4, ((0, PUBLIC), (3, PAPERS), (8, BOB)))
    assert of_ann[:2] == of_bob[:2]
    assert of_ann[2] != of_bob[2]


@examples
@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([PUBLIC, PAPERS, ANN, BOB, SALTED])), max_size=4))
def test_spans_that_widen_or_are_out_of_order_are_refused(spans: list[tuple[int, Domain]]) -> None:
    starts = [start for start, _ in spans]
    is_valid = (
        bool(spans)
        and starts[0] == 0
        and all(a < b for a, b in pairwise(starts))
        and all(a.level < b.level or (a, b) == (ANN, SALTED) for (_, a), (_, b) in pairwise(spans))
    )
    if is_valid:
        check_domains(tuple(spans))
        assert [domain_of_block(tuple(spans), end).level for end in range(1, 30)] == sorted(
            domain_of_block(tuple(spans), end).level for end in range(1, 30)
        )
    else:
        with pytest.raises(ValueError, match="domain"):
            check_domains(tuple(spans))


def test_a_refused_span_is_named() -> None:
    with pytest.raises(ValueError, match="begin at token 0"):
        check_domains(((1, PUBLIC),))
    with pytest.raises(ValueError, match="7 comes after 9"):
        check_domains(((0, PUBLIC), (9, PAPERS), (7, ANN)))
    with pytest.raises(ValueError, match="at token 9 level 1 follows 2"):
        check_domains(((0, ANN), (9, PAPERS)))
    for other in (BOB, BOB.salted("pepper")):
        with pytest.raises(ValueError, match="at token 9 level 2 follows 2"):
            check_domains(((0, ANN), (9, other)))


def test_a_tenants_domain_depends_on_the_server_and_shows_nothing_of_the_tenant() -> None:
    assert tenant_domain("ann", b"secret") == ANN
    assert len({ANN, BOB, tenant_domain("ann", b"other")}) == 3
    assert b"ann" not in ANN.name


GOLDEN = """
bf48e1fb2a86efa60557e19c72ddb548a249d2e4fde261d709645dc6ec19fe4a
b21a94987929b05be205b5134e43c6c4453d9be0b165114c82dfdc3a32d86f6d
8fd64b5496f4ba60279cee2bf6b57d5fb9086af0bc9b243b40e2152c6467d2c5
fa78dc002d9d84eaeceedee846cd9afb84f27044fc7092761f91079a768fd0ba
"""

GOLDEN_CODE = """
from quire.core.block_keys import *
namespace = Namespace("sha256:abc", "float32", "float32", geometry="2x2x8x16", rope="default", arithmetic="eps=1")
spans = ((0, PUBLIC), (3, collection_domain("papers")), (8, tenant_domain("ann", b"secret")))
keys = []
extend_keys(keys, namespace.root(), spans, list(range(100, 112)), 4, 3)
for key in (namespace.root(), *keys):
    print(key.hex())
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "424242"])
def test_keys_on_disk_stay_valid_over_processes_and_versions(hash_seed: str) -> None:
    """If this fails, every block on disk becomes unreachable: raise the version in `block_keys` and say so."""
    source = next(path for path in sys.modules["quire"].__path__).removesuffix("/quire")
    environment = {"PYTHONPATH": source, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", GOLDEN_CODE]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert printed.split() == GOLDEN.split()
