"""Compare a prompt with earlier ones of its key: where it diverged, how much was read again, and why."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.block_keys import PUBLIC, Domain
from quire.outputs import COMPUTED, RequestOutput
from quire.server.bodies.requests import CAUSES
from quire.server.history.outline import DIGEST_BYTES, ChatOutline, first_difference, pieces

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt that was computed, with the tokens of its answer if it had one."""

    model: str
    tokens: bytes  #: prompt and answer, of `_TOKEN_BYTES` each
    num_prompt_tokens: int
    domain: Domain = PUBLIC  #: of the last block
    passages_end: int = 0  #: end of the retrieved passages
    outline: ChatOutline | None = None  #: None for a completion
    pid: int | None = None  #: process of the engine
    stage: int = 1  #: of the model
    started: float = 0.0  #: when it was first scheduled, by the engine's clock
    computed: float = 0.0  #: when its first token was sampled

    @classmethod
    def pack(cls, output: RequestOutput) -> bytes:
        """Return `tokens`: several answers have no common continuation."""
        answer = output.outputs[0].token_ids if len(output.outputs) == 1 else []
        return array("i", [*output.prompt_token_ids, *answer]).tobytes()

    def goes_on_with(self, other: SentPrompt) -> bool:
        """Whether both belong to one conversation."""
        return self.outline is not None and other.outline is not None and self.outline.has_messages_of(other.outline)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens) // _TOKEN_BYTES

    @property
    def num_bytes(self) -> int:
        return len(self.tokens) + (self.outline.num_bytes if self.outline is not None else 0)

    def token_ids(self, start: int, end: int) -> list[int]:
        return array("i", self.tokens[start * _TOKEN_BYTES : end * _TOKEN_BYTES]).tolist()


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first position from which a prompt was read again, and why."""

    token: int
    cause: str  #: of `CAUSES`
    num_tokens: int = 0  #: tokens read again for this cause; 0: all computed ones
    earlier: SentPrompt | None = None
    message: int = 0  #: number of the first message that differs, counted from 1

    @property
    def explanation(self) -> str:
        return CAUSES[self.cause].format(token=self.token, lost=self.num_tokens, message=self.message)


@dataclass(frozen=True, slots=True)
class Reading:
    """How an engine read a prompt."""

    sources: Sequence[tuple[str, int]]  #: see `RequestOutput`
    num_chosen_tokens: int = 0  #: likewise
    block_size: int = 16
    is_looked_up: bool = True  #: KV of earlier prompts may be used
    has_states: bool = False  #: the model goes on only where its state was kept

    def computed(self, start: int, end: int) -> tuple[int, int]:
        """Return the first computed token in a range (or its end), and their number."""
        at, first, total = 0, end, 0
        for source, number in self.sources:
            if source == COMPUTED and (num := min(end, at + number) - max(start, at)) > 0:
                first, total = min(first, max(start, at)), total + num
            at += number
        return first, total


def shared_tokens(one: bytes, other: bytes) -> int:
    """Count the tokens at the front that two prompts share."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high // _TOKEN_BYTES
    while high - low > 1:  # the first difference is in [low, high)
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low // _TOKEN_BYTES


def find_divergence(prompt: SentPrompt, reading: Reading, earlier: Sequence[SentPrompt]) -> Divergence | None:
    """Compare a prompt with the earlier ones of its key, the newest first. Returns None if nothing was read again."""
    earlier = [each for each in earlier if each.computed <= prompt.started]  # concurrent ones were of no use
    of_model = [each for each in earlier if each.model == prompt.model]
    same = [each for each in of_model if each.domain == prompt.domain]
    closest, shared = _closest(prompt, same)
    other, more = _closest(prompt, [each for each in of_model if each.domain != prompt.domain])
    size = reading.block_size
    if other is not None and more >= shared + size:
        token, lost = reading.computed(0, _reusable(prompt, other, more, size))
        if lost >= size:
            return Divergence(token, "salt_changed", lost, other)
    if shared < size and prompt.outline is not None:
        outline = prompt.outline
        closest = next((each for each in same if each.outline is not None and outline.resembles(each.outline)), None)
        shared = 0 if closest is None else shared_tokens(prompt.tokens, closest.tokens)
    if closest is None or (shared < size and prompt.outline is None):
        went_elsewhere = any(prompt.goes_on_with(each) for each in earlier if each.model != prompt.model)
        return Divergence(shared, "model_changed" if went_elsewhere else "first", earlier=closest)
    token, num_lost = reading.computed(0, _reusable(prompt, closest, shared, size))
    left = max(0, min(closest.num_tokens - 1, prompt.num_prompt_tokens) - shared)
    num_changed = min(left, reading.computed(shared, prompt.num_prompt_tokens)[1])
    if num_lost >= max(size, num_changed):
        return Divergence(token, _cause_of_loss(prompt, closest, reading, num_lost), num_lost, closest)
    if num_changed < size:
        return None
    cause, message = _cause_of_change(prompt, closest, shared)
    return Divergence(shared, cause, 0 if cause == "first" else num_changed, closest, message)


