"""`quire serve`: options to settings, models to engines. What a server does is elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.options import engine_options
from quire.config import EngineConfig, parse_size

logger = logging.getLogger("quire")

DEFAULT_MODELS = ("quire-mini", "quire-chat")  # written out, since `--help` imports nothing of the rest

_READING_QUESTION = (
    "Context: Ines Haddad was born in Marlow. Tom Weber, a baker, lives in Ashby.\\n"
    "Question: Where does Tom Weber live?\\nAnswer:"
)
EXAMPLE = "Example: quire serve --model quire-mini --model mine=path/to/checkpoint --port 8000"


@engine_options(models=DEFAULT_MODELS)
def serve(
    engines: dict[str, EngineConfig],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="Let in only who has this key; may be given several times. Also QUIRE_API_KEY=KEY,KEY."),
    ] = None,
    api_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="A file of keys, one a line.")] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A Jinja template in place of the models' own.")
    ] = None,
    max_body_bytes: Annotated[str, typer.Option(metavar="SIZE", help="A larger request gets 413.")] = "8MiB",
    max_queue: Annotated[int, typer.Option(min=1, help="So many requests wait, a model; further ones get 429.")] = 1024,
    max_concurrent_per_key: Annotated[
        int | None, typer.Option(min=1, help="So many requests of one key at once; further ones get 429.")
    ] = None,
    max_answers: Annotated[
        int, typer.Option(min=1, help="Answers that one body may ask for: its prompts times n.")
    ] = 1024,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Let pages of this origin ask; may be given several times.")
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate.")
    ] = None,
    ssl_keyfile: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    ssl_keyfile_password: Annotated[
        str | None, typer.Option(envvar="QUIRE_SSL_KEYFILE_PASSWORD", show_envvar=True, help="The key's password.")
    ] = None,
    ssl_ca_certs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Let in only clients with a certificate of these authorities.")
    ] = None,
    shutdown_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds for running requests to finish after SIGTERM.")
    ] = 30.0,
    engine_process: Annotated[
        bool,
        typer.Option(
            help="Each engine in a process of its own, which is started again if it dies; or all of them in this one."
        ),
    ] = True,
    keep_alive: Annotated[
        float, typer.Option(metavar="SECONDS", help="A stream without news for so long sends a comment.")
    ] = 15.0,
    log_interval: Annotated[float, typer.Option(help="Seconds between two log lines of load.")] = 10.0,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Serve one model or several over HTTP, as OpenAI's API does; without --model the two that ship with Quire."""
    from quire.async_engine.async_engine import AsyncEngine
    from quire.async_engine.device_share import SharedDevice
    from quire.async_engine.process import ProcessEngine
    from quire.build import start_engine
    from quire.server.app import make_app
    from quire.server.http.auth import load_api_keys, load_tenant_secret
    from quire.server.lifecycle import serve as serve_until_stopped
    from quire.server.log_format import configure_logging
    from quire.server.metrics import Metrics
    from quire.server.registry import ModelRegistry, ServedModel
    from quire.server.settings import ServerSettings
    from quire.text.chat_template import read_chat_template

    configure_logging(log_format)
    keys = load_api_keys(api_key or (), file=api_key_file)
    settings = ServerSettings(
        host=host,
        port=port,
        ssl_certfile=_text(ssl_certfile),
        ssl_keyfile=_text(ssl_keyfile),
        ssl_keyfile_password=ssl_keyfile_password,
        ssl_ca_certs=_text(ssl_ca_certs),
        api_keys=keys,
        tenant_secret=load_tenant_secret() if keys else None,
        max_body_bytes=parse_size(max_body_bytes),
        max_queue=max_queue,
        max_concurrent_per_key=max_concurrent_per_key,
        max_answers=max_answers,
        cors_origins=tuple(cors_origin or ()),
        shutdown_timeout_s=shutdown_timeout,
        log_interval_s=log_interval,
        keep_alive_s=keep_alive,
    )
    template = read_chat_template(chat_template) if chat_template is not None else None
    metrics = Metrics(engines)
    if engine_process and sys.platform == "win32":
        logger.warning("engines have no processes of their own on Windows; they run in the server's")
        engine_process = False
    if engine_process and len(engines) > 1:
        engines = _share_threads(engines)
    start = ProcessEngine if engine_process else AsyncEngine
    device = SharedDevice() if len(engines) > 1 and not engine_process else None
    models = [
        ServedModel(
            name,
            start(
                name,
                partial(start_engine, config, memory_share=1 / len(engines)),
                device=device,
                max_queue=settings.max_queue,
                exit_on_hang=True,
                on_stats=partial(metrics.observe_stats, name),
                on_finished=partial(metrics.observe_finished, name),
            ),
            created=int(time.time()),
            chat_template=template,
            source=config.model,
        )
        for name, config in engines.items()
    ]
    registry = ModelRegistry(models)
    status = serve_until_stopped(
        make_app(registry, settings, metrics),
        registry,
        settings,
        metrics=metrics,
        banner=partial(_banner, list(engines), has_keys=bool(keys)),
    )
    raise typer.Exit(status)


def _share_threads(engines: dict[str, EngineConfig]) -> dict[str, EngineConfig]:
    """Engines that know nothing of each other must not have more threads than there are cores: threads of one wait for
    each other by spinning, and two engines with all cores each took ten times as long together as one alone."""
    import torch

    share = max(1, torch.get_num_threads() // len(engines))
    logger.info("%d models share the cores; threads of each, where --num-threads does not say: %d", len(engines), share)
    return {
        name: config if config.num_threads is not None else replace(config, num_threads=share)
        for name, config in engines.items()
    }


def _banner(names: list[str], url: str, *, has_keys: bool) -> str:
    """Where the server is, and a command that asks it something."""
    prompt = _READING_QUESTION if names[0] == "quire-mini" else "Hello"
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    return (
        f"Quire serves {' and '.join(names)} at {url}\nAsk it something:\n"
        f"  curl -s {url}/v1/completions -H 'Content-Type: application/json'{key} \\\n"
        f'    -d \'{{"model": "{names[0]}", "prompt": "{prompt}"}}\''
    )


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None
