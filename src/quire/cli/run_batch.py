"""`quire run-batch`: answer a file of requests, each line exactly once."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.client_options import Address, check_remote, failures_in_one_line
from quire.cli.options import options
from quire.config import EngineConfig
from quire.server.settings import DEFAULT_MODELS, ServerSettings

if TYPE_CHECKING:
    import httpx

    from quire.server.batches.answers import AnswerFile

EXAMPLE = "Example: quire run-batch requests.jsonl answers.jsonl --model quire-chat"


@options(models=DEFAULT_MODELS)
def run_batch(
    ctx: typer.Context,
    engines: dict[str, EngineConfig],
    address: Address,
    source: Annotated[Path | None, typer.Argument(metavar="IN", help="File of requests: OpenAI's, one a line.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="OUT", help="File of answers, which may be begun.")] = None,
    input_file: Annotated[Path | None, typer.Option("--input-file", "-i", help="The same as IN.")] = None,
    output_file: Annotated[Path | None, typer.Option("--output-file", "-o", help="The same as OUT.")] = None,
    embedder: Annotated[str | None, typer.Option(help="Embedder for /v1/embeddings, as of serve.")] = None,
) -> None:
    """Answer a file of requests with a model in this process, or by --url; after any end, the same command goes on."""
    source, target = source or input_file, target or output_file
    if source is None or target is None:
        raise ValueError("name two files: quire run-batch IN OUT")
    if address.url is not None:
        check_remote(ctx.params, allowed=())
    with failures_in_one_line():
        from quire.server.batches.answers import AnswerFile

        try:
            answers = AnswerFile(target.expanduser())
        except OSError as error:
            raise ValueError(f"{target} cannot be written: {error.strerror}; name another file") from None
        total = _check(source.expanduser(), answers)
        client = (
            _local_client(engines, ServerSettings(embedder=embedder, keep_kv=False))
            if address.url is None
            else _remote_client(address)
        )
        try:
            asyncio.run(_answer(source.expanduser(), answers, total, client))
        except (KeyboardInterrupt, OSError, RuntimeError) as error:
            why = "Stopped" if isinstance(error, KeyboardInterrupt) else f"Error: {error}"
            done = f"{len(answers.keys):,} of {total:,} lines are answered; the same command answers the others"
            typer.secho(f"{why}. {done}.", fg=typer.colors.RED, err=True)
            raise typer.Exit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
        failed = total - answers.num_completed
        typer.echo(f"{total:,} lines are answered in {target}" + (f", {failed:,} with an error" if failed else ""))


def _check(source: Path, answers: AnswerFile) -> int:
    """Return the number of lines. Raises ValueError for a repeated id, or if the answers are to other requests."""
    from quire.server.batches.lines import REPEATED_ID, check_lines

    total, others = 0, set(answers.keys)
    try:
        for line in check_lines(source):
            if line.error is not None and line.error.code == REPEATED_ID:
                raise ValueError(f"{source}, {line.error}; give each line its own")
            total += 1
            others.discard(line.key)
    except OSError as error:
        raise ValueError(f"{source} cannot be read: {error.strerror}") from None
    if others:
        raise ValueError(
            f"{answers.path} has {len(others):,} answers to other requests than {source}; name another file"
        )
    return total


async def _answer(
    path: Path, answers: AnswerFile, total: int, client: AbstractAsyncContextManager[httpx.AsyncClient]
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from quire.server.batches.run import answer_lines
    from quire.server.batches.service import MAX_CONCURRENT

    columns = TextColumn("answering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    async with client as asked:
        with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("", total=total, completed=len(answers.keys))
            slots = asyncio.Semaphore(MAX_CONCURRENT)
            await answer_lines(path, answers, answers, asked, slots, lambda _: bar.advance(task))


@asynccontextmanager
async def _remote_client(address: Address) -> AsyncIterator[httpx.AsyncClient]:
    import httpx

    from quire.client.server_address import ServerAddress
    from quire.server.batches.run import HEADERS
    from quire.server.batches.service import MAX_CONCURRENT

    server = ServerAddress.of(address.url or "", address.api_key)
    async with httpx.AsyncClient(
        base_url=server.base_url.removesuffix("/v1"),
        timeout=httpx.Timeout(None, connect=10.0),
        limits=httpx.Limits(max_connections=MAX_CONCURRENT),
        **server.client_options,
    ) as client:
        client.headers.update(HEADERS)
        yield client


@asynccontextmanager
async def _local_client(engines: dict[str, EngineConfig], settings: ServerSettings) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the models without a port."""
    from quire.cli.serve.engines import EngineMaker, prepare
    from quire.server.app import assemble
    from quire.server.batches.run import app_client
    from quire.server.load_bar import LoadBar
    from quire.server.metrics import Metrics

    logging.getLogger("quire.access").setLevel(logging.WARNING)  # the answers say it
    prepared = prepare(engines, settings)
    metrics, bar = Metrics(engines), LoadBar.on_terminal()
    maker = EngineMaker(settings, metrics, bar)
    started = {name: maker.make(name, prepared) for name in prepared.configs}
    app = assemble(started, {name: config.model for name, config in engines.items()}, settings, metrics)
    try:
        for engine in started.values():
            engine.start(asyncio.get_running_loop())
        for engine in started.values():
            await engine.wait_ready()
        if bar is not None:
            bar.stop()
        async with app.router.lifespan_context(app), app_client(app) as client:
            yield client
    finally:
        for engine in started.values():
            await asyncio.to_thread(engine.shutdown)
