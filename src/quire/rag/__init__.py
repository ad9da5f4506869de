"""Retrieval: parse, cut, embed, store and search documents."""
