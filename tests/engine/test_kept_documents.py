"""Documents kept in a KV directory, and who finds them after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from documents import config_of, run, start
from quire.assembly import LoadedModel, load
from quire.core.block_keys import PUBLIC, Domain, collection_domain, tenant_domain
from quire.engine.document_warmer import DocumentWarmer
from quire.engine.engine import Engine
from quire.engine.pinned_prefix import pin_prefix
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams

PREFIX = list(range(40, 80))  # two blocks and a half
PROMPT = [*PREFIX, *range(100, 160)]  # six blocks and a bit
ONE, OTHER = (tenant_domain(name, b"secret") for name in ("one", "other"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(config_of(tmp_path_factory.mktemp("kv")))


@pytest.fixture
def engine(tmp_path: Path, loaded: LoadedModel) -> Callable[..., Engine]:
    """Start an engine over the same directory."""

    def start_again(**options: Any) -> Engine:
        return start(config_of(tmp_path / "kv", **options), loaded)

    return start_again


def of(domain: Domain, *, documents: tuple[int, ...] = ()) -> Prompt:
    return of_tokens(PROMPT, domain, documents=documents)


def of_tokens(token_ids: list[int], domain: Domain, *, documents: tuple[int, ...] = ()) -> Prompt:
    return Prompt(token_ids=token_ids, domains=((0, PUBLIC), (len(PREFIX), domain)), documents=documents)


def test_a_document_is_kept_and_nothing_else_of_a_prompt(engine: Callable[..., Engine]) -> None:
    first = engine()
    run(first, of(ONE))
    assert not first.scheduler.swap.on_disk
    run(first, of(ONE, documents=(len(PREFIX),)))
    assert len(first.scheduler.swap.on_disk) == 2
    for tenant in (ONE, OTHER):
        assert run(engine(), of(tenant)).request.cached_tokens == {"disk": 32}


def test_whole_prompts_are_kept_if_the_operator_says_so_each_for_its_own_tenant(engine: Callable[..., Engine]) -> None:
    first = engine(kv_dir_keep_prompts=True)
    expected = run(first, of(ONE))
    assert len(first.scheduler.swap.on_disk) == len(PROMPT) // 16
    again = run(engine(), of(ONE))
    assert again.request.cached_tokens == {"disk": 96}
    assert again.request.sequences[0].output_token_ids == expected.request.sequences[0].output_token_ids
    assert run(engine(), of(OTHER)).request.cached_tokens == {"disk": 32}, "the public part"
    assert run(engine(), of(collection_domain("c"))).request.cached_tokens == {"disk": 32}
    assert run(engine(), PROMPT).request.cached_tokens == {"disk": 32}


@pytest.mark.parametrize("ending", ["length", "abort", "n=2"])
def test_the_answer_is_kept_with_its_prompt_for_the_next_turn(engine: Callable[..., Engine], ending: str) -> None:
    first = engine(kv_dir_keep_prompts=True)
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True, n=2 if ending == "n=2" else 1)
    state = first.add_request(of(ONE), params)
    while first.has_unfinished():
        first.step()
        if ending == "abort" and state.request.sequences[0].num_output_tokens == 35:
            first.abort(state.request.request_id)
    first.scheduler.check_integrity()
    answer = state.request.sequences[0].output_token_ids
    asked = of_tokens([*PROMPT, *answer], ONE)
    num_found = 96 if ending == "n=2" else (len(PROMPT) + len(answer) - 1) // 16 * 16
    found = run(engine(), asked)
    assert found.request.cached_tokens == {"disk": num_found}
    computed = run(engine(), of_tokens([*PROMPT, *answer], OTHER))
    assert found.request.sequences[0].output_token_ids == computed.request.sequences[0].output_token_ids


def test_a_pinned_prefix_is_loaded_after_a_restart(engine: Callable[..., Engine]) -> None:
    for hits in (0, 32):
        pinning = engine()
        assert pin_prefix(pinning, PREFIX) == 32
        assert pinning.scheduler.counts.hits_by_tier["disk"] == hits
        assert run(pinning, PROMPT).request.cached_tokens == {"device": 32}
        assert len(pinning.scheduler.swap.on_disk) == 2


def test_warming_computes_once_and_keeps_what_the_disk_takes_bit_by_bit(engine: Callable[..., Engine]) -> None:
    first = engine()
    assert first.scheduler.disk is not None
    first.scheduler.disk._max_saving = 2  # as with many blocks
    warmer = DocumentWarmer(first)
    short = Prompt(token_ids=PREFIX, documents=(len(PREFIX),))
    whole = Prompt(token_ids=PROMPT, documents=(len(PROMPT),))
    made = warmer.warm(short)
    assert (made.num_tokens, made.num_kept_before, made.num_kept, made.num_computed) == (40, 0, 32, 40)
    made = warmer.warm(whole)
    assert (made.num_kept_before, made.num_kept, made.num_loaded, made.num_computed) == (32, 96, 32, 68)
    second = engine()
    steps = second.scheduler.num_steps
    made = DocumentWarmer(second).warm(whole)
    assert (made.num_kept_before, made.num_kept, made.num_loaded, made.num_computed) == (96, 96, 0, 0)
    assert second.scheduler.num_steps == steps + 1
