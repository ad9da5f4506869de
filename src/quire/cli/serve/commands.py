"""`quire serve`: from options to engines, the HTTP application and an exit status."""

from __future__ import annotations

import json
import logging
import shlex
import socket
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from quire.cli.options import READ_AGAIN, options
from quire.cli.serve.arguments import ServeCommand
from quire.cli.serve.engines import EngineMaker, engine_maker, prepare
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.server.settings import DEFAULT_MODELS, ServerSettings

if TYPE_CHECKING:
    from quire.system.child_process import ChildProcess

logger = logging.getLogger("quire")

_READING_QUESTION = (
    "Context: Ines Haddad was born in Marlow. Tom Weber, a baker, lives in Ashby.\n"
    "Question: Where does Tom Weber live?\nAnswer:"
)
COMMAND = ServeCommand
EXAMPLE = (
    "vLLM options without a meaning here, such as --enable-lora, are accepted with a warning. "
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
        status = _serve_here(engines, settings, listener, ctx)
    raise typer.Exit(status)


def _serve_here(
    engines: dict[str, EngineConfig], settings: ServerSettings, listener: socket.socket, ctx: typer.Context
) -> int:
    """Serve in this process and its children until stopped, and return the exit status; `ctx.obj` is a started
    `engine_child`."""
    from quire.async_engine.spawn import engine_child, run_engine
    from quire.server.log_format import configure_logging

    configure_logging(settings.log_format, settings.log_level)
    given, first, prepared = settings, ctx.obj, prepare(engines, settings)
    children: dict[str, ChildProcess] = {}
    if settings.engine_process:
        for name in prepared.first:
            child, first, config = first or engine_child(), None, prepared.configs[name]
            make_engine = engine_maker(config, len(prepared.configs))
            children[name] = run_engine(child, name, make_engine, hang_timeout_s=settings.hang_timeout_s)
    elif first is not None:
        first.close()
    # The engines load while this process imports the server.
    from quire.server.app import assemble, with_keys
    from quire.server.lifecycle import serve as serve_until_stopped
    from quire.server.load_bar import LoadBar
    from quire.server.metrics import Metrics
    from quire.system.user_cache import user_cache

    settings = with_keys(settings)
    settings = replace(settings, batch_dir=(settings.batch_dir or user_cache() / "batches").expanduser())
    template = None
    if settings.chat_template is not None:
        from quire.text.chat_template import read_chat_template

        template = read_chat_template(settings.chat_template)
    metrics = Metrics(prepared.configs)
    bar = LoadBar.on_terminal() if any(config.use_tqdm for config in engines.values()) else None
    maker = EngineMaker(settings, metrics, bar)
    started = {name: maker.make(name, prepared, children.get(name)) for name in prepared.configs}
    sources = {name: config.model for name, config in prepared.configs.items()}
    aliases, adapters = prepared.aliases, prepared.adapters
    app = assemble(started, sources, settings, metrics, template=template, aliases=aliases, adapters=adapters)
    if (on_hangup := ctx.meta.get(READ_AGAIN)) is not None:
        from quire.cli.serve.reread import Reread

        on_hangup = Reread(on_hangup, prepared.given, given, maker, app.state.models, template)

    def stop() -> None:
        app.state.service.stop()
        if bar is not None:
            bar.stop()

    return serve_until_stopped(
        app,
        app.state.models.registry,
        settings,
        metrics=metrics,
        banner=partial(_banner, list(started), has_keys=bool(settings.api_keys)),
        on_drain=app.state.batches.stop,
        on_stop=stop,
        on_hangup=on_hangup,
        listener=listener,
    )


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
