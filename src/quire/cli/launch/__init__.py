"""`quire launch`: run a coding agent on a server."""
