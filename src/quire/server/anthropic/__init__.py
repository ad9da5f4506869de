"""Anthropic's Messages API: blocks in, blocks out, over the same calls of the engine as chat."""
