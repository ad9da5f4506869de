"""`quire route`: the model that a routing policy chooses for a question."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.options import options
from quire.settings import Settings, setting

if TYPE_CHECKING:
    from quire.routing import Router
    from quire.routing.classifier import QueryEmbedder

EXAMPLE = 'Example: quire route "How do vaccines work?" --policy query --models small=quire-chat,large=quire-mini'

_DEFAULT_MODELS = {
    "query": "small=quire-chat,large=quire-mini",
    "domain": "reading=quire-mini,chat=quire-chat",
    "round-robin": "small=quire-chat,large=quire-mini",
    "slo": "large=quire-mini,small=quire-chat",
}
_MOST_TERMS = 12


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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the model that would answer a question, and the reason. No model is loaded."""
    choice = make_router(settings).route(question)
    if as_json:
        typer.echo(json.dumps(asdict(choice), indent=2, ensure_ascii=False))
        return
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
    return lambda texts: found.embed(texts).vectors
