"""GET /v1/models: served models and their states; /props in the form of llama.cpp, /tokenizer_info in that of vLLM."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

import quire
from quire.async_engine.messages import ModelState
from quire.server.bodies.fields import Reply, option
from quire.server.bodies.replies import ERROR_RESPONSES, LoadedSoFar, json_reply
from quire.server.generation.generation import wait_until_known
from quire.server.http.routes import Routes
from quire.server.openai.prompts import tokenizer_of
from quire.server.registry import AUTO, ModelRegistry, ServedModel


class _Card(Reply):
    id: str = Field(description="Name to ask for.")
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: str
    root: str = Field(description="Directory, hub id or preset of the model, or directory of the adapter.")
    parent: str | None = option("Model of a LoRA adapter.")
    state: Literal["loading", "ready", "unloaded", "failed", "draining"]
    max_model_len: int | None = option("Maximum length of prompt and answer together, once loaded.")
    vocab_size: int | None = option("Number of token ids, once loaded.")
    error: str | None = option("Reason of the failure.")


class ModelCard(LoadedSoFar, _Card):
    """A model, with its progress while it loads; always for a model that loads in stages."""

    load_error: str | None = option("Error that delays loading, which is retried.")


class ModelList(Reply):
    object: Literal["list"]
    data: list[ModelCard]


class GenerationSettings(Reply):
    n_ctx: int = Field(description="Maximum length of prompt and answer together, in tokens.")
    params: dict[str, Any] = Field(description="Default sampling parameters.")


class Properties(Reply):
    default_generation_settings: GenerationSettings
    total_slots: int = Field(description="Maximum number of running sequences.")
    model_alias: str
    model_path: str
    chat_template: str = Field(description="Chat template, or empty.")
    bos_token: str
    eos_token: str
    build_info: str


class TokenizerInfo(Reply):
    """The main keys of tokenizer_config.json."""

    tokenizer_class: str
    model_max_length: int = Field(description="Maximum length of prompt and answer together, in tokens.")
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    chat_template: str | None
    added_tokens_decoder: dict[str, dict[str, Any]] = Field(description="Added tokens by id.")


def model_routes(registry: ModelRegistry, *, has_auto: bool = False, embedder: str | None = None) -> Routes:
    """The routes; with `has_auto`, "auto" is one of the models. The embedder is listed last, since clients may ask the
    first model for an answer."""
    routes = Routes("models", responses=ERROR_RESPONSES)
    started = int(time.time())

    def embedder_card(name: str) -> ModelCard:
        return ModelCard(id=name, object="model", created=started, owned_by="quire", root=name, state="ready")

    @routes.get("/v1/models", response_model=ModelList, summary="List the models")
    async def list_models() -> Response:
        cards = [card_of(registry.get(name), name) for name in registry.names]
        cards += [_auto_card(registry)] if has_auto else []
        cards += [embedder_card(embedder)] if embedder is not None else []
        return json_reply(ModelList(object="list", data=cards))

    @routes.get("/v1/models/{model:path}", response_model=ModelCard, summary="Show a model")
    async def show_model(model: str) -> Response:
        if has_auto and model == AUTO:
            return json_reply(_auto_card(registry))
        if model == embedder:
            return json_reply(embedder_card(model))
        found = registry.get(model)
        return json_reply(card_of(found, model if model in found.names else found.name))

    @routes.get("/props", response_model=Properties, summary="Show a model's properties")
    async def show_properties(request: Request, model: str | None = None) -> Response:
        found = registry.get(model)
        await wait_until_known(found, request.receive)
        return json_reply(_properties(found))

    @routes.get("/tokenizer_info", response_model=TokenizerInfo, summary="Show a tokenizer's configuration")
    async def show_tokenizer(request: Request, model: str | None = None) -> Response:
        found = registry.get(model)
        await wait_until_known(found, request.receive)
        return json_reply(_tokenizer_info(found))

    return routes


def card_of(model: ServedModel, name: str) -> ModelCard:
    engine, state = model.async_engine, model.async_engine.state
    root = model.source or model.name
    card = ModelCard(id=name, object="model", created=model.created, owned_by="quire", root=root, state=state.value)
    if model.parent is not None:
        card.parent = model.parent
    if engine.is_known and state is not ModelState.DRAINING:
        card.max_model_len = engine.engine.max_model_len
        card.vocab_size = engine.engine.vocab_size
    if engine.error is not None:
        card.error = engine.error
    progress = engine.load_progress
    is_partial = progress is not None and progress.bytes_loaded < progress.bytes_total  # it serves while it loads
    is_arriving = state is ModelState.LOADING or (state is ModelState.READY and (engine.num_stages > 1 or is_partial))
    if is_arriving and progress is not None:
        for field, value in LoadedSoFar.fields_of(progress).items():
            setattr(card, field, value)
        if progress.error is not None:
            card.load_error = progress.error
    return card


def _auto_card(registry: ModelRegistry) -> ModelCard:
    """Return the card of "auto", with the best state of any model."""
    states = {model.async_engine.state for model in registry}
    best = (ModelState.READY, ModelState.UNLOADED, ModelState.LOADING)
    state = next((each for each in best if each in states), min(states))
    created = max(model.created for model in registry)
    return ModelCard(id=AUTO, object="model", created=created, owned_by="quire", root=AUTO, state=state.value)


def _properties(model: ServedModel) -> Properties:
    engine, limits = model.async_engine.engine, model.async_engine.limits
    tokenizer = engine.tokenizer
    named = dict(tokenizer.special_tokens) if tokenizer is not None else {}
    template = model.chat_template or (tokenizer.chat_template if tokenizer is not None else None)
    params = {name: value for name, value in asdict(engine.default_sampling_params()).items() if value is not None}
    return Properties(
        default_generation_settings=GenerationSettings(n_ctx=limits.max_model_len, params=params),
        total_slots=limits.max_num_seqs,
        model_alias=model.name,
        model_path=model.source or model.name,
        chat_template=template or "",
        bos_token=named.get("bos_token") or "",
        eos_token=named.get("eos_token") or "",
        build_info=f"quire {quire.__version__}",
    )


def _tokenizer_info(model: ServedModel) -> TokenizerInfo:
    tokenizer = tokenizer_of(model)
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    return TokenizerInfo(
        tokenizer_class="PreTrainedTokenizerFast",
        model_max_length=model.async_engine.engine.max_model_len,
        **{name: tokenizer.special_tokens.get(name) for name in names},
        chat_template=model.chat_template or tokenizer.chat_template,
        added_tokens_decoder={
            str(token_id): {"content": token.content, "special": token.special}
            for token_id, token in tokenizer.backend.get_added_tokens_decoder().items()
        },
    )
