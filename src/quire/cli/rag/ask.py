"""`quire rag ask` and `quire rag warm`: a local model reads passages, and their KV is kept on disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.options import Json, options
from quire.cli.rag.collections import Name, RagDir, Search, Where, find_passages, open_collections
from quire.cli.tables import write_figures
from quire.config import EngineConfig

if TYPE_CHECKING:
    from quire.engine.engine import Engine
    from quire.engine.request_state import RequestState
    from quire.prompt import Prompt
    from quire.rag.prompt_template import PromptTemplate
    from quire.rag.records import Passage
    from quire.text.tokenizer import Tokenizer

ASK_EXAMPLE = "Example: quire rag ask 'How are KV blocks named?' --collection manual --model quire-mini"
WARM_EXAMPLE = "Example: quire rag warm --collection manual --model quire-mini"

Chat = Annotated[
    bool | None, typer.Option("--chat/--no-chat", help="Use the chat template; by default if the model has one.")
]
Template = Annotated[str | None, typer.Option(help="Prompt format with {documents} before {question}.")]


@options(default_model="quire-mini")
def ask(
    engine: EngineConfig,
    question: Annotated[str, typer.Argument(help="The question to search for and to answer.")],
    collection: Name,
    top_k: Annotated[int, typer.Option(min=1, help="Maximum number of passages to read.")] = 1,
    where: Where = None,
    search: Search = "hybrid",
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of the answer.")] = 64,
    chat: Chat = None,
    template: Template = None,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Answer a question from the best passages for it. (default model: quire-mini)

    The passages' KV is kept in --kv-dir, by default beside the collections, and speeds up later questions about them.
    """
    form = _form(template)
    with open_collections(rag_dir) as collections:
        found = collections.get(collection)
        passages = find_passages(found, question, top_k, where, search)
        collection_id = found.id
        config = _with_kv_dir(engine, collections.directory)
    if not passages:
        raise ValueError(f"no passages found in {collection!r}; it is empty, or --filter is too narrow")
    with _started(config) as model:
        is_chat = _is_chat(model.tokenizer, chat)
        prompt, used = _join(model, passages, question, is_chat, form, max_tokens)
        state = _answer(model, replace(prompt, domains=_domains(prompt, collection_id)), max_tokens)
    for passage in used:
        typer.secho(f"\n[{passage.score:.3f}] {passage.document}, {passage.position}", dim=True)
    metrics, cached = state.metrics, state.request.cached_tokens
    assert metrics.first_token_time is not None
    ttft_s, num_tokens = metrics.first_token_time - metrics.arrival_time, len(prompt.token_ids)
    tiers = ", ".join(f"{count:,} from {tier}" for tier, count in cached.items()) or "none"
    summary = f"first token after {1000 * ttft_s:,.0f} ms; cached KV of {num_tokens:,} prompt tokens: {tiers}"
    typer.secho(summary, dim=True)
    figures = {"answer": state.to_output().outputs[0].text, "ttft_s": ttft_s, "num_prompt_tokens": num_tokens}
    write_figures(json, {**figures, "cached_tokens_by_tier": cached, "sources": [asdict(passage) for passage in used]})


@options(default_model="quire-mini")
def warm(
    engine: EngineConfig,
    collection: Name,
    chat: Chat = None,
    template: Template = None,
    rag_dir: RagDir = None,
    json: Json = None,
) -> None:
    """Compute the missing KV of a collection's passages for a model; servers with the same --kv-dir find it."""
    write_figures(json, warm_collection(engine, collection, rag_dir, chat, template))


def warm_collection(
    engine: EngineConfig, name: str, rag_dir: Path | None, chat: bool | None = None, template: str | None = None
) -> dict[str, Any]:
    """Run `quire rag warm`, and return the figures."""
    from rich.progress import Progress

    from quire.engine.document_warmer import DocumentWarmer

    form = _form(template)
    with open_collections(rag_dir) as collections:
        found = collections.get(name)
        config = _with_kv_dir(engine, collections.directory)
        num_passages = found.info.num_chunks
        counts = {"passages": 0, "computed_tokens": 0, "found_tokens": 0, "left_out": 0}
        with _started(config) as model, Progress(transient=True) as progress:
            is_chat = _is_chat(model.tokenizer, chat)
            warmer = DocumentWarmer(model)
            task = progress.add_task("reading", total=num_passages)
            for document in found.documents():
                for passage in found.passages_of(document.id):
                    prompt = _passage_prompt(model, passage, found.id, is_chat, form)
                    if prompt is None:
                        counts["left_out"] += 1
                    else:
                        warmed = warmer.warm(prompt)
                        counts["computed_tokens"] += warmed.num_computed
                        counts["found_tokens"] += warmed.num_tokens - warmed.num_computed
                    counts["passages"] += 1
                    progress.update(task, advance=1)
            warmer.finish()
    left_out = f"; {counts['left_out']:,} do not fit this model" if counts["left_out"] else ""
    typer.echo(
        f"{counts['passages']:,} passages of {name!r} for {config.model}: {counts['computed_tokens']:,} tokens "
        f"computed, {counts['found_tokens']:,} were there{left_out}"
    )
    return {"collection": name, "model": config.model, "kv_dir": config.kv_dir, **counts}


