"""Clients with one interface: streamed answers from a server, or from a model in this process."""
