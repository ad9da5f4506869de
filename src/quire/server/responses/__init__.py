"""OpenAI's Responses API: items in, items out, over the same calls of the engine as chat."""
