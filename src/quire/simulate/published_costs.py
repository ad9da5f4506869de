"""Costs that others measured and published, as their tables give them, with what has to be assumed beside them."""

from __future__ import annotations

from dataclasses import dataclass

from quire.simulate.table_costs import DecodeCosts, TableCosts


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a published table: the costs of a request of `num_tokens`, in milliseconds."""

    num_tokens: int
    swap_out_ms: float
    swap_prep_ms: float
    swap_in_ms: float
    recompute_ms: float


@dataclass(frozen=True, slots=True)
class PublishedCosts:
    """A table, and the costs that it does not give."""

    rows: tuple[Row, ...]
    bytes_per_token: int
    decode: DecodeCosts

    def costs(self, decode_scale: float = 1.0) -> TableCosts:
        """The table as costs.

        Args:
            decode_scale: what to multiply the assumed costs of decode steps by.
        """
        return TableCosts(
            # Preparing a swap is part of saving.
            swap_out=[(row.num_tokens, (row.swap_out_ms + row.swap_prep_ms) / 1e3) for row in self.rows],
            swap_in=[(row.num_tokens, row.swap_in_ms / 1e3) for row in self.rows],
            recompute=[(row.num_tokens, row.recompute_ms / 1e3) for row in self.rows],
            bytes_per_token=self.bytes_per_token,
            decode=self.decode.scaled(decode_scale),
        )


#: Kong, Jang, Kim, Kim: CPS: Cross-Point Scheduling for Dynamic KV Cache Recovery in LLM Serving, table 2
CPS_A6000 = PublishedCosts(
    rows=(
        Row(512, 3.236, 0.034, 3.366, 8.30),
        Row(1024, 6.257, 0.050, 6.379, 12.30),
        Row(2048, 17.795, 0.084, 18.411, 22.73),
        Row(4096, 34.632, 0.151, 36.658, 42.90),
        Row(8192, 68.939, 0.281, 72.574, 97.60),
    ),
    bytes_per_token=12_288,
    # A step without prefill: the published recompute latency, its first two rows continued to no tokens. A context
    # token: its 12 KiB read at the card's 768 GB/s. A sequence: sampling and its share of the launches, a round guess.
    decode=DecodeCosts(step=4.3e-3, sequence=2e-5, context_token=1.6e-8),
)
