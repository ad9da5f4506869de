"""Audits of cached KV by an idle engine: requests cancel them, and differences are reported."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from async_engine.harness import finish, greedy, make, run, running, until
from quire.engine import kv_auditor
from quire.engine.engine import Engine
from quire.engine.kv_auditor import KVAuditor
from quire.kernels.loaded import has_exact_kernels
from quire.outputs import BlockDifference

pytestmark = pytest.mark.skipif(not has_exact_kernels("cpu", "float32"), reason="torch's bits depend on the batch")
PROMPT = list(range(1, 90))


def audited(*, is_wrong: bool = False) -> Engine:
    engine = make(dtype="float32")
    engine.auditor = KVAuditor(engine, 1e6, seed=1)
    if is_wrong:
        compare = engine.runner.compare_blocks
        engine.runner.compare_blocks = lambda pairs: [BlockDifference(1, 9, 0), *compare(pairs[1:])]  # type: ignore[method-assign]
    return engine


@pytest.mark.parametrize("is_wrong", [False, True])
def test_an_idle_engine_audits_what_a_request_has_found(is_wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_auditor, "_REST_S", 0.05)
    results: Counter[tuple[str, str]] = Counter()

    async def scene() -> None:
        async with running(
            lambda: audited(is_wrong=is_wrong), on_stats=lambda stats: results.update(stats.audits)
        ) as engine:
            expected = await finish(engine, PROMPT, request_id="first")
            await finish(engine, PROMPT, request_id="second")
            await until(lambda: results)
            assert results == {("device", "different" if is_wrong else "equal"): 1}
            await until(lambda: engine.has_wrong_kv is is_wrong)
            again = await finish(engine, PROMPT, request_id="third")
            assert (again.num_cached_tokens == 0) is is_wrong
            assert again.outputs[0].token_ids == expected.outputs[0].token_ids

    run(scene())


def test_requests_that_come_in_audits_get_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_auditor, "_REST_S", 0.0)

    async def scene() -> None:
        async with running(audited) as engine:
            expected = await finish(engine, PROMPT, greedy(12), request_id="first")
            for number in range(20):
                again = await finish(engine, PROMPT, greedy(12), request_id=f"again-{number}")
                await finish(engine, PROMPT[: 40 + number], request_id=f"part-{number}")
                assert again.outputs[0].token_ids == expected.outputs[0].token_ids
                await asyncio.sleep(0.002 * (number % 5))

    run(scene())
