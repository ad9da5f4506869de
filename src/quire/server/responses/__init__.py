"""OpenAI's Responses API, over chat."""
