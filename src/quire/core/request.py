"""A request and its sequences: what a client sent, and how far it has come.

A request owns one or more sequences (samples or beams), each with one block table. It is preempted and finished as a
whole. `core.kv_cache_manager` alone changes block tables and keys.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from quire.config import SchedulerConfig
from quire.core.beam_search import BeamSearch
from quire.core.block_keys import PUBLIC_ONLY, DomainSpans
from quire.outputs import OutputSoFar
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
    """What a request waits for outside the queue."""

    DOCUMENT = "document"  #: another process computes it
    GRAMMAR = "grammar"  #: is being compiled
    STAGE = "stage"  #: the model has not reached `Request.min_stage`


@dataclass(slots=True)
class Loading:
    """Blocks of a sequence's table that are on their way from another tier."""

    start: int  #: the first token whose KV they bring
    end: int  #: the token after the last one
    op_ids: set[int] = field(default_factory=set)  #: not yet reported
    tiers: list[str] = field(default_factory=list)  #: where each block comes from
    is_recovery: bool = False  #: a recovery policy decides whether it is still worth it


class Sequence:
    """One block table and the tokens whose KV it holds or will hold."""

    __slots__ = (
        "block_keys",
        "block_table",
        "candidates",
        "cumulative_logprob",
        "finish_reason",
        "index",
        "is_in_runner",
        "loading",
        "num_computed_tokens",
        "num_lost_tokens",
        "num_prompt_tokens",
        "num_registered",
        "num_tokens_at_end",
        "open_end",
        "request",
        "seq_id",
        "stop_reason",
        "stop_token_ids",
        "swapped_keys",
        "token_ids",
    )  # fmt: skip

    def __init__(self, seq_id: int, index: int, request: Request, token_ids: list[int]) -> None:
        self.seq_id = seq_id
        self.index = index
        self.request = request
        self.token_ids = token_ids  #: prompt and output
        self.num_prompt_tokens = len(request.prompt_token_ids)
        self.num_computed_tokens = 0  #: tokens with KV in the block table (or being computed in the step under way)
        self.block_table: list[int] = []
        self.block_keys: list[bytes] = []  #: of full blocks, as far as they were asked for
        self.num_registered = 0  #: blocks at the front of the table whose keys were offered to the pool
        #: With fewer computed tokens, the next one's slot is there, in a block that no other sequence holds, and does
        #: not fill it. 0 where siblings may share the block.
        self.open_end = 0
        self.is_in_runner = False
        self.swapped_keys: list[bytes] = []  #: of blocks that the swap tier holds for it until it goes on
        self.loading: Loading | None = None
        self.num_lost_tokens = 0  #: tokens that it had computed once: as far as that, computing is done again
        #: A beam's continuations (token, log-probability), until those of its siblings are there too.
        self.candidates: list[tuple[int, float]] | None = None
        self.cumulative_logprob = 0.0
        self.stop_token_ids = request.stop_token_ids
        self.num_tokens_at_end = self.num_prompt_tokens + request.max_tokens  #: that it has at most
        self.finish_reason: RequestStatus | None = None
        self.stop_reason: int | str | None = None

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def must_compute(self) -> bool:
        """Logits of prompt tokens exist only where those tokens are computed."""
        return self.request.sampling_params.prompt_logprobs is not None and self.num_output_tokens == 0

    def __repr__(self) -> str:
        name = f"{self.request.request_id}/{self.index}"
        return f"Sequence({name}, {self.num_computed_tokens} of {len(self.token_ids)} tokens)"


