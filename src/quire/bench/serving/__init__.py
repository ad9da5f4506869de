"""`quire bench serve`: an open-loop load on a server."""
