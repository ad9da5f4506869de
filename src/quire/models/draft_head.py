"""Models that draft from the served model's hidden states (multi-token prediction, MTP): checkpoints' draft heads.

The layout follows vLLM's qwen3_next_mtp.py and SGLang's deepseek_nextn.py. The entry at position i normalizes the
embedding of token i + 1 and the hidden state at i, which is the served model's after its final norm, and projects both,
in this order, to the input of a layer with KV and rotary position i. The layer's output, after a norm of its own, goes
through the served model's output layer to the logits of token i + 2, and is the hidden state of the next entry where
the served model has none yet.
"""

from __future__ import annotations

import re
from dataclasses import replace

from quire.models.architectures.llama import LlamaForCausalLM
from quire.models.base import Attend, CausalLM
from quire.models.layers import RMSNorm
from quire.models.linear.layer import Linear
from quire.models.model_config import ModelConfig
from quire.ops.arrays import Array, empty


class HiddenStateReader(LlamaForCausalLM):
    """A model that drafts from hidden states, on the meta device until it is loaded. Subclasses set `fc`, which
    projects an embedding and a hidden state of the served model to the layers' input."""

    reads_served_kv = False  #: instead of KV of its own, up to the last hidden state
    fc: Linear

    def connect(self, served: LlamaForCausalLM) -> None:
        """Read the served model's embeddings."""
        self.embed_served = served.embed

    def from_hidden(
        self, input_ids: Array, positions: Array, hidden: Array, attend: Attend, *, rows: Array | None = None
    ) -> Array:
        """As `CausalLM.__call__`, from tokens and the served model's hidden states before them, [num_tokens, size]."""
        return self.recorded(
            self.inputs_from_hidden, self._through_layers, attend, input_ids, positions, hidden, rows=rows
        )

    def inputs_from_hidden(self, input_ids: Array, positions: Array, hidden: Array) -> list[Array]:
        """As `inputs`, with the hidden states beside embeddings."""
        x = self.embed_served(input_ids)
        both = empty((len(x), 2 * x.shape[-1]), x.dtype, self.device)
        both[:, : x.shape[-1]], both[:, x.shape[-1] :] = self.normed(x, hidden)
        return [both, *self.angles(positions, x.dtype)]

    def normed(self, embeddings: Array, hidden: Array) -> tuple[Array, Array]:
        return embeddings, hidden

    def next_hidden(self, hidden: Array) -> Array:
        """Return the hidden states of the next entries in place of the served model's."""
        return hidden

    def _through_layers(self, attend: Attend, x: Array, *angles: Array, rows: Array | None = None) -> Array:
        return super()._through_layers(attend, self.fc(x), *angles, rows=rows)


class DraftHead(HiddenStateReader):
    """The first draft head of a served model. ValueError if the architecture has none."""

    def __init__(self, served: CausalLM) -> None:
        names = getattr(served, "draft_head_names", None)
        if names is None:
            raise ValueError(
                f"speculative_model=mtp: {served.config.architecture} has no draft head that can be served; name a "
                "smaller model of the same family, or int4"
            )
        assert isinstance(served, LlamaForCausalLM)
        config, factory = _head_config(served.config), {"dtype": served.dtype, "device": "meta"}
        self.layer_class = served.layer_class  # type: ignore[misc]
        super().__init__(config, dtype=served.dtype, device="meta", group=served.split.group)
        norm = {"eps": config.norm_eps, "offset": config.norm_offset, **factory}
        self.fc = Linear(2 * config.hidden_size, config.hidden_size, bias=False, **factory)
        self.embedding_norm, self.hidden_norm = (RMSNorm(config.hidden_size, **norm) for _ in range(2))
        self.layer = self.layers[0]
        at = served.config.num_layers
        self.checkpoint_names = {part: name.format(at) for part, name in names.items()}  # type: ignore[misc]
        # Copies of the served model's tables.
        self.ignored_tensors = re.compile(rf"model\.layers\.{at}\.(embed_tokens|shared_head\.head)\..*")

    def connect(self, served: LlamaForCausalLM) -> None:
        """Read the served model's embeddings, and its output layer."""
        super().connect(served)
        self.embed_tokens, self.lm_head = served.embed_tokens, served.lm_head

    def normed(self, embeddings: Array, hidden: Array) -> tuple[Array, Array]:
        return self.embedding_norm(embeddings), self.hidden_norm(hidden)


def _head_config(config: ModelConfig) -> ModelConfig:
    """Return the config of the head's layer: the last kind of attention and MLP of the served model's."""
    layer = next(each for each in reversed(config.layer_configs) if not each.has_state)
    experts = config.experts and replace(config.experts, dense_layers=())
    return replace(config, num_layers=1, layers=(layer,), experts=experts, tie_word_embeddings=True)
