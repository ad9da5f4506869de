"""How English strings happenings together: openings, joints, contrasts, and what is said beside the point.

In the patterns `{a}` is who did it, `{whom}` the same as an object, `{c}` somebody else, `{did}` the clause, `{pred}`
its verb and what follows, `{inf}` and `{ing}` the same in other forms, `{y}` another thing; `{s}` is a circumstance
and `{t}` one that was not so.
"""

from __future__ import annotations

from dataclasses import dataclass

APPOSITIONS = (
    "{name}, {a_label},",
    "{name}, the {label},",
    "the {label}, {name},",
    "the {label} {name}",
    "{name} the {label}",
)
"""How somebody is named together with a description."""

INTRODUCTIONS = (
    "{name} was {a_label}.",
    "{name} had been {a_label} for years.",
    "There was {a_label} called {name}.",
    "The name of the {label} was {name}.",
    "The {label} was called {name}.",
    "Everyone knew {name}, the {label}.",
    "Among the guests was {a_label} by the name of {name}.",
    "Most people here know {name} as the {label}.",
)
TRADE_INTRODUCTIONS = (
    *INTRODUCTIONS,
    "{name} worked as {a_label}.",
    "{name} was {a_label} by trade.",
    "{name} earned a living as {a_label}.",
    "As {a_label}, {name} was used to hard work.",
)
"""For descriptions that are trades."""
DEFINITE = (*(pattern for pattern in INTRODUCTIONS if "{a_label}" not in pattern), "{name} was the {label}.")
"""For descriptions that fit one person only, such as "younger sister"."""
DEFINITE_APPOSITIONS = ("{name}, the {label},", "the {label}, {name},")
LABEL_QUESTIONS = (
    "Who was {a_label}?",
    "Who was the {label}?",
    "What was the name of the {label}?",
    "What was the {label} called?",
    "Which of them was {a_label}?",
)
DEFINITE_QUESTIONS = (
    *(question for question in LABEL_QUESTIONS if "{a_label}" not in question),
    "Which of the two was the {label}?",
)
TRADE_QUESTIONS = (
    "What was {whose} trade?",
    "What was {whose} job?",
    "What was {whose} profession?",
    "What did {who} do for a living?",
    "How did {who} earn a living?",
    "What did {who} work as?",
    "What sort of work did {who} do?",
)

DUTIES = (
    ("{a} managed to {inf}", False),
    ("{a} was the one who {pred}", False),
    ("the one who {pred} was {a}", False),
    ("the person who {pred} was {a}", False),
    ("nobody but {a} {pred}", False),
    ("only {a} {pred}", False),
    ("in the end it was {a} who {pred}", False),
    ("it fell to {whom} to {inf}", True),
    ("it was left to {whom} to {inf}", True),
    ("the task of {ing} fell to {whom}", True),
    ("the job of {ing} went to {whom}", True),
    ("it was {a} who {pred}", False),
    ("it was {a} who {pred}", False),
    ("{a} took it upon {self} to {inf}", False),
    ("{a} had to {inf}", True),
    ("{a} succeeded in {ing}", False),
    ("we know that {a} {pred}", False),
    ("it is said that {a} {pred}", False),
    ("people say that it was {a} who {pred}", False),
    ("to everyone's surprise {a} {pred}", False),
    ("without hesitation {a} {pred}", False),
    ("{a} once {pred}", False),
    ("it turned out that {a} {pred}", False),
    ("somebody saw how {a} {pred}", False),
)
"""Ways to say who did it, and whether they only suit what is a task."""


@dataclass(frozen=True)
class Attitude:
    """What somebody felt about doing something that, in the end, somebody else did.

    Args:
        told: before the infinitive.
        asked: likewise, in a question after "who".
        is_no: whether it is a reason why somebody else had to.
    """

    told: tuple[str, ...]
    asked: tuple[str, ...]
    is_no: bool = False


