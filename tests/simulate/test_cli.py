"""`quire simulate` prints results, assumptions and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from quire.cli.command import Commands
from quire.cli.simulate import EXAMPLE, simulate
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.simulate.hardware import cps_paper, find_profile, read_profile

SMALL = ["--num-requests", "12", "--seeds", "2", "--num-blocks", "160", "--policies", "recompute,swap"]
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023-11-16 18:15:50.99,396,9\n"

app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command(epilog=EXAMPLE)(simulate)


@app.callback()
def _commands() -> None:
    """A command group, as in `quire`."""


def quire(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def calibrated(path: Path) -> Path:
    model = CostModel()
    for at in range(200):
        num_tokens = 1 + at % 64
        shape = StepShape(num_tokens, 1, num_tokens**2 / 2 if num_tokens > 1 else 0.0, 0 if num_tokens > 1 else at)
        model.observe_step(shape, 0.01 + 0.001 * num_tokens)
        for kind in ("save", "load"):
            model.observe_transfer(kind, 4096 * (1 + at % 16), 1e-4 + 1e-6 * (1 + at % 16))
    data = {"cost_model": model.to_dict(), "bytes_per_token": 4096, "model": "random:tiny", "machine": {"cpu": "a CPU"}}
    data["max_tokens"] = 1024
    data["limits"] = {"max_num_seqs": 3, "max_num_batched_tokens": 96, "enable_prefix_caching": True}
    path.write_text(json.dumps(data))
    return path


def test_a_run_prints_figures_sources_and_pairs(tmp_path: Path) -> None:
    result = quire("simulate", *SMALL, "--json", str(tmp_path / "s.json"), "--plot", str(tmp_path / "s.png"))
    assert result.exit_code == 0, result.output
    for text in ("mean TTFT", "P99 TPOT", "Published: swap out", "Assumed: decode steps", "Swapping stops the engine"):
        assert text in result.output
    assert "1,648.35" in result.output  # the paper's costs beside ours
    data = json.loads((tmp_path / "s.json").read_text())
    assert [figure["policy"] for figure in data["figures"]] == ["recompute", "swap"]
    assert data["figures"][1]["changes"]["recompute"]["tpot_p99_s"]["low"] is not None
    assert (tmp_path / "s.png").stat().st_size > 1000


def test_decode_steps_can_be_varied(tmp_path: Path) -> None:
    varied = ["--decode-scale", "0.5,2", "--no-swap-is-synchronous", "--prompt-share", "0.3"]
    result = quire("simulate", *SMALL, *varied, "--json", str(tmp_path / "s.json"))
    assert result.exit_code == 0, result.output
    assert "Swapping goes on beside the steps" in result.output
    figures = json.loads((tmp_path / "s.json").read_text())["figures"]
    assert [figure["decode_scale"] for figure in figures] == [0.5, 0.5, 2.0, 2.0]
    assert figures[2]["tpot_mean_s"]["mean"] > figures[0]["tpot_mean_s"]["mean"]


def test_the_papers_engine_with_lengths_as_in_chats(tmp_path: Path) -> None:
    options = ["--engine", "vllm-0.2.4", "--lengths", "chat", "--rate", "9", "--json", str(tmp_path / "s.json")]
    result = quire("simulate", *SMALL, *options)
    assert result.exit_code == 0, result.output
    for text in ("9 a second (Poisson)", "ShareGPT's means of 161.31 and 337.99", "The scheduler is the discipline of"):
        assert text in result.output
    figures = json.loads((tmp_path / "s.json").read_text())["figures"]
    assert [set(figure["by_mode"]) for figure in figures] == [{"recompute"}, {"swap"}]
    assert figures[1]["stall_s"]["mean"] == pytest.approx(figures[1]["recovery_s"]["mean"])


def test_a_trace_and_a_calibrated_profile(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    profile = calibrated(tmp_path / "profile.json")
    options = ["--trace", str(trace), "--profile", str(profile), "--speed-up", "2", "--policies", "cost"]
    result = quire("simulate", *options)
    assert result.exit_code == 0, result.output
    assert "random:tiny on a CPU" in result.output
    assert "Measured: steps, saves and loads" in result.output
    assert "Assumed: what requests of more than 1,024 tokens cost (extrapolated)" in result.output
    assert "2 requests, 2 times as fast" in result.output
    assert "at most 3 sequences and 96 tokens a step; prefix caching on" in result.output  # as in the profile's engine


ABOUT = ["--trace", "TRACE", "--documents", "3", "--document-tokens", "256", "--num-blocks", "40", "--seeds", "2"]


@pytest.fixture
def about(tmp_path: Path) -> list[str]:
    """Sequential requests about documents, two of which fit the device."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE.splitlines()[0] + "".join(f"\n2023-11-16 18:15:{at}.0,{20 + at},4" for at in range(10, 30)))
    return [str(trace) if word == "TRACE" else word for word in ABOUT]


