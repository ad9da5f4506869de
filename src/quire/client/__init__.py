"""Clients: streamed answers from a server over HTTP or from a model in this process, behind one interface."""