ATTITUDES = (
    Attitude(
        (
            "wanted to",
            "had wanted to",
            "would have liked to",
            "had hoped to",
            "hoped to",
            "had set {their} heart on being allowed to",
        ),
        (
            "wanted to",
            "had hoped to",
            "would have liked to",
            "wished in vain to",
            "hoped in vain to",
            "would have been glad to",
        ),
    ),
    Attitude(
        (
            "refused to",
            "declined to",
            "did not want to",
            "would not",
            "was not willing to",
            "said no when {they} {was} asked to",
        ),
        ("refused to", "did not want to", "was unwilling to", "declined to", "was not ready to"),
        is_no=True,
    ),
    Attitude(
        ("promised to", "gave {their} word to", "had promised to", "had said that {they} would"),
        ("promised to", "gave their word to", "had given a promise to"),
    ),
    Attitude(
        ("tried to", "did {their} best to", "made an attempt to", "tried hard to", "had a go and tried to"),
        ("tried in vain to", "was not able to", "failed to", "tried without success to", "did not manage to"),
    ),
    Attitude(
        ("offered to", "was ready to", "said that {they} {was} happy to", "volunteered to"),
        ("offered to", "volunteered to", "was willing to", "was ready to"),
    ),
    Attitude(
        ("forgot to", "did not remember to", "clean forgot to"),
        ("forgot to", "should have remembered to"),
        is_no=True,
    ),
    Attitude(
        ("was afraid to", "did not dare to", "was too frightened to", "lost {their} nerve and did not"),
        ("was afraid to", "did not dare to", "was too scared to", "did not have the courage to"),
        is_no=True,
    ),
    Attitude(
        ("was too busy to", "had no time to", "could not find the time to"),
        ("had no time to", "was too busy to", "did not have the time to"),
        is_no=True,
    ),
    Attitude(
        ("was supposed to", "was expected to", "should have been the one to", "had been chosen to", "was meant to"),
        ("was supposed to", "was expected to", "had been chosen to", "should really have been the one to"),
    ),
    Attitude(
        ("was asked to", "was the first to be asked to", "had been told to"),
        ("was asked to", "had been asked to", "was told to"),
    ),
    Attitude(
        ("was too ill to", "was not well enough to", "had a fever and could not"),
        ("was too ill to", "was not well enough to"),
        is_no=True,
    ),
)

TURNS = (
    "{c} {attitude} {inf}, but it was {a} who {pred}",
    "{c} {attitude} {inf}, but in the end {did}",
    "{c} {attitude} {inf}. Instead, {did}",
    "{c} {attitude} {inf}. In the end {did}",
    "although {c} {attitude} {inf}, it was {a} who {pred}",
    "{c} {attitude} {inf}; however, {did}",
    "{did}, although {c} {attitude} {inf_it}",
    "it was {a} who {pred}. {c} {attitude} {inf_it}",
    "{c} {attitude} {inf}, and then, to everyone's surprise, {did}",
)
"""Somebody wished, refused, ...; somebody else did it."""
TURNS_AFTER_NO = (
    "{c} {attitude} {inf}, so {did}",
    "since {c} {attitude} {inf}, {did}",
    "because {c} {attitude} {inf}, it was {a} who {pred}",
    "{c} {attitude} {inf}. That is how it came about that {did}",
    "as {c} {attitude} {inf}, in the end {did}",
    "{c} {attitude} {inf}. So {did}",
)
"""Those that only follow a refusal or the like."""

DENIALS = (
    "it was not {c} who {pred} but {whom}",
    "it was {a}, not {c}, who {pred}",
    "not {c} but {a} {pred}",
    "many people think that {c} {pred}, but really it was {whom}",
    "{a}, and not {c}, {pred}",
    "at first {c} was thought to be the one who {pred}, but it had been {whom}",
    "some say that {c} {pred}. In truth it was {whom}",
    "{c} only looked on while {did}",
    "{c} stood by while {did}",
    "while {c} was asleep, {did}",
    "{c} had nothing to do with it: it was {a} who {pred}",
    "nobody asked {c}, and so {did}",
    "{did}, which annoyed {c}",
    "{did}. {c} knew nothing about it",
    "{did}, and {c} was glad of it",
    "{c} was told about it later: {did}",
    "{c} saw from the window how {did}",
    "as {c} remembers it, {did}",
)
"""Somebody is named who did not do it."""

OTHER_THINGS = (
    "{a} {pred}, not {y}",
    "{a} did not want {y} and {pred} instead",
    "{a} thought about {y} first, but in the end {they} {pred}",
    "{a} {pred} rather than {y}",
    "{a} {pred}; {y} had to wait",
    "nobody touched {y}, but {a} {pred}",
    "{a} left {y} alone and {pred}",
    "{a} {pred}, but {they} did not care about {y}",
    "nobody asked about {y}, but {a} {pred}",
    "{a} had no use for {y}, so {they} {pred}",
    "nobody cared about {y}, but {a} {pred}",
)
"""Another thing is named to which it did not happen. The last word of what is told is the thing itself."""

