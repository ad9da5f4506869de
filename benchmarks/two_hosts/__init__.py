"""Two network namespaces as hosts of a cluster."""
