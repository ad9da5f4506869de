"""`model: "auto"`: one of the served models answers, by a routing policy, and the answer says why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from quire.async_engine.messages import ModelState
from quire.routing.policy import SLO, Choice
from quire.routing.router import Router
from quire.server.bodies.replies import RoutingReply
from quire.server.bodies.sampling import Slo
from quire.server.errors import invalid
from quire.server.registry import AUTO, ModelRegistry, ServedModel

_CHARACTERS_A_TOKEN = 4  # of most texts; a forecast needs no more than a good guess


class AutoModel:
    """Args:
    registry: of the models that the router names.
    router: None where the server was started without one.
    """

    def __init__(self, registry: ModelRegistry, router: Router | None) -> None:
        self.registry = registry
        self._router = router

    async def find(
        self, name: str | None, question: str | None, slo: Slo | None, *, num_characters: int, key_id: str
    ) -> tuple[ServedModel, RoutingReply | None]:
        """The model of that name; for auto, the one that the policy chooses, and why.

        Args:
            question: None where the body has token ids alone.
            num_characters: of the whole prompt, about.
            key_id: whose request it is.

        Raises:
            ApiError: there is no such model, or no way to choose.
        """
        if name != AUTO or self._router is None:
            if slo is not None:
                raise invalid(f"slo goes with model={AUTO!r}, of a server that was started with --routing", "slo")
            return self.registry.get(name), None
        if question is None:
            raise invalid("model auto chooses by the question's text; send a text, or name a model", "model")
        known: dict[str, Any] = {}
        if self._router.needs_forecasts:
            names = self._router.config.models.values()
            known["forecasts"] = {each: self.registry.get(each).async_engine.forecast for each in names}
            known["num_tokens"] = num_characters // _CHARACTERS_A_TOKEN
            known["key_id"] = key_id
            known["slo"] = None if slo is None else SLO(slo.ttft_s, slo.tpot_s)
        choice = self._among_ready(await asyncio.to_thread(partial(self._router.route, question, **known)))
        routing = RoutingReply(policy=choice.policy, why=choice.why, numbers=dict(choice.numbers))
        return self.registry.get(choice.model), routing

    def _among_ready(self, choice: Choice) -> Choice:
        """The choice, or another model that can answer sooner."""
        assert self._router is not None
        state = self.registry.get(choice.model).async_engine.state
        if state in (ModelState.READY, ModelState.UNLOADED):  # an idle one comes back
            return choice
        for better in (ModelState.READY, ModelState.UNLOADED):
            for name in self._router.config.models.values():
                if self.registry.get(name).async_engine.state is better:
                    return replace(choice, model=name, why=f"{choice.why}; but {choice.model} is {state}")
        return choice  # which is waited for, or says what is the matter
