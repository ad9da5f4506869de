"""`quire stages`: cut a model into stages, one file per command."""
