"""The models of one server, by name in the order given (the first is the default), or chosen by a routing policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.routing.policy import SLO, Choice
from quire.routing.router import Router
from quire.server.bodies.replies import RoutingReply
from quire.server.bodies.sampling import Slo
from quire.server.errors import ApiError, invalid

AUTO = "auto"  #: the name that asks the routing policy
_CHARACTERS_A_TOKEN = 4  # of most texts; a forecast needs no more than a good guess


@dataclass(frozen=True)
class ServedModel:
    """A model under the name by which clients ask for it."""

    name: str  #: name in answers
    async_engine: AsyncEngine
    created: int  #: seconds since 1970
    chat_template: str | None = None  #: replaces the model's own
    source: str = ""  #: directory, hub id or preset of `--model`, or directory of the adapter
    aliases: tuple[str, ...] = ()
    parent: str | None = None  #: name of the model that a LoRA adapter belongs to; `name` is then the adapter's

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def adapter(self) -> str:
        """See `Prompt.adapter`."""
        return "" if self.parent is None else self.name

    def with_adapter(self, name: str, directory: str) -> ServedModel:
        return replace(self, name=name, source=directory, aliases=(), parent=self.parent or self.name)

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self.async_engine.engine.tokenizer.backend.get_vocab()))


class ModelRegistry:
    """The served models. With `accepts_any_name` unknown names mean the first one."""

    def __init__(self, models: Sequence[ServedModel], *, accepts_any_name: bool = False) -> None:
        self.leaving: list[ServedModel] = []  #: replaced models whose requests have not ended
        self._accepts_any_name = accepts_any_name
        self._models: list[ServedModel] = []
        self._by_name: dict[str, ServedModel] = {}
        self.replace(models)

    def replace(self, models: Sequence[ServedModel]) -> None:
        """Serve these models and adapters from now on. ValueError without a model, or for an unusable name."""
        if not models:
            raise ValueError("there is no model to serve; name at least one")
        before = self._models, self._by_name
        self._models, self._by_name = [], {}
        try:
            for model in models:
                self.add(model)
        except ValueError:
            self._models, self._by_name = before
            raise

    def add(self, model: ServedModel) -> None:
        """Serve a model, or an adapter of one in place of one of that name. ValueError for an unfit name."""
        self.check_names(model)
        self._by_name |= dict.fromkeys(model.names, model)
        if model.parent is None:
            self._models.append(model)

    def check_names(self, model: ServedModel) -> None:
        """Raise ValueError if a name is taken by another model, or could split a line of a log."""
        for name in model.names:
            if not name.isprintable() or name != name.strip() or not name:
                raise ValueError(f"the model name {name!r} could split a line of a log; use visible characters")
            is_taken = name in self._by_name and (model.parent is None or self._by_name[name].parent != model.parent)
            if is_taken or model.names.count(name) > 1:
                raise ValueError(f"two models are named {name!r}; give one of them another name: --model NAME=DIR")

    @property
    def engines(self) -> list[AsyncEngine]:
        return [model.async_engine for model in (*self._models, *self.leaving)]

    def remove_adapter(self, name: str) -> None:
        del self._by_name[name]

    @property
    def adapters(self) -> dict[str, ServedModel]:
        return {name: model for name, model in self._by_name.items() if model.parent is not None}

    @property
    def names(self) -> list[str]:
        """All names, those of adapters included."""
        return list(self._by_name)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    def get(self, name: str | None) -> ServedModel:
        """Return the model of that name; without a name the first. Raises ApiError for an unknown name."""
        if name is None:
            return self._models[0]
        model = self._by_name.get(name)
        if model is None and self._accepts_any_name:
            return self._models[0]
        if model is None:
            names = ", ".join(map(repr, self._by_name))
            raise ApiError(
                404, f"the model {name!r:.200} does not exist; this server has {names}", "model", "model_not_found"
            )
        return model


class ModelChooser:
    """Finds the model for a request: by its name, or for `model: "auto"` by the routing policy, if there is one."""

    def __init__(self, registry: ModelRegistry, router: Router | None) -> None:
        self.registry = registry
        self._router = router

    def named(self, name: str | None, slo: Slo | None) -> ServedModel | None:
        """Return the model of that name; None if the policy chooses. Raises ApiError for an unknown name."""
        if name == AUTO and self._router is not None:
            return None
        if slo is not None:
            raise invalid(f"slo goes with model={AUTO!r}, of a server that was started with --routing", "slo")
        return self.registry.get(name)

    async def choose(
        self, question: str | None, slo: Slo | None, *, num_characters: int, key_id: str
    ) -> tuple[ServedModel, int, RoutingReply]:
        """Return the model that the policy chooses, its stage to wait for, and the reason. `num_characters` is the
        approximate length of the whole prompt. Raises ApiError if the body has no text to choose by."""
        assert self._router is not None
        if question is None:
            raise invalid("model auto chooses by the question's text; send a text, or name a model", "model")
        known: dict[str, Any] = {}
        if self._router.needs_forecasts:
            names = self._router.config.models.values()
            engines = {each: self.registry.get(each).async_engine for each in names}
            known["forecasts"] = {each: engine.forecast for each, engine in engines.items()}
            progress = {each: engine.load_progress for each, engine in engines.items()}
            known["stage_waits"] = {each: load.stage_waits for each, load in progress.items() if load is not None}
            known["num_tokens"] = num_characters // _CHARACTERS_A_TOKEN
            known["key_id"] = key_id
            known["slo"] = None if slo is None else SLO(slo.ttft_s, slo.tpot_s)
        choice = self._prefer_ready(await asyncio.to_thread(partial(self._router.route, question, **known)))
        routing = RoutingReply(policy=choice.policy, why=choice.why, numbers=dict(choice.numbers))
        return self.registry.get(choice.model), choice.min_stage, routing

    def _prefer_ready(self, choice: Choice) -> Choice:
        """Replace a model that is not ready by one that can answer sooner."""
        assert self._router is not None
        state = self.registry.get(choice.model).async_engine.state
        if state in (ModelState.READY, ModelState.UNLOADED):  # an unloaded model is loaded again
            return choice
        for better in (ModelState.READY, ModelState.UNLOADED):
            for name in self._router.config.models.values():
                if self.registry.get(name).async_engine.state is better:
                    why = f"{choice.why}; but {choice.model} is {state}"
                    return replace(choice, model=name, min_stage=1, why=why)
        return choice
