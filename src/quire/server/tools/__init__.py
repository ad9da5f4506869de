"""Parsing answers into reasoning, content and tool calls, while they grow."""
