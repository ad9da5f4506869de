"""Kernels in C++ behind a C interface: `csrc/` is the source, `build.py` compiles it, `loaded.py` loads it."""
