"""Small talk in turns, drawn from `tables/small_talk.txt`: what a user may say, and full sentences in reply."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from train import tables

_SLOTS = tables.words("small_talk_words")


@dataclass
class Intent:
    """What a user may say, and the replies, each with the intents that may come next."""

    name: str
    opens: bool
    users: list[str] = field(default_factory=list)
    replies: list[tuple[str, list[str]]] = field(default_factory=list)


def _intent(block: tables.Block) -> Intent:
    intent = Intent(block.name, opens=block.head.text != "asked")
    for line in block.lines:
        mark, _, text = line.text.partition(" ")
        if mark == "u":
            intent.users += tables.wordings(text)
        elif mark == "a":
            reply, _, after = text.partition(" > ")
            intent.replies.append((reply, after.split()))
        else:
            raise line.error(f"{mark!r} is no mark; expected u (what a user says) or a (a reply)")
    return intent


INTENTS = {block.name: _intent(block) for block in tables.read("small_talk")}
_OPENERS = [intent.name for intent in INTENTS.values() if intent.opens]
_HELLOS = ("greet", "greet", "good_morning", "good_evening", "how_are_you", "name")
_TOPICS = ("food_fav", "animal_fav", "music_fav", "weather", "book_fav", "hobby", "season_fav", "story", "joke")
_LAST = ("bye", "good_night", "no_more")


def _fill(text: str, slots: dict[str, str]) -> str:
    filled = text.format(**slots)
    return filled[0].upper() + filled[1:]


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
    slots = {slot: rng.choice(values) for slot, values in _SLOTS.items()}
    used: set[str] = set()
    said: set[str] = set()
    asked = False
    while True:
        used.add(name)
        intent = INTENTS[name]
        # An answer with yes or no needs a question before it.
        users = intent.users if asked else [user for user in intent.users if not user.startswith(("Yes", "No,"))]
        user = rng.choice(users)
        marks = {part.split("}")[0] for part in user.split("{")[1:]}
        # A reply may take up only what the user has said, or bring up something of its own in a question.
        own = [reply for reply in intent.replies if _fits(reply[0], marks | said, intent)]
        last = len(turns) + 1 >= length
        asking = [reply for reply in own if reply[1]]
        reply, after = rng.choice(asking if asking and not last and rng.random() < 0.7 else own)
        said |= marks
        turns.append((_typed(_fill(user, slots), rng), _fill(reply, slots)))
        if last or name in _LAST:
            return turns
        following = [other for other in after if other not in used]
        if after and not following:
            return turns
        if following:
            name = rng.choice(following)
            if name == "topic" and rng.random() < 0.5:
                name = rng.choice(_TOPICS)
                if name in used:
                    return turns
            asked = True
            continue
        asked = False
        # A new subject: everything may be different now.
        if rng.random() < 0.3:
            name = rng.choice(("thanks", "bye", "agree", "thanks"))
        else:
            name = rng.choice([other for other in _OPENERS if other not in _HELLOS])
        if name in used:
            return turns
        slots = {slot: rng.choice(values) for slot, values in _SLOTS.items()}
        said = set()


def opening(rng: random.Random) -> tuple[str, tuple[str, ...]]:
    """What a user may say first, and every reply of the table that fits it."""
    intent = INTENTS[rng.choice(_OPENERS)]
    slots = {slot: rng.choice(values) for slot, values in _SLOTS.items()}
    user = rng.choice([user for user in intent.users if not user.startswith(("Yes", "No,"))])
    marks = {part.split("}")[0] for part in user.split("{")[1:]}
    replies = tuple(_fill(reply[0], slots) for reply in intent.replies if _fits(reply[0], marks, intent))
    return _fill(user, slots), replies


def _fits(reply: str, known: set[str], intent: Intent) -> bool:
    """Whether a reply names only what is known, or the intent's users never name that kind of thing."""
    for part in reply.split("{")[1:]:
        slot = part.split("}")[0]
        if slot not in known and any("{" + slot + "}" in user for user in intent.users):
            return False
    return True
