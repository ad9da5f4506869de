"""What passes between scheduler, runner and user: plain dataclasses that survive pickling.

Between `core` and `runner`: `SchedulerOutput` one way, `StepOutput` the other, plain lists and numbers, so that the
runner can be this thread, another process or ranks on a cluster. To the user: `RequestOutput` and what hangs on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from quire.forecast import Forecast
from quire.sampling_params import SamplingParams

#: Why a request failed whose parameters leave no token to choose: its sender's mistake, found on the way.
EVERY_TOKEN_IS_BANNED = (
    "every token is banned (by structured_outputs, allowed_token_ids, bad_words or min_tokens together)"
)
#: How the error begins of a request whose grammar turned out too complex on the way: its sender's, too.
BROKEN_GRAMMAR = "structured_outputs cannot be followed"


@dataclass(slots=True)
class BlockTransfer:
    """One block to move.

    A copy (copy-on-write) is done before the step computes. A save reads its block before the step touches anything;
    a load may take many steps, and nobody reads its block before it is reported.
    """

    op_id: int
    kind: str  #: copy: device block to device block; save: device block to a tier; load: from a tier to a device block
    src: int  #: device block, or slot of the host tier; the disk tier has none, and -1 stands there
    dst: int
    key: bytes | None = None  #: of a saved or loaded block's content
    tier: str = "host"  #: of a save or load
    parent: bytes = b""  #: of a save to disk: the key before it
    cost_s: float = 0.0  #: of a save to disk: what computing the block is predicted to take


@dataclass(slots=True)
class TransferReport:
    """A piece of saves, or of loads, that has ended, well or not. A batch may be reported in several pieces."""

    kind: str  #: save or load
    op_ids: list[int]  #: all of one tier
    num_bytes: int
    copy_s: float  #: seconds that the link was busy with the piece
    failed: list[int] = field(default_factory=list)  #: op_ids whose bytes did not arrive, or are not as they were saved
    continues: bool = False  #: the piece of this kind that was reported before: both are of one batch
    has_more: bool = False  #: other transfers of the batch had not begun when this piece ended
    is_cancelled: bool = False  #: as `SchedulerOutput.cancelled` asked: nothing was begun or moved
    tier: str = "host"


@dataclass(slots=True)
class StoreChanges:
    """What changed in the store of KV blocks (the disk tier) since it was last asked. Keys are block keys.

    What was deleted may have been stored again since: `deleted` is to be applied before the others. A key is never both
    added and removed.
    """

    added: list[bytes] = field(default_factory=list)  #: can be found now, also where this process wrote them
    removed: list[bytes] = field(default_factory=list)  #: evicted or lost: not found any more
    deleted: list[bytes] = field(default_factory=list)  #: by somebody's wish: not to be found in any tier any more
    granted: list[bytes] = field(default_factory=list)  #: claims that are this process's from now on
    expired: list[bytes] = field(default_factory=list)  #: claims that were waited for too long


@dataclass(slots=True)
class NewSequence:
    """A sequence that the runner does not know, yet or any more: everything that it needs."""

    seq_id: int
    index: int  #: which of the request's sequences: part of the random numbers' address
    token_ids: list[int]  #: prompt and output so far
    num_prompt_tokens: int
    num_computed_tokens: int  #: tokens with KV in the blocks
    block_table: list[int]
    sampling_params: SamplingParams
    seed: int  #: the request's own, or one that the engine drew for it
    stop_token_ids: tuple[int, ...] = ()  #: banned until min_tokens have been made
    num_samples: int = 1  #: tokens to draw at its first sampling: n where the prompt forks into n
    num_candidates: int = 0  #: of a beam: no token is drawn; this many likeliest tokens are returned instead


@dataclass(slots=True)
class SchedulerOutput:
    """What one step computes. Sequences are named by seq_id; lists that run in parallel have one entry a sequence."""

    step_id: int
    seq_ids: list[int] = field(default_factory=list)
    num_scheduled_tokens: list[int] = field(default_factory=list)
    new_sequences: list[NewSequence] = field(default_factory=list)
    new_tokens: dict[int, list[int]] = field(default_factory=dict)  #: seq_id -> tokens chosen elsewhere (beams)
    new_blocks: dict[int, list[int]] = field(default_factory=dict)  #: seq_id -> blocks appended to its table
    replaced_blocks: list[tuple[int, int, int]] = field(default_factory=list)  #: (seq_id, position in table, block)
    removed_seq_ids: list[int] = field(default_factory=list)  #: finished, preempted or parked: forget them first
    transfers: list[BlockTransfer] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)  #: op_ids of saves and loads that need not begin any more
    #: Keys at documents' ends, and for how many seconds to ask for the right to compute what ends there.
    claims: list[tuple[bytes, float]] = field(default_factory=list)
    dropped_claims: list[bytes] = field(default_factory=list)  #: granted or asked for, and not needed any more
    invalidated: list[bytes] = field(
        default_factory=list
    )  #: keys of blocks to delete from disk: their content is not finite
    total_tokens: int = 0
    stage: int = 1  #: that all its sequences are computed with


@dataclass(slots=True)
class TokenLogprobs:
    """Log-probabilities at one position: the most likely tokens, likeliest first, and the chosen one with its rank."""

    top_ids: list[int]
    top_logprobs: list[float]
    token_id: int
    logprob: float
    rank: int


@dataclass(slots=True)
class StepOutput:
    """One step's results. `sampled[i]` belongs to `seq_ids[i]`: usually one token, n where a prompt forks into n."""

    step_id: int
    seq_ids: list[int] = field(default_factory=list)  #: the sequences whose last known token was computed
    sampled: list[list[int]] = field(default_factory=list)
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)  #: seq_id -> one entry a sampled token
    prompt_logprobs: dict[int, list[tuple[int, TokenLogprobs]]] = field(default_factory=dict)  #: (position, entry)
    failed: dict[int, str] = field(default_factory=dict)  #: seq_id -> why (its logits were not numbers)
    transfers: list[TransferReport] = field(default_factory=list)  #: saves and loads that have ended since
    stall_s: float = 0.0  #: seconds of standstill, while blocks were staged, or copied by an engine that waits


