"""What a routing policy is: it sees a question, never an answer or a label, and chooses one of the served models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Choice:
    """A model, and why this one.

    Args:
        model: the name that it is served under.
        policy: the policy that chose it.
        why: a sentence for people.
        numbers: what was compared, by name; what they are is the policy's to say.
        role: what the model was chosen as, such as small or large; its name again where it has no other role.
    """

    model: str
    policy: str
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    role: str = ""


class Policy(Protocol):
    """Chooses a model. Called from several threads."""

    name: str

    def choose(self, question: str) -> Choice:
        """The model for a question, in at most a few milliseconds. Never fails on any text."""
        ...


class RoutingError(ValueError):
    """A routing configuration that cannot be used: what is wrong, what was expected, how to mend it."""
