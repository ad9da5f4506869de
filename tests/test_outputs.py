"""Messages between core, runner and user survive pickling, since the executor may be another process."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire import outputs
from quire.core.block_keys import Namespace, tenant_domain
from quire.outputs import (
    BlockTransfer,
    Logprob,
    Logprobs,
    NewSequence,
    SchedulerOutput,
    StepOutput,
    TokenLogprobs,
    TransferReport,
)
from quire.sampling_params import BeamSearchParams, SamplingParams

ids = st.integers(0, 2**31)
blocks = st.lists(ids, max_size=3)
params = st.builds(
    SamplingParams,
    n=st.integers(1, 4),
    temperature=st.floats(0, 2),
    seed=st.none() | ids,
    stop=st.lists(st.text(min_size=1, max_size=3), max_size=2),
    logit_bias=st.none() | st.dictionaries(ids, st.floats(-100, 100), max_size=2),
    allowed_token_ids=st.none() | st.lists(ids, min_size=1, max_size=3),
    bad_words_token_ids=st.lists(st.lists(ids, min_size=1, max_size=2), max_size=2),
    logprobs=st.none() | st.integers(0, 5),
)
new_sequences = st.builds(NewSequence, ids, st.integers(0, 3), blocks, ids, ids, blocks, params, ids, blocks.map(tuple))
token_logprobs = st.builds(TokenLogprobs, blocks, st.lists(st.floats(-50, 0), max_size=3), ids, st.floats(-50, 0), ids)
scheduler_outputs = st.builds(
    SchedulerOutput,
    step_id=ids,
    seq_ids=blocks,
    num_scheduled_tokens=blocks,
    new_sequences=st.lists(new_sequences, max_size=2),
    new_tokens=st.dictionaries(ids, blocks, max_size=2),
    new_blocks=st.dictionaries(ids, blocks, max_size=2),
    replaced_blocks=st.lists(st.tuples(ids, ids, ids), max_size=2),
    removed_seq_ids=blocks,
    transfers=st.lists(
        st.builds(
            BlockTransfer, ids, st.sampled_from(("copy", "save", "load")), ids, ids, st.none() | st.binary(max_size=32)
        )
    ),
    total_tokens=ids,
)
step_outputs = st.builds(
    StepOutput,
    step_id=ids,
    seq_ids=blocks,
    sampled=st.lists(blocks, max_size=2),
    logprobs=st.dictionaries(ids, st.lists(token_logprobs, max_size=2), max_size=2),
    prompt_logprobs=st.dictionaries(ids, st.lists(st.tuples(ids, token_logprobs), max_size=2), max_size=2),
    failed=st.dictionaries(ids, st.text(max_size=5), max_size=2),
    transfers=st.lists(
        st.builds(TransferReport, st.sampled_from(("save", "load")), blocks, ids, st.floats(0, 9), blocks),
        max_size=2,
    ),
)


@settings(max_examples=100, deadline=None)
@given(scheduler_outputs | step_outputs)
def test_messages_between_scheduler_and_runner_survive_pickling(message: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(message, protocol)) == message


EXAMPLES: dict[str, Any] = {"int": 3, "float": 0.5, "str": "text", "bool": True, "bytes": b"key"}


def example(kind: type) -> Any:
    """Return an object with every field set."""
    values = {}
    for field in fields(kind):
        name = str(field.type).split(" |")[0]
        values[field.name] = EXAMPLES[name] if name in EXAMPLES else SamplingParams() if "Params" in name else [1, 2]
    return kind(**values)


KINDS = [kind for kind in vars(outputs).values() if isinstance(kind, type) and is_dataclass(kind)]
KINDS = [kind for kind in KINDS if kind.__module__ == outputs.__name__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_output_survives_pickling(kind: type) -> None:
    message = example(kind)
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_output_has_room_for_fields_that_it_does_not_have(kind: type) -> None:
    with pytest.raises(AttributeError):
        example(kind).misspelt = 1


@pytest.mark.parametrize(
    "value",
    [
        BeamSearchParams(3, 7, early_stopping="never"),
        SamplingParams(n=2, stop=["a"], logit_bias={1: 2.0}),
        Namespace("w", "float32", "float32", "geometry", "rope", "arithmetic"),
        tenant_domain("ann", b"secret"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_requests_are_made_of_survives_pickling(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


tokens = st.integers(0, 2**31 - 1)
likeliest = st.dictionaries(tokens, st.floats(-50, 0), max_size=3)


@given(
    st.lists(st.none() | st.tuples(likeliest, tokens, st.floats(-50, 0), st.integers(1, 9)), max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
)
def test_arrays_of_log_probabilities_read_as_the_list_of_their_entries(given: list[Any], at: int, end: int) -> None:
    parts = Logprobs(str), Logprobs(str)
    expected: list[dict[int, Logprob] | None] = []
    for number, entry in enumerate(given):
        if entry is None:
            parts[number >= at].append(None)
            expected.append(None)
            continue
        top, token, logprob, rank = entry
        parts[number >= at].append(TokenLogprobs(list(top), list(top.values()), token, logprob, rank))
        found = {id_: Logprob(value, place, str(id_)) for place, (id_, value) in enumerate(top.items(), start=1)}
        expected.append(found | {token: Logprob(logprob, rank, str(token))})
    whole = parts[0][:]
    whole.extend(parts[1])
    assert list(whole) == expected
    assert list(whole[at:end]) == expected[at:end]
    back = pickle.loads(pickle.dumps(whole))
    assert back == whole
    back.text = str
    assert list(back) == expected