@dataclass(slots=True)
class RecoveryStats:
    """A step's preemptions and recoveries. Modes are `RecoveryMode.value`."""

    preemptions: Counter[str] = field(default_factory=Counter)  #: by mode
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  #: of link and steps, by mode
    num_recomputed_tokens: int = 0
    swapped_blocks: Counter[str] = field(default_factory=Counter)  #: save and load, as far as they arrived
    swapped_bytes: Counter[str] = field(default_factory=Counter)
    cancelled_blocks: Counter[str] = field(default_factory=Counter)  #: save and load, given up before they began
    errors: list[tuple[str, float]] = field(default_factory=list)  #: mode, and |predicted - actual| / actual


@dataclass(slots=True)
class Stats:
    """One step in numbers, for metrics and logs."""

    step_id: int
    time: float = 0.0  #: seconds on the engine's clock, at the end of the step
    num_running: int = 0  #: requests
    num_waiting: int = 0
    num_preempted: int = 0  #: waiting requests that have run before
    num_blocked: Counter[str] = field(default_factory=Counter)  #: requests in `num_waiting` that are blocked, by reason
    num_scheduled_seqs: int = 0
    num_scheduled_tokens: int = 0
    num_sampled_tokens: int = 0
    num_prompt_tokens: int = 0  #: of the requests that were scheduled for the first time
    num_blocks: int = 0
    num_used_blocks: int = 0  #: held by a running sequence
    num_cached_blocks: int = 0  #: held by none, found again by key
    num_disk_blocks: int = 0  #: in the disk tier, of this model
    disk_bytes: int = 0  #: of these
    disk_moved: Counter[str] = field(default_factory=Counter)  #: save and load: blocks that came to disk, or from there
    disk_failed: Counter[str] = field(default_factory=Counter)  #: save and load: blocks that did not
    prefix_ways: Counter[str] = field(default_factory=Counter)  #: prefixes in another tier: load, compute, both, ahead
    num_logical_blocks: int = 0  #: entries of all block tables; sharing makes them more than the used blocks
    num_kv_tokens: int = 0  #: tokens with KV in blocks of running sequences, shared ones counted once a sequence
    prefix_queries: int = 0  #: tokens looked up by this step's newcomers
    prefix_hits: int = 0  #: tokens found
    hits_by_tier: Counter[str] = field(default_factory=Counter)  #: of these, tokens by tier, "device" among them
    preemptions: int = 0  #: in this step
    schedule_s: float = 0.0
    execute_s: float = 0.0
    update_s: float = 0.0
    stall_s: float = 0.0  #: of execute_s, while blocks were staged
    token_gaps: list[float] = field(default_factory=list)  #: ITL: seconds since each output's token before its new one
    swap_bytes: int = 0  #: that the swap tier holds at most; 0 is no tier
    swap_used_bytes: int = 0  #: of blocks that are saved for swapped-out requests, or under way
    recovery: RecoveryStats | None = None  #: None where no request was preempted or recovered
    forecast: Forecast | None = None  #: None where the last one still holds

    @property
    def busy_s(self) -> float:
        """Seconds of computing: `execute_s` without the stall."""
        return max(0.0, self.execute_s - self.stall_s)


