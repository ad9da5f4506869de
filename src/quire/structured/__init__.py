"""Structured output: from a schema, a regex, choices or a grammar to the tokens that may follow."""
