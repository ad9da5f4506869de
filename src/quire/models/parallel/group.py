"""Ranks that hold one model together: which rank this is, of how many, and the two ways in which they add up what each
has computed. `ALONE` is the group of one, to which that costs nothing.

How a group comes to be (processes, addresses, backends) is not known here. Every rank calls the same methods in the
same order, as the same forward pass on the same batch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


class ParallelGroup:
    """The ranks that hold one model together; this class itself is a rank that has all of it.

    Args:
        rank: of this process, from 0.
        size: how many ranks there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is none of {size}")
        self.rank, self.size = rank, size

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of all ranks' x, in x's place and returned; the same bits on every rank. x is contiguous."""
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """All ranks' x, of one shape, side by side: [..., n] -> [..., size * n], in the order of the ranks."""
        return x


ALONE = ParallelGroup()


class DistributedGroup(ParallelGroup):
    """A group over torch.distributed, by nccl or gloo.

    Args:
        process_group: that was made before; None is the default one, of `torch.distributed.init_process_group`. It
            takes tensors in main memory too, which loading has: on GPUs its backend is "cpu:gloo,cuda:nccl".
    """

    def __init__(self, process_group: ProcessGroup | None = None) -> None:
        import torch
        import torch.distributed as distributed  # here, since a model on one rank need not wait for it

        super().__init__(distributed.get_rank(process_group), distributed.get_world_size(process_group))
        self._process_group = process_group
        self._torch, self._distributed = torch, distributed

    def all_reduce(self, x: Tensor) -> Tensor:
        if self.size > 1:
            self._distributed.all_reduce(x, group=self._process_group)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        if self.size == 1:
            return x
        x = x.contiguous()
        parts = [x.new_empty(x.shape) for _ in range(self.size)]
        self._distributed.all_gather(parts, x, group=self._process_group)
        return self._torch.cat(parts, dim=-1)
