"""The HTTP server: it speaks the APIs of OpenAI and Anthropic."""
