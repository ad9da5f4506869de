"""English word forms: what a verb or a noun becomes in a sentence. Knows no world and draws nothing."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from train import tables

PRONOUNS = {
    "f": {"they": "she", "them": "her", "their": "her", "was": "was"},
    "m": {"they": "he", "them": "him", "their": "his", "was": "was"},
    "": {"they": "it", "them": "it", "their": "its", "was": "was"},
    "plural": {"they": "they", "them": "them", "their": "their", "was": "were"},
}
"""Gender or number -> its pronouns."""


class Verb(NamedTuple):
    """The forms of a verb: mend, mends, mended, mended, mending."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


GRAMMAR = tables.words("grammar")
"""Words and kinds by what grammar does with them."""
_IRREGULAR = {base: (past, participle) for base, past, participle in (e.split("/") for e in GRAMMAR["irregular"])}
_DOUBLED = frozenset(GRAMMAR["doubles its last letter"])


@cache
def verb(base: str) -> Verb:
    """All forms of a verb that is given in its base form."""
    if base == "be":
        return Verb("be", "is", "was", "been", "being")
    past, participle = _IRREGULAR.get(base) or (_with_ed(base),) * 2
    return Verb(base, _third(base), past, participle, _with_ing(base))


def _third(base: str) -> str:
    if base == "have":
        return "has"
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeou":
        return base[:-1] + "ies"
    return base + "s"


def _with_ed(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeou":
        return base[:-1] + "ied"
    return base + (base[-1] if base in _DOUBLED else "") + "ed"


def _with_ing(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")) and base != "be":
        return base[:-1] + "ing"
    return base + (base[-1] if base in _DOUBLED else "") + "ing"


_AN_BEFORE = ("hour", "heir", "honest", "honour")
_A_BEFORE = ("uni", "use", "eur", "one", "ewe", "ute", "uku")


def article(text: str) -> str:
    """ "a" or "an", whichever goes before the text."""
    word = text.lower()
    vowel = word.startswith(_AN_BEFORE) or (word[0] in "aeiou" and not word.startswith(_A_BEFORE))
    if word.startswith(("unin", "unim")):
        vowel = True
    return "an" if vowel else "a"


def possessive(text: str) -> str:
    return f"{text}'" if text.endswith("s") else f"{text}'s"


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def sentence(text: str) -> str:
    """With a capital at the start, past an opening quotation mark, and a full stop where nothing else ends it."""
    text = text.rstrip(",").replace(",;", ";").replace(",,", ",").replace(",.", ".") if "," in text else text
    at = 1 if text[0] == '"' else 0
    text = text[:at] + text[at].upper() + text[at + 1 :]
    return text if text.endswith((".", "!", "?", '"')) else text + "."


def series(parts: list[str], last: str = "and") -> str:
    """ "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"
