"""C++ kernels behind a C interface: sources in `csrc/`, compiled by `build.py`, loaded by `loaded.py`."""
