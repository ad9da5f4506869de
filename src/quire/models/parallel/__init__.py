"""Tensor parallelism as in Megatron (arXiv:1909.08053): the group of ranks, and each rank's part of the model."""

from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import ModelSplit

__all__ = ["ALONE", "ModelSplit", "ParallelGroup"]
