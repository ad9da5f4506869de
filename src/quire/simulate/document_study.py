"""Report of `quire simulate --documents`: where document KV was found, and the effect of a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from quire.bench.report import Column, Report
from quire.config import format_size
from quire.simulate.disk_costs import LATENCY_S
from quire.simulate.hardware import HardwareProfile
from quire.simulate.simulate_settings import SimulateSettings
from quire.simulate.simulation import SimulationFigures
from quire.simulate.token_times import interval

KV_DIR_COLUMN = Column("kv_dir", "KV on disk")
COLUMNS = (
    Column("decode", "decode"),
    Column("policy", "policy"),
    KV_DIR_COLUMN,
    Column("ttft_mean_s", "mean TTFT ms", scale=1e3, digits=1),
    Column("ttft_p99_s", "P99 TTFT ms", scale=1e3, digits=1),
    Column("tpot_mean_s", "mean TPOT ms", scale=1e3),
    Column("makespan_s", "makespan s"),
    Column("modes", "preempted, by mode"),
    Column("hits", "of prompts found"),
    Column("ways", "prefixes from elsewhere"),
)


def figures(runs: Sequence[SimulationFigures], *, has_kv_dir: bool) -> dict[str, Any]:
    """Shares of the prompts' tokens found in each tier, and decisions on prefixes outside of the device."""
    tiers = sorted({tier for run in runs for tier in run.hits_by_tier}, key=("device", "host", "disk").index)
    shares = {tier: [run.hits_by_tier.get(tier, 0) / run.num_prompt_tokens for run in runs] for tier in tiers}
    found = {tier: asdict(interval(values)) for tier, values in shares.items()}
    ways = sorted({way for run in runs for way in run.prefix_ways})
    taken = {way: sum(run.prefix_ways.get(way, 0) for run in runs) / len(runs) for way in ways}
    return {
        "kv_dir": "yes" if has_kv_dir else "no",
        "hit_share": found,
        "prefix_ways": taken,
        "hits": ", ".join(f"{tier} {share['mean']:.1%}".replace("%", " %") for tier, share in found.items()) or "–",
        "ways": ", ".join(f"{way} {count:.1f}" for way, count in taken.items()) or "–",
    }


def show_changes(rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> None:
    """Print the change by document KV on disk: `change_by_kv_dir` of each row, under these headings."""
    changes = (Column(name, heading, scale=100, unit=" %", is_change=True) for name, heading in headings.items())
    changed = [{**row, **row["change_by_kv_dir"]} for row in rows if "change_by_kv_dir" in row]
    title = "With documents' KV on disk against without, on the same requests, mean over the seeds with 95 % bounds"
    Report("simulate", title, (*COLUMNS[:2], *changes), rows=changed).show()


def notes(settings: SimulateSettings, profile: HardwareProfile) -> list[str]:
    """Assumptions about documents and the disk."""
    size = format_size(settings.document_tokens * profile.bytes_per_token)
    lines = [
        f"Documents: each request is about one of {settings.documents}, whose {settings.document_tokens:,} tokens "
        f"({size} of KV) stand before its own prompt; the k-th is drawn in proportion to 1 / k (Zipf's law, assumed)."
    ]
    if not profile.has_disk:
        return [*lines, "Documents are shared only through the device's cache: there is no disk (--kv-dir-bandwidth)."]
    speed = "as fast as it was measured"
    if settings.kv_dir_bandwidth is not None:
        speed = (
            f"{settings.kv_dir_bandwidth / 1e6:,.7g} MB/s and {LATENCY_S * 1e3:g} ms a transfer, either way (assumed)"
        )
    share = getattr(profile.costs, "stored_share", 1.0)
    coded = f"; KV of {profile.kv_dtype} is coded there to {share:.0%} of its bytes" if share < 1 else ""
    return [*lines, f"The disk: {speed}{coded}; empty at first, large enough for all, and with a link of its own."]
