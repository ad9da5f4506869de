"""The policy `query`: send questions for a single fact to the small model, and harder ones to the large, by a linear
model over named forms of questions (`query_policy.yaml`, fitted by `python -m train.routing`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from quire.routing.files import check_keys, numbers_of, read_yaml, strings_of
from quire.routing.forms import compile_phrases
from quire.routing.policy import NO_CONTEXT, Choice, RoutingContext, RoutingError
from quire.routing.question import Question, parse

SMALL, LARGE = "small", "large"
DEFAULT_FILE = Path(__file__).with_name("query_policy.yaml")
_PARTS = ("asks", "head", "setting", "text")
_MAX_CHARACTERS = 1000  # of a longer text only both ends are read, where the question is
_SENTENCE_END = re.compile(r"[.?!;](?= \w)")
_NUMBER = re.compile(r" \d")
_MAX_COUNT = 3


@dataclass(frozen=True)
class Form:
    """A pattern in a question, and its weight."""

    name: str  #: used in explanations
    where: str  #: attribute of `Question` that is searched
    pattern: re.Pattern[str]
    weight: float  #: positive in favour of the large model


@dataclass(frozen=True)
class QueryScoring:
    """The linear model: weights of forms and measures, and the bias."""

    forms: tuple[Form, ...]
    measures: Mapping[str, float]  #: weights by the names in `MEASURES`
    bias: float

    @classmethod
    def from_file(cls, path: Path = DEFAULT_FILE) -> QueryScoring:
        """Read a file in the format described in `query_policy.yaml`. Raises RoutingError if it is invalid."""
        data = read_yaml(path)
        check_keys(data, required=("words", "forms", "measures", "bias"), location=str(path))
        if not isinstance(data["words"], dict) or not isinstance(data["forms"], list):
            raise RoutingError(f"{path}: words is a mapping of lists, and forms a list")
        words = {str(name): str(text).split() for name, text in data["words"].items()}
        forms = tuple(_read_form(each, words, path) for each in data["forms"])
        measures = numbers_of(data["measures"], f"{path}: measures")
        if unknown := sorted(set(measures) - set(MEASURES)):
            raise RoutingError(f"{path}: there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
        return cls(forms, measures, numbers_of({"bias": data["bias"]}, str(path))["bias"])

    def terms(self, question: str) -> dict[str, float]:
        """Nonzero contributions to the score by form and measure, without the bias."""
        values = self.values(question)
        weights = {form.name: form.weight for form in self.forms} | dict(self.measures)
        return {name: weights[name] * value for name, value in values.items() if value and weights.get(name)}

    def values(self, question: str) -> dict[str, float]:
        """The features: 1.0 for each form found and 0.0 for others, and each measure."""
        if len(question) > _MAX_CHARACTERS:
            question = f"{question[: _MAX_CHARACTERS // 2]} . {question[-_MAX_CHARACTERS // 2 :]}"
        parsed = parse(question)
        parts = {part: getattr(parsed, part) for part in _PARTS}
        found = {form.name: float(form.pattern.search(parts[form.where]) is not None) for form in self.forms}
        return found | dict(_measure(parsed))

    def score(self, question: str) -> float:
        """The log odds that a question is complex."""
        return self.bias + sum(self.terms(question).values())


class QueryPolicy:
    """Choose the role large for scores above a threshold in log odds, else small."""

    name = "query"

    def __init__(self, models: Mapping[str, str], file: Path | None = None, threshold: float = 0.0) -> None:
        if set(models) != {SMALL, LARGE}:
            raise RoutingError(
                f"the policy query takes two models, by their roles: small=NAME,large=NAME; got {', '.join(models)}"
            )
        self._models = dict(models)
        self._threshold = threshold
        self.scoring = QueryScoring.from_file(file or DEFAULT_FILE)

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        terms = self.scoring.terms(question)
        score = self.scoring.bias + sum(terms.values())
        is_complex = score > self._threshold
        role = LARGE if is_complex else SMALL
        strongest = sorted(terms, key=lambda name: -terms[name] if is_complex else terms[name])
        reasons = [name for name in strongest[:3] if (terms[name] > 0) == is_complex]
        why = f"{'complex' if is_complex else 'simple'}: {'; '.join(reasons) or 'nothing speaks against it'}"
        p_complex = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        numbers = {"score": score, "threshold": self._threshold, "p_complex": p_complex}
        numbers |= {"bias": self.scoring.bias} | dict(sorted(terms.items(), key=lambda item: -abs(item[1])))
        return Choice(self._models[role], self.name, why, numbers, role)


def _measure(parsed: Question) -> Iterator[tuple[str, float]]:
    yield "words", math.log(max(1, parsed.num_words) / 10)
    yield "sentences", _counted(len(_SENTENCE_END.findall(parsed.text)))
    yield "clauses", _counted(parsed.text.count(" , "))
    yield "numbers", _counted(len(_NUMBER.findall(parsed.text)))
    yield "fragment", float(parsed.is_fragment)


def _counted(count: int) -> float:
    return float(min(_MAX_COUNT, max(0, count)))


#: Features beside the forms, explained in `query_policy.yaml`.
MEASURES = tuple(name for name, _ in _measure(parse("")))


def _read_form(entry: object, words: Mapping[str, list[str]], path: Path) -> Form:
    if not isinstance(entry, dict):
        raise RoutingError(f"{path}: a form is a mapping with name, weight and any, got {entry!r}")
    location = f"{path}: the form {entry.get('name', '?')!r}"
    check_keys(entry, required=("name", "weight", "any"), optional=("where",), location=location)
    where = entry.get("where", "asks")
    if where not in _PARTS:
        raise RoutingError(f"{location}: where is one of {', '.join(_PARTS)}, got {where!r}")
    phrases = strings_of(entry["any"], f"{location}: any")
    weight = numbers_of({"weight": entry["weight"]}, location)["weight"]
    try:
        return Form(str(entry["name"]), where, compile_phrases(phrases, words), weight)
    except ValueError as error:
        raise RoutingError(f"{location}: {error}") from None