class Request:
    """What a client sent.

    Args:
        request_id: unique among the requests that are alive.
        prompt_token_ids: at least one.
        sampling_params: how tokens are chosen; with `beam`, of it only the stop tokens count.
        beam: beam search instead of sampling.
        arrival: its place in the order of arrival; among equal priorities the smaller one goes first.
        priority: smaller goes first.
        seed: address of its random numbers.
        stop_token_ids: all tokens that end a sequence: the model's own (unless ignored) and the client's.
        root: the key of its KV's namespace (`block_keys.Namespace.root`).
        domains: who may share its blocks.
        documents: the tokens after each document's last, ascending. Full blocks up to there are kept on disk, if there
            is a disk tier.
        keeps_prompt: so are all full blocks of the prompt.
        min_stage: it waits, beside the queue, until the model is at this stage.
        needs_grammar: it waits there until its grammar has been compiled (`Scheduler.grammar_ready`).
        outputs: all of them, where it goes on behind tokens that another engine has made.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Seq[int],
        sampling_params: SamplingParams,
        *,
        beam: BeamSearchParams | None = None,
        arrival: int = 0,
        priority: int = 0,
        seed: int = 0,
        max_tokens: int = 16,
        stop_token_ids: tuple[int, ...] = (),
        eos_token_ids: tuple[int, ...] = (),
        root: bytes = b"",
        domains: DomainSpans = PUBLIC_ONLY,
        documents: tuple[int, ...] = (),
        keeps_prompt: bool = False,
        min_stage: int = 1,
        needs_grammar: bool = False,
        outputs: Seq[OutputSoFar] = (),
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = list(prompt_token_ids)
        self.sampling_params = sampling_params
        self.beam = beam
        self.width = sampling_params.n if beam is None else beam.beam_width  #: how many sequences it may run at once
        self.is_single = self.width == 1 and beam is None  #: has one sequence, from start to end
        self.order = (priority, arrival)
        self.seed = seed
        self.max_tokens = max_tokens
        self.stop_token_ids = frozenset(stop_token_ids)
        self.eos_token_ids = frozenset(eos_token_ids)
        self.root = root
        self.is_renamed = False  #: its root is its own, since a document of its was deleted
        self.min_stage = min_stage
        self.needs_grammar = needs_grammar  #: cleared when it is compiled
        self.stage = 1  #: of the model, that it computes with
        self.domains = domains
        self.documents = documents
        self.num_to_keep = len(self.prompt_token_ids) if keeps_prompt else max(documents, default=0)  #: tokens
        self.num_kept = 0  #: blocks at the front that are on disk, or on their way there
        self.num_queued_tokens = 0  #: with which it was put into the queue
        self.blocked_on: BlockedReason | None = None
        self.is_settled = False  #: whether its domains are what they will be
        self.status = RequestStatus.WAITING
        self.sequences: list[Sequence] = []  #: all, by index; of a beam search the running beams
        self.unfinished: list[Sequence] = []  #: sequences that still want tokens
        #: Tokens whose KV was found when it first began, by tier ("device" among them); None before that.
        self.cached_tokens: dict[str, int] | None = None
        self.outputs = outputs
        self.num_preemptions = 0
        self.num_promotions = 0  #: after which it was computed again
        self.beams: BeamSearch | None = None
        self.error: str | None = None

    @property
    def num_cached_tokens(self) -> int:
        """Tokens whose KV was found, in whatever tier, and used."""
        return sum(self.cached_tokens.values()) if self.cached_tokens else 0

    @property
    def is_restarted(self) -> bool:
        """Whether it gave its blocks up after it had begun, be it in another engine."""
        return self.num_preemptions > 0 or self.num_promotions > 0 or bool(self.outputs)

    def __repr__(self) -> str:
        return f"Request({self.request_id}, {self.status.name}, {len(self.prompt_token_ids)} prompt tokens)"


def check_limits(config: SchedulerConfig, num_prompt_tokens: int, width: int, *, is_beam: bool) -> None:
    """Refuse what could never run here.

    Raises:
        ValueError: the message says which limit it breaks.
    """
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
    """Refuse to go on behind outputs that no engine can have made.

    Raises:
        ValueError: the message says what is wrong with them.
    """
    outputs, n = request.outputs, request.width
    if not outputs:
        return
    if request.beam is not None or request.sampling_params.prompt_logprobs is not None:
        raise ValueError("beam search and prompt_logprobs are never resumed: their requests begin anew")
    if len(outputs) != n:
        raise ValueError(f"{len(outputs)} outputs of a request that has n={n} cannot be resumed")
    longest = max((len(output.token_ids) for output in outputs if output.finish_reason is None), default=0)
    if longest >= request.max_tokens or not all(output.token_ids for output in outputs):
        raise ValueError(
            f"an output with {longest} tokens cannot be resumed where there is room for 1 to {request.max_tokens}; "
            "the engines differ in max_model_len"
        )
