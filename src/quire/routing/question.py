"""Split an English question into the part that asks and its setting: rough, but deterministic (no model)."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Normalization of typed text, applied in this order.
_REWRITINGS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[’‘`´]", "'"),
        (r'"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»', " quoted "),  # a quoted title asks nothing
        (r"\bcan't\b|\bcannot\b|\bcant\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"n't\b", " not"),
        (r"\b(what|who|where|when|why|how|that|there|it)'?s\b(?<!its)", r"\1 is"),
        (r"\b(what|who|where|when|why|how)'re\b", r"\1 are"),
        (r"\b(what|who|where|when|why|how)'d\b", r"\1 did"),
        (r"\bi'm\b", "i am"),
        (r"\b(i|you|we|they)'(?:ve|d|ll)\b", r"\1"),
        (r"\bwich\b", "which"),
        (r"\b(what|who|which) (?:has|have|had) been\b", r"\1 was"),
        (r"(?<=\d)[.,:](?=\d)", ""),
        (r"\.\.+", " , "),
        (r"\b(?:e\.g|i\.e|mr|mrs|dr|st|vs)\.", " "),
        (r"\s[-–—]+\s|[—():]", " : "),
        (r"([,;?!]|\.(?!\w))", r" \1 "),
        (r"[^\w\s,.;:?!%'+*/^=-]", " "),
    )
]
_WH = r"(?:what|which|who|whom|whose|when|where|why|how)"
_BE = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|should|shall|would|will|might|may|must)"
_PREPOSITION = r"(?:in|on|at|by|for|from|to|of|with|under|during|since|until|into|about|between|within|through)"
_OPENING = re.compile(rf"(?:{_PREPOSITION} )?(?:exactly |roughly |about )?{_WH}\b|{_BE} ")
# Polite openings, repeated: "Hey, quick question: could you tell me".
_COURTESY = re.compile(
    r"(?:(?:hi|hey|hello|please|pls|so|and|but|ok|okay|well|sorry|thanks|now|also|again|there|all|everyone|ha|omg|hmm) "
    r"|(?:(?:just )?(?:a )?quick(?: question)?|one more(?: question)?|question|out of curiosity) (?=[,:])"
    r"|(?:can|could|would|will) (?:you|anyone|some(?:body|one)) (?:please |kindly |just |quickly )*"
    r"(?:(?:tell|remind) me (?:please )?|(?=explain|describe|show|walk|give|name|list|help))"
    rf"|(?:please )?(?:tell|remind) (?:me|us) (?:again )?(?=(?:{_PREPOSITION} )?{_WH} )"
    r"|do you (?:happen to )?(?:know|remember) |does any(?:one|body) (?:here )?(?:know|remember) "
    r"|i (?:would |just |really )*(?:like|want|need) to know |i (?:was|am|have been) wondering |i wonder(?:ed)? "
    r"|any idea (?=wh|how)|[,:;] )"
)
# The main clause after a setting: "In the film where ..., who plays the father".
_AFTER_COMMA = re.compile(rf"(?:[,:] |(?<= )(?:and|but|so|or) )(?={_PREPOSITION}? ?{_WH} )")
_YES_OR_NO_AFTER_COMMA = re.compile(r"[,:] (?=(?:is|are|was|were|do|does|did|has|have|can|could|should|would|will) )")
_AFTER_SCENE = re.compile(rf"(?<= )(?=(?:what|how|why) {_BE} )")
_IN_PLACE = re.compile(rf"(?<= )(?=(?:{_PREPOSITION} )?(?:(?:what|which|whom|how) |(?:who|where|when) \?))")
# Start of a relative clause, whose words say little about the kind of question.
_RELATIVE = re.compile(
    rf" (?:{_PREPOSITION} )?(?:that|which|who|whom|whose|where|when|why|how|because|if|while|after|before|as) | , "
)


@dataclass(frozen=True)
class Question:
    """A question's parts in lower case, punctuation as words, single blanks between and around the words."""

    text: str  #: the whole question
    asks: str  #: from the question word or verb to the end of the sentence
    head: str  #: `asks` up to its first relative clause
    setting: str  #: the words before `asks`
    is_fragment: bool  #: no question word, auxiliary or known beginning: "capital of france"

    @property
    def num_words(self) -> int:
        return sum(word[0].isalnum() for word in self.text.split())


def parse(question: str) -> Question:
    """Split a question into its parts. An unrecognized one becomes a fragment."""
    text = question.lower()
    for pattern, replacement in _REWRITINGS:
        text = pattern.sub(replacement, text)
    words = " ".join(text.split())
    sentences = [each.strip() for each in re.split(r"(?<=[.?!;])(?: |$)", words) if each.strip(" .?!;,:")] or [""]
    has_mark = any(each.endswith("?") for each in sentences)
    start, is_fragment = 0, True
    chosen = sentences[0]
    for at, sentence in enumerate(sentences):
        found = _find_start(sentence, is_asked=sentence.endswith("?") or not has_mark)
        if found is not None:
            chosen, start, is_fragment = sentence, found, False
            setting = [*sentences[:at], sentence[:found]]
            break
    else:
        start = _skip_courtesy(chosen)
        setting = [chosen[:start]]
    asks = f" {chosen[start:]} "
    relative = _RELATIVE.search(asks, min(len(asks), _end_of_word(asks, 3)))
    head = asks[: relative.start() + 1] if relative else asks
    before = " ".join(" ".join(setting).split())
    return Question(f" {words} ", asks, head, f" {before} ", is_fragment)


def _find_start(sentence: str, is_asked: bool) -> int | None:
    start = _skip_courtesy(sentence)
    if not is_asked:
        return None
    if _OPENING.match(sentence, start):
        return start
    if commas := [found.end() for found in _AFTER_COMMA.finditer(sentence, start)]:
        # The last clause asks, unless it only extends the one before: "what is X, and why".
        return _skip_courtesy(sentence, commas[0] if len(sentence[commas[-1] :].split()) < 4 else commas[-1])
    if sentence.endswith("?") and (found := _YES_OR_NO_AFTER_COMMA.search(sentence, start)):
        return found.end()
    if found := _AFTER_SCENE.search(sentence, start):
        return found.start()
    if sentence.endswith("?") and (found := _IN_PLACE.search(sentence, start)):
        return found.start()
    return None


def _skip_courtesy(sentence: str, start: int = 0) -> int:
    while found := _COURTESY.match(sentence, start):
        start = found.end()
    return start


def _end_of_word(text: str, count: int) -> int:
    at = 0
    for _ in range(count):
        at = text.find(" ", at + 1)
        if at < 0:
            return len(text)
    return at
