"""A request and its sequences, preempted and finished as a whole. Only `core.kv_cache_manager` changes block tables,
block keys and `num_computed_tokens`."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.config import SchedulerConfig
from quire.core.beam_search import BeamSearch
from quire.core.block_keys import PUBLIC_ONLY, DomainSpans
from quire.outputs import COMPUTED, OTHER_PROCESS, OutputSoFar
from quire.sampling_params import BeamSearchParams, SamplingParams


class RequestStatus(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  #: waiting again, after it has run
    BLOCKED = "blocked"  #: see `BlockedReason`
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH = "length"
    FINISHED_ABORTED = "abort"
    FINISHED_ERROR = "error"

    @property
    def is_finished(self) -> bool:
        return self.name.startswith("FINISHED")


class BlockedReason(enum.Enum):
    """The event that a blocked request waits for."""

    DOCUMENT = "document"  #: another process computes it
    GRAMMAR = "grammar"  #: is being compiled
    STAGE = "stage"  #: the model has not reached `Request.min_stage`


@dataclass(slots=True)
class Loading:
    """Blocks of a sequence's table that are loading from another tier."""

    start: int  #: first token of the blocks
    end: int  #: token after the last one
    op_ids: set[int] = field(default_factory=set)  #: pending loads
    sources: list[str] = field(default_factory=list)  #: tier of each block, OTHER_PROCESS for its blocks on disk


class Sequence:
    """One block table and the tokens whose KV it holds or will hold."""

    __slots__ = (
        "block_keys", "block_table", "candidates", "cumulative_logprob", "finish_reason", "index", "is_in_runner",
        "loading", "num_computed_tokens", "num_draft_tokens", "num_lost_tokens", "num_outgrown", "num_prompt_tokens",
        "num_registered", "num_tokens_at_end", "open_end", "request", "seq_id", "states_at", "stop_reason",
        "stop_token_ids", "swapped_keys", "token_ids",
    )  # fmt: skip

    def __init__(self, seq_id: int, index: int, request: Request, token_ids: list[int]) -> None:
        self.seq_id = seq_id
        self.index = index
        self.request = request
        self.token_ids = token_ids  #: prompt and output
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_computed_tokens = 0  #: tokens with KV in the block table, or computed by the current step
        self.num_draft_tokens = 0  #: tokens to verify, with slots after the last computed one
        self.block_table: list[int] = []
        self.block_keys: list[bytes] = []  #: of full blocks, as far as they were needed
        self.num_outgrown = 0  #: blocks at the front of the table whose windows it reads no more
        self.states_at: list[int] = []  #: positions of blocks held for the states of a model that has some
        self.num_registered = 0  #: blocks at the front of the table whose keys were offered to the pool
        #: With fewer computed tokens, the next slot is in a block of its own, and does not fill it. 0 if siblings may
        #: share the block.
        self.open_end = 0
        self.is_in_runner = False
        self.swapped_keys: list[bytes] = []  #: of blocks that the swap tier holds until it resumes
        self.loading: Loading | None = None
        self.num_lost_tokens = 0  #: tokens computed before a preemption; up to there they are recomputed
        #: A beam's continuations (token, log-probability), while it waits for its siblings'.
        self.candidates: list[tuple[int, float]] | None = None
        self.cumulative_logprob = 0.0
        self.stop_token_ids = request.stop_token_ids
        self.num_tokens_at_end = self.num_prompt_tokens + request.max_tokens  #: maximum length
        self.finish_reason: RequestStatus | None = None
        self.stop_reason: int | str | None = None

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_unsampled(self) -> bool:
        """Whether the runner has its next token's logits, but not yet the grammar's mask for them."""
        is_computed = self.is_in_runner and self.num_computed_tokens == len(self.token_ids)
        return is_computed and self.candidates is None

    @property
    def must_compute(self) -> bool:
        """Whether all prompt tokens must be computed, for their logits or hidden states."""
        params = self.request.sampling_params
        return (params.prompt_logprobs is not None or params.pooling == "mean") and self.num_output_tokens == 0

    def __repr__(self) -> str:
        name = f"{self.request.request_id}/{self.index}"
        return f"Sequence({name}, {self.num_computed_tokens} of {len(self.token_ids)} tokens)"


