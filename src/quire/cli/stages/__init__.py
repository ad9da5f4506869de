"""`quire stages`: a model cut into stages, so that it answers while it is still loading. Each command has a file."""
