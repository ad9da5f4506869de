"""An engine's run can be replayed decision by decision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parameters import in_turns, quick
from quire.simulate.hardware import with_disk
from simulate.machines import BLOCK_BYTES, FakeEngine, limits, machine, write_recording
from simulate.recording import Recording
from simulate.replay import ReplayDiffers, predict, replay

POLICIES = ["recompute", "swap", "threshold:12", "cost"]


def recorded(
    tmp_path: Path, policy: str = "swap", seed: int = 1, *, only_plain: bool = False
) -> tuple[FakeEngine, Recording]:
    config = limits(num_blocks=14, enable_prefix_caching=True, num_swap_slots=20)
    engine = FakeEngine(seed, policy, config)
    engine.run(only_plain=only_plain)
    return engine, engine.recording(tmp_path / "run.jsonl")


@pytest.mark.parametrize(("policy", "seed"), in_turns(list(POLICIES), range(8)))
def test_a_recorded_engines_schedule_comes_out_again_exactly(tmp_path: Path, policy: str, seed: int) -> None:
    engine, recording = recorded(tmp_path, policy, seed)
    found = replay(recording)
    counts = engine.scheduler.counts
    assert found.num_requests == 12
    assert found.num_steps == sum("schedule" in event for event in recording.events)
    assert (found.num_preemptions, found.num_recomputed_tokens) == (counts.preemptions, counts.recomputed_tokens)


@pytest.mark.parametrize("seed", quick(range(2), range(6)))
def test_a_schedule_with_blocks_of_other_processes_comes_out_again_exactly(tmp_path: Path, seed: int) -> None:
    config = limits(num_blocks=14, enable_prefix_caching=True, block_bytes=BLOCK_BYTES, has_disk_tier=True)
    engine = FakeEngine(seed, "cost", config, num_requests=20)
    engine.run()
    recording = engine.recording(tmp_path / "recording.jsonl")
    assert any("store" in event for event in recording.events)
    assert any(event.get("claims") for event in recording.events)
    replay(recording)


def test_recordings_have_what_makes_them_hard_to_replay(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    kinds: set[str] = set()
    num_transfers = num_preemptions = 0
    for policy in POLICIES:
        for seed in range(2):
            engine, recording = recorded(tmp_path, policy, seed)
            kinds |= {next(iter(event)) for event in recording.events}
            num_transfers += sum(len(event.get("transfers", ())) for event in recording.events)
            num_preemptions += engine.scheduler.counts.preemptions
    assert kinds == {"add", "schedule", "observe", "update", "fail", "end"}
    assert num_transfers > 30
    assert num_preemptions > 30


def test_a_recording_is_the_same_after_a_file(tmp_path: Path) -> None:
    _, recording = recorded(tmp_path)
    write_recording(recording, tmp_path / "again.jsonl")
    assert Recording.read(tmp_path / "again.jsonl") == recording


def test_times_are_the_engines(tmp_path: Path) -> None:
    engine, recording = recorded(tmp_path, only_plain=True)
    found = replay(recording)
    assert found.ttft_s is not None
    assert found.ttft_s.count == 12
    assert found.num_output_tokens == sum(map(len, engine.tokens.values()))
    first = next(event["time"] for event in recording.events if "add" in event)
    assert found.makespan_s == max(e["time"] for e in recording.events if e.get("sampled")) - first


def test_another_policy_is_noticed_at_the_first_step_that_differs(tmp_path: Path) -> None:
    _, recording = recorded(tmp_path, "swap")
    recording.policy = "recompute"
    with pytest.raises(ReplayDiffers, match="differs in transfers"):
        replay(recording)


def test_a_changed_decision_is_noticed(tmp_path: Path) -> None:
    _, recording = recorded(tmp_path)
    step = [event for event in recording.events if event.get("num_scheduled_tokens")][5]
    step["num_scheduled_tokens"][0] += 1
    with pytest.raises(ReplayDiffers, match=f"step {step['schedule']} differs in num_scheduled_tokens"):
        replay(recording)


def test_the_simulator_is_held_against_the_recording(tmp_path: Path) -> None:
    _, recording = recorded(tmp_path, only_plain=True)
    engine = replay(recording)
    simulated = predict(recording, engine.arrivals, machine())
    assert simulated.num_requests == 12
    assert simulated.num_output_tokens == engine.num_output_tokens
    assert simulated.makespan_s > 0


def test_the_simulator_has_the_recordings_disk_tier_where_the_profile_knows_a_disk(tmp_path: Path) -> None:
    config = limits(num_blocks=14, enable_prefix_caching=True, has_disk_tier=True)
    played = FakeEngine(1, "cost", config)
    played.run(only_plain=True)
    recording = played.recording(tmp_path / "run.jsonl")
    engine = replay(recording)
    assert any(arrival.documents for arrival in engine.arrivals)
    without = predict(recording, engine.arrivals, machine())
    assert (without.hits_by_tier.get("disk"), without.num_requests) == (None, 12)
    beside = predict(recording, engine.arrivals, with_disk(machine(), 1000 * BLOCK_BYTES, latency_s=0.0))
    assert beside.hits_by_tier["disk"] > 0
    assert beside.num_output_tokens == engine.num_output_tokens


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read"),
        ("", "is no recording"),
        ("{}\n", "is no recording"),
        ("nonsense\n", "line 1 is not JSON"),
        ("[]\n", "line 1 is list, expected an object"),
        ('{"quire_recording": 1}\n', "is no recording"),
        ('{"quire_recording": 6, "policy": "cost", "cfg": {}}\n', "line 1: 'config' is missing"),
        ('{"quire_recording": 6, "config": {"blocks": 4}}\n', "line 1"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "run.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Recording.read(path)


@pytest.mark.parametrize("event", [{}, {"dance": 1}, {"add": "request-0", "time": 0.0}])
def test_a_line_that_says_nothing_is_refused(tmp_path: Path, event: dict[str, object]) -> None:
    _, recording = recorded(tmp_path)
    recording.events.insert(0, json.loads(json.dumps(event)))
    with pytest.raises(ValueError, match="line 2 of the recording"):
        replay(recording)