def test_documents_on_disk_are_compared_with_the_same_ones_on_the_device_alone(
    about: list[str], tmp_path: Path
) -> None:
    written, drawn = tmp_path / "s.json", tmp_path / "s.png"
    disk = ["--kv-dir-bandwidth", "100GB", "--policies", "recompute,cost"]
    result = quire("simulate", *about, *disk, "--json", str(written), "--plot", str(drawn))
    assert result.exit_code == 0, result.output
    for text in (
        "20 requests on 3 documents of 256 tokens",
        "256 tokens (3.0 MiB of KV) stand before its own prompt",
        "100,000 MB/s and 0.1 ms a transfer, either way (assumed)",
        "With documents' KV on disk against without",
        "Each policy against the others",
        "prefix caching on",
    ):
        assert text in result.output
    assert "The paper's CPS" not in result.output
    data = json.loads(written.read_text())
    figures = data["figures"]
    assert [figure["policy"] for figure in figures] == ["recompute"] * 2 + ["cost"] * 2
    assert [figure["kv_dir"] for figure in figures] == ["no", "yes"] * 2
    without, beside = figures[:2]
    assert set(without["hit_share"]) == {"device"}
    assert set(beside["hit_share"]) == {"device", "disk"}
    assert beside["hit_share"]["device"] == without["hit_share"]["device"]
    assert sum(beside["prefix_ways"].values()) > 0
    assert (without["prefix_ways"], without["ways"]) == ({}, "–")
    change = beside["ttft_mean_s"]["mean"] / without["ttft_mean_s"]["mean"] - 1
    assert beside["change_by_kv_dir"]["ttft_mean_s"]["mean"] == pytest.approx(change, abs=0.02)
    assert change < 0
    assert "change_by_kv_dir" not in without
    assert [list(f["changes"]) for f in figures] == [["cost"], ["cost"], ["recompute"], ["recompute"]]
    assert drawn.stat().st_size > 1000


def test_documents_without_a_disk_share_the_devices_cache(about: list[str], tmp_path: Path) -> None:
    result = quire("simulate", *about, "--policies", "recompute", "--json", str(tmp_path / "s.json"))
    assert result.exit_code == 0, result.output
    assert "there is no disk" in result.output
    assert "on disk against without" not in result.output
    (figure,) = json.loads((tmp_path / "s.json").read_text())["figures"]
    assert list(figure["hit_share"]) == ["device"]
    assert figure["runs"][0]["num_prompt_tokens"] == 20 * 256 + sum(range(30, 50))
    assert figure["runs"][0]["hits_by_tier"] != figure["runs"][1]["hits_by_tier"], "seeds draw other documents"


