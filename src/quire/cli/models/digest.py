"""`quire digest`: the identity of a model's weights and of its KV blocks."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from quire.cli.options import MODEL_HELP, check_model
from quire.config import EngineConfig

EXAMPLE = "Example: quire digest quire-mini"


def digest(
    model: Annotated[str, typer.Argument(callback=check_model, help=MODEL_HELP)],
    dtype: Annotated[str | None, typer.Option(help="The engine's dtype: auto, float32, bfloat16, float16.")] = None,
    quantization: Annotated[str | None, typer.Option(help="The engine's quantization: none, int8, int4.")] = None,
    block_size: Annotated[int | None, typer.Option(help="The engine's block size.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of a preset's random weights.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    write_manifest: Annotated[
        bool, typer.Option("--write-manifest", help="Hash all weights, and write quire-manifest.json beside them.")
    ] = False,
) -> None:
    """Print the digest of a model's weights and the namespace of its KV blocks.

    The digest is cached until the files change.
    """
    config = EngineConfig.from_env(
        model=model, dtype=dtype, quantization=quantization, block_size=block_size, seed=seed
    )

    from quire.assembly import make_namespace
    from quire.devices import choose_device
    from quire.loading import known_digest, resolve_model
    from quire.loading.checkpoint import checkpoint_dtype, read_headers
    from quire.loading.digest import random_digest
    from quire.loading.modules.fitting import choose_served_dtype

    source = resolve_model(config.model, hub=config.hub)
    shape, in_files = source.config, None
    if source.path is not None:
        in_files = checkpoint_dtype(read_headers(source.path))
    device = choose_device("auto")
    dtype = choose_served_dtype(config.dtype, shape, in_files, device)
    if source.path is None:
        if write_manifest:
            raise ValueError(f"{model} is a preset without files; a manifest needs a checkpoint directory")
        weights = random_digest(shape, dtype=dtype, seed=config.seed)
    elif write_manifest:
        weights = known_digest.write_manifest(source.path, use_tqdm=config.use_tqdm)
    else:
        weights = known_digest.checkpoint_digest(source.path, is_strict=True, use_tqdm=config.use_tqdm)
    facts: dict[str, Any] = {"weights": weights, "dtype": dtype}
    facts |= {name: getattr(config, name) for name in ("quantization", "block_size", "kv_cache_dtype")}
    namespace = make_namespace(shape, **facts, device=device).root().hex()
    if as_json:
        typer.echo(json.dumps({"model": model, **facts, "namespace": namespace}))
        return
    typer.echo(f"weights    {weights}")
    bits = "" if config.quantization == "none" else f", {config.quantization} weights"
    typer.echo(f"namespace  {namespace}  ({dtype}{bits}, blocks of {config.block_size} tokens)")
