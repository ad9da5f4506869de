"""Structured output: schemas, regexes, choices and grammars become masks of allowed tokens."""
