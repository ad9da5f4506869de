"""Generated documents and labelled questions about fictional places.

The sets have the paper's sizes: 60 simple and 140 complex questions, 140 about documents and 60 of small talk.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.routing_accuracy import LabelledQuestion

NUM_DOCUMENTS = 48
_NUM = {"simple": 60, "complex": 140, "reading": 140, "chat": 60}

_FIRST = ("Ar", "Bel", "Cor", "Dun", "El", "Far", "Gal", "Hol", "Is", "Kel", "Lor", "Mar", "Nor", "Or", "Pel", "Ros")
_LAST = ("mouth", "wick", "stead", "haven", "dale", "ford", "holm", "minster", "gate", "field", "ness", "borough")
_PEOPLE = ("Ada Renner", "Tomas Vale", "Ines Okafor", "Peder Holt", "Mira Sandoval", "Josef Lind", "Clara Yates",
           "Omar Castell", "Greta Moss", "Hugo Farrow", "Nadia Brandt", "Silas Whitlock")  # fmt: skip
_STONES = ("granite", "brick", "oak and slate", "limestone", "iron and glass")
_TRADES = ("salt", "wool", "paper", "copper wire", "clocks", "rope", "glass", "dried fish")
_ENDS = (("a spring flood", "its cellars were filled with gravel"), ("a fire in the dry summer", "the roof fell in"),
         ("the new railway", "carriers no longer came by"), ("a strike of its workers", "no one would lend it money"),
         ("a long frost", "the mill race was split by ice"))  # fmt: skip
#: What each kind of document is about, and what stands in it beside the common facts.
_KINDS = {
    "lighthouse": "Its lamp could be seen {number} miles out at sea. Keepers lived in two rooms under the lantern.",
    "mill": "Its wheel turned {number} times a minute when the river was high. The stones came from the north.",
    "bridge": "It has {number} arches and carries a road and a narrow footpath. Carts paid a toll until late.",
    "school": "In its best year {number} pupils slept in the attic dormitory. Lessons began before sunrise.",
    "observatory": "Its main telescope weighed {number} tons and moved on rails. The dome opened to the south.",
    "market hall": "There was room for {number} stalls under the long roof. A bell told when trading began.",
}
_SIMPLE = (
    "When was the {name} built?",
    "Who designed the {name}?",
    "Where does the {name} stand?",
    "What is the {name} made of?",
    "What was traded at the {name}?",
)
_COMPLEX = (
    "Why was the {name} given up after {disaster}?",
    "How did {disaster} change what the people of {town} lived on?",
    "Explain why {person} chose {stone} for the {name}.",
    "Compare the {name} with other works of {person}, and say which served its town better.",
    "What would have become of {town} if {disaster} had not come, and why?",
    "How did trade in {trade} shape the way the {name} was used over the years?",
    "Was it wise to restore the {name}? Give reasons for and against it.",
)
_OPENERS = ("Hey", "Hi there", "Good morning", "Ugh", "Oh well", "Guess what")
_TALK = (
    "how are you doing today?",
    "I had such a long day at work, tell me something nice.",
    "my cat woke me up at five again and I am so tired.",
    "I finally baked bread that did not burn, I am so happy!",
    "do you ever get bored of talking to people?",
    "I can't decide what to wear to my friend's party.",
    "it is raining again and I wanted to go out with you.",
    "my little brother keeps stealing my headphones, what do I do?",
    "thanks for listening to me yesterday, you are the best.",
    "I miss my old friends so much lately.",
)


@dataclass(frozen=True)
class GeneratedSet:
    """Texts by name, and questions about them for every policy."""

    documents: dict[str, str]
    questions: list[LabelledQuestion]


def generate(seed: int = 0) -> GeneratedSet:
    """Generate a set from a seed."""
    rng = random.Random(f"quire bench rag {seed}")
    towns = rng.sample([first + last for first in _FIRST for last in _LAST], NUM_DOCUMENTS)
    facts = [_facts(town, rng) for town in towns]
    documents = {each["name"].replace(" ", "-") + ".txt": _document(each, rng) for each in facts}
    asked = {
        "simple": [form.format(**each) for form in _SIMPLE for each in facts],
        "complex": [form.format(**each) for form in _COMPLEX for each in facts],
        "chat": [f"{opener}, {talk}" for opener in _OPENERS for talk in _TALK],
    }
    asked["reading"] = [*asked["simple"], *asked["complex"]]
    questions = [
        LabelledQuestion(question, label, "query" if label in ("simple", "complex") else "domain", "generated")
        for label, count in _NUM.items()
        for question in rng.sample(asked[label], count)
    ]
    return GeneratedSet(documents, questions)


def _facts(town: str, rng: random.Random) -> dict[str, str]:
    kind = rng.choice(list(_KINDS))
    disaster, damage = rng.choice(_ENDS)
    return {
        "town": town,
        "kind": kind,
        "name": f"{town} {kind}",
        "person": rng.choice(_PEOPLE),
        "stone": rng.choice(_STONES),
        "trade": rng.choice(_TRADES),
        "disaster": disaster,
        "damage": damage,
        "built": str(rng.randint(1710, 1890)),
        "number": str(rng.randint(3, 60)),
    }


def _document(facts: dict[str, str], rng: random.Random) -> str:
    year = int(facts["built"])
    text = (
        "The {name} stands at the edge of {town}, where the old road meets the water. It was built in {built} after "
        "plans by {person}, who had seen such buildings abroad and wanted one of {stone}. The town council paid half "
        "of it; the rest came from families who dealt in {trade}. " + _KINDS[facts["kind"]] + " For many years {trade} "
        "was weighed, stored and sold there, and on market days people came from villages that are now under fields. "
        f"In {year + rng.randint(20, 60)} everything changed with {{disaster}}: {{damage}}, and the council had no "
        "money for repairs. Most workers left {town} within a few years, and those who stayed turned to farming. "
        f"The building stood empty until {year + rng.randint(80, 130)}, when a group of neighbours began to restore it "
        "with their own hands. They found letters of {person} behind a wall, in which the choice of {stone} is "
        "defended against those who thought it too dear. Today the {name} is open on Sundays. A small room shows "
        f"tools, maps and {rng.randint(20, 400)} photographs, and the keeper likes to tell visitors how close it came "
        "to being pulled down."
    )
    return text.format(**facts)