def test_a_profiles_own_disk_is_used_where_it_was_measured(about: list[str], tmp_path: Path) -> None:
    model = CostModel.from_dict(json.loads(calibrated(tmp_path / "profile.json").read_text())["cost_model"])
    for at in range(50):
        for kind in ("save", "load"):
            model.observe_transfer(kind, 4096 * (1 + at % 16), 1e-5 * (1 + at % 16), tier="disk")
    data = json.loads((tmp_path / "profile.json").read_text())
    (tmp_path / "profile.json").write_text(json.dumps({**data, "cost_model": model.to_dict()}))
    options = ["--profile", str(tmp_path / "profile.json"), "--policies", "cost", "--json", str(tmp_path / "s.json")]
    result = quire("simulate", *about, *options)
    assert result.exit_code == 0, result.output
    assert "Measured: steps, saves and loads, and the disk." in result.output
    assert "The disk: as fast as it was measured" in result.output
    figures = json.loads((tmp_path / "s.json").read_text())["figures"]
    assert [figure["kv_dir"] for figure in figures] == ["no", "yes"]
    assert figures[1]["hit_share"]["disk"]["mean"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kv-dir-bandwidth", "500MB"], "--kv-dir-bandwidth is for documents; give --documents N"),
        (["--document-tokens", "99"], "--document-tokens is for documents; give --documents N"),
        (["--documents", "0"], "documents=0 must be at least 1"),
        (["--documents", "2", "--document-tokens", "9"], "is less than a block of 16"),
        (["--documents", "2", "--kv-dir-bandwidth", "5"], "kv_dir_bandwidth=5 is 5 bytes; write its unit"),
        (["--documents", "2", "--kv-dir-bandwidth", "fast"], "'fast' is not a size"),
        (
            ["--documents", "2", "--kv-dir-bandwidth", "1GB", "--no-enable-prefix-caching"],
            "leave out --no-enable-prefix-caching",
        ),
        (["--documents", "2", "--document-tokens", "9000", "--num-requests", "2"], "none of 2 requests fits"),
        (["--policies", "magic"], "'magic' is not one of"),
        (["--policies", "swap,swap"], "names something twice"),
        (["--profile", "/no/such/file"], "cannot read the profile /no/such/file"),
        (["--trace", "/no/such/trace.csv"], "cannot read /no/such/trace.csv"),
        (["--trace", "a", "--lengths", "short-long"], "give one of them"),
        (["--trace", "a", "--seeds", "3"], "a trace is one load"),
        (["--lengths", "medium"], "lengths='medium' is not known"),
        (["--trace", "a", "--rate", "3"], "--trace and --rate exclude each other"),
        (["--engine", "vllm-9"], "engine='vllm-9' is not one of quire, vllm-0.2.4"),
        (["--engine", "vllm-0.2.4", "--max-num-batched-tokens", "512"], "computes prompts whole"),
        (["--speed-up", "2"], "--speed-up is for a trace's arrivals"),
        (["--decode-scale", "fast"], "decode_scale='fast'"),
        (["--decode-scale", "0"], "decode_scale=0"),
        (["--prompt-share", "most"], "prompt_share='most'"),
        (["--prompt-share", "2"], "prompts of 2 to 2"),
        (["--swap-space", "lots"], "'lots' is not a size"),
        (["--num-requests", "3"], "half short and half long"),
        (["--watermark", "1"], "watermark=1"),
        (["--max-model-len", "99999"], "does not fit in 512 blocks"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    result = quire("simulate", *arguments)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("TIMESTAMP,ContextTokens\n", "no column GeneratedTokens"),
        (TRACE + "yesterday,1,1\n", "line 4"),
        (TRACE + "2023-11-16 18:15:51,0,1\n", "line 4: a request has at least one prompt token"),
        (TRACE.splitlines()[0], "has no requests"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where(tmp_path: Path, text: str, message: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    result = quire("simulate", "--trace", str(trace))
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "is not JSON"),
        ("[]", "is no profile"),
        ('{"cost_model": {}}', "bytes_per_token is None"),
        ('{"cost_model": {}, "bytes_per_token": true}', "bytes_per_token is True"),
        ('{"cost_model": {}, "bytes_per_token": 8}', "profile.json:"),
        ('{"cost_model": {}, "bytes_per_token": 8, "state_bytes": -1}', "state_bytes is -1"),
        ('{"cost_model": %s, "bytes_per_token": 8, "limits": {"speed": 1}}', "limits is {'speed': 1}, expected"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text.replace("%s", json.dumps(CostModel().to_dict())))
    with pytest.raises(ValueError, match=message):
        read_profile(path)


def test_a_models_recurrent_states_take_memory_and_time(tmp_path: Path) -> None:
    path = calibrated(tmp_path / "profile.json")
    figures = []
    for state_bytes in (0, 5 * 16 * 4096):  # six records with a block's KV
        path.write_text(json.dumps(json.loads(path.read_text()) | {"state_bytes": state_bytes}))
        result = quire("simulate", "--profile", str(path), *SMALL, "--json", str(tmp_path / "s.json"))
        assert result.exit_code == 0, result.output
        figures.append(json.loads((tmp_path / "s.json").read_text())["figures"])
    plain, with_states = figures
    for each, state in zip(plain, with_states, strict=True):
        assert state["preemptions"]["mean"] > each["preemptions"]["mean"]
    result = quire("simulate", "--profile", str(path), "--num-blocks", "17")
    assert "give at least 18" in result.stderr


def test_measured_decode_steps_are_not_scaled(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are measured"):
        find_profile(str(calibrated(tmp_path / "profile.json")), decode_scale=2.0)


@pytest.mark.parametrize(
    ("num_tokens", "swap_ms", "recompute_ms"),
    [(512, 6.636, 8.30), (1024, 12.686, 12.30), (2048, 36.290, 22.73), (4096, 71.441, 42.90), (8192, 141.794, 97.60)],
)
def test_the_papers_rows_are_charged_as_they_stand(num_tokens: int, swap_ms: float, recompute_ms: float) -> None:
    profile = cps_paper()
    num_bytes = num_tokens * profile.bytes_per_token
    swap_s = profile.costs.save(num_bytes) + profile.costs.load(num_bytes)
    assert swap_s * 1e3 == pytest.approx(swap_ms)
    assert profile.costs.recompute(num_tokens, chunk=num_tokens) * 1e3 == pytest.approx(recompute_ms)
    shape = StepShape(num_tokens, 1, num_tokens**2 / 2, 0)
    assert profile.costs.step(shape) * 1e3 == pytest.approx(recompute_ms)
