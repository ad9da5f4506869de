"""Figures 12 to 14, 16 and 18 of the PagedAttention paper, run on the real scheduler and a virtual clock."""