@dataclass(frozen=True, slots=True)
class EndRules:
    """The end of a sequence: stop tokens and maximum length."""

    max_tokens: int = 16
    stop_token_ids: tuple[int, ...] = ()  #: the client's, and the model's own unless ignored
    eos_token_ids: tuple[int, ...] = ()  #: the model's own


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The tenant whose turn a request takes (`core.scheduling.turns`)."""

    tenant: str = ""  #: id of the API key; "" is the server itself, and every client of a server without keys
    rank: int = 0  #: the smaller goes first among the waiting requests of the tenant


NO_OWNER = Owner()
#: Priority of background requests, which run only while no other request runs or waits.
BACKGROUND = 1 << 40


class Order(NamedTuple):
    """Order of running requests, the smaller first."""

    priority: int = 0
    arrival: int = 0
    owner: Owner = NO_OWNER


@dataclass(frozen=True, slots=True)
class RequestAdapter:
    name: str
    number: int  #: from 1; the runner's name of it, never used again
    digest: str  #: of its files, for the namespace


@dataclass(frozen=True, slots=True)
class KVScope:
    """Namespace, sharing domains and documents of a request's KV."""

    root: bytes = b""  #: namespace key (`block_keys.Namespace.root`), unless the scheduler's stage has one
    domains: DomainSpans = PUBLIC_ONLY  #: who may share its blocks
    documents: tuple[int, ...] = ()  #: ends of the documents, ascending; full blocks up to there are kept on disk
    keeps_prompt: bool = False  #: keep all full blocks of the prompt, and of a single answer to it, on disk
    adapter: RequestAdapter | None = None  #: narrows the namespace


