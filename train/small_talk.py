"""Small talk in turns, drawn from `tables/small_talk.txt`: what a user may say, and full sentences in reply."""

from __future__ import annotations

import random
from dataclasses import dataclass

from train import tables
from train.world.english import capital

_SLOTS = tables.words("small_talk_words")


@dataclass(frozen=True)
class Intent:
    opens: bool  # whether it may come without a question of the assistant
    users: tuple[str, ...]  # what a user may say
    replies: tuple[tuple[str, list[str]], ...]  # each with the intents that may come next


def _intent(block: tables.Block) -> Intent:
    marked: dict[str, list[str]] = {"u": [], "a": []}
    for line in block.lines:
        mark, _, text = line.text.partition(" ")
        if mark not in marked:
            raise line.error(f"{mark!r} is no mark; expected u (what a user says) or a (a reply)")
        marked[mark] += tables.wordings(text)
    replies = tuple((reply, after.split()) for reply, _, after in (text.partition(" > ") for text in marked["a"]))
    return Intent(block.head.text != "asked", tuple(marked["u"]), replies)


INTENTS = {block.name: _intent(block) for block in tables.read("small_talk")}
_OPENERS = [name for name, intent in INTENTS.items() if intent.opens]
_HELLOS = ("greet", "greet", "good_morning", "good_evening", "how_are_you", "name")
_TOPICS = ("food_fav", "animal_fav", "music_fav", "weather", "book_fav", "hobby", "season_fav", "story", "joke")
_LAST = ("bye", "good_night", "no_more")


def _fill(text: str, slots: dict[str, str]) -> str:
    return capital(text.format(**slots))


def _slots(rng: random.Random) -> dict[str, str]:
    return {slot: rng.choice(values) for slot, values in _SLOTS.items()}


def _named(text: str) -> set[str]:
    return {part.split("}")[0] for part in text.split("{")[1:]}


def _typed(text: str, rng: random.Random) -> str:
    """The text as a user may type it: with or without capitals and the final mark."""
    chance = rng.random()
    if chance < 0.5:
        return text
    bare = text.rstrip(".!?") if chance < 0.85 else text
    return bare.lower() if chance > 0.65 else bare


def dialogue(rng: random.Random) -> list[tuple[str, str]]:
    """One to four turns of small talk, each what the user says and what the assistant answers."""
    turns: list[tuple[str, str]] = []
    length = rng.choice((1, 1, 2, 2, 2, 3, 3, 4))
    name = rng.choice(_HELLOS) if rng.random() < 0.15 else rng.choice(_OPENERS)
    slots, used, said, asked = _slots(rng), set[str](), set[str](), False
    while name not in used:
        used.add(name)
        intent = INTENTS[name]
        # An answer with yes or no needs a question before it.
        user = rng.choice(intent.users if asked else _unasked(intent))
        marks = _named(user)
        # A reply may take up only what the user has said, or bring up something of its own in a question.
        own = [reply for reply in intent.replies if _fits(reply[0], marks | said, intent)]
        last = len(turns) + 1 >= length
        asking = [reply for reply in own if reply[1]]
        reply, after = rng.choice(asking if asking and not last and rng.random() < 0.7 else own)
        said |= marks
        turns.append((_typed(_fill(user, slots), rng), _fill(reply, slots)))
        following = [other for other in after if other not in used]
        if last or name in _LAST or (after and not following):
            break
        asked = bool(following)
        if asked:
            name = rng.choice(following)
            if name == "topic" and rng.random() < 0.5:
                name = rng.choice(_TOPICS)
            continue
        if rng.random() < 0.3:
            name = rng.choice(("thanks", "bye", "agree", "thanks"))
        else:
            name = rng.choice([other for other in _OPENERS if other not in _HELLOS])
        if name not in used:  # a new subject: everything may be different now
            slots, said = _slots(rng), set()
    return turns


def opening(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """What a user may say first, and every reply of the table that fits it."""
    intent = INTENTS[rng.choice(_OPENERS)]
    slots = _slots(rng)
    user = rng.choice(_unasked(intent))
    replies = tuple(_fill(text, slots) for text, _ in intent.replies if _fits(text, _named(user), intent))
    return _fill(user, slots), replies


def _unasked(intent: Intent) -> list[str]:
    return [user for user in intent.users if not user.startswith(("Yes", "No,"))]


def _fits(reply: str, known: set[str], intent: Intent) -> bool:
    """Whether a reply names only what is known, or the intent's users never name that kind of thing."""
    return not (_named(reply) - known) & {slot for user in intent.users for slot in _named(user)}
