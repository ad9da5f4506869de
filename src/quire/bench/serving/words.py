"""Prompts as text, for servers without token ids: each id stands for a word, by the server's measured ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Short and common: each is one token in usual vocabularies, with the space before it.
WORDS = """
    the of and to in is that was for on are with they at be this have from or one had by but not what all were we
    when your can said there use an each which she do how their if will up other about out many then them these so
    some her would make like him into time has look two more write go see
""".split()  # noqa: SIM905 (seventy quoted words are hard to read)


@dataclass(frozen=True)
class WordLength:
    """A server's token count: `num_frame_tokens` around every prompt, and `tokens_per_word`."""

    tokens_per_word: float = 1.0
    num_frame_tokens: float = 0.0

    @classmethod
    def measured(cls, shorter: tuple[int, int], longer: tuple[int, int]) -> WordLength:
        """From two prompts' (words, tokens by the server's count)."""
        (few_words, few_tokens), (many_words, many_tokens) = shorter, longer
        rate = (many_tokens - few_tokens) / (many_words - few_words)
        return cls(rate, max(0.0, few_tokens - few_words * rate)) if rate > 0 else cls()

    def words_for(self, num_tokens: int) -> int:
        """Number of words, at least one, for about this number of tokens."""
        return max(1, round((num_tokens - self.num_frame_tokens) / self.tokens_per_word))


def as_words(token_ids: Sequence[int], num_words: int) -> str:
    """The words of the first ids, repeated if there are too few."""
    return " ".join(WORDS[token_ids[i % len(token_ids)] % len(WORDS)] for i in range(num_words))