CORRECTIONS = ("{did_last}, not {prep_y}", "{did_last} and not {prep_y}", "{did_last}; it was not {prep_y}")
"""The same with somebody or something else in one place, which is not what happened."""
OTHER_ROLES = (
    *CORRECTIONS,
    "{a} {was} going to {inf_y}; instead {they} {pred}",
    "{a} had wanted to {inf_y}, but {they} {pred}",
    "{a} {pred}, although everyone had expected {them} to {inf_y}",
    "people thought that {a} would {inf_y}, but {they} {pred}",
    "{a} first thought of {ing_y}, but then {pred}",
    "instead of {ing_y}, {a} {pred}",
    "{a} could have chosen to {inf_y}. But {they} {pred}",
    "{a} nearly decided to {inf_y}, but in the end {pred}",
)
"""Those of what somebody sets out to do."""

OTHER_TIMES = (
    "{did}, not {t} but {s}",
    "it was not {t} but {s} that {did}",
    "{did} {s} and not {t}, as many believe",
    "{did} {s}, although it had been planned for another time",
    "{did} {s}, earlier than expected",
    "{a} {was} going to {inf} {t} but only did so {s}",
    "{a} had wanted to {inf} {t}, but did it only {s}",
    "not {t} but {s} {did}",
    "{did} {s}; {t} there had been no time for it",
)
OTHER_PLACES = (
    "{did} {s}, not {t}",
    "it was not {t} but {s} that {did}",
    "{did} {s} and not {t}, as some say",
    "it was {s} that {did}",
    "{did} {s}, although everyone had expected it {t}",
    "{did} not {t} but {s}",
)
OTHER_REASONS = (
    "{did}, not because {t} but because {s}",
    "{did} because {s}, and not because {t}",
    "{did}. Some thought that this was because {t}, but the true reason was that {s}",
    "{did}. The reason was that {s}",
    "{did}. It had to be done because {s}",
    "{s}, so {did}",
    "{s}. That is why {did}",
    "{s}, and so {did}",
    "as {s}, {did}",
    "since {s}, {did}",
    "because {s}, {did}",
)

SAID = (
    '"{mine}," said {a}',
    '"{mine}," {a} told {c}',
    '"{mine}," {a} said to {c}',
    '{a} said: "{mine}."',
    '"{mine}," {a} explained proudly',
    '"{mine}," {a} wrote in a letter to {c}',
    '"{mine}," {a} admitted',
    '{a} told {c}: "{mine}."',
)
SAID_BY_OTHERS = (
    '"{did}," said {c}',
    '"I know that {did}," said {c}',
    "{c} said that {did}",
    "{c} told everyone that {did}",
    "according to {c}, {did}",
    "{c} wrote in the newspaper that {did}",
    "{c} was surprised to hear that {did}",
    '"it was {a} who {pred}," said {c}',
    'when {c} asked who {pred}, the answer was: "{a}."',
    "{c} was pleased that {did}",
    "{c} remembers well that {did}",
    "{c} noticed that {did}",
)

JOINTS = (", and ", ", while ", "; ", ", but ", ", whereas ", ", and then ", "; meanwhile ", ", and at the same time ")
TWO_AT_ONCE = (
    "while {one}, {two}",
    "{one} before {two}",
    "after {one_perfect}, {two}",
    "when {one_perfect}, {two}",
    "{two} after {one_perfect}",
    "first {one}, and then {two}",
    "{one}, which was the reason why later {two}",
)
SAME_PERSON = (
    "after {ing_one}, {a} {two}",
    "before {ing_two}, {a} {one}",
    "{a} {one} before {ing_two}",
    "{a} {two} after {ing_one}",
    "{a} first {one} and then {two}",
    "{a}, who {one_perfect}, {two}",
    "{a} not only {one} but also {two}",
    "{a} {one} and {two}",
    "having {part_one}, {a} {two}",
    "besides {ing_one}, {a} {two}",
)
LINKS = (
    "then", "later", "a little later", "meanwhile", "soon afterwards", "after that", "in the end", "at the same time",
    "not long afterwards", "to nobody's surprise,", "as it happened,", "luckily,", "sadly,", "by the way,", "of course",
    "for once", "years later,", "once again", "strangely enough,", "in the meantime", "that same week", "as usual,",
)  # fmt: skip

