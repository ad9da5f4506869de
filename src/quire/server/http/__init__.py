"""HTTP as such: connections, bodies, keys, limits. The protocol of OpenAI is in `server/openai`."""
