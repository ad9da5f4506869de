"""`quire route`: the model that a routing policy chooses for a question."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from quire.cli.command import Command
from quire.cli.options import check_json, options
from quire.settings import Settings, setting

if TYPE_CHECKING:
    from quire.routing import Router
    from quire.routing.classifier import QueryEmbedder

EXAMPLE = 'Example: quire route "How do vaccines work?" --policy query --models small=quire-chat,large=quire-mini'

_PRINT = "-"
_DEFAULT_MODELS = {
    "query": "small=quire-chat,large=quire-mini",
    "domain": "reading=quire-mini,chat=quire-chat",
    "round-robin": "small=quire-chat,large=quire-mini",
    "slo": "large=quire-mini,small=quire-chat",
}
_MOST_TERMS = 12


class RouteCommand(Command):
    """Allow --json without a file: print the figures."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, argument in enumerate(args):
            if argument == "--json" and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args = [*args[: at + 1], _PRINT, *args[at + 1 :]]
                break
        return super().parse_args(ctx, args)


COMMAND = RouteCommand


def _check_json(path: Path | None) -> Path | None:
    return path if path is None or str(path) == _PRINT else check_json(path)


@dataclass(frozen=True)
class RouteSettings(Settings):
    """The policy and its models."""

    policy: str | None = setting(None, "round-robin, query, domain or slo. (default: query)")
    models: str | None = setting(
        None,
        "Served names by role: small and large for query, the roles of the examples for domain. "
        "(default: quire-mini and quire-chat)",
        metavar="ROLE=NAME,...",
    )
    config: Path | None = setting(None, "YAML file as for serve --routing.", metavar="FILE")
    examples: Path | None = setting(None, "YAML file of example queries by role, for query and domain.", metavar="FILE")
    embedder: str = setting(
        "all-MiniLM-L6-v2",
        "Embedder for query and domain: a directory, a hub id, all-MiniLM-L6-v2, or hashing (tests).",
    )


@options()
def route(
    settings: RouteSettings,
    question: Annotated[str, typer.Argument(help="The question to route.")],
    json: Annotated[
        Path | None, typer.Option(metavar="[FILE]", callback=_check_json, help="Write JSON to a file, or print it.")
    ] = None,
) -> None:
    """Print the model that would answer a question, and the reason. No model is loaded."""
    choice = make_router(settings).route(question)
    if not _print_json(json, choice):
        typer.echo(f"{choice.model} ({choice.policy}): {choice.why}")
        for name, number in list(choice.numbers.items())[:_MOST_TERMS]:
            typer.echo(f"  {number:8.3f}  {name}")


def make_router(settings: RouteSettings) -> Router:
    """Make the router that the settings describe. Raises ValueError."""
    from quire.routing import NEED_EMBEDDER, Router, RoutingConfig, parse_models

    models = settings.models
    if settings.config is None:
        policy = settings.policy or "query"
        config = RoutingConfig(policy, parse_models(models or _DEFAULT_MODELS.get(policy, "small,large")))
    else:
        config = RoutingConfig.from_file(settings.config)
        config = replace(config, policy=settings.policy or config.policy)
        config = replace(config, models=parse_models(models)) if models else config
    if settings.examples:
        config = replace(config, query_examples=settings.examples, domain_examples=settings.examples)
    return Router(config, embedder=load_query_embedder(settings.embedder) if config.policy in NEED_EMBEDDER else None)


def load_query_embedder(name: str) -> QueryEmbedder:
    from quire.rag.embedder import find_embedder, load_embedder

    found = load_embedder(find_embedder(name))
    return cast("QueryEmbedder", SimpleNamespace(embed=lambda texts: found.embed(texts).vectors))


def _print_json(path: Path | None, figures: Any) -> bool:
    """Write the figures to a file or to stdout; return whether they were printed."""
    if path is None:
        return False
    import json

    text = json.dumps(asdict(figures), indent=2, ensure_ascii=False) + "\n"
    if str(path) == _PRINT:
        typer.echo(text, nl=False)
        return True
    path.write_text(text, encoding="utf-8")
    return False