OPENINGS = (
    "It was a busy {weekday} in {town}.", "{town} is a quiet place, but not that week.",
    "The {year} flood changed much.", "There was plenty to do before the fair in {town}.",
    "Everyone in {town} helped as well as they could.", "Nobody in {town} has forgotten that {season}.",
    "The family had an old house near {town}.", "A great storm came over {town} in {month}.",
    "The club in {town} has only a few members.", "The newspaper in {town} had a lot to report.",
    "Things went wrong at the farm near {town}.", "The summer holidays were nearly over.",
    "The village hall needed money.", "It rained all {weekday}.", "The wedding was to be in {month}.",
    "The new teacher came from {town}.", "The old ship lay in the harbour.",
    "Much was going on in {town} that {season}.", "Last week was a strange one.",
    "The people of {town} like to talk.", "Not much happens in {town} in {month}.",
    "Here is what the neighbours tell.", "It had snowed for three days.", "The street was full of people.",
    "The winter of {year} was long and cold.", "Every family has its stories.", "The town council met at {clock}.",
    "The market in {town} is held on {weekday}.", "School was out for the day.",
    "There are {number} houses in the village.", "{person} tells the following story.", "My aunt lives in {town}.",
    "All this took place near {town}.", "The diary of {person} tells us a good deal.", "It began with a letter.",
    "An old notebook from {year} holds a few surprises.", "The weather was fine for once.", "The inn was full.",
    "This is about the people at number {number}.", "The bus from {town} was late again.", "Nobody had slept well.",
    "There was great excitement at the school in {town}.", "The holiday had begun badly.", "It was hot that day.",
    "Some days are better than others.", "The harvest had been poor that year.",
    "The house had stood empty for {number} years.", "Three things happened in {town} that year.",
    "The old mill had been closed since {year}.", "It was market day.", "The visitors had left at {clock}.",
    "At the station in {town} the clock had stopped.", "The river was high.",
    "The museum in {town} has a small room about those days.", "Money was short in {year}.", "The snow lay deep.",
)  # fmt: skip
ASIDES = (
    "That surprised nobody.", "It took longer than expected.", "The others only looked on.", "It was hard work.",
    "Not everybody liked that.", "There was no other way.", "They were all tired then.", "The weather stayed fine.",
    "A dog barked all the time.", "Nobody in {town} believed it at first.", "The newspaper did not mention it.",
    "{person} laughed about it for years.", "In {town} people still talk about it.", "The rest is soon told.",
    "It had rained since {weekday}.", "The church clock struck {clock}.", "Everyone was pleased.", "It was a pity.",
    "{person} had not been there at all.", "There is a photograph of it from {year}.", "That was the end of it.",
    "Some said it was a mistake.", "It was very cold.", "The road to {town} was closed at the time.", "So it goes.",
    "It was the talk of the town for weeks.", "The children thought it was funny.", "Nobody knows why.",
    "{person} does not like to speak of it.", "It could have been worse.",
    "There was coffee for everyone afterwards.", "The mayor of {town} was informed.", "This was not the first time.",
    "It was a great success.", "No one complained.", "Even {person} had to smile.", "The police were not called.",
    "By {weekday} everything was back to normal.", "In {month} nobody would have dreamed of it.",
    "{person} missed it all because of a cold.", "Such is life.", "The neighbours heard it through the wall.",
    "A crowd of {number} people had come to watch.", "It was a warm day.",
    "Years before, in {year}, something like it had happened.", "Nothing like it ever happened in {town}.",
)  # fmt: skip

WRAPPERS = (
    "Do you know {q}?", "Can you tell me {q}?", "Tell me {q}.", "Say {q}.", "I would like to know {q}.",
    "Does the text say {q}?", "Please find out {q}.", "Could you say {q}?", "What does the passage say about {q}?",
    "Explain {q}.", "Is it known {q}?", "I forgot {q}.", "We want to know {q}.", "Remind me {q}.",
)  # fmt: skip
"""Round about an indirect question: "who mended the clock"."""
