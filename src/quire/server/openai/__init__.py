"""OpenAI's API: from a body to its answer."""
