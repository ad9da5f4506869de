"""OpenAI's API: chat, completions, models, tokenization."""
