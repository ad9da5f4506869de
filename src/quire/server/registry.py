"""The models of one server by name, in the order in which they were given; the first is the default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from quire.async_engine.async_engine import AsyncEngine
from quire.server.errors import ApiError
from quire.server.http.body import Limits
from quire.server.openai.prompt_limits import PromptLimits


@dataclass(frozen=True)
class ServedModel:
    """A model under the name by which clients ask for it."""

    name: str  #: the answers show it
    async_engine: AsyncEngine
    created: int  #: seconds since 1970
    chat_template: str | None = None  #: stands in place of the model's own
    source: str = ""  #: the directory, hub id or preset that `--model` named
    aliases: tuple[str, ...] = ()  #: other names by which it may be asked for

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def prompt_limits(self) -> PromptLimits:
        """The lengths that no prompt exceeds."""
        return PromptLimits(self.async_engine.engine.max_model_len, self._longest_token)

    @cached_property
    def _longest_token(self) -> int | None:
        tokenizer = self.async_engine.engine.tokenizer
        return max(map(len, tokenizer.backend.get_vocab())) if tokenizer is not None else None


AUTO = "auto"  #: asks for whichever model a routing policy chooses


class ModelRegistry:
    """The served models.

    Args:
        accepts_any_name: a name that is not served asks the first model.
    """

    def __init__(self, models: Sequence[ServedModel], *, accepts_any_name: bool = False) -> None:
        if not models:
            raise ValueError("there is no model to serve; name at least one")
        names = [name for model in models for name in model.names]
        for name in names:
            if not name.isprintable() or name != name.strip() or not name:
                raise ValueError(f"the model name {name!r} could split a line of a log; use visible characters")
            if names.count(name) > 1:
                raise ValueError(f"two models are named {name!r}; give one of them another name: --model NAME=DIR")
        self._models = list(models)
        self._by_name = {name: model for model in models for name in model.names}
        self._accepts_any_name = accepts_any_name

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    def prompt_limits(self) -> Limits:
        """The limits of the models as far as they are known, by name; the default model's stand under None, too."""
        known = [model for model in self if model.async_engine.is_known]
        found: Limits = {name: model.prompt_limits.check for model in known for name in model.names}
        default = self.get(None)
        return {**found, None: default.prompt_limits.check} if default in known else found

    def get(self, name: str | None) -> ServedModel:
        """The model of that name; without a name the first."""
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
