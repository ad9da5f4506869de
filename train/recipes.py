"""What each embedded model is made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.samples import END, Reading, Source, facts, mix, small_talk, stories

PAD = "<|pad|>"


@dataclass(frozen=True)
class Recipe:
    name: str  # the model's
    source: Source  # draws the training samples
    special: tuple[str, ...]  # special tokens, first the padding, then the end of a text or turn
    config: dict[str, Any]  # the architecture, as `transformers.AutoConfig.for_model` takes it
    chat_template: str  # Jinja, or ""
    total_tokens: int  # how many tokens it is trained on
    tokens_per_step: int = 8192  # tokens of one optimiser step, over all workers
    learning_rate: float = 3e-3  # the highest
    warmup: float = 0.01  # the part of the training over which it rises
    decay: float = 0.58  # the part of the training over which it falls, at the end
    reads_until: float = 0.42  # from this part of the training on, tokens that are only read count a fifth
    tokenizer_samples: int = 12_000  # samples that the tokenizer is trained on

    @property
    def context_length(self) -> int:
        return int(self.config.get("max_position_embeddings") or self.config["n_positions"])


_MINI_TEMPLATE = (  # an answer starts with a blank, so that its first word is the token that it is in the passage
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ ' ' if message['role'] == 'assistant' }}"
    "{{ message['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ 'quire' if message['role'] == 'assistant' else message['role'] }}|>"
    "{{ message['content'] | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|quire|>{% endif %}"
)

_MODELS = json.loads(Path(__file__).with_name("models.json").read_text())
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="quire-mini",
            source=mix((0.93, Reading(accounts=0.6)), (0.04, facts), (0.03, stories)),
            special=(PAD, END, "<|system|>", "<|user|>", "<|assistant|>"),
            config=_MODELS["quire-mini"],
            chat_template=_MINI_TEMPLATE,
            total_tokens=38_000_000,
        ),
        Recipe(
            name="quire-chat",
            source=mix((0.97, small_talk), (0.03, stories)),
            special=(PAD, END, "<|system|>", "<|user|>", "<|quire|>"),
            config=_MODELS["quire-chat"],
            chat_template=_CHAT_TEMPLATE,
            total_tokens=2_000_000,
        ),
    )
}
