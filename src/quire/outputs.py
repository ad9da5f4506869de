"""Dataclasses between scheduler, runner and user.

All can be pickled: the runner can be this thread, another process or ranks on a cluster.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from quire.forecast import Forecast
from quire.sampling_params import SamplingParams

COMPUTED = "computed"  #: source of prompt tokens whose KV no tier had
OTHER_PROCESS = "process"  #: source of those whose KV another process wrote to the disk while this one ran
#: Error of a request whose parameters ban all tokens: the client's mistake, found while sampling.
EVERY_TOKEN_IS_BANNED = (
    "every token is banned (by structured_outputs, allowed_token_ids, bad_words or min_tokens together)"
)
#: Error of a request whose logits cannot be sampled.
NOT_NUMBERS = "the model's logits are not numbers (NaN or infinite)"
#: In a draft: a token that the runner's draft model proposes.
FROM_MODEL = -1
#: Prefix of the error of a request whose grammar is too complex: the client's mistake as well.
BROKEN_GRAMMAR = "structured_outputs cannot be followed"


@dataclass(slots=True)
class BlockTransfer:
    """One block to move.

    A copy (copy-on-write) is done before the step computes. A save reads its block before the step writes anything; a
    load may take many steps, and its block is not read before it is reported.
    """

    op_id: int
    kind: str  #: copy: device block to device block; save: device block to a tier; load: from a tier to a device block
    src: int  #: device block, or slot of the host tier; -1 for the disk tier
    dst: int
    key: bytes | None = None  #: block key of a save or load
    tier: str = "host"  #: of a save or load
    parent: bytes = b""  #: of a save to disk: key of the block before
    cost_s: float = 0.0  #: of a save to disk: predicted seconds to compute each record
    #: (part of the block, slot, key) of each record, where a state moves; [] for the block's first part, or only one.
    records: list[tuple[int, int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class TransferReport:
    """A piece of a batch of saves or loads that has ended or failed."""

    kind: str  #: save or load
    op_ids: list[int]  #: of one tier
    num_bytes: int
    copy_s: float  #: seconds of the link
    failed: list[int] = field(default_factory=list)  #: op_ids whose bytes did not arrive, or are corrupt
    continues: bool = False  #: same batch as the last piece of this kind
    has_more: bool = False  #: more pieces of the batch follow
    is_cancelled: bool = False  #: by `SchedulerOutput.cancelled`, before it began
    tier: str = "host"
    saved_bytes: int = 0  #: plain size of coded records beyond `num_bytes`
    coding_s: float = 0.0  #: seconds to code or decode them, beside `copy_s`


@dataclass(slots=True)
class StoreChanges:
    """Changes of the block keys in the disk tier since the last call.

    Apply `deleted` first: deleted blocks may have been stored again since. A key is never both added and removed.
    """

    added: list[bytes] = field(default_factory=list)  #: found from now on, including this process's saves
    removed: list[bytes] = field(default_factory=list)  #: evicted or lost
    deleted: list[bytes] = field(default_factory=list)  #: deleted on request: to be removed from all tiers
    granted: list[bytes] = field(default_factory=list)  #: claims that this process has now
    expired: list[bytes] = field(default_factory=list)  #: claims that timed out
    stored_share: float | None = None  #: size of all stored blocks by their plain size


@dataclass(slots=True)
class NewSequence:
    """A sequence that is new to the runner, whole."""

    seq_id: int
    index: int  #: index in its request: part of the address of random numbers
    token_ids: list[int]  #: prompt and output so far
    num_prompt_tokens: int
    num_computed_tokens: int  #: tokens with KV in the blocks
    block_table: list[int]
    sampling_params: SamplingParams
    seed: int  #: the request's own, or drawn by the engine
    stop_token_ids: tuple[int, ...] = ()  #: banned until min_tokens are sampled
    num_samples: int = 1  #: tokens of its first sampling: n if the prompt forks into n
    num_candidates: int = 0  #: of a beam: return this many most likely tokens instead of sampling
    adapter: int = 0  #: number of its LoRA adapter; 0 is none


def state_ends(start: int, end: int, block_size: int) -> list[int]:
    """Return the positions, ascending, at which a step that computes tokens [start, end) leaves recurrent states: its
    end, the end of the last full block, and that of a block that was begun before."""
    ends = {end, end // block_size * block_size}
    if start % block_size:
        ends.add((start // block_size + 1) * block_size)
    return sorted(stop for stop in ends if start < stop <= end)


@dataclass(slots=True)
class SchedulerOutput:
    """One step to execute. Parallel lists have one entry per sequence."""

    step_id: int
    seq_ids: list[int] = field(default_factory=list)
    num_scheduled_tokens: list[int] = field(default_factory=list)
    new_sequences: list[NewSequence] = field(default_factory=list)
    #: seq_id -> tokens that the runner did not sample (beams)
    new_tokens: dict[int, list[int]] = field(default_factory=dict)
    #: seq_id -> draft tokens to verify, which follow its last known token and count in `num_scheduled_tokens`; all or
    #: none of them are `FROM_MODEL`
    drafts: dict[int, list[int]] = field(default_factory=dict)
    new_blocks: dict[int, list[int]] = field(default_factory=dict)  #: seq_id -> blocks appended to its table
    replaced_blocks: list[tuple[int, int, int]] = field(default_factory=list)  #: (seq_id, position in table, block)
    removed_seq_ids: list[int] = field(default_factory=list)  #: finished, preempted or parked; remove them first
    transfers: list[BlockTransfer] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)  #: op_ids of saves and loads to cancel if they have not begun
    #: Blocks whose memory returns to the system before the step: all of it, or that of layers with a window (False).
    returned: list[tuple[int, bool]] = field(default_factory=list)
    #: Keys at documents' ends to claim, and the maximum seconds to wait for each claim.
    claims: list[tuple[bytes, float]] = field(default_factory=list)
    dropped_claims: list[bytes] = field(default_factory=list)  #: granted or pending claims to drop
    #: Keys of blocks to delete from disk: their content is not finite.
    invalidated: list[bytes] = field(default_factory=list)
    total_tokens: int = 0
    stage: int = 1  #: stage of the model
    wants_forced: bool = False  #: report the tokens that grammars force
    codes_saves: bool = False  #: saves to disk are coded, whatever the store has measured


@dataclass(slots=True)
class TokenLogprobs:
    """Log-probabilities at one position: the most likely tokens in order, and the sampled one with its rank."""

    top_ids: list[int]
    top_logprobs: list[float]
    token_id: int
    logprob: float
    rank: int


@dataclass(slots=True)
class Drafting:
    """Passes of a draft model: those that draft, and those that read a text for the first time."""

    passes: int = 0
    seconds: float = 0.0
    read_tokens: int = 0
    read_s: float = 0.0

    def add(self, num_seqs: int, num_tokens: int, seconds: float) -> None:
        if num_tokens <= 16 * num_seqs:
            self.passes += 1
            self.seconds += seconds
        else:
            self.read_tokens += num_tokens
            self.read_s += seconds


@dataclass(slots=True)
class StepOutput:
    """Results of one step. `sampled[i]` belongs to `seq_ids[i]`: usually one token, n if a prompt forks into n, or the
    draft tokens that were right with the one sampled after them."""

    step_id: int
    seq_ids: list[int] = field(default_factory=list)  #: sequences whose last known token was computed
    sampled: list[list[int]] = field(default_factory=list)
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)  #: seq_id -> one entry per sampled token
    prompt_logprobs: dict[int, list[tuple[int, TokenLogprobs]]] = field(default_factory=dict)  #: (position, entry)
    pooled: dict[int, bytes] = field(default_factory=dict)  #: seq_id -> hidden state of `SamplingParams.pooling`
    failed: dict[int, str] = field(default_factory=dict)  #: seq_id -> reason (NaN or infinite logits)
    forced: dict[int, list[int]] = field(default_factory=dict)  #: seq_id -> the only continuation of its grammar
    drafting: Drafting | None = None
    transfers: list[TransferReport] = field(default_factory=list)  #: transfers that have ended since the last step
    stall_s: float = 0.0  #: seconds in which copying blocks stopped the step

    @property
    def drafting_s(self) -> float:
        return 0.0 if self.drafting is None else self.drafting.seconds + self.drafting.read_s


@dataclass(slots=True)
class BlockDifference:
    num_values: int  #: that differ
    of: int
    layer: int  #: the first that differs

    def __str__(self) -> str:
        return f"{self.num_values:,} of {self.of:,} values, from layer {self.layer} on"


@dataclass(slots=True)
class RecoveryStats:
    """Preemptions and recoveries of a step. Modes are `RecoveryMode.value`."""

    preemptions: Counter[str] = field(default_factory=Counter)  #: by mode
    #: Of the link and of steps, by mode.
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    num_recomputed_tokens: int = 0
    swapped_blocks: Counter[str] = field(default_factory=Counter)  #: by save and load; arrived ones
    swapped_bytes: Counter[str] = field(default_factory=Counter)
    cancelled_blocks: Counter[str] = field(default_factory=Counter)  #: by save and load; cancelled before they began
    errors: list[tuple[str, float]] = field(default_factory=list)  #: mode, and |predicted - actual| / actual


@dataclass(slots=True)
class Stats:
    step_id: int
    time: float = 0.0  #: seconds on the engine's clock, at the end of the step
    num_running: int = 0  #: requests
    num_waiting: int = 0
    num_preempted: int = 0  #: waiting requests that have run before
    num_blocked: Counter[str] = field(default_factory=Counter)  #: requests in `num_waiting` that are blocked, by reason
    num_scheduled_seqs: int = 0
    num_scheduled_tokens: int = 0
    num_sampled_tokens: int = 0
    num_prompt_tokens: int = 0  #: prompt tokens of requests scheduled for the first time
    num_blocks: int = 0
    num_used_blocks: int = 0  #: held
    num_cached_blocks: int = 0  #: not held, found by key
    num_disk_blocks: int = 0  #: this model's blocks in the disk tier
    disk_bytes: int = 0
    disk_moved: Counter[str] = field(default_factory=Counter)  #: blocks saved to or loaded from disk, by kind
    disk_failed: Counter[str] = field(default_factory=Counter)  #: failed ones
    prefix_ways: Counter[str] = field(default_factory=Counter)  #: prefixes in another tier: load, compute, both, ahead
    num_logical_blocks: int = 0  #: entries of all block tables; shared blocks count several times
    num_kv_tokens: int = 0  #: tokens with KV of running sequences; shared ones count several times
    prefix_queries: int = 0  #: tokens looked up by requests that began
    prefix_hits: int = 0  #: tokens found
    ahead_tokens: int = 0  #: tokens of documents computed for waiting requests
    hits_by_tier: Counter[str] = field(default_factory=Counter)  #: found tokens by tier, "device" among them
    drafts: int = 0  #: sequences with draft tokens in this step
    draft_tokens: int = 0  #: verified by this step
    accepted_drafts: Counter[str] = field(default_factory=Counter)  #: confirmed ones, by position in their draft
    audits: Counter[tuple[str, str]] = field(default_factory=Counter)  #: by tier and result: equal, different
    preemptions: int = 0  #: in this step
    schedule_s: float = 0.0
    execute_s: float = 0.0
    update_s: float = 0.0
    stall_s: float = 0.0  #: part of execute_s in which copying blocks stopped the step
    token_gaps: list[float] = field(default_factory=list)  #: ITL: seconds between each new token and the one before
    swap_bytes: int = 0  #: capacity of the swap tier; 0 without one
    swap_used_bytes: int = 0  #: blocks that are held or in transfer
    recovery: RecoveryStats | None = None  #: None without preemptions and recoveries
    forecast: Forecast | None = None  #: None if the last one still holds

    @property
    def busy_s(self) -> float:
        """Seconds of computing: `execute_s` without the stall."""
        return max(0.0, self.execute_s - self.stall_s)


@dataclass(slots=True)
class LoadProgress:
    stage: int  #: served stage; 0 before the first
    num_stages: int  #: stages of the model, the last of which is the original; 1 without stages
    bytes_loaded: int
    bytes_total: int  #: 0 if not known yet
    seconds_left: float | None = None  #: by the bandwidth so far
    error: str | None = None  #: reason why reading stopped, or a stage is skipped
    phase: str = "weights"  #: imports, download, config, weights, first step, failed or unloaded
    last_stage: int = 0  #: last stage to load; 0 is the model's own last
    stage_bytes: Sequence[int] = ()  #: bytes loaded when each stage is complete

    @property
    def is_complete(self) -> bool:
        return self.stage == (self.last_stage or self.num_stages)

    @property
    def stage_waits(self) -> dict[int, float]:
        """Seconds until the present stage (0) and each later one serve, as far as they can be predicted."""
        waits = {max(1, self.stage): 0.0}
        left = self.bytes_total - self.bytes_loaded
        if self.stage and self.seconds_left is not None and left > 0:
            for stage in range(self.stage + 1, len(self.stage_bytes) + 1):
                waits[stage] = self.seconds_left * max(0, self.stage_bytes[stage - 1] - self.bytes_loaded) / left
        return waits


@dataclass(slots=True)
class Logprob:
    """A token's log-probability before temperature and penalties, and its rank, counted from 1."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True, eq=False)
