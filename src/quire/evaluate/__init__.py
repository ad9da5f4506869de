"""How well a model answers: reading questions as prompts, and the worth of the answers. It knows no model."""

from quire.evaluate.metrics import exact_match, f1, normalize_answer
from quire.evaluate.reading import ReadingQuestion, ReadingScores, prompt_of, score, squad_questions

__all__ = [
    "ReadingQuestion",
    "ReadingScores",
    "exact_match",
    "f1",
    "normalize_answer",
    "prompt_of",
    "score",
    "squad_questions",
]
