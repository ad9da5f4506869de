"""Request and response bodies of reranking and scoring."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, Count, Hint, ModelBody, NonEmpty, Reply, ShortText, option

MAX_PAIRS = 1024  #: of a query and a text, per request

_Text = Annotated[str, Field(min_length=1)]
_Texts = Annotated[NonEmpty[_Text], Field(max_length=MAX_PAIRS)]


class ScoredText(Body):
    text: _Text


class ScoringBody(ModelBody):
    instruction: Annotated[str, Field(max_length=4096)] | None = option(
        "What makes a text relevant. Default: that it answers the query of a web search."
    )
    request_id: ShortText | None = option("Part of the answer's id.")
    cache_salt: ShortText | None = option("Shares cached KV only with requests of the same salt.")
    priority: int | None = option("Requests with lower values are served first.", ge=-(2**31), lt=2**31)
    user: Hint = option("Accepted for compatibility; has no effect.")


class RerankRequest(ScoringBody):
    query: _Text = Field(description="The query.")
    documents: Annotated[NonEmpty[_Text | ScoredText], Field(max_length=MAX_PAIRS)] = Field(
        description=f"1 to {MAX_PAIRS:,} texts, or objects with a text."
    )
    top_n: Count | None = option("How many of the best to return. Default: all.")
    return_documents: bool | None = option("Return the texts, too. Default: true.")


class ScoreRequest(ScoringBody):
    text_1: _Text | _Texts = Field(description="A query for all texts, or one for each.")
    text_2: _Text | _Texts = Field(description=f"The text, or 1 to {MAX_PAIRS:,} texts.")


class ScoringUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class Scored(Reply):
    """The head of an answer."""

    id: str
    model: str
    scoring: Literal["yes_no"] = Field(
        description="How relevance was judged. yes_no: by the probability of the answer yes, against no."
    )
    usage: ScoringUsage


class RerankResult(Reply):
    index: int = Field(description="The text's place in the request.")
    document: ScoredText | None = None
    relevance_score: float = Field(description="From 0 to 1.")


class RerankReply(Scored):
    results: list[RerankResult] = Field(description="The most relevant first.")


class ScoreCard(Reply):
    object: Literal["score"]
    index: int
    score: float = Field(description="From 0 to 1.")


class ScoreReply(Scored):
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    data: list[ScoreCard] = Field(description="Scores in the order of the pairs.")
