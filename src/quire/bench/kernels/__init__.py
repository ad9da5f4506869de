"""The kernels by themselves: how fast, and how far from float64."""
