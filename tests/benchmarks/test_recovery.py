"""The recovery benchmark: equal tokens under every policy, and figures of each."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.recovery.__main__ import main
from benchmarks.recovery.experiment import add_ratios, figure, run
from benchmarks.recovery.load import MIXES, make_mix
from benchmarks.recovery.run import LinkPlan, Phase, RecoveryRun, first_difference, run_once
from benchmarks.recovery.settings import RecoverySettings
from benchmarks.script import make_app
from checkpoints import make_checkpoint
from command_line import app
from quire.assembly import LoadedModel, load, make_engine
from quire.bench.report import Repetition
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import EMPTY_STEP
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.runner.model_runner import ModelRunner
from quire.simulate.paper_policies import make_compared_policy

SPAN = 250
script = make_app(main)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    model = make_checkpoint("llama", tmp_path_factory.mktemp("llama"))
    return EngineConfig(
        str(model), device="cpu", dtype="float32", num_kv_blocks=20, max_model_len=128, max_num_batched_tokens=64,
        max_num_seqs=8, block_size=8, watermark=0.0, swap_space="1MiB", use_tqdm=False, skip_tokenizer_init=True,
        enable_prefix_caching=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def loaded(config: EngineConfig) -> LoadedModel:
    return load(config)


@pytest.mark.parametrize("mix", MIXES)
def test_requests_have_the_papers_lengths(mix: str) -> None:
    requests = make_mix(mix, 200, 4096, seed=3).requests
    totals = [len(request.prompt_token_ids) + request.max_tokens for request in requests]
    assert all(128 <= total <= 2048 for total in totals)
    num_long = sum(total > 1024 for total in totals)
    assert num_long == {"short": 0, "long": 200, "mixed": 100, "shared": 100}[mix]
    assert make_mix(mix, 200, 4096, seed=3) == make_mix(mix, 200, 4096, seed=3) != make_mix(mix, 200, 4096, seed=4)


def test_lengths_shrink_with_the_engines_limit() -> None:
    for mix in MIXES:
        requests = make_mix(mix, 50, 128, ids=range(SPAN)).requests
        assert all(2 <= len(r.prompt_token_ids) + r.max_tokens <= 128 for r in requests)
        assert all(0 <= token < SPAN for r in requests for token in r.prompt_token_ids)


def test_half_of_the_shared_mix_begins_alike() -> None:
    requests = make_mix("shared", 40, 2048).requests
    prefix = requests[0].prompt_token_ids[:512]
    sharing = [r for r in requests if r.prompt_token_ids[:512] == prefix]
    assert len(sharing) == 20
    assert all(len(r.prompt_token_ids) >= 512 + 32 for r in sharing)


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(ValueError, match="mix='all' is not one of short, long, mixed, shared"):
        make_mix("all", 3, 2048)
    with pytest.raises(ValueError, match="expected at least 1"):
        make_mix("short", 0, 2048)


class AlwaysMixed(RecoveryPolicy):
    """Preempts the youngest request; recomputes its front half while the back loads."""

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        middle = victim.num_full_blocks // 2
        mode = RecoveryMode.MIXED if middle and victim.can_keep(middle) else RecoveryMode.RECOMPUTE
        return RecoveryPlan(mode, middle)


POLICIES = ("recompute", "swap", "threshold:48", "threshold:48:swap-above", "cost")


@pytest.mark.parametrize(("mix", "caching"), [("mixed", False), ("shared", True)])
def test_outputs_are_the_same_under_every_policy(
    config: EngineConfig, loaded: LoadedModel, mix: str, caching: bool
) -> None:
    load_ = make_mix(mix, 12, 128, ids=range(3, 3 + SPAN))
    ample = make_engine(replace(config, num_kv_blocks=300, recovery_policy="recompute"), loaded)
    expected = run_once(ample, load_, LinkPlan(), CostModel())
    assert not expected.recoveries
    modes = set()
    for policy in (*POLICIES, "mixed"):
        costs = CostModel()
        recovery = AlwaysMixed() if policy == "mixed" else make_compared_policy(policy)
        with_caching = replace(config, enable_prefix_caching=caching)
        engine = make_engine(with_caching, loaded, cost_model=costs, recovery=recovery)
        found = run_once(engine, load_, LinkPlan(), CostModel())
        assert first_difference(found.tokens, expected.tokens) is None, policy
        assert found.recoveries, policy
        assert not engine.scheduler.kv.pool.num_used
        modes |= set(found.by_mode)
        assert found.recovery_s > 0
    assert modes - {"fell back"} == {"recompute", "swap", "mixed"}  # a probe of the link may be cancelled


def test_the_first_difference_is_found() -> None:
    assert first_difference([[1, 2], [3, 4, 5]], [[1, 2], [3, 4, 5]]) is None
    assert first_difference([[1, 2], [3, 4, 5]], [[1, 2], [3, 9, 5]]) == (1, 1)
    assert first_difference([[1, 2]], [[1, 2, 3]]) == (0, 2)


def test_the_link_is_as_fast_as_planned() -> None:
    assert LinkPlan().at(1.0, 1) is None
    assert LinkPlan(100.0).at(1.0, 1) == 100.0
    alternating = LinkPlan(100.0, factor=10, period_s=5.0)
    assert [alternating.at(s, 0) for s in (0.0, 4.9, 5.0, 9.9, 10.0)] == [100, 100, 10, 10, 100]
    slowed = LinkPlan(100.0, slow_at=20, normal_at=40)
    assert [slowed.at(0.0, n) for n in (0, 19, 20, 39, 40)] == [100, 100, 10, 10, 100]
    assert LinkPlan(100.0, slow_at=20).at(0.0, 1000) == 10


def test_the_link_changes_in_mid_run(config: EngineConfig, loaded: LoadedModel) -> None:
    engine = make_engine(replace(config, recovery_policy="cost", num_kv_blocks=16, swap_bandwidth=10**8), loaded)
    found = run_once(engine, make_mix("mixed", 16, 128, ids=range(3, 3 + SPAN)), LinkPlan(1e8, slow_at=1), CostModel())
    assert [phase.bandwidth for phase in found.phases] == [1e8, 1e7]
    assert found.phases[1].from_preemption >= 1
    assert found.crossings
    assert isinstance(engine.runner, ModelRunner)
    assert engine.runner.transfer_worker is not None
    assert engine.runner.transfer_worker.bandwidth == 1e7


def recovery(mode: RecoveryMode, seconds: float = 1.0, predicted: float | None = None) -> RecoveryRecord:
    known = {} if predicted is None else {mode.value: predicted}
    return RecoveryRecord("r", mode, 100, 1, known, load_s=seconds, is_complete=True)


def a_run(recoveries: list[RecoveryRecord], phases: list[Phase] | None = None, *, load_s: float = 1.0) -> RecoveryRun:
    repetition = Repetition(2.0, 10, 10, [0.1, 0.3], [0.01, 0.03])
    return RecoveryRun(repetition, [[1], [2]], recoveries, 7, 0.0, load_s, 0.5, phases or [])


def test_a_turn_over_is_three_decisions_in_a_row_that_are_not_the_usual() -> None:
    swap, compute, probe = recovery(RecoveryMode.SWAP), recovery(RecoveryMode.RECOMPUTE), recovery(RecoveryMode.MIXED)
    recoveries = [swap] * 10 + [swap, probe, swap] + [compute] * 7 + [compute, swap, swap, swap] + [swap] * 5
    phases = [Phase(0.0, 0, 100.0), Phase(1.0, 10, 10.0), Phase(2.0, 20, 100.0)]
    assert a_run(recoveries, phases).turnovers() == [(10, 4), (20, 2)]
    assert a_run([swap] * 30, phases).turnovers() == [(10, None), (20, None)]
    assert a_run([swap] * 5, phases[:1]).turnovers() == []


def test_a_figure_says_what_was_spent_and_how_well_it_was_predicted() -> None:
    recoveries = [
        recovery(RecoveryMode.SWAP, 2.0, 1.0),
        recovery(RecoveryMode.SWAP, 1.0, 1.1),
        recovery(RecoveryMode.RECOMPUTE),
    ]
    fallen_back = replace(recovery(RecoveryMode.SWAP, 1.0, 9.0), fell_back=True)
    found = figure("cost", [a_run([*recoveries, fallen_back], load_s=4.0)])
    assert found["recovery_s"]["median"] == 4.5
    assert found["by_mode"] == {"recompute": 1, "swap": 2, "mixed": 0, "fell back": 1}
    assert found["modes"] == "recompute 1, swap 2, fell back 1"
    assert found["error_median"]["median"] == pytest.approx(0.3)
    assert found["ttft_s"]["median"] == pytest.approx(0.2)
    assert found["tpot_s"]["median"] == pytest.approx(0.02)
    assert found["recomputed_tokens"]["median"] == 7
    assert len(found["decisions"]) == 4


def test_cost_is_compared_with_the_best_static_policy_run_by_run() -> None:
    runs = {
        "swap": [a_run([], load_s=3.5), a_run([], load_s=1.5)],
        "recompute": [a_run([], load_s=9.5), a_run([], load_s=9.5)],
        "cost": [a_run([], load_s=1.5), a_run([], load_s=1.5)],
    }
    figures = [figure(policy, done) for policy, done in runs.items()]
    add_ratios(figures, runs)
    ratio = figures[2]["against_best_static"]["recovery_s"]
    assert ratio == {"best": "swap", "median": 0.75, "min": 0.5, "max": 1.0}
    assert "against_best_static" not in figures[0]


@pytest.fixture
def small(config: EngineConfig) -> list[str]:
    return [
        "--model", config.model, "--device", "cpu", "--num-kv-blocks", "20", "--max-model-len",
        "128", "--block-size", "8", "--num-requests", "10", "--runs", "1", "--repeats", "1", "--no-use-tqdm",
    ]  # fmt: skip


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A machine that computes a token in 1 ms, with a nearly free link."""
    model = CostModel()
    for n in (8, 16, 32, 64, 128):
        for _ in range(4):
            model.observe_step(EMPTY_STEP.plus_chunk(0, n), 0.01 + 1e-3 * n)
            for kind in ("save", "load"):
                model.observe_transfer(kind, 768 * n, 1e-6 + 1e-10 * 768 * n)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"cost_model": model.to_dict(), "bytes_per_token": 768}))
    return path


