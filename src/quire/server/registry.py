"""The models of one server by name, in the order in which they were given; the first is the default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.server.errors import ApiError
from quire.server.http.body import Limits
from quire.server.openai.prompt_limits import PromptLimits


@dataclass(frozen=True)
class ServedModel:
    """A model under the name by which clients ask for it."""

    name: str
    async_engine: AsyncEngine
    created: int  #: seconds since 1970
    chat_template: str | None = None  #: stands in place of the model's own
    source: str = ""  #: the directory, hub id or preset that `--model` named

    @property
    def prompt_limits(self) -> PromptLimits:
        """The lengths that no prompt exceeds."""
        return PromptLimits(self.async_engine.engine.max_model_len, self._longest_token)

    @cached_property
    def _longest_token(self) -> int | None:
        tokenizer = self.async_engine.engine.tokenizer
        return max(map(len, tokenizer.backend.get_vocab())) if tokenizer is not None else None


class ModelRegistry:
    """The served models."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        if not models:
            raise ValueError("there is no model to serve; name at least one")
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models):
            names = [model.name for model in models]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two models are named {twice!r}; give one of them another name: --model NAME=DIR")

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def prompt_limits(self) -> Limits:
        """The limits of the ready models, by name; the default model's stand under None, too."""
        ready = [model for model in self if model.async_engine.state is ModelState.READY]
        found: Limits = {model.name: model.prompt_limits.check for model in ready}
        default = self.get(None)
        return {**found, None: default.prompt_limits.check} if default in ready else found

    def get(self, name: str | None) -> ServedModel:
        """The model of that name; without a name the first."""
        if name is None:
            return next(iter(self))
        model = self._models.get(name)
        if model is None:
            names = ", ".join(map(repr, self._models))
            raise ApiError(
                404, f"the model {name!r:.200} does not exist; this server has {names}", "model", "model_not_found"
            )
        return model
