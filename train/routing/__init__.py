"""How the weights of the routing policy `query` are made."""