class Logprobs(Sequence[Any]):
    """Log-probabilities of consecutive tokens in flat arrays, which cross processes as bytes.

    Reads as a list: for each token a dict of the likeliest tokens, in order, and the token itself (last, if it is not
    among them); None for an unknown one. Pickles and comparisons leave out `text`.
    """

    text: Callable[[int], str] | None = None  #: returns the text of a token
    is_ranked: bool = True  #: positions among the likeliest tokens are ranks
    token_ids: array[int] = field(default_factory=partial(array, "i"))  #: -1: unknown
    logprobs: Any = field(default_factory=partial(array, "d"))  #: of the tokens themselves
    ranks: array[int] = field(default_factory=partial(array, "i"))
    top_ids: array[int] = field(default_factory=partial(array, "i"))
    top_logprobs: Any = field(default_factory=partial(array, "d"))
    ends: array[int] = field(default_factory=partial(array, "i"))  #: of each token's part of `top_ids`

    def append(self, entry: TokenLogprobs | None) -> None:
        entry = entry or TokenLogprobs([], [], -1, 0.0, 0)
        self.token_ids.append(entry.token_id)
        self.logprobs.append(entry.logprob)
        self.ranks.append(entry.rank)
        self.top_ids.extend(entry.top_ids)
        self.top_logprobs.extend(entry.top_logprobs)
        self.ends.append(len(self.top_ids))

    def extend(self, other: Logprobs) -> None:
        for index in range(len(other)):
            self.append(other._entry(index))

    def _entry(self, index: int) -> TokenLogprobs:
        top = slice(self.ends[index - 1] if index else 0, self.ends[index])
        token, logprob, rank = self.token_ids[index], self.logprobs[index], self.ranks[index]
        return TokenLogprobs(self.top_ids[top].tolist(), self.top_logprobs[top].tolist(), token, logprob, rank)

    @property
    def num_entries(self) -> int:
        """Number of log-probabilities of all tokens."""
        return len(self.token_ids) + len(self.top_ids)

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            found = Logprobs(self.text, self.is_ranked)
            for each in range(*index.indices(len(self))):
                found.append(self._entry(each))
            return found
        entry, text = self._entry(range(len(self))[index]), self.text
        if entry.token_id < 0:
            return None
        shown = {
            id_: Logprob(logprob, rank if self.is_ranked else None, text and text(id_))
            for rank, (id_, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1)
        }
        return shown | {entry.token_id: Logprob(entry.logprob, entry.rank, text and text(entry.token_id))}

    def __eq__(self, other: object) -> bool:
        return self.__reduce__() == other.__reduce__() if isinstance(other, Logprobs) else list(self) == other

    def __reduce__(self) -> Any:
        return Logprobs, (None, *(getattr(self, each.name) for each in fields(self)[1:]))


