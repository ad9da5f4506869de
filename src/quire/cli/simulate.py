"""`quire simulate`: what a machine would do, without the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.cli.figure_options import ALL_POLICIES, Json, Plot, Policies, policy_names
from quire.cli.options import numbers, share_range

EXAMPLE = "Example: quire simulate --lengths short-long --policies recompute,swap,threshold:1024,cost --seeds 20"


_BESIDE_RECORDING = ("recording", "profile", "json")


def simulate(
    ctx: typer.Context,
    profile: Annotated[
        str, typer.Option(metavar="cps-paper|FILE", help="A published machine, or a file that quire calibrate wrote.")
    ] = "cps-paper",
    recording: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Play a run again that quire bench recovery --record wrote, and see that its schedule comes out; with "
            "--profile also simulate its requests, and compare.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Times and lengths from a trace CSV (Azure's form).")
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(metavar="short-long", help="Draw the CPS paper's mix, all at once (the default without --trace)."),
    ] = None,
    policies: Policies = ALL_POLICIES,
    num_blocks: Annotated[int, typer.Option(min=1, help="KV blocks of the pool.")] = 512,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens a KV block holds.")] = 16,
    swap_space: Annotated[str, typer.Option(metavar="SIZE", help="Of the swap tier; 0 is none.")] = "4GiB",
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="At most so many sequences run at once; by default the profile's.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token budget of one step; by default the profile's.")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=1, help="Longest sequence; by default what the pool holds.")
    ] = None,
    enable_prefix_caching: Annotated[
        bool | None, typer.Option(help="Find a preempted request's blocks again; by default the profile's.")
    ] = None,
    watermark: Annotated[float, typer.Option(help="Share of the pool that admission leaves free.")] = 0.0,
    num_requests: Annotated[
        int | None, typer.Option(min=1, help="So many requests are drawn (default: 200), or taken of a trace.")
    ] = None,
    speed_up: Annotated[float, typer.Option(help="A trace's requests come so many times as fast.")] = 1.0,
    seeds: Annotated[int | None, typer.Option(min=1, help="So many loads are drawn (default: 20).")] = None,
    decode_scale: Annotated[
        str, typer.Option(metavar="X[,X...]", help="The paper gives no decode steps: multiply those assumed by this.")
    ] = "1",
    prompt_share: Annotated[
        str, typer.Option(metavar="X-X", help="Of a drawn request's tokens, the prompt's; the rest is its answer.")
    ] = "0.1-0.9",
    swap_is_synchronous: Annotated[
        bool | None,
        typer.Option(help="Whether the engine stands still while blocks are copied; by default the profile's."),
    ] = None,
    json: Json = None,
    plot: Plot = None,
) -> None:
    """Recovery policies compared on a virtual clock: the real scheduler against a machine's costs."""
    if recording is not None:
        _play_again(ctx, recording, profile, json)
        return
    from quire.bench.recovery.simulate import SimulateSettings, run
    from quire.config import parse_size

    settings = SimulateSettings(
        profile=profile,
        trace=trace,
        lengths=lengths,
        policies=policy_names(policies),
        num_blocks=num_blocks,
        block_size=block_size,
        swap_space=parse_size(swap_space),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        enable_prefix_caching=enable_prefix_caching,
        watermark=watermark,
        num_requests=num_requests,
        speed_up=speed_up,
        seeds=seeds,
        decode_scales=numbers("decode_scale", decode_scale),
        prompt_share=share_range("prompt_share", prompt_share),
        swap_is_synchronous=swap_is_synchronous,
    )
    run(settings, json, plot)


def _play_again(ctx: typer.Context, recording: Path, profile: str, json: Path | None) -> None:
    from quire.bench.recovery.simulate_recording import run

    given = _given(ctx)
    others = [f"--{name.replace('_', '-')}" for name in given if name not in _BESIDE_RECORDING]
    if others:
        raise ValueError(
            "--recording is one run, with requests, policy and limits of its own; beside it go --profile and --json. "
            f"Leave out {', '.join(others)}"
        )
    if not run(recording, profile if "profile" in given else None, json):
        raise typer.Exit(1)  # the notes have said which step differs


def _given(ctx: typer.Context) -> list[str]:
    """The parameters that the command line names, their defaults or not."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
