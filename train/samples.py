"""Training samples: a shared beginning and branches that each go on from it, with what each token weighs in the loss.

A passage is read once and all its questions hang on it as branches: each sees the passage and itself, as if it were
the only one, and counts its positions from the passage's end. So a token of a passage is paid for once and yields
several answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tokenizers import Tokenizer

from train import facts as known
from train.small_talk import dialogue
from train.stories import story
from train.world import FACTS, FRAMES
from train.world.accounts import AccountMaker
from train.world.deeds import DeedMaker
from train.world.passage import PassageMaker, Question
from train.world.words import draw

END = "<|end|>"
_SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a friendly assistant. Keep your answers short.",
    "Answer the question from the context.",
    "Be brief and kind.",
    "You are Quire.",
)
_MAX_QUESTIONS = 6  # of one passage
READ = 0.1  # the weight of a token that is given
ANSWER = 1.0  # the weight of a token that the model has to say
_LAYOUTS = {("\n", "\n"): 60, (" ", " "): 25, ("\n\n", "\n"): 5, ("\n\n", "\n\n"): 5, ("\n", " "): 5}
"""What stands before `Question:` and before `Answer:` -> how often, in percent."""


@dataclass(frozen=True)
class Piece:
    """A text, and what each of its tokens weighs in the loss."""

    text: str
    weight: float


@dataclass(frozen=True)
class Sample:
    shared: tuple[Piece, ...]  # the pieces that every branch goes on from; may be empty
    branches: tuple[tuple[Piece, ...], ...] = ()  # each a row of pieces; may be empty

    def texts(self) -> Iterator[str]:
        """What the model reads, a text a branch."""
        shared = "".join(piece.text for piece in self.shared)
        for branch in self.branches or ((),):
            yield shared + "".join(piece.text for piece in branch)


@dataclass(frozen=True)
class Encoded:
    """A sample's tokens in one row."""

    ids: list[int]  # token ids
    positions: list[int]  # each token's distance from the start of its own text
    segments: list[int]  # 0 for the shared beginning, then 1, 2, ... for the branches
    weights: list[float]  # what predicting each token counts; 0 where it isn't predicted


Source = Callable[[Random, float], Sample]
"""Draws samples. Its second argument is the part of the training that is done, from 0 to 1."""


def encode(sample: Sample, tokenizer: Tokenizer) -> Encoded:
    row = Encoded([], [], [], [])
    start = 0  # of the branches' positions
    for segment, pieces in enumerate((sample.shared, *sample.branches)):
        first = len(row.ids)
        for piece in pieces:
            added = tokenizer.encode(piece.text, add_special_tokens=False).ids
            row.ids.extend(added)
            row.weights.extend([piece.weight] * len(added))
        count = len(row.ids) - first
        row.positions.extend(range(start, start + count))
        row.segments.extend([segment] * count)
        if count:
            row.weights[first] = 0.0  # the token before it in the row isn't the one before it in its text
        start = start if segment else count
    return row


def mix(*parts: tuple[float, Source]) -> Source:
    """One of several sources, by weight."""
    weights, sources = zip(*parts, strict=True)
    return lambda rng, progress: rng.choices(sources, weights)[0](rng, progress)


# quire-mini: reading


def user_turn(text: str) -> str:
    return f"<|user|>\n{text}{END}\n<|assistant|>\n"


def _layout(rng: Random) -> tuple[str, str]:
    return rng.choices(list(_LAYOUTS), list(_LAYOUTS.values()))[0]


def _asked(question: str, answer: str, before_question: str, before_answer: str) -> tuple[Piece, ...]:
    return Piece(f"{before_question}Question: {question}{before_answer}Answer:", READ), Piece(f" {answer}{END}", ANSWER)


def _plain(passage: str, questions: Sequence[Question], rng: Random) -> Sample:
    layout = _layout(rng)
    # A blank and the word after it are one token, so that a separator begins the branch rather than end the passage.
    branches = tuple(_asked(question.text, question.answer, *layout) for question in questions)
    return Sample((Piece(f"Context: {passage}", READ),), branches)


