"""English word forms: what a verb or a noun becomes in a sentence. Knows no world and draws nothing."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from train.world.words import words


class Verb(NamedTuple):
    """The forms of a verb: mend, mends, mended, mended, mending."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


_IRREGULAR = {
    base: (past, participle)
    for base, past, participle in (
        entry.split("/")
        for entry in words(
            """
            be/was/been bear/bore/borne beat/beat/beaten become/became/become begin/began/begun bend/bent/bent
            bet/bet/bet bind/bound/bound bite/bit/bitten blow/blew/blown break/broke/broken breed/bred/bred
            bring/brought/brought build/built/built burst/burst/burst buy/bought/bought cast/cast/cast
            catch/caught/caught choose/chose/chosen come/came/come cost/cost/cost creep/crept/crept cut/cut/cut
            deal/dealt/dealt dig/dug/dug do/did/done draw/drew/drawn drink/drank/drunk drive/drove/driven
            eat/ate/eaten fall/fell/fallen feed/fed/fed feel/felt/felt fight/fought/fought find/found/found
            fly/flew/flown forget/forgot/forgotten freeze/froze/frozen get/got/got give/gave/given go/went/gone
            grind/ground/ground grow/grew/grown hang/hung/hung have/had/had hear/heard/heard hide/hid/hidden
            hit/hit/hit hold/held/held hurt/hurt/hurt keep/kept/kept knit/knitted/knitted know/knew/known
            lay/laid/laid lead/led/led leave/left/left lend/lent/lent let/let/let lie/lay/lain light/lit/lit
            lose/lost/lost make/made/made mean/meant/meant meet/met/met overhear/overheard/overheard
            overtake/overtook/overtaken pay/paid/paid put/put/put read/read/read ride/rode/ridden ring/rang/rung
            rise/rose/risen rebuild/rebuilt/rebuilt run/ran/run say/said/said see/saw/seen sell/sold/sold
            send/sent/sent set/set/set sew/sewed/sewn shake/shook/shaken shear/sheared/shorn shoot/shot/shot
            show/showed/shown shut/shut/shut sing/sang/sung sink/sank/sunk sit/sat/sat sleep/slept/slept
            sow/sowed/sown speak/spoke/spoken spend/spent/spent spill/spilt/spilt spin/spun/spun split/split/split
            spread/spread/spread stand/stood/stood steal/stole/stolen stick/stuck/stuck sting/stung/stung
            strike/struck/struck swear/swore/sworn sweep/swept/swept swim/swam/swum take/took/taken
            teach/taught/taught tear/tore/torn tell/told/told think/thought/thought throw/threw/thrown
            understand/understood/understood wear/wore/worn weave/wove/woven win/won/won wind/wound/wound
            write/wrote/written rewrite/rewrote/rewritten undo/undid/undone upset/upset/upset flee/fled/fled
            mislay/mislaid/mislaid quit/quit/quit rid/rid/rid withdraw/withdrew/withdrawn
            """
        )
    )
}
_DOUBLED = frozenset(
    words(
        """
        beg clap chip chop dig drag drop fit grab hug hum jog knit knot lag map mop nod occur pat pin plan plot plug
        pop rob rub scrub ship shop shut sit skip slip snap spot stab step stir stop strap swap tap tip transfer trap
        trim wrap refer admit begin cut forget get hit let put run set split swim win spin bet travel cancel label
        pedal quarrel signal equip commit stun tug unwrap wag unpin rig bid clip quit lug prefer upset rid control
        compel
        """
    )
)


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


def sentence(text: str) -> str:
    """With a capital at the start, past an opening quotation mark, and a full stop where nothing else ends it."""
    text = text.rstrip(",").replace(",;", ";").replace(",,", ",").replace(",.", ".") if "," in text else text
    at = 1 if text[0] == '"' else 0
    text = text[:at] + text[at].upper() + text[at + 1 :]
    return text if text.endswith((".", "!", "?", '"')) else text + "."


def series(parts: list[str], last: str = "and") -> str:
    """ "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"