def _passage_prompt(
    model: Engine, passage: str, collection_id: str, is_chat: bool, form: PromptTemplate | None
) -> Prompt | None:
    from quire.rag.prompt_template import join_passage

    assert model.tokenizer is not None
    joined = join_passage(model.tokenizer, passage, role="user" if is_chat else None, template=form)
    if joined is None or len(joined[0].token_ids) >= model.max_model_len:
        return None
    prompt, _ = joined
    return replace(prompt, domains=_domains(prompt, collection_id))


def _join(
    model: Engine, passages: list[Passage], question: str, is_chat: bool, form: PromptTemplate | None, max_tokens: int
) -> tuple[Prompt, list[Passage]]:
    """Return the prompt with as many passages as fit, and these passages."""
    from quire.rag.prompt_template import join_conversation, join_question

    assert model.tokenizer is not None
    room = model.max_model_len - max_tokens
    for count in range(len(passages), 0, -1):
        texts = [each.text for each in passages[:count]]
        if is_chat:
            messages = [{"role": "user", "content": question}]
            prompt = join_conversation(model.tokenizer, texts, messages, form)
        else:
            prompt = join_question(model.tokenizer, texts, question, form)
        if len(prompt.token_ids) <= room:
            return prompt, passages[:count]
    raise ValueError(
        f"the question and one passage have {len(prompt.token_ids)} tokens, and the model takes {model.max_model_len} "
        "with its answer; ingest into smaller chunks (--chunk-tokens), or use another model"
    )


def _answer(model: Engine, prompt: Prompt, max_tokens: int) -> RequestState:
    """Print the answer as it grows, and wait until the KV is on disk."""
    from quire.sampling_params import SamplingParams

    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    model.step()  # learn what is on disk
    state = model.add_request(prompt, params)
    shown = 0
    while not state.is_finished:
        model.step()
        for completion in state.to_output().outputs:
            typer.echo(completion.text[shown:] if shown else completion.text.lstrip(), nl=False)
            shown = len(completion.text)
    typer.echo()
    if state.request.error is not None:
        raise RuntimeError(f"the request failed: {state.request.error}")
    while model.has_unfinished():  # writes to disk
        model.step()
    return state


def _domains(prompt: Prompt, collection_id: str) -> Any:
    from quire.core.block_keys import PUBLIC_ONLY
    from quire.rag.prompt_template import share

    return share(prompt, collection_id, PUBLIC_ONLY).domains


def _is_chat(tokenizer: Tokenizer | None, asked: bool | None) -> bool:
    if tokenizer is None:
        raise ValueError("passages need a tokenizer; leave out --skip-tokenizer-init")
    has_template = bool(tokenizer.chat_templates)
    if asked and not has_template:
        raise ValueError("the model has no chat template; leave out --chat")
    return has_template if asked is None else asked


def _form(template: str | None) -> PromptTemplate | None:
    from quire.rag.prompt_template import PromptTemplate

    return None if template is None else PromptTemplate.parse(template)


def _with_kv_dir(config: EngineConfig, rag_dir: Path) -> EngineConfig:
    return config if config.kv_dir is not None else replace(config, kv_dir=str(rag_dir / "kv"))


@contextmanager
def _started(config: EngineConfig) -> Iterator[Engine]:
    from quire.assembly import start_engine

    if "QUIRE_LOG_LEVEL" not in os.environ:
        logging.getLogger("quire").setLevel(logging.WARNING)  # the answer is what counts
    engine = start_engine(config)
    try:
        yield engine
    except KeyboardInterrupt:
        while engine.has_unfinished():  # finish writing computed blocks
            for request_id in list(engine.scheduler.queue.requests):
                engine.abort(request_id)
            engine.step()
        raise
