"""Load on a server from outside: `quire bench serve` and `quire bench http`."""