def _chat(passage: str, questions: Sequence[Question], rng: Random) -> Sample:
    labels = ("Context: ", "Question: ") if rng.random() < 0.7 else ("", "")
    system = f"<|system|>\n{rng.choice(_SYSTEM_PROMPTS)}{END}\n" if rng.random() < 0.1 else ""
    separator, _ = _layout(rng)
    branches: list[tuple[Piece, ...]] = []
    waiting = list(questions)
    while waiting:
        question = waiting.pop()
        branch = [
            Piece(f"{separator}{labels[1]}{question.text}{END}\n<|assistant|>\n", READ),
            Piece(f" {question.answer}{END}", ANSWER),
        ]
        if waiting and rng.random() < 0.25:  # a second turn about the same passage
            question = waiting.pop()
            branch += [Piece(f"\n{user_turn(question.text)}", READ), Piece(f" {question.answer}{END}", ANSWER)]
        branches.append(tuple(branch))
    return Sample((Piece(f"{system}<|user|>\n{labels[0]}{passage}", READ),), tuple(branches))


class Reading:
    """Passages with questions: one and two facts at first, up to five from a quarter on, in between some longer.

    Of those that are no accounts, a third are of deeds. Half of the others hold no scenes, which would otherwise leave
    little room for the many frames of one sentence.

    Args:
        accounts: the part of the passages, from 0 to 1, that are accounts: told in one wording, asked in another.
    """

    def __init__(self, *, accounts: float) -> None:
        self._share = accounts
        self._accounts = AccountMaker(held_out=False)
        self._deeds = DeedMaker()
        self._makers = [PassageMaker(frames, held_out=False) for frames in (FACTS, FRAMES)]

    def __call__(self, rng: Random, progress: float) -> Sample:
        most = 2 if progress < 0.08 else 3 if progress < 0.15 else 4 if progress < 0.25 else 5
        num_facts = rng.randint(1 if progress < 0.25 else 2, most)
        if rng.random() < (0.0 if progress < 0.35 else 0.1 if progress < 0.58 else 0.02):
            num_facts = rng.randint(6, 10)
        if rng.random() < self._share:
            passage = self._accounts.draw(rng, most=min(num_facts, 6))
        elif rng.random() < 0.34:
            passage = self._deeds.draw(rng)
        else:
            passage = rng.choice(self._makers).draw(rng, num_facts)
        questions = rng.sample(passage.questions, min(len(passage.questions), _MAX_QUESTIONS))
        if rng.random() < 0.3:
            return _chat(passage.text, questions, rng)
        return _plain(passage.text, questions, rng)


def facts(rng: Random, progress: float) -> Sample:
    """Questions of fact without a passage."""
    branches: list[tuple[Piece, ...]] = []
    for fact in rng.sample(known.FACTS, 8):
        question = rng.choice(fact.questions)
        if rng.random() < 0.3:
            branches.append((Piece(user_turn(question), READ), Piece(f" {fact.answer}{END}", ANSWER)))
        else:
            branches.append(_asked(question, fact.answer, "", _layout(rng)[1]))
    return Sample((), tuple(branches))


def _name_of(kind: str, rng: Random) -> Callable[[], str]:
    return lambda: draw(kind, rng, held_out=False).text


def stories(rng: Random, progress: float) -> Sample:
    text = story(rng, _name_of("person", rng), _name_of("town", rng))
    return Sample((Piece(f"{text}{END}", 2 * READ),))


# quire-chat: small talk


def small_talk(rng: Random, progress: float) -> Sample:
    pieces = [Piece(f"<|system|>{rng.choice(_SYSTEM_PROMPTS)}{END}", 0.0)] if rng.random() < 0.1 else []
    for said, reply in dialogue(rng):
        pieces.append(Piece(f"<|user|>{said}{END}<|quire|>", READ))
        pieces.append(Piece(f"{reply}{END}", ANSWER))
    return Sample(tuple(pieces))
