"""The engine in a thread or process of its own beside asyncio."""
