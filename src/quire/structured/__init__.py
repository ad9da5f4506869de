"""Structured output: from what a client asks for (a schema, a regex, choices, a grammar) to the tokens that may follow."""
