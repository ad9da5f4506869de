"""A model on several ranks (Megatron's tensor parallelism, arXiv:1909.08053): who they are, and which part each has."""

from quire.models.parallel.group import ALONE, DistributedGroup, ParallelGroup
from quire.models.parallel.split import ModelSplit

__all__ = ["ALONE", "DistributedGroup", "ModelSplit", "ParallelGroup"]
