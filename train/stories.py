"""Plain little stories of five to ten sentences, told from a small grammar of plots."""

from __future__ import annotations

import random
from collections.abc import Callable

from train import tables
from train.world.english import capital

_SLOTS = tables.words("story_words")
PLOTS = [
    [(line.text.startswith("? "), tables.wordings(line.text.removeprefix("? "))) for line in block.lines]
    for block in tables.read("stories")
]
"""Plots, each a list of steps: whether it may be left out, and its wordings."""


def story(rng: random.Random, name: Callable[[], str], town: Callable[[], str]) -> str:
    """A little story; `name` and `town` give the names of its people and places."""
    first, second = name(), name()
    for _ in range(20):
        if second.split()[0] != first.split()[0]:
            break
        second = name()
    here, there = town(), town()
    for _ in range(20):
        if there != here:
            break
        there = town()
    slots = {slot: rng.choice(values) for slot, values in _SLOTS.items()}
    short = {"A": first.split()[0], "B": second.split()[0]}
    full = {"a": first, "b": second}
    seen: set[str] = set()
    sentences = []
    for optional, wordings in rng.choice(PLOTS):
        if optional and rng.random() < 0.5:
            continue
        text = rng.choice(wordings)
        # A person's first mention carries the full name, every later one the first name.
        for full_mark, short_mark in (("{a}", "{A}"), ("{b}", "{B}")):
            text = text.replace(full_mark, short_mark)
            if short_mark in text and short_mark not in seen:
                text = text.replace(short_mark, full_mark, 1)
                seen.add(short_mark)
        sentences.append(capital(text.format(t=here, u=there, **short, **full, **slots)))
    return " ".join(sentences)
