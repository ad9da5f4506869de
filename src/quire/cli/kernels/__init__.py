"""`quire kernels`."""
