"""Retrieval: parse, cut, embed, store and search documents."""

from typing import Literal

RankBy = Literal["hybrid", "vectors"]  #: rank passages by vectors and words, or by vectors only