def test_the_command_compares_policies_and_writes_what_it_found(
    small: list[str], profile: Path, tmp_path: Path
) -> None:
    written, picture = tmp_path / "r.json", tmp_path / "r.png"
    options = ["--policies", "recompute,swap,cost", "--crossing-at", "64", "--alternate-link", "10,0.5"]
    options += ["--profile", str(profile)]
    files = ["--json", str(written), "--plot", str(picture)]
    result = CliRunner().invoke(script, [*small, *options, *files])
    assert result.exit_code == 0, result.output
    assert "Outputs are the same, token for token, under recompute, swap, cost." in result.output
    assert "makes both modes cost the same at 64 tokens" in result.output
    assert "cost against the best static policy" in result.output
    data = json.loads(written.read_text())
    assert data["benchmark"] == "recovery"
    assert data["settings"]["differences"] == []
    bandwidth = data["settings"]["engine"]["swap_bandwidth"]
    assert bandwidth == pytest.approx(2 * 64 * 768 / 0.074, rel=0.1)
    assert [found["policy"] for found in data["figures"]] == ["recompute", "swap", "cost"]
    for found in data["figures"]:
        assert found["preemptions"]["median"] > 0
        assert len(found["decisions"]) == found["preemptions"]["median"]
    assert set(data["figures"][2]["against_best_static"]) >= {"recovery_s", "ttft_s", "tpot_s"}
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_outputs_that_differ_fail_loudly(
    config: EngineConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import benchmarks.recovery.experiment as bench

    def broken(*arguments: object) -> RecoveryRun:
        found = run_once(*arguments)  # type: ignore[arg-type]
        broken.calls += 1  # type: ignore[attr-defined]
        if broken.calls == 2:  # type: ignore[attr-defined]
            found.tokens[3][1] += 1
        return found

    broken.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(bench, "run_once", broken)
    settings = RecoverySettings(policies=("recompute", "swap"), num_requests=6, runs=1, repeats=1)
    assert not run(config, settings)
    assert "OUTPUTS DIFFER: swap, run 1: request 3 from its output token 1 on." in capsys.readouterr().out


def test_a_profile_is_where_it_begins(config: EngineConfig, tmp_path: Path) -> None:
    profile = tmp_path / "p.json"
    common = ["--model", config.model, "--device", "cpu", "--block-size", "8", "--max-model-len", "128"]
    made = CliRunner().invoke(app, ["calibrate", *common, "--repeats", "2", "--no-use-tqdm", "--json", str(profile)])
    assert made.exit_code == 0, made.output
    options = ["--num-kv-blocks", "20", "--num-requests", "6", "--runs", "1", "--policies", "cost", "--no-use-tqdm"]
    options += ["--forecast"]
    result = CliRunner().invoke(script, [*common, *options, "--profile", str(profile)])
    assert result.exit_code == 0, result.output
    assert f"Costs to begin with: {profile}" in result.output.replace("\n", "")
    assert "mean TTFT" in result.output[result.output.index("predicted") :]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "swap,swap"], "names something twice"),
        (["--policies", "hope"], "recovery_policy='hope'"),
        (["--mix", "all"], "mix='all'"),
        (["--alternate-link", "10"], "alternate_link='10'"),
        (["--alternate-link", "10,5"], "give it one by"),
        (["--slow-link-at", "20,10"], "slow_link_at='20,10'"),
        (["--crossing-at", "64", "--swap-bandwidth", "100MB"], "give one of them"),
        (["--swap-space", "0"], "swap_space=0"),
    ],
)
def test_a_mistake_is_reported_before_loading(options: list[str], message: str) -> None:
    result = CliRunner().invoke(script, ["--model", "random:llama-2-7b", *options])
    assert result.exit_code == 2
    assert message in result.stderr