def _closest(prompt: SentPrompt, earlier: Sequence[SentPrompt]) -> tuple[SentPrompt | None, int]:
    """Return the newest prompt with the longest common prefix, and its length."""
    closest, shared, end = None, -1, len(prompt.tokens)
    for each in earlier:
        if shared >= 0:  # most prompts differ before
            next_end = (shared + 1) * _TOKEN_BYTES
            if next_end > end or each.tokens[:next_end] != prompt.tokens[:next_end]:
                continue
        closest, shared = each, shared_tokens(prompt.tokens, each.tokens)
    return closest, min(max(0, shared), prompt.num_prompt_tokens)


def _reusable(prompt: SentPrompt, earlier: SentPrompt, shared: int, block_size: int) -> int:
    """Count the tokens in full blocks that an earlier prompt has computed. A last token's logits are always computed,
    and a last answer token has no KV."""
    return min(shared, earlier.num_tokens - 1, prompt.num_prompt_tokens - 1) // block_size * block_size


def _cause_of_loss(prompt: SentPrompt, earlier: SentPrompt, reading: Reading, num_lost: int) -> str:
    if not reading.is_looked_up:
        return "not_looked_up"
    if prompt.stage != earlier.stage:
        return "model_promoted"
    if 2 * reading.num_chosen_tokens >= num_lost:
        return "cheaper_to_compute"
    if prompt.pid != earlier.pid:
        return "model_reloaded"
    return "state_not_kept" if reading.has_states else "evicted"


def _cause_of_change(prompt: SentPrompt, earlier: SentPrompt, shared: int) -> tuple[str, int]:
    """Return the cause of a difference in the tokens after `shared`, and the number of the message."""
    now, before = prompt.outline, earlier.outline
    if shared < max(prompt.passages_end, earlier.passages_end):
        return "passages_changed", 0
    if now is None or before is None:
        return "prompt_changed", 0
    if now.template != before.template:
        return "template_changed", 0
    messages, old = pieces(now.messages), pieces(before.messages)
    at = first_difference(messages, old)
    goes_on = at > 0 or not set(old).isdisjoint(messages)
    if now.system != before.system and (goes_on or now.stable_system == before.stable_system):
        return ("system_date_or_id" if now.stable_system == before.stable_system else "system_changed"), 0
    if now.tools != before.tools and (goes_on or now.system == before.system):
        same = sorted(pieces(now.tools)) == sorted(pieces(before.tools))
        return ("tools_reordered" if same else "tools_changed"), 0
    if now.is_cut:
        return "history_truncated", 1
    if not goes_on:
        return "first", 0
    if at == len(old):
        return ("answer_changed" if shared >= earlier.num_prompt_tokens else "template_rewrites"), 0
    if at == len(messages):
        return "history_truncated", at + 1
    is_edit = messages[at + 1 : len(old)] == old[at + 1 :]
    was_cut = any(_goes_on_with(now.messages, before.messages, start) for start in (at, at + 1))  # behind a summary
    return ("history_truncated" if was_cut and not is_edit else "history_edited"), at + 1


def _goes_on_with(messages: bytes, old: bytes, start: int) -> bool:
    """Whether the messages from `start` on begin with an end of the old ones that started later."""
    rest = messages[DIGEST_BYTES * start :]
    return any(rest.startswith(old[end:]) for end in range(DIGEST_BYTES * (start + 1), len(old), DIGEST_BYTES))