class Request:
    """A client's request, and how far it has come.

    Args:
        order: its own, by priority and arrival.
        seed: address of its random numbers.
        min_stage: the request is blocked until the model reaches this stage.
        outputs: outputs of another engine to continue, one for each sequence.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Seq[int],
        sampling_params: SamplingParams,
        *,
        beam: BeamSearchParams | None = None,
        order: Order = Order(0, 0),  # noqa: B008
        seed: int = 0,
        ends: EndRules = EndRules(),
        kv: KVScope = KVScope(),
        min_stage: int = 1,
        outputs: Seq[OutputSoFar] = (),
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = list(prompt_token_ids)
        self.sampling_params = sampling_params
        self.beam = beam
        self.width = sampling_params.n if beam is None else beam.beam_width
        self.is_single = self.width == 1 and beam is None
        self.order = order
        self.tenant = order.owner.tenant
        self.is_background = order.priority >= BACKGROUND
        self.num_passed = 0  #: requests of other tenants that were admitted in its place
        self.num_yields = 0  #: preemptions in favour of other tenants, part of `num_preemptions`
        self.is_spare = False  #: it runs on spare seats (`core.admission`)
        self.seed = seed
        self.max_tokens = ends.max_tokens
        self.stop_token_ids = frozenset(ends.stop_token_ids)
        self.eos_token_ids = frozenset(ends.eos_token_ids)
        self.root = kv.root
        self.adapter = kv.adapter
        self.is_renamed = False  #: its root is its own, since one of its documents was deleted
        self.domains = kv.domains
        self.is_settled = False  #: its domains are final
        self.documents = kv.documents
        #: Tokens at the front whose full blocks are kept on disk.
        self.num_to_keep = len(self.prompt_token_ids) if kv.keeps_prompt else max(kv.documents, default=0)
        self.keeps_answer = kv.keeps_prompt and self.is_single
        self.num_kept = 0  #: blocks at the front that are on disk, or on their way there
        self.min_stage = min_stage
        self.needs_grammar = sampling_params.structured_outputs is not None
        self.stage = 1
        self.num_queued_tokens = 0  #: known tokens when it entered the queue
        self.blocked_on: BlockedReason | None = None
        self.status = RequestStatus.WAITING
        self.sequences: list[Sequence] = []
        self.unfinished: list[Sequence] = []  #: sequences that want more tokens
        #: See `RequestOutput`, up to the last found token. None before it first began.
        self.sources: list[tuple[str, int]] | None = None
        self.num_chosen_tokens = 0  #: prompt tokens in other tiers that were computed, as predicted to be faster
        self.outputs = outputs
        self.prediction: Seq[int] = ()  #: text that the output may repeat, as drafts
        self.num_predicted = (0, 0)  #: accepted and rejected draft tokens of the prediction
        self.num_preemptions = 0
        self.num_promotions = 0
        self.num_retries = 0  #: after steps for which memory did not suffice
        self.beams: BeamSearch | None = None
        self.error: str | None = None

    def add_found(self, tier: str, start: int, num_tokens: int) -> None:
        """Record that prompt tokens from `start` on were found in a tier; skipped ones before them were computed."""
        sources = self.sources = self.sources or []
        if (skipped := start - sum(number for _, number in sources)) > 0:
            sources.append((COMPUTED, skipped))
        if sources and sources[-1][0] == tier:
            num_tokens += sources.pop()[1]
        sources.append((tier, num_tokens))

    @property
    def all_sources(self) -> list[tuple[str, int]]:
        """`sources` of the whole prompt."""
        known = self.sources or []
        rest = len(self.prompt_token_ids) - sum(number for _, number in known)
        return [*known, (COMPUTED, rest)] if rest > 0 else list(known)

    @property
    def cached_tokens(self) -> dict[str, int]:
        """Prompt tokens found when it first began, by tier, "device" among them."""
        found = Counter[str]()
        for tier, number in self.sources or ():
            found["disk" if tier == OTHER_PROCESS else tier] += number
        found.pop(COMPUTED, None)
        return dict(found)

    @property
    def num_cached_tokens(self) -> int:
        return sum(self.cached_tokens.values())

    def __repr__(self) -> str:
        return f"Request({self.request_id}, {self.status.name}, {len(self.prompt_token_ids)} prompt tokens)"


def check_limits(config: SchedulerConfig, num_prompt_tokens: int, width: int, *, is_beam: bool) -> None:
    """Raise ValueError if a request can never run here; the message says which limit it breaks."""
    if num_prompt_tokens == 0:
        raise ValueError("the prompt is empty; give at least one token")
    if num_prompt_tokens >= config.max_model_len:
        raise ValueError(
            f"the prompt has {num_prompt_tokens} tokens, and max_model_len={config.max_model_len} leaves room "
            f"for at most {config.max_model_len - 1} and one of output; shorten it or raise max_model_len"
        )
    if width > config.max_num_seqs:
        name = "beam_width" if is_beam else "n"
        raise ValueError(f"{name}={width} is more than max_num_seqs={config.max_num_seqs}")


def check_outputs(request: Request) -> None:
    """Raise ValueError if no engine can have produced the outputs that a request continues; the message says why."""
    outputs, n = request.outputs, request.width
    if not outputs:
        return
    if request.beam is not None or request.sampling_params.prompt_logprobs is not None:
        raise ValueError("beam search and prompt_logprobs are never resumed: such requests start over")
    if len(outputs) != n:
        raise ValueError(f"{len(outputs)} outputs of a request that has n={n} cannot be resumed")
    longest = max((len(output.token_ids) for output in outputs if output.finish_reason is None), default=0)
    if longest >= request.max_tokens or not all(output.token_ids for output in outputs):
        raise ValueError(
            f"an output with {longest} tokens cannot be resumed where there is room for 1 to {request.max_tokens}; "
            "the engines differ in max_model_len"
        )
