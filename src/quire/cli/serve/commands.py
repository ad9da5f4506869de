"""`quire serve`: from options to engines, the HTTP application and an exit status."""

from __future__ import annotations

import json
import logging
import shlex
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from quire.cli.options import options
from quire.cli.serve.arguments import ServeCommand
from quire.cli.serve.kept_prompts import keep_prompts
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.server.settings import DEFAULT_MODELS, ServerSettings

if TYPE_CHECKING:
    from quire.async_engine.async_engine import AsyncEngine
    from quire.engine.engine import Engine
    from quire.loading.source import ModelSource
    from quire.outputs import LoadProgress
    from quire.server.load_bar import LoadBar
    from quire.server.metrics import Metrics
    from quire.system.child_process import ChildProcess

logger = logging.getLogger("quire")

_READING_QUESTION = (
    "Context: Ines Haddad was born in Marlow. Tom Weber, a baker, lives in Ashby.\n"
    "Question: Where does Tom Weber live?\nAnswer:"
)
COMMAND = ServeCommand
EXAMPLE = (
    "vLLM options without a meaning here, such as --enforce-eager, are accepted with a warning. "
    "Example: quire serve quire-mini mine=path/to/checkpoint --port 8000"
)


@options(models=DEFAULT_MODELS, has_config=True, has_argument=True)
def serve(
    ctx: typer.Context, engines: dict[str, EngineConfig], settings: ServerSettings, cluster: ClusterSettings
) -> None:
    """Serve one or several models over HTTP with OpenAI's API; without a model, serve the two embedded ones."""
    if cluster.ray:
        raise typer.Exit(_serve_on_ray(engines, settings, cluster))
    from quire.server.listener import listening

    with listening(settings) as listener:  # first: a port in use is reported at once
        status = _serve_here(engines, settings, listener, ctx.obj)
    raise typer.Exit(status)


def _serve_here(
    engines: dict[str, EngineConfig], settings: ServerSettings, listener: socket.socket, first: ChildProcess | None
) -> int:
    """Serve in this process and its children until stopped, and return the exit status; `first` is a started
    `engine_child`."""
    from quire.async_engine.spawn import engine_child, run_engine
    from quire.loading.hub import NotDownloadedError
    from quire.loading.source import resolve_model
    from quire.server.log_format import configure_logging

    engines, aliases = settings.named(engines)
    for config in engines.values():  # report a missing model first
        with suppress(NotDownloadedError):  # its engine downloads it, and then knows its architecture
            source = resolve_model(config.model, hub=config.hub, with_weights=False)
            source.check_architecture()
            _check_ranks(source, config.tensor_parallel_size)
    if not settings.engine_process and len(engines) > 1 and any(config.load_overlap for config in engines.values()):
        raise ValueError("load_overlap would delay the other models on the shared device; use engine processes")
    configure_logging(settings.log_format, settings.log_level)
    engines = keep_prompts(engines) if settings.keep_kv else engines
    children: dict[str, ChildProcess] = {}
    if settings.engine_process:
        engines = _share_threads(engines) if len(engines) > 1 else engines
        for name, config in engines.items():
            child, first, make_engine = first or engine_child(), None, _engine_maker(config, len(engines))
            children[name] = run_engine(child, name, make_engine, hang_timeout_s=settings.hang_timeout_s)
    elif first is not None:
        first.close()
    # The engines load while this process imports the server.
    from quire.server.app import assemble, with_keys
    from quire.server.lifecycle import serve as serve_until_stopped
    from quire.server.load_bar import LoadBar
    from quire.server.metrics import Metrics

    settings = with_keys(settings)
    template = None
    if settings.chat_template is not None:
        from quire.text.chat_template import read_chat_template

        template = read_chat_template(settings.chat_template)
    metrics = Metrics(engines)
    bar = LoadBar.on_terminal() if any(config.use_tqdm for config in engines.values()) else None
    started = _start_engines(engines, settings, children, metrics, bar)
    models = {name: config.model for name, config in engines.items()}
    assembly = assemble(started, models, settings, metrics, template=template, aliases=aliases)

    def stop() -> None:
        assembly.service.stop()
        if bar is not None:
            bar.stop()

    return serve_until_stopped(
        assembly.app,
        assembly.registry,
        settings,
        metrics=metrics,
        banner=partial(_banner, list(engines), has_keys=bool(settings.api_keys)),
        on_stop=stop,
        listener=listener,
    )