@dataclass(slots=True)
class RequestMetrics:
    """Times of a request, in seconds on the engine's clock (`time.monotonic`)."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    finished_time: float | None = None
    num_preemptions: int = 0
    missed_s: float | None = None  #: predicted seconds to compute prompt tokens that were not found; None if unknown
    is_resumed: bool = False  #: continued after another engine was lost
    #: Preemptions: seconds from arrival to each, and from there until the request ran again.
    recoveries: list[tuple[float, float]] = field(default_factory=list)

    @property
    def prefill_s(self) -> float | None:
        """Seconds from the first step to the first token; None without a token."""
        if self.first_scheduled_time is None or self.first_token_time is None:
            return None
        return self.first_token_time - self.first_scheduled_time


@dataclass(slots=True)
class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    logprobs: Sequence[dict[int, Logprob]] | None = None  #: one entry per token
    cumulative_logprob: float | None = None
    finish_reason: str | None = None  #: stop, length, abort or error; None while it runs
    stop_reason: int | str | None = None  #: stop string or token; None for the model's own end


@dataclass(slots=True)
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0  #: prompt tokens whose KV was found and used
    cached_tokens: dict[str, int] = field(default_factory=dict)  #: the same by tier, "device" among them
    #: The prompt's tokens in order: (tier in which they were found, OTHER_PROCESS or COMPUTED, and their number).
    sources: list[tuple[str, int]] = field(default_factory=list)
    num_chosen_tokens: int = 0  #: computed ones that another tier had: computing was predicted to be faster
    metrics: RequestMetrics | None = None
    prompt_logprobs: Sequence[dict[int, Logprob] | None] | None = None
    finished: bool = False
    error: str | None = None
    stages: list[tuple[int, int]] = field(default_factory=list)  #: (stage, tokens sampled with it), in order
    predicted_tokens: tuple[int, int] | None = None  #: accepted and rejected drafts of `Prompt.prediction`, if any
    pooled: bytes | None = None  #: of `SamplingParams.pooling`: float32 [hidden_size]


@dataclass(slots=True)
class OutputSoFar:
    """One output of a request, as far as the client has received it."""

    token_ids: list[int]
    logprobs: Logprobs | None = None  #: one entry per token, if requested
    finish_reason: str | None = None  #: None while it runs
    stop_reason: int | str | None = None

    @property
    def cumulative_logprob(self) -> float:
        """Sum over the tokens; 0 without logprobs."""
        total = 0.0
        for logprob in self.logprobs.logprobs if self.logprobs is not None else ():
            total += logprob  # in the scheduler's order of addition
        return total


@dataclass(slots=True)
class Resumption:
    """State of a request in a lost engine, for another engine to continue with the same tokens."""

    seed: int  #: address of its random numbers
    outputs: tuple[OutputSoFar, ...] = ()  #: by index; empty starts over with the same random numbers
    cached_tokens: dict[str, int] | None = None  #: see `RequestOutput`
    stage: int = 1  #: minimum stage of the model to continue with
    first_scheduled_time: float | None = None  #: on the clock of the request's arrival
    first_token_time: float | None = None

    @property
    def is_complete(self) -> bool:
        return bool(self.outputs) and all(output.finish_reason is not None for output in self.outputs)

    @property
    def num_tokens(self) -> int:
        return sum(len(output.token_ids) for output in self.outputs)


@dataclass(slots=True)
class Delta:
    """New part of one output since the last delta."""

    index: int
    text: str  #: whole characters, without a possible stop string
    token_ids: list[int]
    logprobs: Logprobs | None = None  #: one entry per new token
    finish_reason: str | None = None  #: set in the last delta
    stop_reason: int | str | None = None
