"""Kernels in Triton, for GPUs. With TRITON_INTERPRET=1, Triton runs them on a CPU, for tests."""