def _engine_maker(config: EngineConfig, num_engines: int) -> Callable[[], Engine]:
    from quire.startup import start_engine

    config = replace(config, use_tqdm=False)  # the server's bar shows all models
    return partial(start_engine, config, memory_share=1 / num_engines)


def _start_engines(
    engines: dict[str, EngineConfig],
    settings: ServerSettings,
    children: dict[str, ChildProcess],
    metrics: Metrics,
    bar: LoadBar | None,
) -> dict[str, AsyncEngine]:
    """Make the engine of each model, in its child process or in a thread of this process."""
    from quire.async_engine.async_engine import AsyncEngine
    from quire.async_engine.host import EngineHost, ThreadHost
    from quire.async_engine.process import ProcessHost
    from quire.system.fair_lock import FairLock

    device = FairLock() if len(engines) > 1 and not children else None

    def report_load(name: str, progress: LoadProgress) -> None:
        metrics.observe_load(name, progress)
        if bar is not None:
            bar.show(name, progress)

    def make_host(name: str, config: EngineConfig) -> EngineHost:
        make_engine = _engine_maker(config, len(engines))
        timeout = settings.hang_timeout_s
        if children:
            return ProcessHost(name, make_engine, hang_timeout_s=timeout, child=children[name])
        return ThreadHost(name, make_engine, device=device, hang_timeout_s=timeout, exit_on_hang=True)

    return {
        name: AsyncEngine(
            make_host(name, config),
            max_queue=settings.max_queue,
            load_wait_s=settings.load_wait_s,
            on_stats=partial(metrics.observe_stats, name),
            **{**metrics.callbacks(name), "on_load": partial(report_load, name)},
        )
        for name, config in engines.items()
    }


def _check_ranks(source: ModelSource, size: int) -> None:
    """Refuse a model that cannot be split over `size` ranks."""
    if size > 1:
        from quire.models.parallel import ModelSplit, ParallelGroup

        ModelSplit(source.config, ParallelGroup(0, size))


def _serve_on_ray(engines: dict[str, EngineConfig], settings: ServerSettings, cluster: ClusterSettings) -> int:
    from quire.cluster.application import describe
    from quire.cluster.run import check_port, run
    from quire.loading.hub import NotDownloadedError
    from quire.loading.source import resolve_model
    from quire.server.log_format import configure_logging

    if cluster.ray_address is None:
        check_port(settings)
        for config in engines.values():
            with suppress(NotDownloadedError):  # on a joined cluster, another machine may have it
                resolve_model(config.model, hub=config.hub, with_weights=False)
    configure_logging(settings.log_format, settings.log_level)
    served = describe(engines, settings, cluster)
    has_keys = bool(served.settings.api_keys)
    return run(served, cluster.ray_address, partial(_banner, list(served.engines), has_keys=has_keys))


def _share_threads(engines: dict[str, EngineConfig]) -> dict[str, EngineConfig]:
    """Divide the cores: threads wait by spinning, and two engines with all cores each take ten times as long."""
    from quire.system.threads import default_num_threads

    share = max(1, default_num_threads(spans_nodes=True) // len(engines))
    logger.info("%d models share the cores; each has --num-threads %d", len(engines), share)
    return {
        name: config if config.num_threads is not None else replace(config, num_threads=share)
        for name, config in engines.items()
    }


def _banner(names: list[str], url: str, *, has_keys: bool) -> str:
    """Return the server's address and a command that asks it a question."""
    path, body = "chat/completions", {"model": names[0], "messages": [{"role": "user", "content": "Hello"}]}
    if names[0] == "quire-mini":  # it reads, and cannot chat
        path, body = "completions", {"model": names[0], "prompt": _READING_QUESTION}
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    socket = url.removeprefix("unix:")
    place = url if socket == url else f"--unix-socket {shlex.quote(socket)} http://localhost"
    return (
        f"Quire serves {' and '.join(names)} at {url}\nAsk it something:\n"
        f"  curl -s {place}/v1/{path} -H 'Content-Type: application/json'{key} \\\n"
        f"    -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )
