"""`quire calibrate`, `quire bench recovery` and `quire simulate`."""