@dataclass(slots=True)
class LoadProgress:
    """How far the loading of a model has come."""

    stage: int  #: that is served; 0 is none yet
    num_stages: int  #: of the model, the last of which is the original; 1 for a model without stages
    bytes_loaded: int
    bytes_total: int  #: of weights; 0 is not known yet
    seconds_left: float | None = None  #: until all is there, by the bandwidth so far
    error: str | None = None  #: why reading does not get on, or why a stage is left out
    phase: str = "weights"  #: imports, config, weights or first step; failed, or unloaded, where it is over
    last_stage: int = 0  #: that is loaded; 0 is the model's own last

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will arrive."""
        return self.stage == (self.last_stage or self.num_stages)


@dataclass(slots=True)
class Logprob:
    """A token's log-probability under the model, before temperature and penalties, and its rank (1: the likeliest)."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class RequestMetrics:
    """When things happened to a request, in seconds on the engine's clock (`time.monotonic`)."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None
    num_preemptions: int = 0
    is_resumed: bool = False  #: another engine, which was lost, had begun with it


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's outputs."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None
    finish_reason: str | None = None  #: stop, length, abort or error; None while it runs
    stop_reason: int | str | None = None  #: the stop string or stop token that ended it; None for the model's own end


@dataclass(slots=True)
class RequestOutput:
    """A request and its outputs so far; all of them, once `finished`."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0  #: of the prompt, whose KV was found and used
    cached_tokens: dict[str, int] = field(default_factory=dict)  #: of these, by tier, "device" among them
    metrics: RequestMetrics | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = False
    error: str | None = None
    stages: list[tuple[int, int]] = field(default_factory=list)  #: (stage, tokens that it made), in order


@dataclass(slots=True)
class OutputSoFar:
    """One of a request's outputs, as far as its reader has been given it."""

    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None  #: one entry a token, where the request asks for them
    finish_reason: str | None = None  #: where it has ended
    stop_reason: int | str | None = None

    @property
    def cumulative_logprob(self) -> float:
        """Of its tokens; 0 where nobody asks."""
        total = 0.0
        for token, entry in zip(self.token_ids, self.logprobs or (), strict=False):
            total += entry[token].logprob  # one after the other, as the scheduler adds them up
        return total


@dataclass(slots=True)
class Resumption:
    """How far a request had come in an engine that was lost: another one goes on behind that, with the same tokens."""

    seed: int  #: the address of its random numbers, be it its own or drawn for it
    outputs: tuple[OutputSoFar, ...] = ()  #: all, by index; none begins anew, with the same random numbers
    cached_tokens: dict[str, int] | None = None  #: of its prompt, found when it first began, by tier
    stage: int = 1  #: of the model, that it goes on with, or a later one
    first_scheduled_time: float | None = None  #: on the clock of the request's arrival
    first_token_time: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all outputs have ended."""
        return bool(self.outputs) and all(output.finish_reason is not None for output in self.outputs)

    @property
    def num_tokens(self) -> int:
        """Of all outputs."""
        return sum(len(output.token_ids) for output in self.outputs)


@dataclass(slots=True)
class Delta:
    """One output's gain since the last delta."""

    index: int
    text: str  #: whole characters, and nothing that may still be part of a stop string
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None  #: one entry a new token; the chosen one's entry has its rank
    finish_reason: str | None = None  #: set once, with the last delta
    stop_reason: int | str | None = None
