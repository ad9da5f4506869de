"""`quire pull`: download a model."""

from __future__ import annotations

from typing import Annotated

import typer

from quire.config import EngineConfig, format_size

EXAMPLE = "Example: quire pull Qwen/Qwen2.5-0.5B-Instruct\nExample: quire pull Qwen/Qwen3-8B-GGUF:Q4_K_M"


def pull(
    model: Annotated[str, typer.Argument(metavar="MODEL[:QUANT]", help="A hub id; QUANT names a GGUF file.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    download_dir: Annotated[str | None, typer.Option(help="Directory; HF_HOME/hub by default.")] = None,
    hf_token: Annotated[str | None, typer.Option(help="Token for gated and private models.")] = None,
) -> None:
    """Download a model from the hub, as serve does at its first start: only the needed files.

    Complete files are not downloaded again. Weights whose download was interrupted continue at the next call.
    """
    config = EngineConfig.from_env(model=model, revision=revision, download_dir=download_dir, hf_token=hf_token)

    from quire.gguf_header import gguf_parts
    from quire.loading.remote import is_remote
    from quire.loading.source import find_model, resolve_model

    if is_remote(model):
        raise ValueError(f"{model} is read from its server at each start; only hub models are downloaded")
    found = find_model(model)
    source = found or resolve_model(model, hub=config.hub)
    if source.path is None:
        raise ValueError(f"{model} is a preset with random weights; there is nothing to download")
    is_file = source.path.is_file()
    files = gguf_parts(source.path) if is_file else [file for file in source.path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    typer.echo(f"{model} is {'complete' if found is None else 'on this machine'}: {format_size(size)} in {source.path}")
