"""Draws depend on the seed and the tables only: digests of draws from every source.

Update the digests with a change of tables or drawing; refactoring must keep them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from random import Random

import pytest
from train.recipes import RECIPES
from train.samples import Reading, Sample, Source, facts, small_talk, stories
from train.small_talk import dialogue, opening
from train.stories import story
from train.world import FACTS, FRAMES, PLAIN_SCENES, SCENES
from train.world.accounts import AccountMaker
from train.world.deeds import DeedMaker
from train.world.frame import Frame
from train.world.passage import Passage, PassageMaker
from train.world.words import KINDS, draw

from train import facts as known


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def told(passage: Passage) -> str:
    return "\n".join((passage.text, *(f"{question.text} {question.answer}" for question in passage.questions)))


def of_frames(frames: tuple[Frame, ...], *, held_out: bool) -> Iterator[str]:
    rng, maker = Random(11), PassageMaker(frames, held_out=held_out)
    return (told(maker.draw(rng, 2 + at % 2 * 2)) for at in range(400))  # a scene counts as two facts


def of_accounts(*, held_out: bool) -> Iterator[str]:
    rng, maker = Random(12), AccountMaker(held_out=held_out)
    return (told(maker.draw(rng, 2 + at % 5)) for at in range(400))


def of_deeds() -> Iterator[str]:
    rng, maker = Random(13), DeedMaker()
    return (told(maker.draw(rng)) for _ in range(400))


def of_values() -> Iterator[str]:
    rng = Random(14)
    return (draw(kind, rng, held_out=bool(at % 2)).text for kind in sorted(KINDS) for at in range(40))


def of_talk(turns: Callable[[Random], object]) -> Iterator[str]:
    rng = Random(15)
    return (str(turns(rng)) for _ in range(400))


def of_stories() -> Iterator[str]:
    rng = Random(16)
    towns = repeat("Marlow")
    names = (f"Name{at} Last{at}" for at in range(10_000))
    return (story(rng, names.__next__, towns.__next__) for _ in range(400))


def of_facts() -> Iterator[str]:
    return (f"{fact.questions} {fact.answer}" for fact in known.FACTS)


def pieces(sample: Sample) -> str:
    rows = (sample.shared, *sample.branches)
    return "\n".join("".join(f"{piece.weight}{piece.text}" for piece in row) for row in rows)


def of_samples(source: Source) -> Iterator[str]:
    rng = Random(17)
    return (pieces(source(rng, at / 400)) for at in range(400))


DRAWS: dict[str, tuple[Callable[[], Iterator[str]], str]] = {
    "facts": (lambda: of_frames(FACTS, held_out=False), "06d39e0b25137ed8"),
    "facts, held out": (lambda: of_frames(FACTS, held_out=True), "6d6223aa9db1e32b"),
    "scenes": (lambda: of_frames(SCENES, held_out=False), "12b9772353803ca1"),
    "scenes, held out": (lambda: of_frames(SCENES, held_out=True), "28142d7b168ddc0d"),
    "plain scenes": (lambda: of_frames(PLAIN_SCENES, held_out=False), "d180d81545a74b3b"),
    "all frames": (lambda: of_frames(FRAMES, held_out=False), "4e9530ed867195ef"),
    "accounts": (lambda: of_accounts(held_out=False), "0ced232caafbf6f4"),
    "accounts, held out": (lambda: of_accounts(held_out=True), "6abc8053aed42e3d"),
    "deeds": (of_deeds, "b18e80598c81b665"),
    "values of every kind": (of_values, "471f8e6bf857d417"),
    "dialogues": (lambda: of_talk(dialogue), "a793c9103e7bdbc5"),
    "openings": (lambda: of_talk(opening), "3a65cb8b70f1b0fe"),
    "stories": (of_stories, "3ea95e1fc93f3a1d"),
    "known facts": (of_facts, "9f753011aac36eea"),
    "samples of reading": (lambda: of_samples(Reading(accounts=0.0)), "cf25160bc4c507aa"),
    "samples of facts": (lambda: of_samples(facts), "53061c7d15c8b2aa"),
    "samples of stories": (lambda: of_samples(stories), "6364fc4e3117f381"),
    "samples of small talk": (lambda: of_samples(small_talk), "16e894e809dae927"),
    "what quire-mini reads": (lambda: of_samples(RECIPES["quire-mini"].source), "d9b21ca1b81a62e9"),
    "what quire-chat reads": (lambda: of_samples(RECIPES["quire-chat"].source), "809ee3e0d66342f7"),
}


@pytest.mark.parametrize(("draws", "expected"), DRAWS.values(), ids=DRAWS.keys())
def test_a_seed_draws_what_it_always_drew(draws, expected):
    assert digest(draws()) == expected
