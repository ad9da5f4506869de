"""Several replicas as one engine: routing, failover, and errors without replicas."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from async_engine.harness import check_nothing_leaks, collect, deltas_of, finish, generate, greedy, run, until
from cluster.harness import CONFIG, Cluster, cluster
from quire import __version__
from quire.async_engine.messages import EngineLost, EngineUnavailable, ModelState, Preempted, Progress, Resumed
from quire.cluster import placement
from quire.cluster.placement import Placement, ReplicaCall
from quire.cluster.replica import ModelReplica
from quire.cluster.share import ReplicaShare
from quire.cluster.wire import ReplicaNews
from quire.routing.replicas import RoutedRequest
from quire.sampling_params import SamplingParams

PROMPT = list(range(40, 60))


def test_a_request_has_a_model_without_replicas_started_and_waits() -> None:
    async def main() -> None:
        async with cluster(starts_on_demand=True) as (found, engine):
            assert engine.state is ModelState.UNLOADED
            request = asyncio.ensure_future(finish(engine, PROMPT, greedy(4), request_id="a"))
            await until(lambda: engine.state is ModelState.LOADING, "loading")
            await found.add("r1")
            output = await request
            assert len(output.outputs[0].token_ids) == 4
            assert output.metrics is not None
            times = [output.metrics.arrival_time, output.metrics.first_token_time, output.metrics.finished_time]
            assert times == sorted(times)
            assert engine.state is ModelState.READY
            assert engine.forecast is not None

    run(main())


@pytest.mark.parametrize(
    "params", [greedy(24), SamplingParams(temperature=1, seed=5, n=2, max_tokens=24, ignore_eos=True)]
)
def test_a_stream_whose_replica_dies_goes_on_elsewhere_with_the_same_tokens(params: SamplingParams) -> None:
    async def main() -> None:
        async with cluster() as (found, engine):
            await found.add("r1")
            events = []
            async for event in generate(engine, PROMPT, params, request_id="a"):
                events.append(event)
                if isinstance(event, Progress) and len(found.calls) == 1 and "r2" not in found.replicas:
                    await found.add("r2")
                    found.kill("r1")
            assert found.calls == ["r1", "r2"]
            assert [type(event) for event in events if isinstance(event, Preempted | Resumed)] == [Preempted, Resumed]
            whole = await collect(engine, PROMPT, params, request_id="b")
            for index in range(params.n):
                tokens = [token for delta in deltas_of(events, index) for token in delta.token_ids]
                assert tokens == events[-1].output.outputs[index].token_ids == whole[-1].output.outputs[index].token_ids
                assert "".join(delta.text for delta in deltas_of(events, index)) == whole[-1].output.outputs[index].text

    run(main())


def test_a_stream_whose_replica_is_cut_off_goes_on_elsewhere_with_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "SILENT_S", 0.3)

    async def main() -> None:
        async with cluster() as (found, engine):
            await found.add("r1")
            tokens: list[int] = []
            async for event in generate(engine, PROMPT, greedy(24), request_id="a"):
                tokens += [token for delta in deltas_of([event], 0) for token in delta.token_ids]
                if tokens and "r2" not in found.replicas:
                    await found.add("r2")
                    found.cut_off("r1")
                    reports = asyncio.create_task(report_always(found))
            assert found.calls == ["r1", "r2"]
            assert tokens == (await finish(engine, PROMPT, greedy(24), request_id="b")).outputs[0].token_ids
            assert found.calls[2:] == ["r2"]  # though the prefix is on the first one too
            found.replicas["r1"].last_stats = None
            await asyncio.sleep(0.1)
            stream = generate(engine, PROMPT, greedy(200), request_id="c")
            await anext(stream)
            await finish(engine, [token + 100 for token in PROMPT], request_id="d")
            await stream.aclose()
            assert found.calls[3:] == ["r2", "r1"]
            reports.cancel()

    run(main())


async def report_always(found: Cluster) -> None:
    while True:
        assert found.placement is not None
        found.update(found.placement)
        await asyncio.sleep(0.02)


def test_a_replica_is_lost_if_it_alone_is_silent_or_is_removed_while_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lost = 0.0, list[str]()
    monkeypatch.setattr(placement, "time", SimpleNamespace(monotonic=lambda: now))
    watched = Placement("prefix", on_lost=lost.append)

    def update(at: float, **numbers: int) -> None:
        nonlocal now
        now = at
        watched.update(
            {name: ReplicaNews(number, stage=1, num_blocks=9).as_stats() for name, number in numbers.items()}
        )

    update(0, a=1, b=1, c=1, d=1)
    update(20, a=1, b=1, c=1, d=1)  # Serve's controller itself was slow
    assert lost == []
    update(21, a=2, b=1, c=2, d=2)
    assert lost == ["b"]
    update(22, a=3, b=1, c=3)  # the replica stops after its last requests
    update(29, a=3, b=1)
    assert lost == ["b", "c"]
    update(30, a=4, b=2)
    update(40, a=4)
    assert lost == ["b", "c", "b"]
    update(50, a=5)
    assert lost == ["b", "c", "b"]


def test_a_machine_with_another_version_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=rf"has Quire {__version__}, the application Quire 0.0.1; install one"):
            ModelReplica(
                "tiny", CONFIG, share=ReplicaShare(1, 1, 1, 0), hang_timeout_s=9, load_wait_s=9, version="0.0.1"
            )

    run(main())


def test_who_waits_in_vain_for_a_replica_is_told_so_by_name() -> None:
    async def main() -> None:
        async with cluster(load_wait_s=0.5) as (found, engine):
            await found.add("r1")
            request = generate(engine, PROMPT, greedy(200), request_id="a")
            while not isinstance(await anext(request), Progress):
                pass
            found.kill("r1")
            with pytest.raises(EngineLost, match="no replica of tiny was ready within"):
                async for _ in request:
                    pass
            with pytest.raises(EngineUnavailable, match="no replica of tiny was ready within"):
                await finish(engine, PROMPT, request_id="b")
            assert engine.num_requests == engine.num_queued == 0

    run(main())


def test_a_reader_that_leaves_ends_its_request_in_the_replica() -> None:
    async def main() -> None:
        async with cluster() as (found, engine):
            replica = await found.add("r1")
            async for event in generate(engine, PROMPT, greedy(200), request_id="a"):
                if isinstance(event, Progress):
                    break
            await until(lambda: not replica.engine.num_requests and not replica.engine.engine.has_unfinished(), "rest")
            check_nothing_leaks(replica.engine)

    run(main())


def test_a_prompt_goes_where_its_prefix_is_and_none_to_a_replica_that_loads() -> None:
    async def main() -> None:
        async with cluster() as (found, engine):
            await found.add("r1")
            await finish(engine, PROMPT, request_id="a")
            await found.add("r2")
            await until(lambda: found.replicas["r2"].engine.state is ModelState.READY, "the second replica")
            other = [token + 100 for token in PROMPT]
            stream = generate(engine, PROMPT, greedy(200), request_id="b")  # keeps the first replica busy
            await anext(stream)
            await finish(engine, other, request_id="c")
            await stream.aclose()
            await finish(engine, PROMPT, request_id="d")
            await finish(engine, other, request_id="e")
            assert found.calls == ["r1", "r1", "r2", "r1", "r2"]

    run(main())


def test_a_model_that_cannot_be_loaded_says_why() -> None:
    def fail() -> None:
        raise ValueError("the checkpoint is broken")

    async def main() -> None:
        async with cluster() as (found, engine):
            await found.add("r1", fail)  # type: ignore[arg-type]
            with pytest.raises(EngineUnavailable, match="the checkpoint is broken"):
                await finish(engine, PROMPT, request_id="a")
            with pytest.raises(RuntimeError, match="the checkpoint is broken"):
                found.replicas["r1"].check_health()

    run(main())


def test_a_call_that_has_ended_counts_nowhere_though_a_replica_is_still_looked_for() -> None:
    found = Placement("least-loaded")
    found.update({name: ReplicaNews(1, stage=1, num_blocks=100).as_stats() for name in ("r1", "r2")})
    ended = ReplicaCall(found, RoutedRequest("a", 1000))
    ended.end()
    first = ended.choose(["r1", "r2"])
    assert ReplicaCall(found, RoutedRequest("b", 1000)).choose(["r1", "r2"]) == first
    assert ReplicaCall(found, RoutedRequest("c", 1000)).choose(["r1", "r2"]) not in (None, first)
