"""Cold starts against transformers, quality over time, and the cost of loading for running streams."""
