"""Roofline of a workload: bytes to read and operations to compute.

A token that several prompts begin with is computed once. Weights are read once per step, with as many steps as the
longest answer has tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quire.bench.workload import Workload
from quire.models.model_config import ModelConfig

MOST_ROWS = 2048  #: of a prompt in one product
LEAST_ROWS = 16  #: below it, operations are done while the weights come
_BYTES_PER_WEIGHT = {"float32": 4.0, "bf16": 2.0, "float16": 2.0, "int8": 1.0, "int4": 0.5}
_SHARED = 0.6  #: of the prompts' tokens are left with perfect sharing, or fewer, where a workload is about prefixes


@dataclass(frozen=True)
class ModelWork:
    """Work of a model per token and step."""

    layer_weights: int  #: of all layers' matrices
    head_weights: int
    pair_operations: int  #: of one pair of query and key, in all layers
    kv_bytes: int  #: of a token
    bytes_per_weight: float

    @property
    def step_bytes(self) -> float:
        """Bytes of weights read in every step."""
        return (self.layer_weights + self.head_weights) * self.bytes_per_weight


def model_work(config: ModelConfig, precision: str) -> ModelWork:
    """Work of a model with this precision of weights; KV has two bytes per value, or four in float32."""
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = hidden * (config.q_size + 2 * config.kv_size) + config.q_size * hidden
    layer += hidden * inner * (3 if config.gated_mlp else 2)
    return ModelWork(
        layer_weights=config.num_layers * layer,
        head_weights=config.vocab_size * config.embedding_dim,
        pair_operations=4 * config.q_size * config.num_layers,
        kv_bytes=config.kv_bytes("float32" if precision == "float32" else "bfloat16"),
        bytes_per_weight=_BYTES_PER_WEIGHT[precision],
    )


@dataclass(frozen=True)
class Work:
    """Work of one workload."""

    kind: str  #: stream, batch, prefill or shared: which figure counts (`targets.FIGURES`)
    num_bytes: float
    prompt_operations: float
    decode_operations: float
    prompt_rows: int
    decode_rows: int

    def seconds(self, read_bytes_s: float, prompt_rate: float, decode_rate: float) -> float:
        """The roofline: bytes over the read bandwidth plus operations over the highest rates."""
        return (
            self.num_bytes / read_bytes_s + self.prompt_operations / prompt_rate + self.decode_operations / decode_rate
        )


def work_of(workload: Workload, model: ModelWork) -> Work:
    """Compute the work of a workload."""
    requests = workload.requests
    num_tokens, prompt_pairs = _distinct([request.prompt_token_ids for request in requests])
    num_decoded = sum(request.max_tokens - 1 for request in requests)
    contexts = sum(
        (request.max_tokens - 1) * (len(request.prompt_token_ids) + request.max_tokens / 2) for request in requests
    )
    return Work(
        kind=kind_of(workload, num_tokens),
        num_bytes=max(request.max_tokens for request in requests) * model.step_bytes + contexts * model.kv_bytes,
        prompt_operations=2 * num_tokens * model.layer_weights + prompt_pairs * model.pair_operations,
        decode_operations=2 * num_decoded * model.layer_weights
        + 2 * workload.num_output_tokens * model.head_weights
        + contexts * model.pair_operations,
        prompt_rows=max(LEAST_ROWS, min(MOST_ROWS, num_tokens)),
        decode_rows=max(LEAST_ROWS, len(requests)),
    )


def kind_of(workload: Workload, num_distinct: int) -> str:
    """The kind of a workload."""
    if len(workload.requests) == 1:
        return "prefill" if workload.requests[0].max_tokens == 1 else "stream"
    return "shared" if num_distinct <= _SHARED * workload.num_prompt_tokens else "batch"


def _distinct(prompts: list[list[int]]) -> tuple[int, float]:
    num_tokens, pairs = 0, 0.0
    last: list[int] = []
    for prompt in sorted(prompts):  # the longest beginning in common with any earlier one is that with the last one
        common = 0
        while common < min(len(last), len(prompt)) and last[common] == prompt[common]:
            common += 1
        num_tokens += len(prompt) - common
        pairs += (len(prompt) * (len(prompt) + 1) - common * (common + 1)) / 2
        last = prompt
    return num_tokens, pairs


def best_rate(rates: Mapping[int, float], rows: int) -> float:
    """The highest rate with at most this number of rows."""
    return max(rate for measured, rate in rates.items() if measured <= rows)
