"""HTTP as such: connections, bodies, keys, limits. Knows no OpenAI."""
