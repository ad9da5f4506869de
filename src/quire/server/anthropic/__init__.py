"""Anthropic's Messages API, over chat."""
